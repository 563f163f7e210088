//! `sexton throttle`: the throttles of a running agent's targets, what they should be and are, and why.

use super::asked_agent::AskedAgent;
use crate::failure::Failure;
use crate::snapshot::{PressureView, SignalView, ThrottleView};
use crate::text::print_line;
use clap::Args;
use serde::{Deserialize, Serialize};

/// Arguments of `sexton throttle`.
#[derive(Args, Debug)]
pub struct ThrottleArguments {
    #[command(flatten)]
    agent: AskedAgent,
    /// Only throttles of this name.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What the agent answers.
#[derive(Deserialize, Serialize)]
struct Throttles {
    at: String,
    throttles: Vec<ThrottleView>,
    pressures: Vec<PressureView>,
}

/// Prints the throttles.
/// Errors: when there is no agent to ask, or it has no throttle of the name asked for.
pub fn run(arguments: &ThrottleArguments) -> Result<(), Failure> {
    let client = arguments.agent.client()?;
    let mut answer: Throttles = client.get("/api/v1/throttles")?;
    if let Some(name) = &arguments.name {
        answer.throttles.retain(|throttle| throttle.name == *name);
        answer.pressures.retain(|of| answer.throttles.iter().any(|throttle| throttle.target == of.target));
        if answer.throttles.is_empty() {
            let message = format!("no target of the agent has a throttle {name:?}");
            return Err(Failure::usage(message, "`sexton throttle` without a name lists them"));
        }
    }
    if arguments.json {
        return super::print_json(&answer);
    }
    if answer.throttles.is_empty() {
        print_line("no target of the agent has a throttle: the policy names none for what it watches");
    }
    for throttle in &answer.throttles {
        lines(throttle).into_iter().for_each(print_line);
    }
    for pressure in &answer.pressures {
        pressure_lines(pressure).into_iter().for_each(print_line);
    }
    Ok(())
}

fn lines(throttle: &ThrottleView) -> Vec<String> {
    let ThrottleView { target, name, wanted, observed, state, .. } = throttle;
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let age = throttle.observed_age_seconds.map(|age| format!(" (read {age} s ago)")).unwrap_or_default();
    let mut lines = vec![
        format!("{target}  {name}: {}", state.replace('_', " ")),
        format!("  wanted    {}", or_unknown(wanted)),
        format!("  observed  {}{age}", or_unknown(observed)),
    ];
    if let (Some(slowest), Some(fastest)) = (throttle.slowest, throttle.fastest) {
        let ratio = throttle.ratio.filter(|ratio| *ratio != 1.0);
        let ratio = ratio.map(|ratio| format!(", {ratio} times the policy's numbers")).unwrap_or_default();
        lines.push(format!("  bounds    {slowest} under full pressure to {fastest} without any{ratio}"));
        let pressure = throttle.pressure.map_or("not known yet".to_owned(), |ratio| format!("{ratio:.2}"));
        lines.push(format!("  pressure  {pressure}"));
    }
    let others = [("restore", &throttle.restore), ("why", &throttle.reason), ("failure", &throttle.failure)];
    for (what, text) in others {
        lines.extend(text.as_ref().map(|text| format!("  {what:<9} {text}")));
    }
    lines
}

fn pressure_lines(of: &PressureView) -> Vec<String> {
    let pressure = of.pressure.map_or("not known yet".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut lines = vec![format!("{}  pressure: {pressure}", of.target)];
    lines.extend(of.signals.iter().map(signal_line));
    lines
}

fn signal_line(signal: &SignalView) -> String {
    let SignalView { name, kind, value, pressure, trouble } = signal;
    let unit = match kind.as_str() {
        "device_latency" | "seek_latency" | "block_read_latency" => " s",
        _ => "",
    };
    match (value, pressure, trouble) {
        (Some(value), Some(pressure), _) => format!("  {name:<16} {pressure:.2}  {kind} {value:.6}{unit}"),
        (_, _, trouble) => {
            format!("  {name:<16} not read  {kind}: {}", trouble.as_deref().unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_and_its_pressure_are_told_in_lines() {
        let throttle = ThrottleView {
            target: "java-7".into(),
            name: "limit".into(),
            wanted: Some("2750".into()),
            observed: Some("5000".into()),
            observed_age_seconds: Some(3),
            restore: Some("50000".into()),
            state: "to_be_set".into(),
            slowest: Some(500.0),
            fastest: Some(5000.0),
            ratio: Some(2.0),
            pressure: Some(0.5),
            reason: Some("pressure 0.50 (io 0.50)".into()),
            failure: None,
        };
        let expected = [
            "java-7  limit: to be set",
            "  wanted    2750",
            "  observed  5000 (read 3 s ago)",
            "  bounds    500 under full pressure to 5000 without any, 2 times the policy's numbers",
            "  pressure  0.50",
            "  restore   50000",
            "  why       pressure 0.50 (io 0.50)",
        ];
        assert_eq!(lines(&throttle), expected);
        let signal = |value: Option<f64>| SignalView {
            name: "disk".into(),
            kind: "device_latency".into(),
            value,
            pressure: value.map(|_| 0.25),
            trouble: value.is_none().then(|| "no device".to_owned()),
        };
        let of = PressureView {
            target: "java-7".into(),
            pressure: None,
            signals: vec![signal(Some(0.004)), signal(None)],
        };
        let expected = [
            "java-7  pressure: not known yet",
            "  disk             0.25  device_latency 0.004000 s",
            "  disk             not read  device_latency: no device",
        ];
        assert_eq!(pressure_lines(&of), expected);
    }
}

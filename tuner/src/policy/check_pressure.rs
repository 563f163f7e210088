//! Checks of what a policy says of pressure.

use super::PolicyError;
use super::check::Checker;
use super::pressure::{PressurePolicy, SignalKind, SignalPolicy};
use super::written::shown;
use crate::facts::exposition::Selector;
use std::collections::BTreeSet;

/// Most signals of a target; each is a series in the metrics.
const SIGNALS_MAX: usize = 16;
/// Greatest weight of a signal; more is a slip.
const WEIGHT_MAX: f64 = 1000.0;
/// Longest address of an endpoint.
const ENDPOINT_BYTES_MAX: usize = 512;

pub(super) fn check_pressure(
    checker: &Checker<'_>,
    pressure: &PressurePolicy,
    path: &str,
) -> Result<(), PolicyError> {
    let signals = format!("{path}.signals");
    let help = "name a signal, or take `pressure` out";
    checker.refuse_if(
        pressure.signals.is_empty(),
        &signals,
        "without a signal there is no pressure",
        help,
    )?;
    checker.not_too_many(pressure.signals.len(), SIGNALS_MAX, &signals)?;
    let mut names = BTreeSet::new();
    for (index, signal) in pressure.signals.iter().enumerate() {
        let at = |field: &str| format!("{signals}[{index}].{field}");
        checker.name(&signal.name, &mut names, &at("name"))?;
        for (level, field) in [(&signal.low, "low"), (&signal.high, "high")] {
            let message = format!("{level} is no level of {}", signal.kind.name());
            let help = format!("write {}", signal.kind.level_example());
            checker.refuse_if(!signal.kind.takes(level), &at(field), message, help)?;
        }
        let message = format!("{} is not above {}, the low level", signal.high, signal.low);
        let help = "write a greater level: pressure is full from there on";
        checker.refuse_if(signal.high.value() <= signal.low.value(), &at("high"), message, help)?;
        let is_sound = signal.weight > 0.0 && signal.weight <= WEIGHT_MAX;
        let message = format!("{} is no weight from above 0 to {WEIGHT_MAX}", signal.weight);
        checker.refuse_if(!is_sound, &at("weight"), message, "write a number such as 2")?;
        metric(checker, signal, &at)?;
    }
    Ok(())
}

fn metric(
    checker: &Checker<'_>,
    signal: &SignalPolicy,
    at: &impl Fn(&str) -> String,
) -> Result<(), PolicyError> {
    let fields = [(&signal.endpoint, "endpoint"), (&signal.metric, "metric")];
    if signal.kind != SignalKind::Metric {
        let message = format!("{} is not read from an endpoint", signal.kind.name());
        let help = "take it out, or write `kind: metric`";
        let written = fields.into_iter().find(|(value, _)| value.is_some());
        return written.map_or(Ok(()), |(_, field)| checker.refuse(&at(field), message, help));
    }
    let (Some(endpoint), Some(metric)) = (&signal.endpoint, &signal.metric) else {
        let help = "add both, such as `endpoint: http://127.0.0.1:9874/prom` and `metric: queue_length`";
        return checker.refuse(&at("kind"), "it needs an `endpoint` and a `metric`", help);
    };
    let message = format!("{} is no address on this host's loopback interface", shown(endpoint));
    let help = "write it as http://127.0.0.1:PORT/PATH";
    checker.refuse_if(!is_local(endpoint), &at("endpoint"), message, help)?;
    let message = format!("{} is no name of a metric", shown(metric));
    let help = "write it as queue_length or queue_length{queue=\"rpc\"}";
    checker.refuse_if(Selector::read(metric).is_none(), &at("metric"), message, help)
}

/// Whether an address is on this host, and as plain as a metrics endpoint is: an agent with all its
/// privileges asks nobody else.
fn is_local(endpoint: &str) -> bool {
    let Some(rest) = endpoint.strip_prefix("http://") else { return false };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let Some((host, port)) = authority.rsplit_once(':') else { return false };
    let numbers: Vec<Option<u8>> = host.split('.').map(|number| number.parse().ok()).collect();
    let is_loopback = host == "[::1]" || matches!(numbers.as_slice(), [Some(127), Some(_), Some(_), Some(_)]);
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'"' | b'<' | b'>' | b'\\');
    endpoint.len() <= ENDPOINT_BYTES_MAX
        && is_loopback
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0)
        && path.bytes().all(is_plain)
}

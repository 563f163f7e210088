//! `sexton schedule`: when the periods of a policy open and close, and what holds then.

use crate::failure::Failure;
use crate::text::print_line;
use crate::{node, policy_file};
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use sexton_tuner::policy::{ByteRate, ByteSize, Mode, PainRate, Policy, RankerKind};
use sexton_tuner::schedule::{Change, changes};
use sexton_tuner::throttle::{KnownThrottles, throttle_values};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Arguments of `sexton schedule`.
#[derive(Args, Debug)]
pub struct ScheduleArguments {
    /// Policy file, or a directory whose `*.yaml` are one policy.
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// How far to look ahead, such as 7d or 12h.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = read_span)]
    next: jiff::Span,
    /// When to begin, such as 2026-12-24T00:00:00Z. Default: now.
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

fn read_span(text: &str) -> Result<jiff::Span, String> {
    let span: jiff::Span = text.parse().map_err(|error: jiff::Error| format!("{error}; write 7d or 12h"))?;
    if span.is_positive() { Ok(span) } else { Err("write a time ahead, such as 7d or 12h".to_owned()) }
}

/// What holds from a moment on.
#[derive(Serialize)]
struct Values {
    at: Timestamp,
    open: Vec<String>,
    /// The modes that targets have, by their names.
    modes: BTreeMap<String, Mode>,
    budget_rate: ByteRate,
    budget_burst: ByteSize,
    pain: PainRate,
    ranker: RankerKind,
    /// Values of throttles, by target and name; of those that follow pressure the range.
    throttles: BTreeMap<String, String>,
}

/// Lists the changes.
/// Errors: a policy that cannot be read, or a time that does not exist.
pub fn run(arguments: &ScheduleArguments) -> Result<(), Failure> {
    let policy = policy_file::load(&arguments.policy)?;
    let (from, node) = (arguments.from.unwrap_or_else(Timestamp::now), node::number());
    let until = from.to_zoned(TimeZone::UTC).checked_add(arguments.next);
    let until = until.map_err(|error| Failure::usage(error, "look less far ahead"))?.timestamp();
    let first = Change { at: from, policy: policy.at(from, node) };
    let all: Vec<Values> = [first]
        .into_iter()
        .chain(changes(&policy, from, until, node))
        .map(|change| values(&change))
        .collect();
    if arguments.json {
        return super::print_json(&all);
    }
    for line in lines(&all) {
        print_line(line);
    }
    if policy.schedule.is_empty() {
        print_line("the policy has no schedule: these values always hold");
    }
    Ok(())
}

fn values(change: &Change) -> Values {
    let Change { at, policy } = change;
    let throttles = policy.targets.iter().flat_map(|target| {
        let name = |throttle: &str| format!("{}/{throttle}", target.name);
        let settings = throttle_values(policy, target, &target.name, &KnownThrottles::new()).into_iter();
        let values: Vec<_> = settings.map(|setting| (name(&setting.name), setting.value)).collect();
        let controlled = target.throttles.iter().filter_map(move |throttle| {
            let (slowest, fastest) = throttle.bounds(policy.throttle_side().0)?;
            Some((name(&throttle.name), format!("{slowest} to {fastest} by pressure")))
        });
        values.into_iter().chain(controlled)
    });
    Values {
        at: *at,
        open: policy.open_periods.clone(),
        modes: modes(policy),
        budget_rate: policy.io_budget.rate,
        budget_burst: policy.io_budget.burst,
        pain: policy.thresholds.pain,
        ranker: policy.ranker,
        throttles: throttles.collect(),
    }
}

fn modes(policy: &Policy) -> BTreeMap<String, Mode> {
    policy.targets.iter().map(|target| (target.name.clone(), policy.mode_of(target))).collect()
}

/// Everything that holds at the beginning, and then what changes.
fn lines(all: &[Values]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut before: Vec<(String, String)> = Vec::new();
    for values in all {
        let now = words(values);
        let changed = now.iter().filter(|value| !before.contains(value));
        let changed: Vec<String> = changed.map(|(name, value)| format!("{name} {value}")).collect();
        let open =
            if values.open.is_empty() { "outside of periods".to_owned() } else { values.open.join(", ") };
        let at = values.at.to_zoned(TimeZone::system()).strftime("%a %Y-%m-%d %H:%M:%S %Z");
        lines.push(format!("{at}  {open}: {}", changed.join(", ")));
        before = now;
    }
    lines
}

fn words(values: &Values) -> Vec<(String, String)> {
    let Values { budget_rate, budget_burst, pain, ranker, .. } = values;
    let mode = |mode: &Mode| match mode {
        Mode::Observe => "observe",
        Mode::Advise => "advise",
        Mode::Act => "act",
    };
    let mut words = vec![
        ("budget".to_owned(), format!("{budget_rate} (burst {budget_burst})")),
        ("pain from".to_owned(), pain.to_string()),
        ("ranker".to_owned(), ranker.name().to_owned()),
    ];
    words.extend(values.modes.iter().map(|(target, of)| (format!("mode of {target}"), mode(of).to_owned())));
    words.extend(values.throttles.iter().map(|(name, value)| (format!("throttle {name}"), value.clone())));
    words
}

//! `sexton plan`: one cycle, and what would be done.

use crate::engine::{Engine, EngineOptions};
use crate::failure::Failure;
use crate::policy_file;
use crate::snapshot::{PlanStepView, RefusalView, TargetView};
use crate::text::print_line;
use clap::Args;
use sexton_probe::Loader;
use sexton_tuner::policy::{Mode, Policy};
use sexton_tuner::unplaced::Unplaced;
use sexton_tuner::words;
use std::path::PathBuf;

/// Arguments of `sexton plan`.
#[derive(Args, Debug)]
pub struct PlanArguments {
    /// One cycle, then the plan. It is what this command does; the flag makes scripts say so.
    #[arg(long)]
    once: bool,
    /// Policy file, or a directory whose `*.yaml` are one policy; whatever its mode, nothing is changed.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Plan only for this process; can be given several times.
    #[arg(long)]
    pid: Vec<u32>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs one cycle and prints its plan.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let mut policy =
        arguments.policy.as_deref().map(policy_file::load).transpose()?.unwrap_or_else(Policy::default);
    forbid_changes(&mut policy);
    let mut engine = Engine::new(EngineOptions {
        policy,
        policy_path: arguments.policy.clone(),
        pids: arguments.pid.clone(),
        hook_library: None,
        mechanism: None,
        loader: Loader::default(),
        state_directory: None,
        audit_log: None,
    })?;
    let snapshot = engine.cycle_once();
    if arguments.json {
        return super::print_json(&snapshot);
    }
    println!(
        "{} targets, {} ranges, plan of {} steps: {} of {} bytes",
        snapshot.targets.len(),
        snapshot.ranges.len(),
        snapshot.plan.steps.len(),
        snapshot.plan.cost_bytes,
        snapshot.plan.budget_bytes
    );
    snapshot.targets.iter().filter_map(unplaced_in_words).for_each(print_line);
    for step in &snapshot.plan.steps {
        print_line(format_args!("{}", step_in_words(step)));
        print_line(format_args!("  {}", step.reason));
        for command in &step.commands {
            print_line(format_args!("  run: {command}"));
        }
    }
    for refusal in &snapshot.plan.refusals {
        let RefusalView { target, database, subject, rule, reason } = refusal;
        print_line(format_args!("not {target} {database} {subject}: {reason} ({rule})"));
    }
    Ok(())
}

/// What readers of a target lose that no range is charged for; `None` where that is nothing.
fn unplaced_in_words(target: &TargetView) -> Option<String> {
    let Unplaced {
        unrecorded_seconds_per_second: unrecorded,
        unowned_tombstone_seconds_per_second: tombstones,
        unowned_block_read_seconds_per_second: reads,
    } = target.unplaced;
    (unrecorded + tombstones + reads > 0.0).then(|| {
        format!(
            "{}: in no range are {} of operations too small for a record, {} of tombstones in no operation that was \
             followed, {} of blocks read in none",
            target.name,
            words::pain(unrecorded),
            words::pain(tombstones),
            words::pain(reads),
        )
    })
}

fn step_in_words(step: &PlanStepView) -> String {
    let PlanStepView { action, target, database, subject, begin, end, .. } = step;
    let what = match (action.as_str(), end) {
        ("flush", _) => String::new(),
        ("set_throttle" | "set_options", _) => format!(" {begin}"),
        (_, end) => format!(" [{begin}, {})", end.as_deref().unwrap_or("end")),
    };
    let place = if database.is_empty() { subject.clone() } else { format!("{database} {subject}") };
    format!("{action} {target} {place}{what}")
}

/// A plan is only looked at here, whatever the policy says.
fn forbid_changes(policy: &mut Policy) {
    policy.targets.iter_mut().for_each(|target| target.raise_perf_level = false);
    let modes = policy.targets.iter_mut().filter_map(|target| target.mode.as_mut());
    let of_periods = policy.schedule.iter_mut().filter_map(|period| period.mode.as_mut());
    for mode in modes.chain(of_periods).chain([&mut policy.mode]).filter(|mode| **mode == Mode::Act) {
        *mode = Mode::Advise;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn nothing_that_a_policy_says_lets_a_plan_act() {
        let text = "
mode: act
targets: [{ name: a, match: { pid: 1 }, mode: act, raise_perf_level: true }]
schedule: [{ name: always, time_zone: UTC, mode: act }]
";
        let mut policy = Policy::parse(text).unwrap();
        forbid_changes(&mut policy);
        let policy = policy.at(jiff::Timestamp::UNIX_EPOCH, 0);
        let target = policy.targets.first().unwrap();
        assert_eq!((policy.mode_of(target), target.raise_perf_level), (Mode::Advise, false));
    }

    #[test]
    fn a_step_names_its_database() {
        let step = PlanStepView {
            action: "compact_range".into(),
            target: "java-1".into(),
            database: "/data/om.db".into(),
            subject: "keyTable".into(),
            begin: "61".into(),
            ..PlanStepView::default()
        };
        assert_eq!(step_in_words(&step), "compact_range java-1 /data/om.db keyTable [61, end)");
        let throttle = PlanStepView {
            action: "set_throttle".into(),
            database: String::new(),
            subject: "limit".into(),
            begin: "5".into(),
            ..step
        };
        assert_eq!(step_in_words(&throttle), "set_throttle java-1 limit 5");
    }
}

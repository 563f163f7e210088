//! The planner's tests are texts: a picture of an LSM tree and its readers, commands, and what comes out.
//!
//! `BLESS=1 cargo test -p sexton-tuner --test planner` writes what comes out into the files; the
//! difference is what to review. A block is a command, its input, a line `----`, and the output up to
//! an empty line. Commands:
//!
//! - `picture`: the evidence; the lines are described in `planner/picture.rs`.
//! - `policy`: the policy's YAML; the first target in it is used.
//! - `assess`: every range that hurts, best first.
//! - `cost DATABASE CF [KEY .. KEY)`: what compacting these keys takes, in each way.
//! - `jobs DATABASE CF [KEY .. KEY) max=SIZE [memtables=yes] [files=yes]`: the jobs that a range is
//!   compacted by, each worth what it relieves.
//! - `plan budget=SIZE now=TIME [in_force=THROTTLE:VALUE] [growth=yes]`: actions and refusals; with growth
//!   the plan before it in the file is the earlier one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cases;
#[path = "planner/picture.rs"]
mod picture;

use picture::{parse_picture, parse_range, parse_size};
use sexton_tuner::cost::{Bottommost, Levels};
use sexton_tuner::evidence::SstFile;
use sexton_tuner::job::{Job, JobInput, ReliefMap, Site, jobs};
use sexton_tuner::placement::Placement;
use sexton_tuner::policy::Policy;
use sexton_tuner::primitive::Primitive;
use sexton_tuner::primitives::Primitives;
use sexton_tuner::{
    Action, Budget, CompactRange, Evidence, Flush, KeyRange, KnownThrottles, Plan, PlanInput, PlanTarget,
    RangeAssessment, SetOptions, SetThrottle, ThrottleState, assess, families, plan, words,
};
use std::fmt::Write;
use std::path::Path;

#[test]
fn cases() {
    cases::check("planner", 40, run);
}

struct State {
    evidence: Vec<Evidence>,
    policy: Policy,
    planned: Option<Plan>,
}

/// The case with its outputs computed anew.
fn run(text: &str, file: &Path) -> String {
    let mut state = State { evidence: Vec::new(), policy: Policy::default(), planned: None };
    cases::outputs_anew(text, |command, lines| {
        let output = state.command(command, lines);
        let shown = output.as_deref().unwrap_or_else(String::as_str);
        let mut words = shown.split(|character: char| !character.is_alphabetic());
        assert!(!words.any(|word| word == "NaN" || word == "inf"), "{}: {shown}", file.display());
        output
    })
}

impl State {
    /// Files and options of the column family that a command names.
    fn levels(&self, words: &[&str]) -> Result<(Vec<&SstFile>, Levels), String> {
        let [database, name, ..] = words else { return Err("DATABASE CF [KEY .. KEY)".to_owned()) };
        let evidence = self.evidence.iter().find(|evidence| evidence.database == **database);
        let evidence = evidence.ok_or(format!("no database {database}"))?;
        let files: Vec<&SstFile> =
            evidence.files.iter().filter(|file| file.column_family == **name).collect();
        let levels = Levels::of(&files, &evidence.options_of(name));
        Ok((files, levels))
    }

    fn cost(&self, words: &[&str]) -> Result<String, String> {
        let (_, levels) = self.levels(words)?;
        let range = parse_range(words.get(2..).unwrap_or(&[]))?;
        let mut text = String::new();
        for bottommost in [Bottommost::Default, Bottommost::ForceOptimized, Bottommost::Force] {
            let _ = writeln!(text, "{bottommost:?}: {}", shown_prediction(&levels, &range, bottommost));
        }
        let _ = writeln!(text, "chosen: {:?}", levels.compaction(&range).0);
        Ok(text)
    }

    fn jobs(&self, words: &[&str], arguments: &[(&str, &str)]) -> Result<String, String> {
        let (files, levels) = self.levels(words)?;
        let argument =
            |name: &str| arguments.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let range = parse_range(words.get(2..).unwrap_or(&[]))?;
        let are_in_memtables = argument("memtables").is_some();
        let found = jobs(&JobInput {
            levels: &levels,
            placement: &Placement::of(&files, &[], None),
            relief: &ReliefMap::default(),
            sites: &[Site { range: &range, relief_seconds_per_second: 1.0, are_in_memtables }],
            resting: &[],
            slice_bytes_max: parse_size(argument("max").ok_or("jobs needs max=")?)?,
            primitives: Primitives { compact_files: argument("files").is_some() },
            value: &|job: &Job| job.relief_seconds_per_second,
        });
        let mut text = String::new();
        for job in found {
            let _ = writeln!(
                text,
                "{} for {}, {} deletions, {}",
                words::range(&job.range, self.policy.keys),
                words::bytes(job.cost_bytes),
                job.share.deletions,
                shown_call(&job.primitive, job.bottommost),
            );
        }
        Ok(if text.is_empty() { "none".to_owned() } else { text })
    }

    fn command(&mut self, command: &str, lines: &str) -> Result<String, String> {
        let all: Vec<&str> = command.split(' ').collect();
        let (name, words) = all.split_first().ok_or("no command")?;
        let arguments: Vec<(&str, &str)> = words.iter().filter_map(|word| word.split_once('=')).collect();
        match *name {
            "picture" => {
                self.evidence = parse_picture(lines)?;
                Ok("ok".to_owned())
            }
            "policy" => {
                self.policy = Policy::parse(lines).map_err(|error| format!("{error}; {}", error.help))?;
                Ok("ok".to_owned())
            }
            "assess" => self.assess(),
            "cost" => self.cost(words),
            "jobs" => self.jobs(words, &arguments),
            "plan" => self.plan(&arguments),
            _ => Err(format!("unknown command {name}")),
        }
    }

    fn assess(&self) -> Result<String, String> {
        let mut text = String::new();
        for evidence in &self.evidence {
            let target = self.policy.targets.first().expect("a target");
            for range in assess(evidence, &families(evidence), target, &self.policy)
                .map_err(|error| error.to_string())?
            {
                text.push_str(&shown(&range, &self.policy));
            }
        }
        Ok(if text.is_empty() { "nothing hurts".to_owned() } else { text })
    }

    fn plan(&mut self, arguments: &[(&str, &str)]) -> Result<String, String> {
        let argument =
            |name: &str| arguments.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let budget = parse_size(argument("budget").ok_or("plan needs budget=")?)?;
        let now = argument("now").ok_or("plan needs now=")?.parse().map_err(|error| format!("{error}"))?;
        let policy = self.policy.targets.first().expect("a target");
        let name = self.evidence.first().map_or("t", |evidence| evidence.target.as_str());
        let in_force =
            |value: &str| ThrottleState { value: Some(value.to_owned()), ..ThrottleState::default() };
        let throttles: KnownThrottles = argument("in_force")
            .and_then(|text| text.split_once(':'))
            .map(|(throttle, value)| ((name.to_owned(), throttle.to_owned()), in_force(value)))
            .into_iter()
            .collect();
        let values = self.policy.at(now, 0);
        let input = PlanInput {
            policy: &values,
            targets: &[PlanTarget { name, policy, evidence: &self.evidence }],
            budget: Budget { available_bytes: budget },
            throttles: &throttles,
            now,
            previous: self.planned.as_ref().filter(|_| argument("growth").is_some()),
        };
        let planned = plan(&input).map_err(|error| error.to_string())?;
        assert_eq!(
            planned,
            plan(&input).map_err(|error| error.to_string())?,
            "the same input gave two plans"
        );
        let text = shown_plan(&planned, &self.policy);
        self.planned = Some(planned);
        Ok(text)
    }
}

fn shown(range: &RangeAssessment, policy: &Policy) -> String {
    let family = range.column_family.as_deref().unwrap_or("?");
    let keys = words::range(&range.range, policy.keys);
    let mut text = format!("{} {family} {keys}\n", range.database);
    let _ = writeln!(
        text,
        "  pain {}, relief {}, {:.1} operations/s",
        words::pain(range.pain_seconds_per_second),
        words::pain(range.relief_seconds_per_second),
        range.operations_per_second,
    );
    let _ = writeln!(
        text,
        "  each {:.1} tombstones, {:.1} of them in memtables, {:.1} unexplained, {:.1} block reads",
        range.tombstones_per_seek,
        range.memtable_tombstones_per_seek,
        range.unexplained_tombstones_per_seek,
        range.misses_per_seek,
    );
    let _ = writeln!(
        text,
        "  {} with {} deletions in {} entries ({}), cost {}, {:.3} ns/s per KiB",
        words::bytes(range.size_bytes),
        range.deletions,
        range.entries,
        words::percent(range.density),
        range.cost_bytes.map_or_else(|| "not known".to_owned(), words::bytes),
        range.relief_per_byte * 1e9 * 1024.0,
    );
    let _ = writeln!(text, "  {}", range.reason);
    text
}

fn shown_prediction(levels: &Levels, range: &KeyRange, bottommost: Bottommost) -> String {
    let prediction = levels.predict(range, bottommost);
    format!(
        "{} in {} jobs, the largest {}, {} deletions left",
        words::bytes(prediction.read_bytes),
        prediction.jobs,
        words::bytes(prediction.largest_job_bytes),
        prediction.deletions_left,
    )
}

fn shown_plan(plan: &Plan, policy: &Policy) -> String {
    let mut text = format!("{} of {}\n", words::bytes(plan.cost_bytes), words::bytes(plan.budget_bytes));
    for action in &plan.actions {
        let _ = match action {
            Action::CompactRange(compact) => writeln!(text, "{}", shown_compaction(compact, policy)),
            Action::Flush(Flush { database, column_family, cost_bytes, ranges, reason, .. }) => writeln!(
                text,
                "flush {database} {column_family} for up to {}, because of {} ranges\n  {reason}",
                words::bytes(*cost_bytes),
                ranges.len(),
            ),
            Action::SetOptions(SetOptions { column_family, name, value, restore, reason, .. }) => {
                writeln!(text, "set {name} of {column_family} from {restore} to {value}\n  {reason}")
            }
            Action::SetThrottle(SetThrottle { target, name, value, command, reason, .. }) => {
                writeln!(text, "set {target} {name} to {value}: {}\n  {reason}", command.join(" "))
            }
        };
    }
    for refusal in &plan.refusals {
        let _ = writeln!(text, "refuse {} {}: {}", refusal.subject, refusal.rule.name(), refusal.reason);
    }
    text
}

fn shown_call(primitive: &Primitive, bottommost: Bottommost) -> String {
    match primitive {
        Primitive::CompactRange => format!("{bottommost:?}"),
        Primitive::CompactFiles { files, .. } => {
            let sizes = words::bytes(files.output_file_bytes);
            format!("files {:?} into level {}, {sizes} each", files.files, files.output_level)
        }
    }
}

fn shown_compaction(compact: &CompactRange, policy: &Policy) -> String {
    let CompactRange { database, column_family, range, before, reason, .. } = compact;
    let of = &before.range;
    let slice = match range == of {
        true => String::new(),
        false => format!(" of {}", words::range(of, policy.keys)),
    };
    format!(
        "compact {database} {column_family} {}{slice} for {}, {}, relieves {}\n  {reason}",
        words::range(range, policy.keys),
        words::bytes(compact.cost_bytes),
        shown_call(&compact.primitive, compact.bottommost),
        words::pain(compact.relief_seconds_per_second),
    )
}

//! A policy in sentences: what it says for a moment on a node, and on which line each value stands.
//!
//! What it comes to for the processes that run there is the agent's to add.

use super::sources::{Line, Sources};
use super::{
    ExecutorKind, Mode, Naming, Period, Policy, RemedyKind, TargetMatch, TargetPolicy, ThrottlePolicy,
};
use crate::facts::key::KeyDisplay;
use jiff::Timestamp;
use serde::Serialize;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The policy does not say; this is what holds then.
    Default,
    Line(usize),
    /// A line of one of the files that the policy is in.
    File {
        file: String,
        line: usize,
    },
    /// A period of the schedule that is open.
    Period {
        name: String,
        line: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
}

/// One thing that the policy says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statement {
    pub text: String,
    pub source: Source,
}

/// What it says of one kind of process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedTarget {
    pub name: String,
    pub statements: Vec<Statement>,
}

/// A policy in sentences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Of the node as a whole.
    pub node: Vec<Statement>,
    /// In the order of the policy: the first that matches a process decides.
    pub targets: Vec<ExplainedTarget>,
}

/// A policy's texts, the policy in them, and what holds of it now.
struct Explained<'p> {
    sources: &'p Sources,
    written: &'p Policy,
    now: Policy,
    /// With their numbers in the schedule.
    open: Vec<(usize, &'p Period)>,
}

/// Explains `policy`, which was read from `sources`, at a time on a node.
pub fn explain(sources: &Sources, policy: &Policy, now: Timestamp, node: u64) -> Explanation {
    let periods = policy.schedule.iter().enumerate();
    let open = periods.filter(|(_, period)| period.is_open(now, node)).collect();
    let explained = Explained { sources, written: policy, now: policy.at(now, node), open };
    let targets = explained.now.targets.iter().enumerate();
    let targets = targets.map(|(number, target)| ExplainedTarget {
        name: target.name.clone(),
        statements: explained.target(number, target),
    });
    Explanation { node: explained.node(), targets: targets.collect() }
}

impl Explained<'_> {
    fn node(&self) -> Vec<Statement> {
        let policy = &self.now;
        let (budget, timing) = (&policy.io_budget, &policy.timing);
        let budget_of = |period: &Period| {
            let multiple = period.io_budget_ratio.map(|_| "io_budget_ratio");
            period.io_budget.as_ref().map(|_| "io_budget").or(multiple)
        };
        let budget_source = self.decided(budget_of, "io_budget");
        let pain_source = self.decided(|period| period.pain.map(|_| "pain"), "thresholds.pain");
        let ranker_source = self.decided(|period| period.ranker.map(|_| "ranker"), "ranker");
        let mut said = vec![
            self.periods(),
            Statement {
                text: format!("compaction rewrites at most {}, and {} at once", budget.rate, budget.burst),
                source: budget_source,
            },
            Statement {
                text: format!("a job is worth it from {} of readers' time on", policy.thresholds.pain),
                source: pain_source,
            },
            Statement { text: format!("jobs are ranked by {}", policy.ranker.name()), source: ranker_source },
            self.say(
                &["slice_bytes_max"],
                format!("one compaction rewrites {} at most, or one file", policy.slice_bytes_max),
            ),
            self.say(
                &["cooldown"],
                format!("a range that was compacted is left alone for {}", policy.cooldown),
            ),
            self.say(&["loop.interval"], format!("targets are looked at every {}", timing.interval)),
            self.say(&["loop.window"], format!("probes are armed for {} at most", timing.window)),
            self.say(&["loop.survey"], format!("they are armed at least every {}", timing.survey)),
            self.say(
                &["keys"],
                match policy.keys {
                    KeyDisplay::Redacted => "keys are redacted wherever they are shown".to_owned(),
                    KeyDisplay::Shown => "keys are shown whole, in logs, metrics and answers too".to_owned(),
                },
            ),
        ];
        said.extend(self.guards());
        said
    }

    fn periods(&self) -> Statement {
        let text = match self.open.as_slice() {
            [] if self.written.schedule.is_empty() => "there is no schedule: the same holds at all times",
            [] => "no period of the schedule is open",
            open => {
                let names: Vec<&str> = open.iter().map(|(_, period)| period.name.as_str()).collect();
                return self.say(&["schedule"], format!("of the schedule is open: {}", names.join(", ")));
            }
        };
        self.say(&["schedule"], text.to_owned())
    }

    /// What a target must not suffer, one limit after the other.
    fn guards(&self) -> Vec<Statement> {
        let fields = |value: serde_json::Result<serde_json::Value>| match value {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let limits = fields(serde_json::to_value(&self.now.guards)).into_iter();
        let limits = limits.filter(|(_, limit)| !limit.is_object());
        let said = limits.map(|(name, limit)| {
            let limit = limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
            let field = format!("guards.{name}");
            let given = |period: &Period| {
                let is_given = fields(serde_json::to_value(&period.guards)).contains_key(&name);
                is_given.then_some(field.as_str())
            };
            let source = self.decided(given, &field);
            Statement { text: format!("guard {name}: {limit}"), source }
        });
        said.chain(self.guard_commands()).collect()
    }

    /// What is asked before an action begins.
    fn guard_commands(&self) -> Vec<Statement> {
        let guards = &self.now.guards;
        let program = |run: &[String]| run.first().cloned().unwrap_or_default();
        let hold = guards.hold.as_ref().map(|hold| {
            let (program, limit) = (program(&hold.run), hold.acquire_timeout);
            let text = format!(
                "each action in a database runs under a lock that {program} holds, which is waited for {limit}"
            );
            self.say(&["guards.hold"], text)
        });
        let command = guards.command.as_ref().map(|command| {
            let (program, limit) = (program(&command.run), command.timeout);
            let text = format!("before each action in a database {program} has to say yes within {limit}");
            self.say(&["guards.command"], text)
        });
        hold.into_iter().chain(command).collect()
    }

    fn target(&self, number: usize, target: &TargetPolicy) -> Vec<Statement> {
        let at = |field: &str| format!("targets[{number}].{field}");
        let probes = self.now.probes_of(target);
        let mut said = vec![
            self.say(&[&at("match")], format!("is {}", matching(&target.matches))),
            self.mode(number, target),
            self.say(&[&at("executor")], executor(target)),
            self.say(&[&at("remedies")], format!("what is done: {}", remedies(&target.remedies))),
            self.say(
                &[&at("probes.budget"), "probes.budget"],
                format!("probes take at most {} of a processor core from it", probes.budget),
            ),
        ];
        said.extend(target.commands_user.iter().map(|user| {
            self.say(&[&at("commands_user")], format!("commands run as {user:?}, without any capability"))
        }));
        if target.raise_perf_level {
            let text = "RocksDB's perf level is raised in threads that have it off, and put back";
            said.push(self.say(&[&at("raise_perf_level")], text.to_owned()));
        }
        said.extend(target.databases.iter().flat_map(|databases| {
            let only = (!databases.include.is_empty()).then(|| {
                self.say(
                    &[&at("databases.include")],
                    format!("of its databases only these are acted on: {}", databases.include.join(", ")),
                )
            });
            let never = (!databases.exclude.is_empty()).then(|| {
                let text = format!("never these databases: {}", databases.exclude.join(", "));
                self.say(&[&at("databases.exclude")], text)
            });
            only.into_iter().chain(never)
        }));
        if !target.column_families.is_empty() {
            let names: Vec<&str> = target.column_families.iter().map(|family| family.name.as_str()).collect();
            let text = format!("of its column families only these are acted on: {}", names.join(", "));
            said.push(self.say(&[&at("column_families")], text));
        }
        let throttles = target.throttles.iter().enumerate();
        said.extend(throttles.map(|(place, throttle)| {
            self.say(&[&at(&format!("throttles[{place}]"))], self.throttle(throttle))
        }));
        said
    }

    fn mode(&self, number: usize, target: &TargetPolicy) -> Statement {
        let mode = self.now.mode_of(target);
        let text = match mode {
            Mode::Observe => "it is watched, and no plan is made",
            Mode::Advise => "plans are made and shown, and nothing is changed",
            Mode::Act => "plans are carried out",
        };
        let own = format!("targets[{number}].mode");
        let written = self.written.targets.get(number).and_then(|target| target.mode);
        let of_period = self.period(|period| period.mode.map(|_| "mode"));
        let source = match (of_period, written) {
            // A period's mode holds for a target of its own mode only where it does less.
            (Some(_), Some(written)) if written == mode => self.source(&[&own]),
            (Some(of_period), _) => of_period,
            (None, _) => self.source(&[&own, "mode"]),
        };
        Statement { text: text.to_owned(), source }
    }

    fn throttle(&self, throttle: &ThrottlePolicy) -> String {
        let (side, why) = self.now.throttle_side();
        let name = &throttle.name;
        match (throttle.bounds(side), throttle.value(side)) {
            (Some((slowest, fastest)), _) => {
                format!("its {name} follows pressure between {slowest} and {fastest}")
            }
            (None, Some(value)) => format!("its {name} is set to {value}: {why}"),
            (None, None) => format!("its {name} is left alone"),
        }
    }

    fn say(&self, paths: &[&str], text: String) -> Statement {
        Statement { text, source: self.source(paths) }
    }

    /// The first of these values that the text has.
    fn source(&self, paths: &[&str]) -> Source {
        match paths.iter().find_map(|path| self.sources.line_of(path)) {
            None => Source::Default,
            Some(Line { file: None, line }) => Source::Line(line),
            Some(Line { file: Some(file), line }) => Source::File { file: file.to_owned(), line },
        }
    }

    /// What a period says of a value, else what the policy says.
    fn decided<'f>(&self, given: impl Fn(&Period) -> Option<&'f str>, path: &str) -> Source {
        self.period(given).unwrap_or_else(|| self.source(&[path]))
    }

    /// The first open period that gives a value decides it; `given`: the field that it does so by.
    fn period<'f>(&self, given: impl Fn(&Period) -> Option<&'f str>) -> Option<Source> {
        let mut open = self.open.iter();
        let (number, period, field) =
            open.find_map(|(number, period)| Some((number, period, given(period)?)))?;
        let place = self.sources.line_of(&format!("schedule[{number}].{field}"));
        let file = place.and_then(|place| place.file).map(str::to_owned);
        Some(Source::Period { name: period.name.clone(), line: place.map(|place| place.line), file })
    }
}

/// What the policy says of one database of a target.
pub fn explain_database(target: &TargetPolicy, directory: &str) -> String {
    match target.naming(directory) {
        Naming::Unnamed => "may be acted on, unless it is a checkpoint of another one".to_owned(),
        Naming::Included => "may be acted on: it is included".to_owned(),
        Naming::NotIncluded => "is left alone: others are included".to_owned(),
        Naming::Excluded(pattern) => format!("is left alone: {pattern} excludes it"),
    }
}

/// Whom an entry is about, as the rest of a sentence.
fn matching(matches: &TargetMatch) -> String {
    let TargetMatch { pid, executable, command_line, user, unit, cgroup, container } = matches;
    let conditions = [
        pid.map(|pid| format!("has the pid {pid}")),
        executable.as_ref().map(|pattern| format!("runs {pattern}")),
        command_line.as_ref().map(|part| format!("has {part:?} in its command line")),
        user.as_ref().map(|user| format!("belongs to the user {user}")),
        unit.as_ref().map(|unit| format!("runs in the unit {unit}")),
        cgroup.as_ref().map(|pattern| format!("is in the control group {pattern}")),
        container.as_ref().map(|id| format!("runs in the container {id}")),
    ];
    let conditions: Vec<String> = conditions.into_iter().flatten().collect();
    match conditions.as_slice() {
        [] => "every process that has a RocksDB".to_owned(),
        conditions => format!("each process with a RocksDB that {}", conditions.join(" and ")),
    }
}

fn executor(target: &TargetPolicy) -> String {
    match target.executor {
        ExecutorKind::Hook => "Sexton's library inside the process compacts".to_owned(),
        ExecutorKind::Exec => {
            let program = target.exec.as_ref().and_then(|exec| exec.compact.first());
            format!("a command compacts: {}", program.map_or("none is given", String::as_str))
        }
        ExecutorKind::Sql => "a statement to the server compacts a whole column family".to_owned(),
        ExecutorKind::None => "nobody compacts: plans are shown".to_owned(),
    }
}

fn remedies(kinds: &[RemedyKind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

//! Checks of a policy that parsed: values that cannot be meant, and fields that contradict each other.

use super::locate::{Step, locate};
use super::written::shown;
use super::{
    ActuatorKind, ColumnFamilyPolicy, CoreShare, EXEC_PLACEHOLDERS, GuardPolicy, IoBudget, OffPeak, Policy,
    PolicyError, ProbePolicy, THROTTLE_PLACEHOLDER, TargetPolicy, TimeSpan,
};
use std::collections::BTreeSet;

/// Most entries in `targets`; each is tried for each process of the node.
const TARGETS_MAX: usize = 128;
/// Most entries in a target's lists.
const LIST_ENTRIES_MAX: usize = 512;
/// Longest prefix by bytes; keys in the kernel's records are not longer.
const PREFIX_BYTES_MAX: u32 = 256;
/// Most delimiters in a prefix.
const PREFIX_DELIMITERS_MAX: u32 = 64;
/// Longest interval, window and time limit; more is a slip of the unit.
const TIME_MAX: TimeSpan = TimeSpan::from_seconds(86_400);
/// Longest cooldown.
const COOLDOWN_MAX: TimeSpan = TimeSpan::from_seconds(365 * 86_400);
/// Shortest window that sees a whole operation and is worth arming the probes for.
const WINDOW_MIN: TimeSpan = TimeSpan::from_nanoseconds(10_000_000);

/// Greatest probe budget: a whole core. Who reads more than that has no use for a budget.
const PROBE_BUDGET_MAX: CoreShare = CoreShare::from_parts_per_million(1_000_000);

/// The first value that cannot be meant, with its place.
pub(super) fn check(policy: &Policy, text: &str) -> Result<(), PolicyError> {
    let checker = Checker { text };
    checker.thresholds(policy)?;
    checker.timing(policy)?;
    checker.probes(policy.probes, &["probes".into(), "budget".into()])?;
    checker.budget(&policy.io_budget, &["io_budget".into()])?;
    if let Some(off_peak) = &policy.off_peak {
        checker.off_peak(off_peak)?;
    }
    checker.at_most(policy.cooldown, COOLDOWN_MAX, &["cooldown".into()])?;
    checker.share(policy.relief_share, &["relief_share".into()])?;
    checker.guards(&policy.guards)?;
    if policy.range_bytes_max.bytes() == 0 {
        return checker.fail(
            &["range_bytes_max".into()],
            "a range of no bytes holds nothing",
            "write at least 1B, such as 256MiB",
        );
    }
    if policy.max_slice_bytes.bytes() == 0 {
        return checker.fail(
            &["max_slice_bytes".into()],
            "a slice of no bytes rewrites nothing",
            "write at least 1B, such as 64MiB",
        );
    }
    if policy.targets == Policy::default().targets {
        return Ok(());
    }
    checker.targets(&policy.targets)
}

struct Checker<'t> {
    text: &'t str,
}

impl Checker<'_> {
    fn fail(
        &self,
        path: &[Step<'_>],
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Result<(), PolicyError> {
        let error = PolicyError::of_text(format!("{}: {}", dotted(path), message.into()), help);
        Err(match locate(self.text, path) {
            Some(place) => error.at(self.text, place.index()),
            None => error,
        })
    }

    fn at_most(&self, span: TimeSpan, most: TimeSpan, path: &[Step<'_>]) -> Result<(), PolicyError> {
        if span > most {
            return self.fail(path, format!("{span} is longer than {most}, the most"), "check the unit");
        }
        Ok(())
    }

    fn thresholds(&self, policy: &Policy) -> Result<(), PolicyError> {
        let section = &policy.thresholds;
        let fields = [
            ("tombstones_per_operation", section.tombstones_per_operation),
            ("block_reads_per_operation", section.block_reads_per_operation),
        ];
        for (field, value) in fields {
            if value == 0 {
                let message = "with 0 every operation would be painful";
                return self.fail(&["thresholds".into(), field.into()], message, "write at least 1");
            }
        }
        if section.pain.seconds_per_second() == 0.0 {
            let message = "with 0 even ranges that hurt nobody would be rewritten";
            return self.fail(
                &["thresholds".into(), "pain".into()],
                message,
                "write at least 1ns/s, such as 5ms/s",
            );
        }
        if !(0.0..=1.0).contains(&section.density) {
            let message = format!("{} is not a share of the entries", section.density);
            return self.fail(
                &["thresholds".into(), "density".into()],
                message,
                "write a number from 0 to 1, such as 0.1",
            );
        }
        Ok(())
    }

    fn timing(&self, policy: &Policy) -> Result<(), PolicyError> {
        let timing = &policy.timing;
        let spans = [("interval", timing.interval), ("window", timing.window), ("survey", timing.survey)];
        for (field, span) in spans {
            let path = ["loop".into(), field.into()];
            if span < WINDOW_MIN {
                return self.fail(
                    &path,
                    format!("{span} is shorter than {WINDOW_MIN}, the least"),
                    "check the unit",
                );
            }
            self.at_most(span, TIME_MAX, &path)?;
        }
        if timing.window > timing.interval {
            let message =
                format!("a window of {} does not fit into an interval of {}", timing.window, timing.interval);
            return self.fail(
                &["loop".into(), "window".into()],
                message,
                "make the window shorter or the interval longer",
            );
        }
        if timing.survey < timing.window {
            let message =
                format!("a survey every {} is shorter than a window of {}", timing.survey, timing.window);
            return self.fail(
                &["loop".into(), "survey".into()],
                message,
                "make the survey longer or the window shorter",
            );
        }
        Ok(())
    }

    fn probes(&self, probes: ProbePolicy, path: &[Step<'_>]) -> Result<(), PolicyError> {
        if probes.budget > PROBE_BUDGET_MAX {
            let message = format!("{} is more than {PROBE_BUDGET_MAX}, the most", probes.budget);
            return self.fail(path, message, "write a share of one core, such as 1%");
        }
        Ok(())
    }

    fn budget(&self, budget: &IoBudget, section: &[Step<'_>]) -> Result<(), PolicyError> {
        let fields = [("rate", budget.rate.bytes_per_second()), ("burst", budget.burst.bytes())];
        for (field, value) in fields {
            if value == 0 {
                let path: Vec<Step<'_>> = section.iter().copied().chain([field.into()]).collect();
                return self.fail(
                    &path,
                    "with a budget of 0 nothing could ever be done",
                    "write more, or `mode: advise` to only look",
                );
            }
        }
        Ok(())
    }

    fn share(&self, share: f64, path: &[Step<'_>]) -> Result<(), PolicyError> {
        if !(0.0..=1.0).contains(&share) {
            return self.fail(
                path,
                format!("{share} is not a share"),
                "write a number from 0 to 1, such as 0.5",
            );
        }
        Ok(())
    }

    fn guards(&self, guards: &GuardPolicy) -> Result<(), PolicyError> {
        let at = |field: &'static str| ["guards".into(), Step::Field(field)];
        self.share(guards.level0_files, &at("level0_files"))?;
        self.share(guards.pending_compaction_bytes, &at("pending_compaction_bytes"))?;
        self.at_most(guards.target_age, TIME_MAX, &at("target_age"))?;
        self.at_most(guards.latency_slack, TIME_MAX, &at("latency_slack"))?;
        if !(guards.latency_factor >= 1.0 && guards.latency_factor.is_finite()) {
            let message = format!("with {} a latency that falls would be too much", guards.latency_factor);
            return self.fail(&at("latency_factor"), message, "write a number from 1 on, such as 2");
        }
        if guards.bytes_per_day.bytes() == 0 {
            let help = "write more, or `mode: advise` to only look";
            return self.fail(&at("bytes_per_day"), "with 0 nothing could ever be done", help);
        }
        if guards.compactions_per_device == 0 {
            let message = "with 0 nothing could ever be done";
            return self.fail(&at("compactions_per_device"), message, "write at least 1");
        }
        Ok(())
    }

    fn off_peak(&self, off_peak: &OffPeak) -> Result<(), PolicyError> {
        if off_peak.from == off_peak.to {
            let message = format!("the window opens and closes at {}", off_peak.to);
            return self.fail(&["off_peak".into(), "to".into()], message, "write two different times");
        }
        if let Some(days) = &off_peak.days {
            if days.is_empty() {
                let path = ["off_peak".into(), "days".into()];
                return self.fail(
                    &path,
                    "on no day the window would never open",
                    "name days, or leave the field out for every day",
                );
            }
            for (index, day) in days.iter().enumerate() {
                if days.iter().take(index).any(|earlier| earlier == day) {
                    let path = ["off_peak".into(), "days".into(), index.into()];
                    return self.fail(&path, "the day is here twice", "take one out");
                }
            }
        }
        self.budget(&off_peak.io_budget, &["off_peak".into(), "io_budget".into()])
    }

    fn targets(&self, targets: &[TargetPolicy]) -> Result<(), PolicyError> {
        if targets.is_empty() {
            let help = "name a target, or leave `targets` out to watch every RocksDB";
            return self.fail(&["targets".into()], "without a target nothing is watched", help);
        }
        self.not_too_many(targets.len(), TARGETS_MAX, &["targets".into()])?;
        let mut names = BTreeSet::new();
        for (index, target) in targets.iter().enumerate() {
            self.name(&target.name, &mut names, &["targets".into(), index.into(), "name".into()])?;
            self.matches(target, index)?;
            if let Some(probes) = target.probes {
                self.probes(probes, &["targets".into(), index.into(), "probes".into(), "budget".into()])?;
            }
            self.exec(target, index)?;
            self.sql(target, index)?;
            self.remedies(target, index)?;
            self.databases(target, index)?;
            self.column_families(target, index)?;
            self.throttles(target, index)?;
        }
        Ok(())
    }

    fn remedies(&self, target: &TargetPolicy, index: usize) -> Result<(), PolicyError> {
        let path = ["targets".into(), index.into(), "remedies".into()];
        if target.remedies.is_empty() {
            let help = "name at least one, or write `mode: observe` to only look";
            return self.fail(&path, "without a remedy nothing could ever be done", help);
        }
        for (place, remedy) in target.remedies.iter().enumerate() {
            if target.remedies.iter().take(place).any(|earlier| earlier == remedy) {
                let path = ["targets".into(), index.into(), "remedies".into(), place.into()];
                return self.fail(&path, format!("{} is here twice", remedy.name()), "take one out");
            }
        }
        Ok(())
    }

    fn not_too_many(&self, count: usize, most: usize, path: &[Step<'_>]) -> Result<(), PolicyError> {
        if count > most {
            return self.fail(
                path,
                format!("{count} entries, the most is {most}"),
                "merge or take out entries",
            );
        }
        Ok(())
    }

    fn name<'n>(
        &self,
        name: &'n str,
        seen: &mut BTreeSet<&'n str>,
        path: &[Step<'_>],
    ) -> Result<(), PolicyError> {
        if name.is_empty() {
            return self.fail(path, "the name is empty", "write a name");
        }
        if !seen.insert(name) {
            return self.fail(
                path,
                format!("{} is here twice", shown(name)),
                "give each entry a name of its own",
            );
        }
        Ok(())
    }

    fn matches(&self, target: &TargetPolicy, index: usize) -> Result<(), PolicyError> {
        let path = |field: &'static str| ["targets".into(), index.into(), "match".into(), Step::Field(field)];
        let conditions = &target.matches;
        if conditions.is_empty() {
            let help = "give pid, executable or command_line; `executable: \"*\"` matches every process";
            return self.fail(path("pid").get(..3).unwrap_or(&[]), "no condition is given", help);
        }
        if conditions.pid == Some(0) {
            return self.fail(&path("pid"), "there is no process 0", "write the process id");
        }
        let texts = [("executable", &conditions.executable), ("command_line", &conditions.command_line)];
        for (field, value) in texts {
            if value.as_ref().is_some_and(String::is_empty) {
                return self.fail(
                    &path(field),
                    "the condition is empty",
                    "write what to look for, or take it out",
                );
            }
        }
        Ok(())
    }

    fn exec(&self, target: &TargetPolicy, index: usize) -> Result<(), PolicyError> {
        let at = |rest: &[Step<'static>]| -> Vec<Step<'static>> {
            ["targets".into(), index.into()].into_iter().chain(rest.iter().copied()).collect()
        };
        match (&target.exec, target.actuator) {
            (Some(exec), ActuatorKind::Exec) => {
                let path = at(&["exec".into(), "compact".into()]);
                self.command(&exec.compact, &EXEC_PLACEHOLDERS, &path)?;
                self.timeout(exec.timeout, &at(&["exec".into(), "timeout".into()]))
            }
            (None, ActuatorKind::Exec) => {
                let help = "add `exec: { compact: [...] }`, or choose another actuator";
                self.fail(&at(&["actuator".into()]), "there is no command to run", help)
            }
            (Some(_), _) => {
                let help = "add `actuator: exec`, or take `exec` out";
                self.fail(&at(&["exec".into()]), "a command is given, but the actuator is not exec", help)
            }
            (None, _) => Ok(()),
        }
    }

    fn sql(&self, target: &TargetPolicy, index: usize) -> Result<(), PolicyError> {
        let at = |field: &'static str| [Step::Field("targets"), index.into(), Step::Field(field)];
        let inside = |field: &'static str| {
            [Step::Field("targets"), index.into(), Step::Field("sql"), Step::Field(field)]
        };
        match (&target.sql, target.actuator) {
            (Some(sql), ActuatorKind::Sql) => {
                if sql.endpoint().is_none() {
                    let help =
                        "give `socket`, a whole path, or `address`, such as 127.0.0.1:3306, and not both";
                    return self.fail(&at("sql"), "it does not say where the server is", help);
                }
                if !sql.has_sound_user() {
                    return self.fail(&inside("user"), "it is no user's name", "name a user of the server");
                }
                if !sql.has_sound_password_file() {
                    let help = "write the whole path of a file such as /etc/sexton/mariadb.cnf";
                    return self.fail(&inside("password_file"), "it is no whole path", help);
                }
                self.timeout(sql.timeout, &inside("timeout"))
            }
            (None, ActuatorKind::Sql) => {
                let help = "add `sql: { socket: /run/mysqld/mysqld.sock }`, or choose another actuator";
                self.fail(&at("actuator"), "it is not said where the server is", help)
            }
            (Some(_), _) => {
                let help = "add `actuator: sql`, or take `sql` out";
                self.fail(&at("sql"), "a server is given, but the actuator is not sql", help)
            }
            (None, _) => Ok(()),
        }
    }

    fn timeout(&self, timeout: TimeSpan, path: &[Step<'_>]) -> Result<(), PolicyError> {
        if timeout.nanoseconds() == 0 {
            return self.fail(path, "no command ends in no time", "write a time limit such as 30s");
        }
        self.at_most(timeout, TIME_MAX, path)
    }

    fn command(&self, command: &[String], known: &[&str], path: &[Step<'_>]) -> Result<(), PolicyError> {
        if command.first().is_none_or(String::is_empty) {
            return self.fail(
                path,
                "the command names no program",
                "write the program and its arguments as a list",
            );
        }
        self.not_too_many(command.len(), LIST_ENTRIES_MAX, path)?;
        for (index, argument) in command.iter().enumerate() {
            if let Some(unknown) = placeholders(argument).into_iter().find(|found| !known.contains(found)) {
                let path: Vec<Step<'_>> = path.iter().copied().chain([index.into()]).collect();
                let message = format!("{} is not a known placeholder", shown(unknown));
                return self.fail(&path, message, format!("known here: {}", known.join(", ")));
            }
        }
        Ok(())
    }

    fn databases(&self, target: &TargetPolicy, index: usize) -> Result<(), PolicyError> {
        let Some(databases) = &target.databases else { return Ok(()) };
        let section = ["targets".into(), index.into(), "databases".into()];
        if databases.include.is_empty() && databases.exclude.is_empty() {
            let help = "list globs under `include` or `exclude`, or take `databases` out";
            return self.fail(&section, "it names no database", help);
        }
        for (field, patterns) in [("include", &databases.include), ("exclude", &databases.exclude)] {
            let list = [section.as_slice(), &[Step::Field(field)]].concat();
            self.not_too_many(patterns.len(), LIST_ENTRIES_MAX, &list)?;
            for (place, pattern) in patterns.iter().enumerate() {
                let path = [list.as_slice(), &[Step::Item(place)]].concat();
                self.database_pattern(pattern, field, &path)?;
                if patterns.iter().take(place).any(|earlier| earlier == pattern) {
                    return self.fail(&path, "the pattern is here twice", "take one out");
                }
            }
        }
        Ok(())
    }

    /// A pattern must be able to match a whole path, and must not match all of them: who includes a checkpoint has
    /// to name it.
    fn database_pattern(&self, pattern: &str, field: &str, path: &[Step<'_>]) -> Result<(), PolicyError> {
        if !pattern.starts_with(['/', '*', '?']) {
            let message = format!("{} is no beginning of a whole path", shown(pattern));
            return self.fail(
                path,
                message,
                "write the directory's whole path, such as /data/om.db or */om.db",
            );
        }
        if pattern.chars().all(|character| matches!(character, '/' | '*' | '?')) {
            let help = match field {
                "include" => "take it out: without `include` every database but checkpoints may be acted on",
                _ => "write `mode: advise` or `mode: observe` to change nothing",
            };
            return self.fail(path, "it matches every database and names none", help);
        }
        Ok(())
    }

    fn column_families(&self, target: &TargetPolicy, index: usize) -> Result<(), PolicyError> {
        let list = ["targets".into(), index.into(), "column_families".into()];
        self.not_too_many(target.column_families.len(), LIST_ENTRIES_MAX, &list)?;
        let mut names = BTreeSet::new();
        for (entry_index, entry) in target.column_families.iter().enumerate() {
            let path = |field| -> Vec<Step<'static>> {
                [
                    "targets".into(),
                    index.into(),
                    "column_families".into(),
                    entry_index.into(),
                    Step::Field(field),
                ]
                .into()
            };
            self.name(&entry.name, &mut names, &path("name"))?;
            self.prefix(entry, &path("prefix"))?;
        }
        Ok(())
    }

    fn prefix(&self, entry: &ColumnFamilyPolicy, path: &[Step<'_>]) -> Result<(), PolicyError> {
        let Some(prefix) = &entry.prefix else { return Ok(()) };
        let help = "write `{ delimiter: \"/\", count: 3 }` (one ASCII character) or `{ bytes: 8 }`";
        if prefix.rule().is_none() {
            return self.fail(path, "it does not say where to cut", help);
        }
        if prefix.bytes.is_some_and(|bytes| bytes > PREFIX_BYTES_MAX) {
            return self.fail(
                path,
                format!("more than {PREFIX_BYTES_MAX} bytes of a key are never looked at"),
                help,
            );
        }
        if prefix.count.is_some_and(|count| count > PREFIX_DELIMITERS_MAX) {
            return self.fail(path, format!("more than {PREFIX_DELIMITERS_MAX} delimiters"), help);
        }
        Ok(())
    }

    fn throttles(&self, target: &TargetPolicy, index: usize) -> Result<(), PolicyError> {
        let list = ["targets".into(), index.into(), "throttles".into()];
        self.not_too_many(target.throttles.len(), LIST_ENTRIES_MAX, &list)?;
        let mut names = BTreeSet::new();
        for (entry_index, entry) in target.throttles.iter().enumerate() {
            let path = |field| -> Vec<Step<'static>> {
                ["targets".into(), index.into(), "throttles".into(), entry_index.into(), Step::Field(field)]
                    .into()
            };
            self.name(&entry.name, &mut names, &path("name"))?;
            self.command(&entry.command, &[THROTTLE_PLACEHOLDER], &path("command"))?;
            if !entry.command.iter().any(|argument| argument.contains(THROTTLE_PLACEHOLDER)) {
                let help = format!("put {THROTTLE_PLACEHOLDER} where the value belongs");
                return self.fail(&path("command"), "the command would set no value", help);
            }
            if let Some(get) = &entry.get {
                self.command(get, &[], &path("get"))?;
            }
            self.timeout(entry.timeout, &path("timeout"))?;
        }
        Ok(())
    }
}

/// The `{names}` in an argument; other braces, as in JSON, are left alone.
fn placeholders(argument: &str) -> Vec<&str> {
    let name = |inner: &str| {
        !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let opened = argument.match_indices('{').filter_map(|(start, _)| {
        let rest = argument.get(start + 1..)?;
        let end = rest.find('}')?;
        name(rest.get(..end)?).then(|| argument.get(start..start + end + 2)).flatten()
    });
    opened.collect()
}

/// `targets[0].match`.
fn dotted(path: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => text.push_str(&format!(".{name}")),
            Step::Item(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

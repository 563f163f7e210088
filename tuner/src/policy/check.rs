//! Checks of a policy that parsed: values that cannot be meant, and fields that contradict each other.

use super::check_pressure::check_pressure;
use super::matching::CONTAINER_ID_DIGITS_MIN;
use super::sources::Sources;
use super::written::shown;
use super::{
    ColumnFamilyPolicy, ControlPolicy, CoreShare, DatabasesPolicy, Day, EXEC_PLACEHOLDERS, ExecutorKind,
    GUARD_PLACEHOLDERS, GuardPolicy, IoBudget, LoopTiming, MarginPolicy, PROCESS_PLACEHOLDER, Period, Policy,
    PolicyError, PrefixPolicy, ProbePolicy, THROTTLE_PLACEHOLDER, TargetMatch, TargetPolicy, ThrottlePolicy,
    TimeSpan,
};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Most entries in `targets`; each is tried for each process of the node.
const TARGETS_MAX: usize = 128;
/// Most entries in a target's lists.
const LIST_ENTRIES_MAX: usize = 512;
/// Most periods in the schedule; each is looked at in each cycle, and has a series in the metrics.
const PERIODS_MAX: usize = 32;
/// Greatest ratio of a value inside a period to the one outside; more is a slip.
const RATIO_MAX: f64 = 1000.0;
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

/// Greatest ratio of benefit to cost that can be asked for: beyond it nothing would ever be done.
const BENEFIT_COST_RATIO_MAX: f64 = 1000.0;
/// Shortest horizon: a job takes about so long itself.
const HORIZON_MIN: TimeSpan = TimeSpan::from_seconds(1);

/// Greatest number of a throttle that follows pressure: with the greatest ratio it is still exact.
const CONTROLLED_MAX: f64 = 1e12;
/// Least time between two reads of a throttle's value: each is a program that is started.
const READ_INTERVAL_MIN: TimeSpan = TimeSpan::from_seconds(1);

/// Greatest probe budget: a whole core. Who reads more than that has no use for a budget.
const PROBE_BUDGET_MAX: CoreShare = CoreShare::from_parts_per_million(1_000_000);

/// The first value that cannot be meant, with its place.
pub(super) fn check(policy: &Policy, sources: &Sources) -> Result<(), PolicyError> {
    let checker = Checker { sources };
    checker.thresholds(policy)?;
    checker.timing(policy)?;
    checker.probes(policy.probes, "probes.budget")?;
    checker.budget(&policy.io_budget, "io_budget")?;
    checker.schedule(&policy.schedule)?;
    checker.at_most(policy.cooldown, COOLDOWN_MAX, "cooldown")?;
    checker.share(policy.relief_ratio_min, "relief_ratio_min")?;
    checker.margin(&policy.margin)?;
    checker.guards(&policy.guards)?;
    checker.refuse_if(
        policy.range_bytes_max.bytes() == 0,
        "range_bytes_max",
        "a range of no bytes holds nothing",
        "write at least 1B, such as 256MiB",
    )?;
    checker.refuse_if(
        policy.slice_bytes_max.bytes() == 0,
        "slice_bytes_max",
        "a slice of no bytes rewrites nothing",
        "write at least 1B, such as 64MiB",
    )?;
    match policy.targets == Policy::default().targets {
        true => Ok(()),
        false => checker.targets(&policy.targets, &policy.guards),
    }
}

pub(super) struct Checker<'s> {
    sources: &'s Sources,
}

impl Checker<'_> {
    /// Refuses the value at `path`, such as `targets[0].match`.
    pub(super) fn refuse<T>(
        &self,
        path: &str,
        message: impl Display,
        help: impl Into<String>,
    ) -> Result<T, PolicyError> {
        let error = PolicyError::of_text(format!("{path}: {message}"), help);
        Err(self.sources.at(error, path))
    }

    pub(super) fn refuse_if(
        &self,
        is_wrong: bool,
        path: &str,
        message: impl Display,
        help: impl Into<String>,
    ) -> Result<(), PolicyError> {
        if is_wrong { self.refuse(path, message, help) } else { Ok(()) }
    }

    fn at_most(&self, span: TimeSpan, most: TimeSpan, path: &str) -> Result<(), PolicyError> {
        self.refuse_if(span > most, path, format!("{span} is longer than {most}, the most"), "check the unit")
    }

    pub(super) fn not_too_many(&self, count: usize, most: usize, path: &str) -> Result<(), PolicyError> {
        let message = format!("{count} entries, the most is {most}");
        self.refuse_if(count > most, path, message, "merge or take out entries")
    }

    fn share(&self, share: f64, path: &str) -> Result<(), PolicyError> {
        let is_share = (0.0..=1.0).contains(&share);
        self.refuse_if(
            !is_share,
            path,
            format!("{share} is not a share"),
            "write a number from 0 to 1, such as 0.5",
        )
    }

    fn thresholds(&self, policy: &Policy) -> Result<(), PolicyError> {
        let thresholds = &policy.thresholds;
        for (path, value) in [
            ("thresholds.tombstones_per_operation", thresholds.tombstones_per_operation),
            ("thresholds.block_reads_per_operation", thresholds.block_reads_per_operation),
        ] {
            let message = "with 0 every operation would be recorded";
            self.refuse_if(value == 0, path, message, "write at least 1")?;
        }
        self.refuse_if(
            thresholds.pain.seconds_per_second() == 0.0,
            "thresholds.pain",
            "with 0 even ranges that hurt nobody would be rewritten",
            "write at least 1ns/s, such as 5ms/s",
        )?;
        self.share(thresholds.density, "thresholds.density")
    }

    fn margin(&self, margin: &MarginPolicy) -> Result<(), PolicyError> {
        let ratio = margin.benefit_cost_ratio_min;
        self.refuse_if(
            !(0.0..=BENEFIT_COST_RATIO_MAX).contains(&ratio),
            "margin.benefit_cost_ratio_min",
            format!("{ratio} is not a ratio"),
            format!("write a number from 0 to {BENEFIT_COST_RATIO_MAX}, such as 2"),
        )?;
        let horizon = margin.horizon;
        self.refuse_if(
            horizon < HORIZON_MIN,
            "margin.horizon",
            format!("{horizon} is shorter than {HORIZON_MIN}, the least"),
            "check the unit",
        )?;
        self.at_most(horizon, COOLDOWN_MAX, "margin.horizon")
    }

    fn timing(&self, policy: &Policy) -> Result<(), PolicyError> {
        let LoopTiming { interval, window, survey } = policy.timing;
        for (path, span) in [("loop.interval", interval), ("loop.window", window), ("loop.survey", survey)] {
            let message = format!("{span} is shorter than {WINDOW_MIN}, the least");
            self.refuse_if(span < WINDOW_MIN, path, message, "check the unit")?;
            self.at_most(span, TIME_MAX, path)?;
        }
        self.refuse_if(
            window > interval,
            "loop.window",
            format!("a window of {window} does not fit into an interval of {interval}"),
            "make the window shorter or the interval longer",
        )?;
        self.refuse_if(
            survey < window,
            "loop.survey",
            format!("a survey every {survey} is shorter than a window of {window}"),
            "make the survey longer or the window shorter",
        )
    }

    fn probes(&self, probes: ProbePolicy, path: &str) -> Result<(), PolicyError> {
        let message = format!("{} is more than {PROBE_BUDGET_MAX}, the most", probes.budget);
        self.refuse_if(
            probes.budget > PROBE_BUDGET_MAX,
            path,
            message,
            "write a share of one core, such as 1%",
        )
    }

    fn budget(&self, budget: &IoBudget, section: &str) -> Result<(), PolicyError> {
        for (field, value) in [("rate", budget.rate.bytes_per_second()), ("burst", budget.burst.bytes())] {
            let message = "with a budget of 0 nothing could ever be done";
            let help = "write more, or `mode: advise` to only look";
            self.refuse_if(value == 0, &format!("{section}.{field}"), message, help)?;
        }
        Ok(())
    }

    fn guards(&self, guards: &GuardPolicy) -> Result<(), PolicyError> {
        self.share(guards.level0_slowdown_ratio_max, "guards.level0_slowdown_ratio_max")?;
        self.share(guards.pending_compaction_ratio_max, "guards.pending_compaction_ratio_max")?;
        self.at_most(guards.process_uptime_min, TIME_MAX, "guards.process_uptime_min")?;
        self.at_most(guards.latency_increase_min, TIME_MAX, "guards.latency_increase_min")?;
        self.latency_ratio(guards.latency_ratio_max, "guards.latency_ratio_max")?;
        let message = "with 0 nothing could ever be done";
        let help = "write more, or `mode: advise` to only look";
        self.refuse_if(guards.bytes_per_day_max.bytes() == 0, "guards.bytes_per_day_max", message, help)?;
        let none = guards.compactions_per_device_max == 0;
        self.refuse_if(none, "guards.compactions_per_device_max", message, "write at least 1")?;
        if let Some(hold) = &guards.hold {
            self.command(&hold.run, &GUARD_PLACEHOLDERS, "guards.hold.run")?;
            self.timeout(hold.acquire_timeout, "guards.hold.acquire_timeout")?;
        }
        if let Some(command) = &guards.command {
            self.command(&command.run, &GUARD_PLACEHOLDERS, "guards.command.run")?;
            self.timeout(command.timeout, "guards.command.timeout")?;
        }
        Ok(())
    }

    fn latency_ratio(&self, ratio: f64, path: &str) -> Result<(), PolicyError> {
        let is_sound = ratio >= 1.0 && ratio.is_finite();
        let message = format!("with {ratio} a latency that falls would be too much");
        self.refuse_if(!is_sound, path, message, "write a number from 1 on, such as 2")
    }

    fn schedule(&self, periods: &[Period]) -> Result<(), PolicyError> {
        self.not_too_many(periods.len(), PERIODS_MAX, "schedule")?;
        let mut names = BTreeSet::new();
        for (index, period) in periods.iter().enumerate() {
            let at = |field: &str| format!("schedule[{index}].{field}");
            self.name(&period.name, &mut names, &at("name"))?;
            self.days(period, &at)?;
            let is_too_long = period.jitter.nanoseconds() >= period.length_seconds() * 1_000_000_000;
            let message = format!("with a jitter of {} the period might not open at all", period.jitter);
            self.refuse_if(is_too_long, &at("jitter"), message, "write less than the period is long")?;
            self.period_budget(period, &at)?;
            let guards = &period.guards;
            let shares = [
                (guards.level0_slowdown_ratio_max, "guards.level0_slowdown_ratio_max"),
                (guards.pending_compaction_ratio_max, "guards.pending_compaction_ratio_max"),
            ];
            for (share, field) in shares {
                share.map_or(Ok(()), |share| self.share(share, &at(field)))?;
            }
            if let Some(ratio) = guards.latency_ratio_max {
                self.latency_ratio(ratio, &at("guards.latency_ratio_max"))?;
            }
            if let Some(increase) = guards.latency_increase_min {
                self.at_most(increase, TIME_MAX, &at("guards.latency_increase_min"))?;
            }
            let none = guards.compactions_per_device_max == Some(0);
            let message = "with 0 nothing could ever be done";
            self.refuse_if(none, &at("guards.compactions_per_device_max"), message, "write at least 1")?;
        }
        Ok(())
    }

    fn days(&self, period: &Period, at: &impl Fn(&str) -> String) -> Result<(), PolicyError> {
        let days = period.days.as_deref();
        let help = "name days, or leave the field out for every day";
        let never = days.is_some_and(<[Day]>::is_empty) && period.dates.is_empty();
        self.refuse_if(never, &at("days"), "on no day the period would never open", help)?;
        self.once_each(days.unwrap_or_default(), &at("days"), "the day is here twice")?;
        for (dates, field) in [(&period.dates, "dates"), (&period.except, "except")] {
            self.not_too_many(dates.len(), LIST_ENTRIES_MAX, &at(field))?;
            self.once_each(dates, &at(field), "the date is here twice")?;
        }
        Ok(())
    }

    fn period_budget(&self, period: &Period, at: &impl Fn(&str) -> String) -> Result<(), PolicyError> {
        if let Some(budget) = &period.io_budget {
            self.budget(budget, &at("io_budget"))?;
        }
        let Some(ratio) = period.io_budget_ratio else { return Ok(()) };
        let is_twice = period.io_budget.is_some();
        let help = "take one of the two out";
        self.refuse_if(is_twice, &at("io_budget_ratio"), "there is an io_budget too", help)?;
        self.ratio(ratio, &at("io_budget_ratio"))
    }

    /// A multiple of another value.
    fn ratio(&self, ratio: f64, path: &str) -> Result<(), PolicyError> {
        let is_sound = ratio > 0.0 && ratio <= RATIO_MAX;
        let message = format!("{ratio} is no multiple from above 0 to {RATIO_MAX}");
        self.refuse_if(!is_sound, path, message, "write a number such as 4 or 0.5")
    }

    fn once_each<T: PartialEq>(&self, list: &[T], path: &str, message: &str) -> Result<(), PolicyError> {
        for (index, entry) in list.iter().enumerate() {
            let is_repeated = list.iter().take(index).any(|earlier| earlier == entry);
            self.refuse_if(is_repeated, &format!("{path}[{index}]"), message, "take one out")?;
        }
        Ok(())
    }

    fn targets(&self, targets: &[TargetPolicy], guards: &GuardPolicy) -> Result<(), PolicyError> {
        let help = "name a target, or leave `targets` out to watch every RocksDB";
        self.refuse_if(targets.is_empty(), "targets", "without a target nothing is watched", help)?;
        self.not_too_many(targets.len(), TARGETS_MAX, "targets")?;
        let mut names = BTreeSet::new();
        for (index, target) in targets.iter().enumerate() {
            let path = format!("targets[{index}]");
            self.name(&target.name, &mut names, &format!("{path}.name"))?;
            self.matches(&target.matches, &format!("{path}.match"))?;
            if let Some(probes) = target.probes {
                self.probes(probes, &format!("{path}.probes.budget"))?;
            }
            self.exec(target, &path)?;
            self.sql(target, &path)?;
            let remedies = format!("{path}.remedies");
            let help = "name at least one, or write `mode: observe` to only look";
            let message = "without a remedy nothing could ever be done";
            self.refuse_if(target.remedies.is_empty(), &remedies, message, help)?;
            self.once_each(&target.remedies, &remedies, "the remedy is here twice")?;
            if let Some(databases) = &target.databases {
                self.databases(databases, &format!("{path}.databases"))?;
            }
            self.column_families(&target.column_families, &format!("{path}.column_families"))?;
            if let Some(pressure) = &target.pressure {
                check_pressure(self, pressure, &format!("{path}.pressure"))?;
            }
            self.throttles(&target.throttles, &format!("{path}.throttles"))?;
            self.commands_user(target, guards, &path)?;
        }
        Ok(())
    }

    pub(super) fn name<'n>(
        &self,
        name: &'n str,
        seen: &mut BTreeSet<&'n str>,
        path: &str,
    ) -> Result<(), PolicyError> {
        self.refuse_if(name.is_empty(), path, "the name is empty", "write a name")?;
        let is_new = seen.insert(name);
        let message = format!("{} is here twice", shown(name));
        self.refuse_if(!is_new, path, message, "give each entry a name of its own")
    }

    fn matches(&self, conditions: &TargetMatch, path: &str) -> Result<(), PolicyError> {
        let help = "give pid, executable, command_line, user, unit, cgroup or container; `executable: \"*\"` \
                    matches every process";
        self.refuse_if(conditions.is_empty(), path, "no condition is given", help)?;
        let pid_path = format!("{path}.pid");
        self.refuse_if(
            conditions.pid == Some(0),
            &pid_path,
            "there is no process 0",
            "write the process id",
        )?;
        let texts = [
            ("executable", &conditions.executable),
            ("command_line", &conditions.command_line),
            ("user", &conditions.user),
            ("unit", &conditions.unit),
            ("cgroup", &conditions.cgroup),
            ("container", &conditions.container),
        ];
        for (field, value) in texts {
            let is_empty = value.as_ref().is_some_and(String::is_empty);
            let help = "write what to look for, or take it out";
            self.refuse_if(is_empty, &format!("{path}.{field}"), "the condition is empty", help)?;
        }
        let is_id = |id: &String| {
            id.len() >= CONTAINER_ID_DIGITS_MIN && id.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let is_wrong = conditions.container.as_ref().is_some_and(|id| !is_id(id));
        let help = "write the id's first 12 or more hexadecimal digits, as `docker ps` shows them";
        self.refuse_if(is_wrong, &format!("{path}.container"), "it is no container's id", help)?;
        let is_wrong = conditions.cgroup.as_ref().is_some_and(|glob| !glob.starts_with(['/', '*', '?']));
        let help = "write the whole path, such as /system.slice/*";
        self.refuse_if(is_wrong, &format!("{path}.cgroup"), "it is no beginning of a whole path", help)
    }

    fn exec(&self, target: &TargetPolicy, path: &str) -> Result<(), PolicyError> {
        match (&target.exec, target.executor) {
            (Some(exec), ExecutorKind::Exec) => {
                self.command(&exec.compact, &EXEC_PLACEHOLDERS, &format!("{path}.exec.compact"))?;
                self.timeout(exec.timeout, &format!("{path}.exec.timeout"))
            }
            (None, ExecutorKind::Exec) => {
                let help = "add `exec: { compact: [...] }`, or choose another executor";
                self.refuse(&format!("{path}.executor"), "there is no command to run", help)
            }
            (Some(_), _) => {
                let message = "a command is given, but the executor is not exec";
                self.refuse(&format!("{path}.exec"), message, "add `executor: exec`, or take `exec` out")
            }
            (None, _) => Ok(()),
        }
    }

    fn commands_user(
        &self,
        target: &TargetPolicy,
        guards: &GuardPolicy,
        path: &str,
    ) -> Result<(), PolicyError> {
        let Some(name) = &target.commands_user else { return Ok(()) };
        let at = format!("{path}.commands_user");
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b":/".contains(&byte);
        let is_name = !name.is_empty() && name.bytes().all(is_plain) && !name.starts_with(['-', '+']);
        let help = "write a name from /etc/passwd";
        self.refuse_if(!is_name, &at, format!("{} is no user's name", shown(name)), help)?;
        let of_target = target.exec.is_some() || target.sql.is_some() || !target.throttles.is_empty();
        let runs_none = !of_target && guards.hold.is_none() && guards.command.is_none();
        let help =
            "take it out: it is about `exec`, `sql`, `throttles`, and `hold` and `command` of the guards";
        self.refuse_if(runs_none, &at, "there is no command that this user could run", help)
    }

    fn sql(&self, target: &TargetPolicy, path: &str) -> Result<(), PolicyError> {
        let at = format!("{path}.sql");
        match (&target.sql, target.executor) {
            (Some(sql), ExecutorKind::Sql) => {
                let help = "give `socket`, a whole path, or `address`, such as 127.0.0.1:3306, and not both";
                let no_place = sql.endpoint().is_none();
                self.refuse_if(no_place, &at, "it does not say where the server is", help)?;
                let (message, help) = ("it is no user's name", "name a user of the server");
                self.refuse_if(!sql.has_sound_user(), &format!("{at}.user"), message, help)?;
                let help = "write the whole path of a file such as /etc/sexton/mariadb.cnf";
                let unsound = !sql.has_sound_password_file();
                self.refuse_if(unsound, &format!("{at}.password_file"), "it is no whole path", help)?;
                self.timeout(sql.timeout, &format!("{at}.timeout"))
            }
            (None, ExecutorKind::Sql) => {
                let help = "add `sql: { socket: /run/mysqld/mysqld.sock }`, or choose another executor";
                self.refuse(&format!("{path}.executor"), "it is not said where the server is", help)
            }
            (Some(_), _) => {
                let message = "a server is given, but the executor is not sql";
                self.refuse(&at, message, "add `executor: sql`, or take `sql` out")
            }
            (None, _) => Ok(()),
        }
    }

    fn timeout(&self, timeout: TimeSpan, path: &str) -> Result<(), PolicyError> {
        let is_nothing = timeout.nanoseconds() == 0;
        self.refuse_if(is_nothing, path, "no command ends in no time", "write a time limit such as 30s")?;
        self.at_most(timeout, TIME_MAX, path)
    }

    fn command(&self, command: &[String], known: &[&str], path: &str) -> Result<(), PolicyError> {
        let names_none = command.first().is_none_or(String::is_empty);
        let help = "write the program and its arguments as a list";
        self.refuse_if(names_none, path, "the command names no program", help)?;
        self.not_too_many(command.len(), LIST_ENTRIES_MAX, path)?;
        for (index, argument) in command.iter().enumerate() {
            if let Some(unknown) = placeholders(argument).into_iter().find(|found| !known.contains(found)) {
                let message = format!("{} is not a known placeholder", shown(unknown));
                let help = format!("known here: {}", known.join(", "));
                return self.refuse(&format!("{path}[{index}]"), message, help);
            }
        }
        Ok(())
    }

    fn databases(&self, databases: &DatabasesPolicy, path: &str) -> Result<(), PolicyError> {
        let is_empty = databases.include.is_empty() && databases.exclude.is_empty();
        let help = "list globs under `include` or `exclude`, or take `databases` out";
        self.refuse_if(is_empty, path, "it names no database", help)?;
        for (field, patterns) in [("include", &databases.include), ("exclude", &databases.exclude)] {
            let list = format!("{path}.{field}");
            self.not_too_many(patterns.len(), LIST_ENTRIES_MAX, &list)?;
            for (index, pattern) in patterns.iter().enumerate() {
                self.database_pattern(pattern, field, &format!("{list}[{index}]"))?;
            }
            self.once_each(patterns, &list, "the pattern is here twice")?;
        }
        Ok(())
    }

    /// A pattern must be able to match a whole path, and must not match all of them: who includes a
    /// checkpoint has to name it.
    fn database_pattern(&self, pattern: &str, field: &str, path: &str) -> Result<(), PolicyError> {
        let message = format!("{} is no beginning of a whole path", shown(pattern));
        let help = "write the directory's whole path, such as /data/om.db or */om.db";
        self.refuse_if(!pattern.starts_with(['/', '*', '?']), path, message, help)?;
        let matches_all = pattern.chars().all(|character| matches!(character, '/' | '*' | '?'));
        let help = match field {
            "include" => "take it out: without `include` every database but checkpoints may be acted on",
            _ => "write `mode: advise` or `mode: observe` to change nothing",
        };
        self.refuse_if(matches_all, path, "it matches every database and names none", help)
    }

    fn column_families(&self, entries: &[ColumnFamilyPolicy], path: &str) -> Result<(), PolicyError> {
        self.not_too_many(entries.len(), LIST_ENTRIES_MAX, path)?;
        let mut names = BTreeSet::new();
        for (index, entry) in entries.iter().enumerate() {
            self.name(&entry.name, &mut names, &format!("{path}[{index}].name"))?;
            if let Some(prefix) = &entry.prefix {
                self.prefix(prefix, &format!("{path}[{index}].prefix"))?;
            }
        }
        Ok(())
    }

    fn prefix(&self, prefix: &PrefixPolicy, path: &str) -> Result<(), PolicyError> {
        let help = "write `{ delimiter: \"/\", count: 3 }` (one ASCII character) or `{ bytes: 8 }`";
        self.refuse_if(prefix.rule().is_none(), path, "it does not say where to cut", help)?;
        let is_long = prefix.bytes.is_some_and(|bytes| bytes > PREFIX_BYTES_MAX);
        let message = format!("more than {PREFIX_BYTES_MAX} bytes of a key are never looked at");
        self.refuse_if(is_long, path, message, help)?;
        let are_many = prefix.count.is_some_and(|count| count > PREFIX_DELIMITERS_MAX);
        self.refuse_if(are_many, path, format!("more than {PREFIX_DELIMITERS_MAX} delimiters"), help)
    }

    fn throttles(&self, entries: &[ThrottlePolicy], path: &str) -> Result<(), PolicyError> {
        self.not_too_many(entries.len(), LIST_ENTRIES_MAX, path)?;
        let mut names = BTreeSet::new();
        for (index, entry) in entries.iter().enumerate() {
            let at = |field: &str| format!("{path}[{index}].{field}");
            self.name(&entry.name, &mut names, &at("name"))?;
            self.command(&entry.command, &[THROTTLE_PLACEHOLDER, PROCESS_PLACEHOLDER], &at("command"))?;
            let sets_nothing = !entry.command.iter().any(|argument| argument.contains(THROTTLE_PLACEHOLDER));
            let help = format!("put {THROTTLE_PLACEHOLDER} where the value belongs");
            self.refuse_if(sets_nothing, &at("command"), "the command would set no value", help)?;
            if let Some(get) = &entry.get {
                self.command(get, &[PROCESS_PLACEHOLDER], &at("get"))?;
            }
            self.timeout(entry.timeout, &at("timeout"))?;
            self.read_interval(entry, &at("read_interval"))?;
            match &entry.control {
                Some(control) => self.control(entry, control, &at)?,
                None => self.throttle_values(entry, &at)?,
            }
        }
        Ok(())
    }

    fn read_interval(&self, entry: &ThrottlePolicy, path: &str) -> Result<(), PolicyError> {
        let interval = entry.read_interval;
        let message = format!("{interval} is shorter than {READ_INTERVAL_MIN}, the least");
        self.refuse_if(interval < READ_INTERVAL_MIN, path, message, "check the unit")?;
        self.at_most(interval, TIME_MAX, path)
    }

    fn throttle_values(
        &self,
        entry: &ThrottlePolicy,
        at: &impl Fn(&str) -> String,
    ) -> Result<(), PolicyError> {
        let Some(outside) = &entry.outside else {
            let message = "it is not said which value it has outside of periods";
            return self.refuse(&at("outside"), message, "add `outside`, or `control` for one by pressure");
        };
        match (&entry.inside, entry.inside_ratio) {
            (Some(_), None) => Ok(()),
            (None, Some(ratio)) => {
                self.ratio(ratio, &at("inside_ratio"))?;
                let is_number = outside.parse::<f64>().is_ok_and(f64::is_finite);
                let message = format!("{} is no number that could be multiplied", shown(outside));
                let help = "write a number, or give `inside` instead of `inside_ratio`";
                self.refuse_if(!is_number, &at("outside"), message, help)
            }
            (None, None) => {
                let message = "it is not said which value it has inside of a period";
                self.refuse(&at("inside"), message, "add `inside` or `inside_ratio`")
            }
            (Some(_), Some(_)) => {
                let help = "take one of the two out";
                self.refuse(&at("inside_ratio"), "there is an `inside` too", help)
            }
        }
    }

    fn control(
        &self,
        entry: &ThrottlePolicy,
        control: &ControlPolicy,
        at: &impl Fn(&str) -> String,
    ) -> Result<(), PolicyError> {
        for (value, field) in [(&entry.inside, "inside"), (&entry.outside, "outside")] {
            let message = "the throttle has a `control`, which says all its values";
            let help = "take one of the two out; `inside_ratio` goes with both";
            self.refuse_if(value.is_some(), &at(field), message, help)?;
        }
        for (number, field) in [(control.slowest, "slowest"), (control.fastest, "fastest")] {
            let message = format!("{number} is no number from 0 to {CONTROLLED_MAX}");
            let is_sound = (0.0..=CONTROLLED_MAX).contains(&number);
            self.refuse_if(
                !is_sound,
                &at(&format!("control.{field}")),
                message,
                "write a number such as 5000",
            )?;
        }
        let message = "the two numbers are the same: nothing is left to pressure";
        let help = "write another number, or `outside` instead of `control`";
        self.refuse_if(control.slowest == control.fastest, &at("control.fastest"), message, help)?;
        if let Some(ratio) = entry.inside_ratio {
            self.ratio(ratio, &at("inside_ratio"))?;
        }
        self.share(control.step_ratio_max, &at("control.step_ratio_max"))?;
        let help = "write a number up to 1, such as 0.25";
        let message = "with 0 the number could never change";
        self.refuse_if(control.step_ratio_max == 0.0, &at("control.step_ratio_max"), message, help)?;
        self.share(control.hysteresis_ratio, &at("control.hysteresis_ratio"))?;
        self.at_most(control.interval_min, TIME_MAX, &at("control.interval_min"))?;
        self.at_most(control.calm, TIME_MAX, &at("control.calm"))
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

//! Carries out the lines of a block `run`.
//!
//! ```text
//! 5s offer compact [a .. m) 64MiB device=1 pid=1 planned=60MiB pain=1 nothing_left delayed
//! 5s offer flush 8MiB | offer option trigger=1000 was=0 | offer throttle rate=50 get
//! 5s #1 written | not_written
//! 6s #1 job running 7 | job running | job running unstoppable | job unknown
//! 6s #1 job done replaced=60MiB | job cancelled WORDS | job failed WORDS | job lost WORDS
//! 6s #1 readings delayed              words of it: stopped delayed level0=30 disk=1GiB latency=9ms (before:
//! 1ms) 6s #1 files [a .. c]20MiB [d .. f]20MiB   those with deletions; `files unseen`; `files none` 7s #1
//! measured replaced=60MiB deletions=100>0 snapshots=1 8s #1 cancel WORDS | #1 unwanted | #1 in_force 9s #1
//! window pain=0.1               a window of 60 s in which its range had this pain; `window idle` 9s tick |
//! gone pid=1 | wake 9s running none | running 1         how many compactions RocksDB runs where nobody sees
//! them 9s may compact [a .. m) device=1 pid=1 9s settings unwanted WORDS | settings restored VALUE |
//! settings not_restored | settings lost VALUE | settings 9s released [a .. m)                the snapshot
//! that pinned these keys 9s restart | restart dead           from what was written down; the process has
//! ended meanwhile 9s wall +1h                         the wall clock is set
//! 5s offer compact [a .. m) 64MiB held | refused
//! 6s #1 consent held | consent refused WORDS             what the command that holds the lock says
//! 6s no WORDS                                            why an action in process 1 was refused by it
//! ```
//! The first word is the time since boot. Everything is done in process 1 and on device 1, unless it says
//! otherwise.

use crate::shown::{shown_action, shown_effect, shown_rejection, shown_setting};
use sexton_tuner::cost::Bottommost;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::guard::{FamilyReadings, Guard, GuardRefusal, Readings};
use sexton_tuner::latency::LatencyReading;
use sexton_tuner::plan::{CompactRange, Flush, SetOptions, SetThrottle};
use sexton_tuner::policy::{Mode, Policy, TimeSpan};
use sexton_tuner::primitive::Primitive;
use sexton_tuner::run::consent::{Answer, Consent};
use sexton_tuner::run::{
    Action, ActionId, ActionKind, Admission, Budget, Claim, DatabaseIdentity, DeviceId, Effect, Event,
    JobEnd, JobId, JobResult, JobStatus, KeptSetting, Ledger, Measurement, Moment, Offer, Place, ProcessId,
    SettingChange, SettingEvent, SettingRecord, Stored, Subject, WindowSeen,
};
use sexton_tuner::verify::Seen;
use sexton_tuner::{Key, KeyRange, RangeAssessment};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

const DATABASE: &str = "/db";
const COLUMN_FAMILY: &str = "cf";

/// 2026-11-20T12:00:00Z.
const BEGINNING_UNIX_S: i64 = 1_795_176_000;

/// How long one part may take.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// What is on the disk: as text, so that what cannot be stored shows.
#[derive(Default)]
struct Disk {
    actions: BTreeMap<u64, String>,
    settings: BTreeMap<String, String>,
    budget: Option<String>,
}

pub struct Script {
    policy: Policy,
    ledger: Option<Ledger>,
    disk: Disk,
    since_boot: Duration,
    /// How far ahead the wall clock is.
    ahead_s: i64,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            policy: Policy::default(),
            ledger: None,
            disk: Disk::default(),
            since_boot: Duration::ZERO,
            ahead_s: 0,
        }
    }
}

/// Words of a line.
#[derive(Clone, Copy)]
pub struct Words<'a>(&'a [&'a str]);

impl<'a> Words<'a> {
    fn first(self) -> &'a str {
        self.0.first().copied().unwrap_or_default()
    }

    fn rest(self) -> Words<'a> {
        Words(self.0.get(1..).unwrap_or(&[]))
    }

    fn has(self, word: &str) -> bool {
        self.0.contains(&word)
    }

    fn named(self, name: &str) -> Option<&'a str> {
        let pairs = self.0.iter().filter_map(|word| word.split_once('='));
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| value).next()
    }

    fn number(self, name: &str, default: u64) -> u64 {
        self.named(name).map_or(default, |value| value.parse().unwrap())
    }

    fn size(self, name: &str) -> Option<u64> {
        self.named(name).map(size)
    }

    fn text(self) -> String {
        self.0.join(" ")
    }
}

fn unit(text: &str, units: &[(&str, u64)]) -> u64 {
    let found = units.iter().find_map(|(name, factor)| Some((text.strip_suffix(name)?, factor)));
    let (number, factor) = found.unwrap_or_else(|| panic!("{text} has no unit"));
    number.parse::<u64>().unwrap_or_else(|error| panic!("{text}: {error}")) * factor
}

fn size(text: &str) -> u64 {
    unit(text, &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)])
}

fn time(text: &str) -> Duration {
    let milliseconds =
        unit(text, &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)]);
    Duration::from_millis(milliseconds)
}

/// `[a .. m)`, the first words.
fn range(words: Words<'_>) -> KeyRange {
    let [begin, "..", end, ..] = words.0 else { panic!("{} is no range", words.text()) };
    let end = end.trim_end_matches(')');
    let end = (end != "end").then(|| Key::new(end));
    KeyRange::new(Key::new(begin.trim_start_matches('[')), end).unwrap()
}

fn readings(words: Words<'_>) -> Readings {
    let latency = words.named("latency").map(time);
    Readings {
        is_write_stopped: Some(words.has("stopped")),
        delayed_write_bytes_per_second: Some(u64::from(words.has("delayed")) << 20),
        families: vec![FamilyReadings {
            name: COLUMN_FAMILY.into(),
            level0_files: Some(words.number("level0", 0)),
            ..FamilyReadings::default()
        }],
        disk_free_bytes: Some(words.size("disk").unwrap_or(1 << 40)),
        target_age_seconds: Some(3_600),
        seek_latency: latency
            .map(|latency| LatencyReading { before_ns: 1e6, now_ns: latency.as_nanos() as f64 }),
        ..Readings::default()
    }
}

/// `held`, or `refused` and the words of the reason.
fn consent(words: Words<'_>) -> Consent {
    let hold = match words.has("refused") {
        true => Answer::Refused(words.text().split("refused ").nth(1).unwrap_or_default().to_owned()),
        false if words.has("held") => Answer::Given,
        false => Answer::NotAsked,
    };
    Consent { hold, ..Consent::default() }
}

/// `[a .. c]20MiB`, one after the other.
fn files(words: Words<'_>) -> Vec<SstFile> {
    let file = |words: &[&str]| {
        let [smallest, "..", largest] = words else { panic!("{words:?} is no file") };
        let (largest, bytes) = largest.split_once(']').unwrap();
        SstFile {
            number: 1,
            column_family: COLUMN_FAMILY.into(),
            level: 6,
            size_bytes: size(bytes),
            entries: 100,
            deletions: 50,
            smallest: Key::new(smallest.trim_start_matches('[')),
            largest: Key::new(largest),
        }
    };
    words.0.chunks(3).map(file).collect()
}

fn assessed(range: &KeyRange, pain: f64) -> RangeAssessment {
    let json = serde_json::json!({
        "target": "t", "database": DATABASE, "column_family": COLUMN_FAMILY, "range": range,
        "operations_per_second": 1.0, "tombstones_per_seek": 400.0, "memtable_tombstones_per_seek": 0.0,
        "misses_per_seek": 0.0, "size_bytes": 1, "entries": 1000, "deletions": 400, "density": 0.4,
        "pain_seconds_per_second": pain, "relief_seconds_per_second": pain, "cost_bytes": 1,
        "relief_per_byte": 1.0, "reason": "",
    });
    serde_json::from_value(json).unwrap()
}

fn kind(words: Words<'_>) -> (ActionKind, Option<KeyRange>) {
    let (target, database, column_family) = ("t".to_owned(), DATABASE.to_owned(), COLUMN_FAMILY.to_owned());
    let reason = String::new();
    let relief = words.named("pain").map_or(0.0, |pain| pain.parse().unwrap());
    match words.first() {
        "compact" => {
            let range = range(words.rest());
            let cost = words.0.get(4).filter(|word| word.ends_with('B') && !word.contains('='));
            let cost = cost.map_or(0, |cost| size(cost));
            let compact = CompactRange {
                target,
                database,
                column_family,
                range: range.clone(),
                before: Box::new(assessed(&range, relief)),
                primitive: Primitive::CompactRange,
                bottommost: Bottommost::ForceOptimized,
                cost_bytes: cost,
                largest_job_bytes: cost,
                linked_bytes: 0,
                relief_seconds_per_second: relief,
                deletions: 100,
                reason,
            };
            (ActionKind::Compact(compact), Some(range))
        }
        "flush" => {
            let cost_bytes = words.0.get(1).map_or(0, |cost| size(cost));
            let ranges = vec![KeyRange::everything()];
            let relief_seconds_per_second = relief;
            let before = Box::new(assessed(&KeyRange::everything(), relief));
            let pain_seconds_per_second = relief;
            let flush = Flush {
                target,
                database,
                column_family,
                ranges,
                before,
                pain_seconds_per_second,
                cost_bytes,
                relief_seconds_per_second,
                reason,
            };
            (ActionKind::Flush(flush), Some(KeyRange::everything()))
        }
        "option" => {
            let (name, value) = words.0.get(1).and_then(|pair| pair.split_once('=')).unwrap();
            let set = SetOptions {
                target,
                database,
                column_family,
                name: name.into(),
                value: value.into(),
                restore: words.named("was").unwrap_or("0").into(),
                ranges: vec![KeyRange::everything()],
                before: Box::new(assessed(&KeyRange::everything(), relief)),
                pain_seconds_per_second: relief,
                relief_seconds_per_second: relief,
                reason,
            };
            (ActionKind::ChangeSetting(SettingChange::Option(set)), Some(KeyRange::everything()))
        }
        "throttle" => {
            let (name, value) = words.0.get(1).and_then(|pair| pair.split_once('=')).unwrap();
            let set = SetThrottle {
                target,
                name: name.into(),
                value: value.into(),
                command: vec!["set".into(), value.into()],
                get: None,
                restore: None,
                user: None,
                timeout: TimeSpan::from_seconds(30),
                reason,
            };
            (ActionKind::ChangeSetting(SettingChange::Throttle(set)), None)
        }
        other => panic!("no action is {other}"),
    }
}

fn place(range: KeyRange) -> Place {
    let database = DatabaseIdentity { path: DATABASE.into(), inode: 7 };
    Place { database, column_family: COLUMN_FAMILY.into(), range }
}

fn process(words: Words<'_>) -> ProcessId {
    ProcessId { pid: u32::try_from(words.number("pid", 1)).unwrap(), start_time_ticks: 1 }
}

fn job(words: Words<'_>) -> JobStatus {
    let told = words.rest();
    let end = |result| {
        JobStatus::Ended(JobEnd {
            bytes_replaced: told.size("replaced").unwrap_or(0),
            bytes_written: Some(told.size("written").unwrap_or(0)),
            duration: Duration::from_secs(5),
            ..JobEnd::new(result)
        })
    };
    match words.first() {
        "running" => {
            let job = told.first().parse().ok().map(JobId);
            JobStatus::Running { job, can_stop: !told.has("unstoppable") }
        }
        "done" => end(JobResult::Done),
        "cancelled" => end(JobResult::Cancelled("it was asked for".into())),
        "failed" => end(JobResult::Failed { reason: told.text(), may_run_on: false }),
        "lost" => JobStatus::Lost(told.text()),
        "unknown" => JobStatus::Unknown,
        other => panic!("no job is {other}"),
    }
}

fn measurement(words: Words<'_>) -> Measurement {
    let deletions = words.named("deletions").map(|text| {
        let (before, after) = text.split_once('>').unwrap();
        (before.parse().unwrap(), after.parse().unwrap())
    });
    let snapshots = words.named("snapshots").map(|count| count.parse().unwrap());
    Measurement {
        bytes_replaced: words.size("replaced"),
        deletions,
        snapshots,
        oldest_snapshot_sequence: snapshots.map(|_| 17),
        ..Measurement::default()
    }
}

impl Script {
    pub fn take_policy(&mut self, text: &str) -> Result<String, String> {
        self.policy = Policy::parse(text).map_err(|error| error.to_string())?;
        Ok("ok".to_owned())
    }

    fn now(&self) -> Moment {
        let wall_s = BEGINNING_UNIX_S + self.ahead_s + i64::try_from(self.since_boot.as_secs()).unwrap();
        let at = jiff::Timestamp::from_second(wall_s).unwrap();
        Moment { at, boot: 1, since_boot_ns: u64::try_from(self.since_boot.as_nanos()).unwrap() }
    }

    pub fn run(&mut self, lines: &str) -> String {
        if self.ledger.is_none() {
            let (ledger, _) = Ledger::load(Stored::default(), &self.policy, self.now(), |_| true);
            self.ledger = Some(ledger);
        }
        let mut output = String::new();
        for line in lines.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            self.since_boot = time(words[0]);
            let came = self.line(Words(&words).rest());
            let _ = writeln!(output, "{line}");
            for line in came.lines() {
                let _ = writeln!(output, "    {line}");
            }
        }
        output
    }

    fn line(&mut self, words: Words<'_>) -> String {
        let now = self.now();
        let rest = words.rest();
        if let Some(id) = words.first().strip_prefix('#') {
            return self.event(ActionId(id.parse().unwrap()), rest);
        }
        match words.first() {
            "offer" => self.offer(rest),
            "tick" => {
                let policy = self.policy.clone();
                let effects = self.ledger().tick(&policy, now, |_| true);
                self.carry_out(effects)
            }
            "gone" => {
                let policy = self.policy.clone();
                let effects = self.ledger().target_gone(&process(rest), &policy, now);
                self.carry_out(effects)
            }
            "wake" => match self.ledger().next_wake(now) {
                None => "never".to_owned(),
                Some(wake) => format!("in {:.3} s", now.until(&wake).as_secs_f64()),
            },
            "running" => {
                let running = rest.first().parse().ok();
                self.ledger().follow_orphans(now, |_| running);
                format!("{} jobs may run unseen", self.ledger().orphans().len())
            }
            "may" => self.may(rest),
            "no" => {
                let refusal = GuardRefusal { guard: Guard::Hold, reason: rest.text() };
                self.ledger().note_refused(process(Words(&[])), &refusal, now);
                String::new()
            }
            "settings" => self.settings(rest),
            "released" => {
                let effects = self.ledger().forgive(&place(range(rest)));
                self.carry_out(effects)
            }
            "restart" => self.restart(!rest.has("dead")),
            "wall" => {
                let (sign, span) = rest.first().split_at(1);
                let seconds = i64::try_from(time(span).as_secs()).unwrap();
                self.ahead_s += if sign == "-" { -seconds } else { seconds };
                String::new()
            }
            other => panic!("unknown line {other}"),
        }
    }

    fn ledger(&mut self) -> &mut Ledger {
        self.ledger.as_mut().expect("a ledger")
    }

    fn offer(&mut self, words: Words<'_>) -> String {
        let now = self.now();
        let policy = self.policy.clone();
        let (kind, range) = kind(words);
        let pain: Option<f64> = words.named("pain").map(|pain| pain.parse().unwrap());
        let claim = pain.zip(range.as_ref()).map(|(pain, range)| Claim {
            before: assessed(range, pain),
            promised_seconds_per_second: pain,
            windows_waited: 0,
            seen: Seen::default(),
        });
        let planned_cost_bytes = words.size("planned").unwrap_or(kind.cost_bytes());
        let device = range.is_some().then_some(DeviceId(words.number("device", 1)));
        let mode = if words.has("advise") { Mode::Advise } else { Mode::Act };
        let place = range.map(place);
        let offer = Offer { kind, process: process(words), mode, place, device, claim };
        let (readings, consent) = (readings(words), consent(words));
        let admission = Admission {
            readings: &readings,
            consent: &consent,
            planned_cost_bytes,
            part: None,
            nothing_left: words.has("nothing_left"),
            time_limit: TIME_LIMIT,
        };
        match self.ledger().offer(offer, admission, &policy, now) {
            Ok((id, effects)) => self.carry_out(effects.into_iter().map(|effect| (id, effect)).collect()),
            Err(rejection) => shown_rejection(&rejection, now),
        }
    }

    fn may(&mut self, words: Words<'_>) -> String {
        let now = self.now();
        let policy = self.policy.clone();
        let (kind, range) = kind(words);
        let place = range.map(place);
        let device = Some(DeviceId(words.number("device", 1)));
        let process = process(words);
        let subject =
            Subject { process, mode: Mode::Act, place: place.as_ref(), device, remedy: kind.remedy() };
        match self.ledger().may_act(&subject, &policy, now) {
            Ok(()) => "yes".to_owned(),
            Err(rejection) => shown_rejection(&rejection, now),
        }
    }

    fn event(&mut self, id: ActionId, words: Words<'_>) -> String {
        let (now, policy) = (self.now(), self.policy.clone());
        let rest = words.rest();
        let text = rest.text();
        let (read, consent) = (readings(rest), consent(rest));
        let files = if rest.has("none") { Vec::new() } else { files_or_none(rest) };
        let failures_before = self.ledger().failures_before(id);
        let after = self.after(id, rest);
        let event = match words.first() {
            "written" => Event::Written(true),
            "not_written" => Event::Written(false),
            "job" => Event::Job(job(rest)),
            "readings" => Event::Readings(&read),
            "files" => Event::Files((!rest.has("unseen")).then_some(&files)),
            "measured" => Event::Measured(measurement(rest)),
            "consent" => Event::Consent(&consent),
            "cancel" => Event::Cancel(&text),
            "unwanted" => Event::Unwanted,
            "in_force" => Event::InForce,
            "window" => Event::Window(WindowSeen {
                seconds: 60.0,
                has_operations: !rest.has("idle"),
                after: &after,
                failures_before,
            }),
            other => panic!("no event is {other}"),
        };
        let effects = self.ledger().step(id, event, &policy, now);
        let mut output = self.carry_out(effects.into_iter().map(|effect| (id, effect)).collect());
        if output.is_empty() {
            let action = self.ledger().action(id).map(shown_action);
            output = action.unwrap_or_else(|| format!("#{id} is forgotten"));
        }
        output
    }

    fn after(&mut self, id: ActionId, words: Words<'_>) -> Vec<RangeAssessment> {
        let pain: Option<f64> = words.named("pain").map(|pain| pain.parse().unwrap());
        let place = self.ledger().action(id).and_then(|action| action.place.clone());
        place.zip(pain).map(|(place, pain)| assessed(&place.range, pain)).into_iter().collect()
    }

    /// Writes down what is to be written down, and tells all of it; then what the actions are now.
    fn carry_out(&mut self, effects: Vec<(ActionId, Effect)>) -> String {
        let mut output = String::new();
        let mut concerned: Vec<ActionId> = Vec::new();
        for (id, effect) in effects {
            let _ = writeln!(output, "#{id} {}", shown_effect(&effect));
            match &effect {
                Effect::WriteAhead { setting, forget, .. } => {
                    self.write_action(id);
                    if let Some(setting) = setting {
                        self.write_setting(setting);
                    }
                    if let Some(forget) = forget {
                        self.disk.actions.remove(&forget.0);
                    }
                }
                Effect::Record(record) => {
                    self.write_action(id);
                    self.write_setting_record(&record.setting);
                    if record.spent_bytes > 0 {
                        let budget = serde_json::to_string(self.ledger().budget()).unwrap();
                        self.disk.budget = Some(budget);
                    }
                }
                _ => {}
            }
            concerned.retain(|known| *known != id);
            concerned.push(id);
        }
        for id in concerned {
            let action = self.ledger().action(id).map(shown_action);
            let _ = writeln!(output, "{}", action.unwrap_or_else(|| format!("#{id} is forgotten")));
        }
        output
    }

    fn write_action(&mut self, id: ActionId) {
        let action = self.ledger().action(id).map(|action| serde_json::to_string(action).unwrap());
        self.disk.actions.extend(action.map(|action| (id.0, action)));
    }

    fn write_setting(&mut self, setting: &KeptSetting) {
        let text = serde_json::to_string(setting).unwrap();
        self.disk.settings.insert(setting.setting.name.clone(), text);
    }

    fn write_setting_record(&mut self, record: &SettingRecord) {
        match record {
            SettingRecord::Unchanged => {}
            SettingRecord::Put(setting) => self.write_setting(setting),
            SettingRecord::Remove(setting) => {
                self.disk.settings.remove(&setting.setting.name);
            }
        }
    }

    fn settings(&mut self, words: Words<'_>) -> String {
        let now = self.now();
        let text = words.rest().text();
        let value = (!text.is_empty()).then_some(text.as_str());
        let event = match words.first() {
            "unwanted" => SettingEvent::Unwanted(&text),
            "restored" => SettingEvent::Restored(value),
            "not_restored" => SettingEvent::NotRestored,
            "lost" => SettingEvent::Lost(value),
            _ => return self.kept(),
        };
        let effects = self.ledger().step_settings(&event, now, |_| true);
        self.carry_out(effects) + &self.kept()
    }

    fn kept(&mut self) -> String {
        let now = self.now();
        let lines =
            self.ledger().settings().iter().map(|setting| shown_setting(setting, now)).collect::<Vec<_>>();
        if lines.is_empty() { "no setting is changed".to_owned() } else { lines.join("\n") }
    }

    fn restart(&mut self, is_alive: bool) -> String {
        let read = |text: &String| serde_json::from_str::<Action>(text).unwrap();
        let stored = Stored {
            actions: self.disk.actions.values().map(read).collect(),
            settings: self.disk.settings.values().map(|text| serde_json::from_str(text).unwrap()).collect(),
            budget: self.disk.budget.as_ref().map(|text| serde_json::from_str::<Budget>(text).unwrap()),
            daily: None,
        };
        let (ledger, effects) = Ledger::load(stored, &self.policy, self.now(), |_| is_alive);
        self.ledger = Some(ledger);
        let output = self.carry_out(effects);
        if output.is_empty() { "nothing is in doubt".to_owned() } else { output }
    }
}

fn files_or_none(words: Words<'_>) -> Vec<SstFile> {
    if words.first().starts_with('[') { files(words) } else { Vec::new() }
}

//! The ledger of pain: what the windows on one target have seen, fading, and never too much of it.
//!
//! One window is a second or two, or some milliseconds where the probe budget is small: it shows how much
//! readers lose, and seldom all the places where. So what was seen is kept and fades, and a plan is made of
//! all of it. The ledger gives it the form of one window that had seen everything: its rates are the mean
//! ones of the time that windows were open, and how much is lost now is still the sentinel's to say.
//!
//! Kept are records, not sums of key intervals: files come and go, and with them the intervals that a
//! ranking asks for. Where there are too many they are thinned out in the order of their keys, one for so
//! much pain. So a stretch of keys with that much pain keeps a record, wherever its borders are, and the
//! sums stay what they were.
//!
//! What was done to a target changes what its readers meet, there and elsewhere: after that the ledger
//! begins anew.

use crate::facts::evidence::{Counters, EventCosts, Observation, Window};
use crate::loss::read_time::OPERATION_NS_MAX;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time after which a window counts half: twelve windows of the default loop, and one survey. Tombstones come
/// and go by minutes.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// Records kept of one target: a window has some thousands at most. A megabyte or two.
const RECORDS_MAX: usize = 8_192;

/// Records of one target that outlive the agent: some hundred kilobytes, written twice a minute.
const RECORDS_STORED_MAX: usize = 256;

/// Databases of one target that are told apart; what was seen in more of them is not kept.
const DATABASES_MAX: usize = 1_024;

/// Counts of the ledger are whole numbers of this part of an operation, because what has faded is no whole
/// number.
const PARTS: f64 = 64.0;

/// What is left of a record when it is dropped: it would not be a part any more.
const SHARE_MIN: f64 = 1.0 / PARTS;

/// What the windows on one target have seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PainLedger {
    /// When it last faded.
    faded: Option<Timestamp>,
    sums: Sums,
    /// By database.
    records: BTreeMap<String, Vec<Record>>,
}

/// One record, and how much of it is left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    seen: Observation,
    /// Operations that it stands for, faded.
    weight: f64,
}

/// Counts of all windows, faded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    duration_ns: f64,
    operations: f64,
    operations_recorded: f64,
    records_lost: f64,
    block_reads_timed: f64,
    operations_estimated: f64,
    attributed: [f64; 5],
    recorded: [f64; 5],
    followed: [f64; 5],
    total: [f64; 5],
}

impl PainLedger {
    /// Takes in what a window has seen in each database, at this time.
    pub fn take<'a>(
        &mut self,
        window: &Window,
        seen: impl IntoIterator<Item = (&'a str, &'a [Observation])>,
        now: Timestamp,
    ) {
        self.fade(now);
        self.sums.add(window);
        for (database, observations) in seen {
            if observations.is_empty() || !self.has_room_for(database) {
                continue;
            }
            let new =
                observations.iter().map(|seen| Record { seen: seen.clone(), weight: seen.weight as f64 });
            self.records.entry(database.to_owned()).or_default().extend(new);
        }
        self.thin_out(RECORDS_MAX);
    }

    /// Something was done to the target: what was seen before says nothing of what comes after.
    pub fn begin_anew(&mut self) {
        *self = PainLedger::default();
    }

    /// When the last window was taken in.
    pub fn last_taken(&self) -> Option<Timestamp> {
        self.faded
    }

    /// All windows as one, with the counts of [`PainLedger::observations`].
    pub fn window(&self) -> Window {
        self.sums.window()
    }

    /// What was seen in a database, each with what is left of its weight.
    pub fn observations(&self, database: &str) -> Vec<Observation> {
        let records = self.records.get(database).into_iter().flatten();
        records.map(|record| Observation { weight: parts(record.weight), ..record.seen.clone() }).collect()
    }

    /// The databases in which something was seen.
    pub fn databases(&self) -> BTreeSet<String> {
        self.records.keys().cloned().collect()
    }

    /// What is to outlive the agent.
    pub fn to_store(&self) -> PainLedger {
        let mut stored = self.clone();
        stored.thin_out(RECORDS_STORED_MAX);
        stored
    }

    /// Keeps the databases of which this holds.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.records.retain(|database, _| is_kept(database));
    }

    fn has_room_for(&self, database: &str) -> bool {
        self.records.contains_key(database) || self.records.len() < DATABASES_MAX
    }

    fn fade(&mut self, now: Timestamp) {
        let share = self.faded.map_or(0.0, |faded| share_left(faded, now));
        self.faded = Some(now);
        self.sums.fade(share);
        self.records.retain(|_, records| {
            records.iter_mut().for_each(|record| record.weight *= share);
            records.retain(|record| record.weight >= SHARE_MIN && record.weight.is_finite());
            !records.is_empty()
        });
    }

    /// Keeps at most so many records: those with much pain as they are, of the others in the order of their
    /// keys one for so much pain, and it stands for what lay before it.
    fn thin_out(&mut self, most: usize) {
        let count: usize = self.records.values().map(Vec::len).sum();
        if count <= most {
            return;
        }
        let sizes = self.records.values().flatten().map(Record::size);
        // One less, for what is left over at the end.
        let step = sizes.sum::<f64>() / most.saturating_sub(1).max(1) as f64;
        let mut passed = step / 2.0;
        for records in self.records.values_mut() {
            records.sort_by(|one, two| one.place().cmp(&two.place()));
            records.retain_mut(|record| {
                let size = record.size();
                if size >= step {
                    return true;
                }
                passed += size;
                let is_chosen = passed >= step;
                if is_chosen {
                    passed -= step;
                    record.weight *= step / size;
                }
                is_chosen
            });
        }
        self.records.retain(|_, records| !records.is_empty());
    }
}

impl Record {
    /// Its pain at the default prices, by which records are compared. Each has some.
    fn size(&self) -> f64 {
        let lost_ns = EventCosts::default().loss(&self.seen).lost_ns.min(OPERATION_NS_MAX);
        (lost_ns as f64 + 1.0) * self.weight
    }

    fn place(&self) -> (&Option<String>, &crate::facts::key::Key) {
        (&self.seen.column_family, &self.seen.key)
    }
}

impl Sums {
    fn add(&mut self, window: &Window) {
        self.each(window, |sum, count| *sum += count as f64);
    }

    fn fade(&mut self, share: f64) {
        self.each(&Window::default(), |sum, _| *sum *= share);
    }

    /// Each sum with the count of a window that belongs to it.
    fn each(&mut self, window: &Window, with: impl Fn(&mut f64, u64)) {
        let single = [
            (&mut self.duration_ns, window.duration_ns),
            (&mut self.operations, window.operations),
            (&mut self.operations_recorded, window.operations_recorded),
            (&mut self.records_lost, window.records_lost),
            (&mut self.block_reads_timed, window.block_reads_timed),
            (&mut self.operations_estimated, window.operations_estimated),
        ];
        single.into_iter().for_each(|(sum, count)| with(sum, count));
        let counters = [
            (&mut self.attributed, window.attributed),
            (&mut self.recorded, window.recorded),
            (&mut self.followed, window.followed()),
            (&mut self.total, window.total),
        ];
        for (sums, counters) in counters {
            sums.iter_mut().zip(counters.to_array()).for_each(|(sum, count)| with(sum, count));
        }
    }

    fn window(&self) -> Window {
        let counters = |sums: [f64; 5]| Counters::from_array(sums.map(parts));
        Window {
            duration_ns: parts(self.duration_ns),
            operations: parts(self.operations),
            operations_recorded: parts(self.operations_recorded),
            records_lost: parts(self.records_lost),
            block_reads_timed: parts(self.block_reads_timed),
            operations_estimated: parts(self.operations_estimated),
            attributed: counters(self.attributed),
            recorded: counters(self.recorded),
            followed: counters(self.followed),
            total: counters(self.total),
        }
    }
}

/// What is left of a window at a later time; all of it where the clock was set back.
fn share_left(before: Timestamp, now: Timestamp) -> f64 {
    let passed_s = now.duration_since(before).as_secs_f64().max(0.0);
    (-passed_s / HALF_LIFE.as_secs_f64()).exp2()
}

/// So many parts; the cast saturates.
fn parts(count: f64) -> u64 {
    (count * PARTS).round() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::key::Key;
    use crate::loss::read_time::tests::operation;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    fn seen(key: &str, tombstones: u64) -> Observation {
        Observation { key: Key::new(key), ..operation((tombstones, 0, tombstones * 300), (0, 0, 0)) }
    }

    fn window(seen: &[Observation]) -> Window {
        let attributed = seen.iter().map(Observation::weighted).fold(Counters::default(), Counters::plus);
        let operations = seen.len() as u64;
        let duration_ns = 1_000_000_000;
        Window {
            duration_ns,
            operations,
            operations_recorded: operations,
            attributed,
            recorded: attributed,
            ..Window::default()
        }
    }

    fn take(ledger: &mut PainLedger, observations: &[Observation], second: i64) {
        ledger.take(&window(observations), [("/db", observations)], at(second));
    }

    /// Tombstones per second of the ledger that lie at keys with this beginning.
    fn rate(ledger: &PainLedger, prefix: &str) -> f64 {
        let seen = ledger.observations("/db").into_iter();
        let of_prefix = seen.filter(|seen| seen.key.as_bytes().starts_with(prefix.as_bytes()));
        let tombstones: u64 = of_prefix.map(|seen| seen.weighted().tombstones_skipped).sum();
        tombstones as f64 * 1e9 / ledger.window().duration_ns as f64
    }

    #[test]
    fn one_window_gives_what_it_saw() {
        let mut ledger = PainLedger::default();
        take(&mut ledger, &[seen("a", 3_000), Observation { weight: 5, ..seen("b", 200) }], 0);
        assert_eq!((rate(&ledger, "a"), rate(&ledger, "b")), (3_000.0, 1_000.0));
        assert!(ledger.observations("/other").is_empty());
    }

    /// Readers of `a` and of `b` come in turn: each window shows one of them.
    #[test]
    fn what_the_last_window_did_not_see_is_not_forgotten() {
        let mut ledger = PainLedger::default();
        for second in 0..60 {
            let key = if second % 2 == 0 { "a" } else { "b" };
            take(&mut ledger, &[seen(key, 10_000)], second * 5);
        }
        assert!((rate(&ledger, "a") - 5_000.0).abs() < 300.0, "{}", rate(&ledger, "a"));
        assert!((rate(&ledger, "b") - 5_000.0).abs() < 300.0, "{}", rate(&ledger, "b"));
    }

    #[test]
    fn what_is_seen_no_more_fades() {
        let mut ledger = PainLedger::default();
        take(&mut ledger, &[seen("a", 10_000)], 0);
        take(&mut ledger, &[seen("b", 10_000)], 60);
        assert!((rate(&ledger, "a") * 2.0 - rate(&ledger, "b")).abs() < 1.0);
        take(&mut ledger, &[seen("b", 10_000)], 60 * 8);
        assert_eq!(rate(&ledger, "a"), 0.0, "it has gone");
        // A clock that was set back fades nothing.
        take(&mut ledger, &[], 0);
        assert!(rate(&ledger, "b") > 0.0);
    }

    #[test]
    fn after_an_action_nothing_is_left() {
        let mut ledger = PainLedger::default();
        take(&mut ledger, &[seen("a", 10_000)], 0);
        ledger.begin_anew();
        assert_eq!(ledger.window(), Window::default());
        take(&mut ledger, &[seen("b", 10_000)], 5);
        assert_eq!((rate(&ledger, "a"), rate(&ledger, "b")), (0.0, 10_000.0));
    }

    #[test]
    fn it_reads_back_from_json() {
        let mut ledger = PainLedger::default();
        take(&mut ledger, &[seen("a", 10_000), seen("b", 7)], 0);
        take(&mut ledger, &[seen("c", 10_000)], 7);
        let text = serde_json::to_string(&ledger).unwrap();
        let mut read: PainLedger = serde_json::from_str(&text).unwrap();
        read.retain(|database| database == "/db");
        assert_eq!(read.window(), ledger.window());
        assert_eq!(read.observations("/db"), ledger.observations("/db"));
        read.retain(|_| false);
        assert!(read.observations("/db").is_empty());
    }

    /// A thousand prefixes with little pain each, far more records than are kept.
    #[test]
    fn a_ledger_that_is_full_loses_no_place() {
        let mut ledger = PainLedger::default();
        let prefix = |number: u64| format!("{:03}/", number % 1_000);
        for second in 0..6 {
            let records: Vec<Observation> =
                (0..5_000).map(|number| seen(&format!("{}{number}", prefix(number)), 500)).collect();
            take(&mut ledger, &records, second);
        }
        assert_eq!(ledger.observations("/db").len(), RECORDS_MAX - 1);
        let whole = rate(&ledger, "");
        assert!((whole / 2_500_000.0 - 1.0).abs() < 0.01, "{whole}");
        let stored = ledger.to_store();
        assert!(stored.observations("/db").len() <= RECORDS_STORED_MAX);
        for number in 0..1_000 {
            let one = rate(&ledger, &prefix(number));
            assert!((one / 2_500.0 - 1.0).abs() < 0.35, "{number}: {one}");
        }
    }

    proptest! {
        /// However records come and whatever they weigh, a full ledger keeps its bounds and its sum.
        #[test]
        fn thinning_out_keeps_the_sum(
            sizes in proptest::collection::vec((0u8..40, 1u64..1 << 30, 1u64..1 << 20), 1..400),
            most in 2usize..100,
        ) {
            let mut ledger = PainLedger::default();
            let observations: Vec<Observation> = sizes
                .iter()
                .map(|(key, tombstones, weight)| Observation { weight: *weight, ..seen(&key.to_string(), *tombstones) })
                .collect();
            take(&mut ledger, &observations, 0);
            let sum = |ledger: &PainLedger| ledger.records.values().flatten().map(Record::size).sum::<f64>();
            let before = sum(&ledger);
            ledger.thin_out(most);
            let after = sum(&ledger);
            prop_assert!(ledger.records.values().map(Vec::len).sum::<usize>() <= most);
            prop_assert!((after - before).abs() <= before / (most - 1) as f64, "{before} {after}");
        }
    }
}

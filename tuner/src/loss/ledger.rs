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
//! What is done to a range of keys changes what its readers meet: what was seen there before is forgotten,
//! and what is seen there since is held against the time since. What was seen elsewhere stays.

use crate::facts::evidence::{COUNTERS, Counters, EventCosts, Observation, SeekKind, SstFile, Window};
use crate::facts::range::KeyRange;
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

/// Least share of the ledger's time that a place is taken to have had: one window among hours of them.
const SHARE_SEEN_MIN: f64 = 0.001;

/// What is left of a record when it is dropped: it would not be a part any more.
const SHARE_MIN: f64 = 1.0 / PARTS;

/// Places that were forgotten by themselves: a plan has 64 actions at most. Where there are more, all is
/// forgotten.
const FORGOTTEN_MAX: usize = 64;

/// Of the time of a ledger, what a place may lack as if nothing of it had been forgotten.
const MISSING_SHARE_MIN: f64 = 0.01;

/// What the windows on one target have seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PainLedger {
    /// When it last faded.
    faded: Option<Timestamp>,
    sums: Sums,
    /// By database.
    records: BTreeMap<String, Vec<Record>>,
    forgotten: Vec<Forgotten>,
}

/// Where something was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    pub database: String,
    pub column_family: String,
    pub range: KeyRange,
}

/// What was seen there before is forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Forgotten {
    touched: Touched,
    /// Time of windows before that, faded like the ledger's.
    missing_ns: f64,
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
    attributed: [f64; COUNTERS],
    recorded: [f64; COUNTERS],
    followed: [f64; COUNTERS],
    total: [f64; COUNTERS],
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
        let least_ns = self.sums.duration_ns * MISSING_SHARE_MIN;
        self.forgotten.retain(|it| it.missing_ns > least_ns);
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

    /// Something was done there: what was seen before says nothing of what comes after.
    pub fn forget(&mut self, touched: Touched) {
        let before = self.counters(|record| record.weight);
        if let Some(records) = self.records.get_mut(&touched.database) {
            records.retain(|record| !touched.has(&record.seen));
        }
        self.records.retain(|_, records| !records.is_empty());
        // What no record stands for goes with what has one.
        self.sums.scale(ratio(self.counters(|record| record.weight), before));
        self.forgotten.retain(|earlier| earlier.touched != touched);
        self.forgotten.push(Forgotten { touched, missing_ns: self.sums.duration_ns });
        if self.forgotten.len() > FORGOTTEN_MAX {
            *self = PainLedger::default();
        }
    }

    /// When the last window was taken in.
    pub fn last_taken(&self) -> Option<Timestamp> {
        self.faded
    }

    /// All windows as one, with the counts of [`PainLedger::observations`].
    pub fn window(&self) -> Window {
        let mut sums = self.sums;
        if !self.forgotten.is_empty() {
            sums.scale(ratio(self.whole_counters(), self.counters(|record| record.weight)));
        }
        sums.window()
    }

    /// What was seen in a database, each with what is left of its weight.
    pub fn observations(&self, database: &str) -> Vec<Observation> {
        let records = self.records.get(database).into_iter().flatten();
        let weight = |record: &Record| parts(record.weight * self.share_seen(database, &record.seen).recip());
        records.map(|record| Observation { weight: weight(record), ..record.seen.clone() }).collect()
    }

    /// Of the ledger's time, the share in which something was looked for that is where this was.
    fn share_seen(&self, database: &str, seen: &Observation) -> f64 {
        let here = self.forgotten.iter().filter(|it| it.touched.database == database && it.touched.has(seen));
        let missing_ns = here.map(|it| it.missing_ns).fold(0.0, f64::max);
        let share = 1.0 - missing_ns / self.sums.duration_ns;
        if share.is_finite() { share.clamp(SHARE_SEEN_MIN, 1.0) } else { 1.0 }
    }

    /// What the records stand for, each by a weight of its own.
    fn counters(&self, weight: impl Fn(&Record) -> f64) -> [f64; COUNTERS] {
        sum(self.records.values().flatten().map(|record| (&record.seen, weight(record))))
    }

    /// What the records stand for where each place had the whole of the ledger's time.
    fn whole_counters(&self) -> [f64; COUNTERS] {
        let by_database = self.records.iter().flat_map(|(database, records)| {
            records.iter().map(move |it| (&it.seen, it.weight / self.share_seen(database, &it.seen)))
        });
        sum(by_database)
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
        self.forgotten.iter_mut().for_each(|it| it.missing_ns *= share);
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

impl Touched {
    /// What a compaction of these keys has changed, by the database's files: it rewrites whole ones, and
    /// those that it wrote reach as far as those that it read.
    pub fn rewritten<'f>(
        database: &str,
        column_family: &str,
        range: &KeyRange,
        files: impl IntoIterator<Item = &'f SstFile>,
    ) -> Touched {
        let mut touched = Touched {
            database: database.to_owned(),
            column_family: column_family.to_owned(),
            range: range.clone(),
        };
        let overlaps = |file: &&SstFile| {
            file.column_family == column_family && range.overlaps_closed(&file.smallest, &file.largest)
        };
        let whole = &mut touched.range;
        for file in files.into_iter().filter(overlaps) {
            whole.begin = std::mem::take(&mut whole.begin).min(file.smallest.clone());
            whole.end = whole.end.take().map(|end| end.max(file.largest.successor()));
        }
        touched
    }

    /// Whether what was seen may have been there. Where an operation ended is not always known.
    fn has(&self, seen: &Observation) -> bool {
        let (key, end) = (&seen.key, seen.end_key.as_ref());
        let (least, greatest) = match seen.kind {
            SeekKind::SeekToLast => (end, None),
            SeekKind::SeekForPrev => (end.map(|end| end.min(key)), Some(end.map_or(key, |end| end.max(key)))),
            SeekKind::Seek | SeekKind::SeekToFirst => {
                (Some(end.map_or(key, |end| end.min(key))), end.map(|end| end.max(key)))
            }
        };
        let KeyRange { begin: from, end: to } = &self.range;
        seen.column_family.as_deref() == Some(&self.column_family)
            && to.as_ref().zip(least).is_none_or(|(to, least)| least < to)
            && greatest.is_none_or(|greatest| greatest >= from)
    }
}

impl Sums {
    fn add(&mut self, window: &Window) {
        self.each(window, |sum, count| *sum += count as f64);
    }

    fn fade(&mut self, share: f64) {
        self.each(&Window::default(), |sum, _| *sum *= share);
    }

    /// Counters as so many times as many, each by itself.
    fn scale(&mut self, factors: [f64; COUNTERS]) {
        for sums in [&mut self.attributed, &mut self.recorded, &mut self.followed, &mut self.total] {
            sums.iter_mut().zip(factors).for_each(|(sum, factor)| *sum *= factor);
        }
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
        let counters = |sums: [f64; COUNTERS]| Counters::from_array(sums.map(parts));
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

/// What operations have counted, each with so much weight.
fn sum<'a>(weighted: impl Iterator<Item = (&'a Observation, f64)>) -> [f64; COUNTERS] {
    weighted.fold([0.0; COUNTERS], |mut sums, (seen, weight)| {
        let counters = seen.total().to_array();
        sums.iter_mut().zip(counters).for_each(|(sum, count)| *sum += count as f64 * weight);
        sums
    })
}

/// One by one; 1 where there is nothing to compare.
fn ratio(now: [f64; COUNTERS], before: [f64; COUNTERS]) -> [f64; COUNTERS] {
    let mut ratios = now;
    let pairs = ratios.iter_mut().zip(before);
    pairs.for_each(|(ratio, before)| *ratio = if before > 0.0 { *ratio / before } else { 1.0 });
    ratios
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
        let column_family = Some("default".to_owned());
        let (key, end_key) = (Key::new(key), Some(Key::new(key)));
        Observation { column_family, key, end_key, ..operation((tombstones, 0, tombstones * 300), (0, 0, 0)) }
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

    fn forget(ledger: &mut PainLedger, from: &str, to: &str) {
        let range = KeyRange::new(Key::new(from), Some(Key::new(to))).unwrap();
        let (database, column_family) = ("/db".to_owned(), "default".to_owned());
        ledger.forget(Touched { database, column_family, range });
    }

    /// Tombstones per second that operations own, by the ledger's window.
    fn attributed(ledger: &PainLedger) -> f64 {
        let window = ledger.window();
        window.attributed.tombstones_skipped as f64 * 1e9 / window.duration_ns as f64
    }

    #[test]
    fn what_was_done_somewhere_is_forgotten_there_only() {
        let mut ledger = PainLedger::default();
        (0..30).for_each(|turn| take(&mut ledger, &[seen("a", 10_000), seen("b", 2_000)], turn * 5));
        forget(&mut ledger, "a", "b");
        assert_eq!(rate(&ledger, "a"), 0.0);
        assert!((rate(&ledger, "b") / 2_000.0 - 1.0).abs() < 0.01, "{}", rate(&ledger, "b"));
        // One window after it tells all of what is there now, though it is one of many for the other.
        take(&mut ledger, &[seen("a", 500), seen("b", 2_000)], 150);
        assert!((rate(&ledger, "a") / 500.0 - 1.0).abs() < 0.01, "{}", rate(&ledger, "a"));
        assert!((rate(&ledger, "b") / 2_000.0 - 1.0).abs() < 0.01, "{}", rate(&ledger, "b"));
        assert!((attributed(&ledger) / 2_500.0 - 1.0).abs() < 0.01, "{}", attributed(&ledger));
        // Nothing is left there at all.
        forget(&mut ledger, "a", "b");
        take(&mut ledger, &[seen("b", 2_000)], 155);
        assert_eq!(rate(&ledger, "a"), 0.0);
        assert!((attributed(&ledger) / 2_000.0 - 1.0).abs() < 0.01, "{}", attributed(&ledger));
    }

    #[test]
    fn an_operation_is_forgotten_with_each_range_that_it_may_have_been_in() {
        let has = |from: &str, to: &str, seen: &Observation| {
            let range = KeyRange::new(Key::new(from), Some(Key::new(to))).unwrap();
            Touched { database: "/db".into(), column_family: "default".into(), range }.has(seen)
        };
        let of = |kind, key: &str, end: Option<&str>| Observation {
            kind,
            end_key: end.map(Key::new),
            ..seen(key, 1)
        };
        let scan = of(SeekKind::Seek, "c", Some("f"));
        assert!(has("a", "d", &scan) && has("f", "g", &scan) && has("d", "e", &scan));
        assert!(!has("a", "c", &scan) && !has("g", "h", &scan));
        // A scan that turned back.
        assert!(has("a", "b", &of(SeekKind::Seek, "c", Some("a"))));
        assert!(has("a", "b", &of(SeekKind::SeekForPrev, "c", Some("a"))));
        assert!(!has("d", "e", &of(SeekKind::SeekForPrev, "c", Some("a"))));
        // Nobody knows how far it has come.
        assert!(
            has("x", "y", &of(SeekKind::Seek, "c", None)) && !has("a", "b", &of(SeekKind::Seek, "c", None))
        );
        assert!(has("a", "b", &of(SeekKind::SeekForPrev, "c", None)));
        assert!(has("x", "y", &of(SeekKind::SeekToLast, "", None)));
        assert!(!has("a", "b", &of(SeekKind::SeekToLast, "", Some("m"))));
        assert!(!has("c", "d", &Observation { column_family: None, ..scan.clone() }), "nobody knows where");
        assert!(!has("c", "d", &Observation { column_family: Some("other".into()), ..scan }));
    }

    #[test]
    fn a_ledger_with_too_many_places_begins_anew() {
        let mut ledger = PainLedger::default();
        take(&mut ledger, &[seen("z", 10_000)], 0);
        (0..FORGOTTEN_MAX).for_each(|place| forget(&mut ledger, &format!("a{place:03}"), "b"));
        assert!((rate(&ledger, "z") / 10_000.0 - 1.0).abs() < 0.01);
        forget(&mut ledger, "b", "c");
        assert_eq!(ledger, PainLedger::default());
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
        /// Whatever is forgotten when: what the window says and what its records say are the same, and places
        /// where the same was always seen, and nothing done, keep it.
        #[test]
        fn forgetting_keeps_the_rest(
            turns in proptest::collection::vec((0u8..6, 1u64..1 << 20, proptest::option::of(0u8..5)), 1..60),
        ) {
            let mut ledger = PainLedger::default();
            for (turn, (key, tombstones, forgotten)) in (0i64..).zip(turns) {
                if let Some(place) = forgotten {
                    forget(&mut ledger, &place.to_string(), &(place + 1).to_string());
                }
                take(&mut ledger, &[seen(&key.to_string(), tombstones), seen("x", 1_000_000)], turn * 5);
                let steady = rate(&ledger, "x");
                prop_assert!((steady / 1e6 - 1.0).abs() < 0.01, "{steady}");
                let (told, stood_for) = (attributed(&ledger), rate(&ledger, ""));
                prop_assert!((told / stood_for - 1.0).abs() < 0.01, "{told} {stood_for}");
            }
        }

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

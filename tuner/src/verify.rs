//! Whether an action helped: pain before, pain after, what was promised, and why where it did not.
//!
//! Readers who wait less come back sooner: a queue whose lists take a thousandth of the time is listed ten
//! times as often. So what they lose now is judged at the pace they had before, where they are faster than
//! that.

use crate::plan::remedy::MEMTABLE_SHARE_MIN;
use crate::rank::RangeAssessment;
use crate::words;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Where this share of the deletions is still there, the files were not rewritten for good.
const DELETIONS_LEFT_SHARE: f64 = 0.5;

/// Where a snapshot is held, this share is enough to say that it keeps them: nothing else does, and how many
/// of a file's deletions lie in a range is an estimate, off by a factor of two and more where the file is
/// much wider.
const DELETIONS_PINNED_SHARE: f64 = 0.25;

/// Painful operations that the windows after an action must have been long enough to meet, had nothing
/// changed: that they met none by chance then comes about once in twenty times.
const OPERATIONS_EXPECTED_MIN: f64 = 3.0;

/// Why an action did not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    /// A snapshot in the target is older than the deletions: RocksDB has to keep them for it.
    PinnedBySnapshot,
    /// No file was rewritten: RocksDB moved them as they were, or found nothing to do.
    OnlyMoved,
    /// The deletions were dropped, and others have been written since.
    WrittenAgain,
    /// What readers step over now is in a memtable.
    Memtable,
    /// There were no deletions to drop: where the pain fell, something else has made it fall.
    NothingToDrop,
    /// None of these, as far as it shows.
    Unknown,
}

impl Cause {
    /// Short name, as in the API: `pinned_by_snapshot`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What an action left behind, seen when it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aftermath {
    /// Deletions in the range's SST files before.
    pub deletions_before: u64,
    /// The same when it ended.
    pub deletions_after: u64,
    /// Deletions in the column family's memtables before, by RocksDB's own count; `None` where it could not
    /// be asked.
    #[serde(default)]
    pub memtable_deletions_before: Option<u64>,
    /// Bytes of the SST files it replaced.
    pub bytes_rewritten: u64,
    /// `rocksdb.num-snapshots` when it ended; `None` where it could not be asked.
    pub snapshots: Option<u64>,
    /// How long ago the oldest of them was taken, seconds.
    pub oldest_snapshot_age_seconds: Option<u64>,
}

impl Aftermath {
    /// Whether there was nothing to drop, neither in SST files nor, as far as is known, in memtables, and
    /// nothing has come into the files since.
    fn had_nothing_to_drop(&self) -> bool {
        let in_memtables = self.memtable_deletions_before.unwrap_or(0);
        self.deletions_before == 0 && self.deletions_after == 0 && in_memtables == 0
    }

    /// Whether the deletions have outlived the action.
    fn are_kept(&self) -> bool {
        self.are_left(DELETIONS_LEFT_SHARE)
    }

    /// Whether at least this share of them is there.
    fn are_left(&self, share: f64) -> bool {
        self.deletions_after > 0 && self.deletions_after as f64 >= self.deletions_before as f64 * share
    }

    /// Whether a snapshot is what keeps the deletions.
    pub fn is_pinned(&self) -> bool {
        let is_held = self.snapshots.is_some_and(|count| count > 0);
        is_held && self.bytes_rewritten > 0 && self.are_left(DELETIONS_PINNED_SHARE)
    }
}

/// What the windows since an action have shown of its range. The probe budget can cut them short, and one
/// that is shorter than an operation may see none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// How long they were, together.
    pub window_seconds: f64,
    /// Reader time lost meanwhile.
    pub lost_seconds: f64,
    /// What would have been lost, had there been no more operations than before.
    #[serde(default)]
    pub lost_at_pace_seconds: f64,
}

impl Seen {
    /// Adds a window; `after` are all assessments that came of it.
    pub fn add(&mut self, window_seconds: f64, before: &RangeAssessment, after: &[RangeAssessment]) {
        let now = now(before, after);
        self.window_seconds += window_seconds;
        self.lost_seconds += now.pain * window_seconds;
        self.lost_at_pace_seconds += now.pain * now.pace_share(before) * window_seconds;
    }

    /// Whether an unchanged pain would have shown.
    pub fn is_conclusive(&self, before: &RangeAssessment) -> bool {
        before.operations_per_second * self.window_seconds >= OPERATIONS_EXPECTED_MIN
    }

    /// Pain over all of them, seconds per second.
    fn pain(&self) -> f64 {
        self.per_second(self.lost_seconds)
    }

    /// The same at the pace of before.
    fn pain_at_pace(&self) -> f64 {
        self.per_second(self.lost_at_pace_seconds)
    }

    fn per_second(&self, seconds: f64) -> f64 {
        if self.window_seconds > 0.0 { seconds / self.window_seconds } else { 0.0 }
    }
}

/// What an action claimed.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub before: &'a RangeAssessment,
    /// Pain that it promised to relieve, seconds per second.
    pub promised_seconds_per_second: f64,
    /// Share of that which has to be delivered, 0 to 1. Not all of it: readers come and go, and what is
    /// measured in a window varies.
    pub share_min: f64,
    /// What it left behind; `None` where that is not known.
    pub aftermath: Option<&'a Aftermath>,
    /// What the windows since have shown.
    pub seen: Seen,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the pain fell as promised.
    pub helped: bool,
    /// Pain in the range's keys now.
    pub pain_after_seconds_per_second: f64,
    /// By how much it fell, at the pace that readers had before, at least 0.
    pub delivered_seconds_per_second: f64,
    /// Why it did not help.
    pub cause: Option<Cause>,
    pub reason: String,
}

/// The range as it is now.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    pain: f64,
    operations_per_second: f64,
    deletions: u64,
    tombstones_per_second: f64,
    memtable_tombstones_per_second: f64,
}

impl Now {
    fn plus(self, range: &RangeAssessment) -> Now {
        let rate = range.operations_per_second;
        Now {
            pain: self.pain + range.pain_seconds_per_second,
            // An operation that lost time in several ranges counts in each of them.
            operations_per_second: self.operations_per_second.max(rate),
            deletions: self.deletions.saturating_add(range.deletions),
            tombstones_per_second: self.tombstones_per_second + range.tombstones_per_seek * rate,
            memtable_tombstones_per_second: self.memtable_tombstones_per_second
                + range.memtable_tombstones_per_seek * rate,
        }
    }

    /// Operations before for each one now, at most 1.
    fn pace_share(&self, before: &RangeAssessment) -> f64 {
        if self.operations_per_second > before.operations_per_second {
            before.operations_per_second / self.operations_per_second
        } else {
            1.0
        }
    }

    fn is_in_memtables(&self) -> bool {
        self.memtable_tombstones_per_second > 0.0
            && self.memtable_tombstones_per_second >= self.tombstones_per_second * MEMTABLE_SHARE_MIN
    }
}

/// The range in the assessments of a later window of the same database: those that share keys with it. While
/// an action waits for its verdict it is among the evidence's past actions, and so its range is assessed on
/// its own.
fn now(before: &RangeAssessment, after: &[RangeAssessment]) -> Now {
    let same = after.iter().filter(|now| {
        now.column_family == before.column_family
            && now.database == before.database
            && now.range.overlaps(&before.range)
    });
    same.fold(Now::default(), Now::plus)
}

/// Judges an action by what it claimed. `after` are all assessments of the last window.
///
/// Deletions that a snapshot keeps are where they were, whatever a window happened to see. Where there were
/// none, no action has dropped any, whatever the readers do now.
pub fn verdict(claim: &Claim<'_>, after: &[RangeAssessment]) -> Verdict {
    let before = claim.before;
    let now = Now { pain: claim.seen.pain(), ..now(before, after) };
    let at_pace = claim.seen.pain_at_pace();
    let fell = before.pain_seconds_per_second - at_pace;
    let is_pinned = claim.aftermath.is_some_and(Aftermath::is_pinned);
    let had_nothing = had_nothing_to_drop(before, claim.aftermath);
    let helped = !is_pinned
        && !had_nothing
        && fell > 0.0
        && fell >= claim.promised_seconds_per_second * claim.share_min;
    let is_faster = at_pace < now.pain;
    let at_pace_in_words = || format!(", at their pace of before {}", words::pain(at_pace));
    let numbers = format!(
        "readers lost {} before and lose {} now{}; {} less was promised",
        words::pain(before.pain_seconds_per_second),
        words::pain(now.pain),
        is_faster.then(at_pace_in_words).unwrap_or_default(),
        words::pain(claim.promised_seconds_per_second),
    );
    let cause = (!helped).then(|| cause(before, &now, claim.aftermath));
    let reason = match &cause {
        None => numbers,
        Some((_, why)) => format!("{numbers}; {why}"),
    };
    Verdict {
        helped,
        pain_after_seconds_per_second: now.pain,
        delivered_seconds_per_second: fell.max(0.0),
        cause: cause.map(|(cause, _)| cause),
        reason,
    }
}

/// Whether an action can have changed nothing: there were no deletions, and readers stepped over nothing else
/// that it drops.
fn had_nothing_to_drop(before: &RangeAssessment, aftermath: Option<&Aftermath>) -> bool {
    before.hidden_per_seek() <= 0.0 && aftermath.is_some_and(Aftermath::had_nothing_to_drop)
}

/// The likely cause of a pain that stayed, and in words.
fn cause(before: &RangeAssessment, now: &Now, aftermath: Option<&Aftermath>) -> (Cause, String) {
    if had_nothing_to_drop(before, aftermath) {
        let why =
            "there were no deletions to drop in its keys: it has changed nothing for readers".to_owned();
        return (Cause::NothingToDrop, why);
    }
    if let Some(found) = aftermath.and_then(kept) {
        return found;
    }
    if let Some(found) = aftermath.filter(|_| before.is_mostly_hidden()).and_then(kept_hidden) {
        return found;
    }
    let (was, is) = (words::count(before.deletions), words::count(now.deletions));
    if now.deletions > 0 && now.deletions as f64 >= before.deletions as f64 * DELETIONS_LEFT_SHARE {
        let why = format!("{is} deletions are in the files again, {was} were before");
        return (Cause::WrittenAgain, why);
    }
    if now.is_in_memtables() {
        let why = "the tombstones that readers step over now are in a memtable".to_owned();
        return (Cause::Memtable, why);
    }
    let why = format!(
        "the deletions are gone from the files ({was} before, {is} now), and what readers wait for does not show"
    );
    (Cause::Unknown, why)
}

/// Why entries that others hide have outlived an action that was for them. No file counts them.
fn kept_hidden(aftermath: &Aftermath) -> Option<(Cause, String)> {
    if aftermath.bytes_rewritten == 0 {
        let why = "no file was rewritten, files were only moved".to_owned();
        return Some((Cause::OnlyMoved, why));
    }
    let snapshots = aftermath.snapshots.filter(|count| *count > 0).map(words::count)?;
    let why = format!("snapshots in the target ({snapshots} held) keep the versions that they see");
    Some((Cause::PinnedBySnapshot, why))
}

/// Why deletions have outlived the action, where they have.
fn kept(aftermath: &Aftermath) -> Option<(Cause, String)> {
    if !aftermath.are_kept() && !aftermath.is_pinned() {
        return None;
    }
    let (was, is) = (words::count(aftermath.deletions_before), words::count(aftermath.deletions_after));
    if aftermath.is_pinned() {
        let snapshots = words::count(aftermath.snapshots.unwrap_or_default());
        let age = aftermath.oldest_snapshot_age_seconds.map(|age| i64::try_from(age).unwrap_or(i64::MAX));
        let age = age.map(|age| format!(", the oldest taken {} ago", words::span(age))).unwrap_or_default();
        let why = format!(
            "{is} deletions were left of {was}: snapshots in the target keep them ({snapshots} held{age})"
        );
        return Some((Cause::PinnedBySnapshot, why));
    }
    if aftermath.bytes_rewritten == 0 {
        let why = format!("{is} deletions were left of {was}: no file was rewritten, files were only moved");
        return Some((Cause::OnlyMoved, why));
    }
    match aftermath.snapshots {
        Some(_) => Some((
            Cause::WrittenAgain,
            format!(
                "{is} deletions were in the files when it ended, {was} before: they were written meanwhile"
            ),
        )),
        None => Some((
            Cause::Unknown,
            format!("{is} deletions were left of {was}: a snapshot may keep them, which could not be asked"),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::{key::Key, range::KeyRange};

    fn assessment(prefix: &str, pain: f64, deletions: u64) -> RangeAssessment {
        RangeAssessment {
            operations_per_second: 1.0,
            tombstones_per_seek: 1.0,
            entries: deletions,
            deletions,
            density: 1.0,
            pain_seconds_per_second: pain,
            relief_seconds_per_second: pain,
            ..RangeAssessment::without_loss("t", "/db", "cf", KeyRange::with_prefix(Key::new(prefix)))
        }
    }

    fn judged(promised: f64, after: &[RangeAssessment], aftermath: Option<&Aftermath>) -> Verdict {
        let before = assessment("a/", 0.1, 100);
        let mut seen = Seen::default();
        seen.add(1.0, &before, after);
        let claim =
            Claim { before: &before, promised_seconds_per_second: promised, share_min: 0.5, aftermath, seen };
        verdict(&claim, after)
    }

    #[test]
    fn the_share_of_what_was_promised_is_enough() {
        assert!(judged(0.1, &[], None).helped);
        assert!(judged(0.1, &[assessment("b/", 9.0, 0)], None).helped);
        assert!(judged(0.1, &[assessment("a/", 0.05, 0)], None).helped);
        assert!(!judged(0.1, &[assessment("a/", 0.051, 0)], None).helped);
        assert!(!judged(0.0, &[assessment("a/", 0.2, 0)], None).helped);
    }

    #[test]
    fn what_was_delivered_is_told() {
        let delivered = judged(0.1, &[assessment("a/", 0.025, 0)], None).delivered_seconds_per_second;
        assert!((delivered - 0.075).abs() < 1e-12);
        assert_eq!(judged(0.1, &[assessment("a/", 0.3, 0)], None).delivered_seconds_per_second, 0.0);
    }

    /// Windows that were cut short see no operation, and that says nothing.
    #[test]
    fn short_windows_add_up() {
        let before = assessment("a/", 0.1, 100);
        let mut seen = Seen::default();
        seen.add(0.5, &before, &[]);
        assert!(!seen.is_conclusive(&before));
        seen.add(0.5, &before, &[assessment("a/", 0.1, 100)]);
        seen.add(2.0, &before, &[]);
        assert!(seen.is_conclusive(&before));
        assert!((seen.pain() - 0.05 / 3.0).abs() < 1e-12);
        assert_eq!(Seen::default().pain(), 0.0);
    }

    /// Ten times as many operations that lose a twentieth each: the pain is half of what it was, the relief
    /// nine tenths more.
    #[test]
    fn readers_who_come_back_sooner_are_judged_at_their_pace_of_before() {
        let faster = RangeAssessment { operations_per_second: 10.0, ..assessment("a/", 0.05, 0) };
        let judged_faster = judged(0.09, std::slice::from_ref(&faster), None);
        assert!(judged_faster.helped);
        assert!((judged_faster.pain_after_seconds_per_second - 0.05).abs() < 1e-12);
        assert!((judged_faster.delivered_seconds_per_second - 0.095).abs() < 1e-12);
        assert!(
            judged_faster.reason.contains("at their pace of before 5.0 ms/s"),
            "{}",
            judged_faster.reason
        );
        // More operations that lose as much as ever are no relief, and fewer of them are.
        let busier = RangeAssessment { operations_per_second: 2.0, ..assessment("a/", 0.2, 100) };
        assert!(!judged(0.1, &[busier], None).helped);
        let calmer = RangeAssessment { operations_per_second: 0.5, ..assessment("a/", 0.05, 100) };
        assert!((judged(0.1, &[calmer], None).delivered_seconds_per_second - 0.05).abs() < 1e-12);
    }

    /// A window that saw nothing does not make tombstones go away that a snapshot keeps.
    #[test]
    fn what_a_snapshot_keeps_has_not_helped() {
        let kept = Aftermath {
            deletions_before: 100,
            deletions_after: 100,
            bytes_rewritten: 5,
            snapshots: Some(1),
            ..Aftermath::default()
        };
        let verdict = judged(0.1, &[], Some(&kept));
        assert_eq!((verdict.helped, verdict.cause), (false, Some(Cause::PinnedBySnapshot)));
    }

    /// The pain has gone, and no deletion with it: "deletions 0 -> 0" is not what made it go.
    #[test]
    fn what_had_nothing_to_drop_has_not_helped() {
        let nothing = Aftermath { bytes_rewritten: 1 << 20, snapshots: Some(0), ..Aftermath::default() };
        let verdict = judged(0.1, &[], Some(&nothing));
        assert_eq!((verdict.helped, verdict.cause), (false, Some(Cause::NothingToDrop)));
        assert!(verdict.reason.contains("no deletions to drop"), "{}", verdict.reason);
        // In memtables there were some, and a compaction flushes those that it overlaps.
        let in_memtables = Aftermath { memtable_deletions_before: Some(100), ..nothing };
        assert!(judged(0.1, &[], Some(&in_memtables)).helped);
        let in_files = Aftermath { deletions_before: 100, ..nothing };
        assert!(judged(0.1, &[], Some(&in_files)).helped);
        let none_in_memtables = Aftermath { memtable_deletions_before: Some(0), ..nothing };
        assert!(!judged(0.1, &[], Some(&none_in_memtables)).helped);
    }

    /// The pain stayed; only what the action left behind differs.
    fn cause_after(aftermath: Aftermath, now: RangeAssessment) -> Option<Cause> {
        judged(0.1, &[now], Some(&aftermath)).cause
    }

    #[test]
    fn causes_are_told_apart() {
        let kept = Aftermath {
            deletions_before: 100,
            deletions_after: 100,
            bytes_rewritten: 5,
            snapshots: Some(1),
            oldest_snapshot_age_seconds: Some(70),
            ..Aftermath::default()
        };
        let now = || assessment("a/", 0.1, 100);
        assert_eq!(cause_after(kept, now()), Some(Cause::PinnedBySnapshot));
        assert_eq!(cause_after(Aftermath { snapshots: Some(0), ..kept }, now()), Some(Cause::WrittenAgain));
        assert_eq!(cause_after(Aftermath { snapshots: None, ..kept }, now()), Some(Cause::Unknown));
        assert_eq!(cause_after(Aftermath { bytes_rewritten: 0, ..kept }, now()), Some(Cause::OnlyMoved));
        // A snapshot that is held keeps nothing where the deletions have gone.
        let gone = Aftermath { deletions_after: 0, ..kept };
        assert_eq!(cause_after(gone, now()), Some(Cause::WrittenAgain));
        assert_eq!(cause_after(gone, assessment("a/", 0.1, 3)), Some(Cause::Unknown));
        let mut fresh = assessment("a/", 0.1, 3);
        fresh.memtable_tombstones_per_seek = 0.6;
        assert_eq!(cause_after(gone, fresh), Some(Cause::Memtable));
    }

    #[test]
    fn more_than_a_quarter_left_is_a_snapshot_where_one_is_held() {
        let left = |deletions_after, snapshots| {
            let aftermath = Aftermath {
                deletions_before: 100,
                deletions_after,
                bytes_rewritten: 5,
                snapshots: Some(snapshots),
                ..Aftermath::default()
            };
            judged(0.1, &[], Some(&aftermath)).helped
        };
        assert!(!left(30, 1));
        assert!(left(20, 1));
        assert!(left(30, 0));
    }

    /// Deletions that were in a memtable are in files afterwards, where a snapshot holds them.
    #[test]
    fn a_snapshot_pins_what_a_memtable_held() {
        let aftermath =
            Aftermath { deletions_after: 50, bytes_rewritten: 5, snapshots: Some(2), ..Aftermath::default() };
        let verdict = judged(0.1, &[assessment("a/", 0.1, 50)], Some(&aftermath));
        assert_eq!(verdict.cause, Some(Cause::PinnedBySnapshot));
        assert!(verdict.reason.contains("2 held"), "{}", verdict.reason);
    }

    #[test]
    fn names_are_those_of_the_json() {
        let all = [
            Cause::PinnedBySnapshot,
            Cause::OnlyMoved,
            Cause::WrittenAgain,
            Cause::Memtable,
            Cause::NothingToDrop,
            Cause::Unknown,
        ];
        for cause in all {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
    }
}

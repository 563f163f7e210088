//! What a compaction changed in the live SST files, and that in words.

use super::slice::Ran;
use crate::session::SstRead;
use sexton_execute::{JobEnd, JobOutcome};
use sexton_tuner::evidence::{MemtableDeletions, SstFile};
use sexton_tuner::plan::CompactRange;
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::replaced::bytes_replaced;
use sexton_tuner::run::Outcome;
use sexton_tuner::share::share_of_all;

/// Whether the range's files hold no deletion any more, and memtables held none: a plan's actions can share
/// files, and forcing the bottommost level rewrites them even for nothing.
pub fn nothing_left(compact: &CompactRange, before: &RangeAssessment, files: Option<&SstRead>) -> bool {
    let Some(files) = files else { return false };
    let deletions = files.iter().filter(|file| is_inside(compact, file)).map(|file| file.deletions);
    before.memtable_tombstones_per_seek < 1.0 && deletions.sum::<u64>() == 0
}

/// Whether an SST file holds keys that are to be compacted.
fn is_inside(compact: &CompactRange, file: &SstFile) -> bool {
    file.column_family == compact.column_family
        && compact.range.overlaps_closed(&file.smallest, &file.largest)
}

/// What a compaction changed in the live SST files.
pub struct Effect {
    /// Bytes of the files it replaced, those outside of the range too; of what it flushed first, and of what
    /// it had written when it was stopped.
    pub bytes_rewritten: u64,
    /// Deletions in the range, before: its share of those of the files, which are wider.
    pub deletions_before: u64,
    pub deletions_after: u64,
    /// Deletions in the column family's memtables, before; `None` where it could not be asked.
    pub memtable_deletions_before: Option<u64>,
    pub memtable_deletions_after: Option<u64>,
}

impl Effect {
    /// What memtables held before and after.
    pub fn with_memtables(
        self,
        before: Option<MemtableDeletions>,
        after: Option<MemtableDeletions>,
    ) -> Effect {
        Effect {
            memtable_deletions_before: before.map(MemtableDeletions::total),
            memtable_deletions_after: after.map(MemtableDeletions::total),
            ..self
        }
    }

    /// From the files before and after; from the actuator's own count where these could not be read.
    pub fn of(
        compact: &CompactRange,
        before: Option<&SstRead>,
        after: Option<&SstRead>,
        ran: &Ran,
    ) -> Effect {
        let outcome = ran.result.as_ref().ok();
        let (Some(before), Some(after)) = (before, after) else {
            let replaced = outcome.map_or(0, |outcome| outcome.bytes_replaced);
            return Effect {
                bytes_rewritten: replaced.saturating_add(ran.bytes_transient),
                deletions_before: outcome.map_or(0, |outcome| outcome.deletions_before),
                deletions_after: outcome.map_or(0, |outcome| outcome.deletions_after),
                memtable_deletions_before: None,
                memtable_deletions_after: None,
            };
        };
        let inside = |file: &&SstFile| is_inside(compact, file);
        let deletions = |files: &SstRead| share_of_all(files.iter().filter(inside), &compact.range).deletions;
        let replaced = bytes_replaced(before, after, &compact.column_family, &compact.range);
        Effect {
            bytes_rewritten: replaced.saturating_add(ran.bytes_transient),
            deletions_before: deletions(before),
            deletions_after: deletions(after),
            memtable_deletions_before: None,
            memtable_deletions_after: None,
        }
    }
}

/// How the action has ended, and that in words.
pub fn outcome_of(ran: &Ran, effect: &Effect) -> (Outcome, String) {
    let mut changed = format!(
        "{} bytes of SST files rewritten, deletions in the range {} -> {}",
        effect.bytes_rewritten, effect.deletions_before, effect.deletions_after
    );
    if let (Some(before), Some(after)) = (effect.memtable_deletions_before, effect.memtable_deletions_after) {
        changed = format!("{changed}, in memtables {before} -> {after}");
    }
    if let Ok(JobOutcome { command: Some(command), .. }) = &ran.result {
        changed = format!("{changed}; {}", command.in_words());
    }
    if ran.pauses > 0 {
        changed = format!("paused by guards {} times; {changed}", ran.pauses);
    }
    match (&ran.result, &ran.given_up_for) {
        (Ok(_), Some(refusal)) => {
            let why = format!("{}: {}; {changed}", refusal.guard.name(), refusal.reason);
            (Outcome::Aborted(refusal.guard), why)
        }
        (Ok(JobOutcome { end: JobEnd::Done, .. }), None) => (Outcome::Done, changed),
        (Ok(JobOutcome { end: JobEnd::Cancelled { reason }, .. }), None) => {
            (Outcome::Cancelled, format!("{reason}; {changed}"))
        }
        (Err(error), _) => (Outcome::Failed, format!("{error}; {}", error.remedy())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_execute::CommandEnd;
    use sexton_tuner::cost::Bottommost;
    use sexton_tuner::key::Key;
    use sexton_tuner::range::KeyRange;
    use sexton_tuner::verify::Aftermath;

    /// A command that did its work is remembered by its exit code and what it printed, as one that failed is.
    #[test]
    fn what_a_command_said_is_kept() {
        let command = CommandEnd { exit_code: Some(0), output: "compacted\n3 files\n".to_owned() };
        let outcome = JobOutcome { command: Some(command), ..JobOutcome::default() };
        let ran = Ran { result: Ok(outcome), pauses: 0, given_up_for: None, bytes_transient: 0 };
        let effect = Effect {
            bytes_rewritten: 7,
            deletions_before: 2,
            deletions_after: 0,
            memtable_deletions_before: Some(5),
            memtable_deletions_after: Some(1),
        };
        let (state, outcome) = outcome_of(&ran, &effect);
        assert_eq!(state, Outcome::Done);
        assert!(
            outcome.starts_with(
                "7 bytes of SST files rewritten, deletions in the range 2 -> 0, in memtables 5 -> 1"
            ),
            "{outcome}"
        );
        assert!(outcome.ends_with("the command ended with exit code 0: compacted 3 files"), "{outcome}");
    }

    /// What ran through, and wrote so much that is in no list of files.
    fn ran(bytes_transient: u64) -> Ran {
        Ran { result: Ok(JobOutcome::default()), pauses: 0, given_up_for: None, bytes_transient }
    }

    fn file(number: u64, smallest: u8, largest: u8, deletions: u64) -> SstFile {
        SstFile {
            number,
            column_family: "cf".into(),
            level: 6,
            size_bytes: 1_000,
            entries: deletions,
            deletions,
            smallest: Key::new([smallest]),
            largest: Key::new([largest]),
        }
    }

    /// One file held everything; what the compaction made of it are files that lie closer to the range.
    /// Nothing has gone from it.
    #[test]
    fn deletions_that_a_snapshot_keeps_are_kept_however_wide_the_files_were() {
        let before = serde_json::json!({
            "target": "t", "database": "/db", "column_family": "cf", "range": KeyRange::everything(),
            "operations_per_second": 1.0, "tombstones_per_seek": 1.0, "memtable_tombstones_per_seek": 0.0,
            "misses_per_seek": 0.0, "size_bytes": 1, "entries": 1, "deletions": 1, "density": 1.0,
            "pain_seconds_per_second": 1.0, "relief_seconds_per_second": 1.0, "cost_bytes": 1,
            "relief_per_byte": 1.0, "reason": ""
        });
        let compact = CompactRange {
            target: "t".into(),
            database: "/db".into(),
            column_family: "cf".into(),
            range: KeyRange::new(Key::new([100]), Some(Key::new([120]))).unwrap(),
            before: serde_json::from_value(before).unwrap(),
            bottommost: Bottommost::Default,
            cost_bytes: 0,
            largest_job_bytes: 0,
            linked_bytes: 0,
            relief_seconds_per_second: 0.0,
            deletions: 0,
            reason: String::new(),
        };
        let before = vec![file(1, 0, 200, 2_000)];
        let after: Vec<SstFile> =
            (0..10).map(|part| file(2 + u64::from(part), part * 20, part * 20 + 19, 200)).collect();
        let effect = Effect::of(&compact, Some(&before), Some(&after), &ran(0));
        assert!((195..=205).contains(&effect.deletions_before), "{}", effect.deletions_before);
        assert!((190..=205).contains(&effect.deletions_after), "{}", effect.deletions_after);
        let aftermath = Aftermath {
            deletions_before: effect.deletions_before,
            deletions_after: effect.deletions_after,
            bytes_rewritten: effect.bytes_rewritten,
            snapshots: Some(1),
            ..Aftermath::default()
        };
        assert!(aftermath.is_pinned());
    }
}

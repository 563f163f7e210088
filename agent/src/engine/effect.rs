//! What a compaction changed in the live SST files, and that in words.

use super::evidence::SstRead;
use super::slice::Ran;
use crate::actuator::{CompactEnd, CompactOutcome};
use sexton_tuner::evidence::SstFile;
use sexton_tuner::plan::CompactRange;
use sexton_tuner::rank::RangeAssessment;
use std::collections::HashSet;

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
    /// Bytes of the files it replaced.
    pub bytes_rewritten: u64,
    /// Deletions in the files that hold keys of the range, before.
    pub deletions_before: u64,
    /// The same, after.
    pub deletions_after: u64,
}

impl Effect {
    /// From the files before and after; from the actuator's own count where these could not be read.
    pub fn of(
        compact: &CompactRange,
        before: Option<&SstRead>,
        after: Option<&SstRead>,
        outcome: Option<&CompactOutcome>,
    ) -> Effect {
        let (Some(before), Some(after)) = (before, after) else {
            return Effect {
                bytes_rewritten: outcome.map_or(0, |outcome| outcome.bytes_replaced),
                deletions_before: outcome.map_or(0, |outcome| outcome.deletions_before),
                deletions_after: outcome.map_or(0, |outcome| outcome.deletions_after),
            };
        };
        let inside = |file: &&SstFile| is_inside(compact, file);
        let left: HashSet<u64> = after.iter().map(|file| file.number).collect();
        let deletions = |files: &SstRead| files.iter().filter(inside).map(|file| file.deletions).sum();
        let replaced = before.iter().filter(inside).filter(|file| !left.contains(&file.number));
        Effect {
            bytes_rewritten: replaced.map(|file| file.size_bytes).sum(),
            deletions_before: deletions(before),
            deletions_after: deletions(after),
        }
    }
}

/// The action's state and its outcome in words.
pub fn in_words(ran: &Ran, effect: &Effect) -> (String, String) {
    let mut changed = format!(
        "{} bytes of SST files replaced, deletions in them {} -> {}",
        effect.bytes_rewritten, effect.deletions_before, effect.deletions_after
    );
    if let Ok(CompactOutcome { command: Some(command), .. }) = &ran.result {
        changed = format!("{changed}; {}", command.in_words());
    }
    if ran.pauses > 0 {
        changed = format!("paused by guards {} times; {changed}", ran.pauses);
    }
    match (&ran.result, &ran.given_up_for) {
        (Ok(_), Some(refusal)) => {
            ("stopped".into(), format!("{}: {}; {changed}", refusal.guard.name(), refusal.reason))
        }
        (Ok(CompactOutcome { end: CompactEnd::Done, .. }), None) => ("done".into(), changed),
        (Ok(CompactOutcome { end: CompactEnd::Cancelled { reason }, .. }), None) => {
            ("cancelled".into(), format!("{reason}; {changed}"))
        }
        (Err(error), _) => ("failed".into(), format!("{error}; {}", error.remedy())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuator::CommandEnd;
    use std::time::Duration;

    /// A command that did its work is remembered by its exit code and what it printed, as one that failed is.
    #[test]
    fn what_a_command_said_is_kept() {
        let command = CommandEnd { exit_code: Some(0), output: "compacted\n3 files\n".to_owned() };
        let outcome = CompactOutcome {
            end: CompactEnd::Done,
            duration: Duration::from_secs(1),
            bytes_replaced: 0,
            deletions_before: 0,
            deletions_after: 0,
            command: Some(command),
        };
        let ran = Ran { result: Ok(outcome), pauses: 0, given_up_for: None };
        let effect = Effect { bytes_rewritten: 7, deletions_before: 2, deletions_after: 0 };
        let (state, outcome) = in_words(&ran, &effect);
        assert_eq!(state, "done");
        assert!(outcome.starts_with("7 bytes of SST files replaced, deletions in them 2 -> 0"), "{outcome}");
        assert!(outcome.ends_with("the command ended with exit code 0: compacted 3 files"), "{outcome}");
    }
}

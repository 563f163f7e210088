//! Jobs for what RocksDB's own compaction rewrites next: these wait for it, for a while.

use super::rules::Refused;
use super::{PlanInput, Rule};
use crate::facts::evidence::{Evidence, SstFile};
use crate::facts::range::KeyRange;
use crate::plan::job::Job;
use crate::rank::Family;
use crate::words;
use jiff::Timestamp;
use std::time::Duration;

/// Longest time that a job waits. RocksDB begins at once with what is due, unless its threads are busy, and
/// takes seconds for a few files; what is known of the files can be wrong about what it takes.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// From this share of a job's relief on that lies in the keys of such a compaction the job waits for it.
const RELIEF_SHARE_MIN: f64 = 0.9;

/// Compactions of a column family that come by themselves, and drop the tombstones that they meet.
pub(crate) struct Automatic(Vec<Coming>);

struct Coming {
    range: KeyRange,
    level: usize,
    score: f64,
}

impl Automatic {
    pub(crate) fn of(evidence: &Evidence, column_family: &str, family: &Family) -> Automatic {
        let next = family.levels.next_compactions().into_iter().filter(|next| next.drops);
        let coming = next.filter_map(|next| {
            let is_taken =
                |file: &&SstFile| file.column_family == column_family && next.files.contains(&file.number);
            let files = || evidence.files.iter().filter(is_taken);
            let begin = files().map(|file| &file.smallest).min()?.clone();
            let end = files().map(|file| &file.largest).max().map(|largest| largest.successor());
            Some(Coming { range: KeyRange { begin, end }, level: next.level, score: next.score })
        });
        Automatic(coming.collect())
    }

    /// Whether a job has more to do than one of them does; the rule and the reason otherwise.
    pub(crate) fn leaves(&self, family: &Family, job: &Job) -> Result<(), Refused> {
        let relief = |range: &KeyRange| family.relief.of_range(&family.placement, range).total();
        let all = relief(&job.range);
        let is_its = |coming: &&Coming| {
            let shared = job.range.intersection(&coming.range);
            all > 0.0 && shared.is_some_and(|shared| relief(&shared) >= all * RELIEF_SHARE_MIN)
        };
        let Some(coming) = self.0.iter().find(is_its) else { return Ok(()) };
        let what = match coming.level {
            0 => "L0 has reached its compaction trigger or its size".to_owned(),
            level => format!("L{level} has outgrown its size"),
        };
        let reason = format!(
            "{what} (score {:.2}): RocksDB's own compaction takes its files next, and drops what it meets; at most {} \
             are waited for it",
            coming.score,
            words::span(WAIT_MAX.as_secs() as i64),
        );
        Err((Rule::AutomaticCompaction, reason))
    }
}

/// Since when jobs of these keys have waited; now where they do for the first time.
pub(crate) fn waiting_since(
    input: &PlanInput<'_>,
    (target, database, column_family): (&str, &str, &str),
    range: &KeyRange,
) -> Timestamp {
    let earlier = input.previous.into_iter().flat_map(|previous| &previous.refusals);
    let same = earlier.filter(|earlier| {
        earlier.rule == Rule::AutomaticCompaction
            && (earlier.target.as_str(), earlier.database.as_str()) == (target, database)
            && earlier.column_family.as_deref() == Some(column_family)
            && earlier.range.overlaps(range)
    });
    same.filter_map(|earlier| earlier.since).min().unwrap_or(input.now)
}

/// Whether what has been waited for since then may still come.
pub(crate) fn may_wait(input: &PlanInput<'_>, since: Timestamp) -> bool {
    input.now.duration_since(since).unsigned_abs() < WAIT_MAX
}

//! What rankers are told of a job: its readers, and how soon its tombstones are back.

use crate::facts::evidence::{Delivered, Evidence, PastAction};
use crate::plan::job::Job;
use crate::policy::RemedyKind;
use crate::rank::RangeAssessment;
use crate::rank::ranker::{Prospect, Readers};
use jiff::Timestamp;

/// Shortest time after an action that tells how fast tombstones come back, in seconds.
const REGROWTH_SECONDS_MIN: f64 = 1.0;

/// One database: what jobs in it are judged by.
pub(crate) struct Market<'a> {
    evidence: &'a Evidence,
    /// All ranges of it that hurt now.
    ranges: &'a [RangeAssessment],
    readers: Readers,
    now_unix_s: i64,
}

impl<'a> Market<'a> {
    pub(crate) fn of(evidence: &'a Evidence, ranges: &'a [RangeAssessment], now: Timestamp) -> Market<'a> {
        Market { evidence, ranges, readers: readers(evidence, ranges), now_unix_s: now.as_second() }
    }

    /// The job in numbers; `sites` are the ranges that its are numbers of.
    pub(crate) fn prospect(&self, sites: &[&RangeAssessment], job: &Job) -> Prospect {
        let of_site = |(number, share): &(usize, f64)| Some(sites.get(*number)?.tombstones_per_seek * share);
        let column_family = sites.first().and_then(|site| site.column_family.as_deref());
        Prospect {
            relief_seconds_per_second: job.relief_seconds_per_second,
            // An operation is in one of them, as far as it shows.
            tombstones_per_operation: job.sites.iter().filter_map(of_site).fold(0.0, f64::max),
            entries: job.share.entries,
            deletions: job.share.deletions,
            cost_bytes: job.cost_bytes.saturating_add(job.linked_bytes),
            regrowth_seconds: column_family.and_then(|name| self.regrowth_seconds(name, job)),
            readers: self.readers,
        }
    }

    /// How long it takes until as much pain is back as there is now, or as the last compaction of these
    /// keys has relieved where that was less: going by how much has come back since.
    fn regrowth_seconds(&self, column_family: &str, job: &Job) -> Option<f64> {
        let past = self.evidence.past_actions.iter().rev().find(|past| {
            past.column_family == column_family
                && past.remedy == RemedyKind::Compact
                && past.range.overlaps(&job.range)
                && past.delivered.is_some()
        })?;
        let Delivered { pain_before_seconds_per_second, delivered_seconds_per_second, operations_per_second } =
            past.delivered.filter(|it| it.delivered_seconds_per_second > 0.0)?;
        let left = (pain_before_seconds_per_second - delivered_seconds_per_second).max(0.0);
        let now = self.pain_now(past, operations_per_second);
        let elapsed_s = self.now_unix_s.saturating_sub(past.ended_unix_s) as f64;
        let per_second = (now - left) / elapsed_s.max(REGROWTH_SECONDS_MIN);
        (per_second > 0.0).then(|| now.min(delivered_seconds_per_second) / per_second)
    }

    /// Pain in the keys of an earlier action, at the pace that readers had before it.
    fn pain_now(&self, past: &PastAction, operations_per_second: f64) -> f64 {
        let same = self.ranges.iter().filter(|range| {
            range.column_family.as_deref() == Some(past.column_family.as_str())
                && range.range.overlaps(&past.range)
        });
        let pain: f64 = same.clone().map(|range| range.pain_seconds_per_second).sum();
        let pace = same.map(|range| range.operations_per_second).fold(0.0, f64::max);
        if pace > operations_per_second { pain * operations_per_second / pace } else { pain }
    }
}

/// What readers of a database are likely to suffer from jobs, as far as its last window tells.
fn readers(evidence: &Evidence, ranges: &[RangeAssessment]) -> Readers {
    let default = Readers::default();
    let costs = evidence.event_costs();
    let (mut blocks, mut bytes) = (0_u64, 0_u64);
    for observation in &evidence.observations {
        let total = observation.total();
        let weighed = |count: u64| count.saturating_mul(observation.weight);
        blocks = blocks.saturating_add(weighed(total.block_reads));
        bytes = bytes.saturating_add(weighed(total.block_read_bytes));
    }
    let weigh = |range: &RangeAssessment| Some((range.cache_hit_ratio?, range.operations_per_second));
    let (hits, operations) = ranges
        .iter()
        .filter_map(weigh)
        .fold((0.0, 0.0), |(hits, sum), (ratio, weight)| (hits + ratio * weight, sum + weight));
    Readers {
        device_bytes_per_second: evidence
            .device_bytes_per_second
            .filter(|rate| *rate > 0.0)
            .unwrap_or(default.device_bytes_per_second),
        threads_reading: ranges.iter().map(|range| range.block_read_seconds_per_second).sum(),
        block_bytes: if blocks > 0 && bytes > 0 { bytes as f64 / blocks as f64 } else { default.block_bytes },
        cache_hit_ratio: if operations > 0.0 { hits / operations } else { default.cache_hit_ratio },
        seconds_per_miss: costs.ns_per_block_read / 1e9,
    }
}

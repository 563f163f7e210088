//! The ranges that have a part in a job, as one: where its relief is to be looked for, and why it is done.

use crate::facts::range::KeyRange;
use crate::plan::job::Job;
use crate::policy::KeyDisplay;
use crate::rank::RangeAssessment;
use crate::rank::ranker::worth;
use crate::words;

/// From this share of a range on a job takes all of it.
const ALL_OF_IT: f64 = 0.999;

/// The ranges, with how much of each the job takes.
fn parts<'a>(
    job: &'a Job,
    sites: &'a [&'a RangeAssessment],
) -> impl Iterator<Item = (&'a RangeAssessment, f64)> + Clone {
    job.sites.iter().filter_map(|(number, share)| Some((*sites.get(*number)?, *share)))
}

/// From the first key of these ranges to the last.
pub(crate) fn hull(job: &Job, sites: &[&RangeAssessment]) -> KeyRange {
    let mut ranges = parts(job, sites).map(|(site, _)| &site.range);
    let first = ranges.next().unwrap_or(&job.range);
    KeyRange { begin: first.begin.clone(), end: ranges.last().unwrap_or(first).end.clone() }
}

/// What readers lose in a job's keys, as one range; `None` where no range has a part in it.
pub(crate) fn together(job: &Job, sites: &[&RangeAssessment]) -> Option<RangeAssessment> {
    let (worst, _) = parts(job, sites).max_by(|one, two| {
        let pain = |part: &(&RangeAssessment, f64)| part.0.pain_seconds_per_second * part.1;
        pain(one).total_cmp(&pain(two))
    })?;
    let sum = |of: fn(&RangeAssessment) -> f64| parts(job, sites).map(|(site, share)| of(site) * share).sum();
    let operations: f64 = parts(job, sites).map(|(site, _)| site.operations_per_second).sum();
    // Of each operation, over all that lose time in any of them.
    let mean = |of: fn(&RangeAssessment) -> f64| {
        let sums = parts(job, sites).map(|(site, share)| of(site) * share * site.operations_per_second);
        if operations > 0.0 { sums.sum::<f64>() / operations } else { 0.0 }
    };
    let relief_seconds_per_second = job.relief_seconds_per_second;
    let pace = parts(job, sites).map(|(site, _)| site.operations_per_second).fold(0.0, f64::max);
    Some(RangeAssessment {
        range: job.range.clone(),
        // An operation that lost time in several of them counts in each.
        operations_per_second: pace,
        tombstones_per_seek: mean(|site| site.tombstones_per_seek),
        memtable_tombstones_per_seek: mean(|site| site.memtable_tombstones_per_seek),
        unexplained_tombstones_per_seek: mean(|site| site.unexplained_tombstones_per_seek),
        old_versions_per_seek: mean(|site| site.old_versions_per_seek),
        merge_operands_per_seek: mean(|site| site.merge_operands_per_seek),
        reseeks_per_seek: mean(|site| site.reseeks_per_seek),
        steps_per_seek: mean(|site| site.steps_per_seek),
        is_estimated: parts(job, sites).any(|(site, _)| site.is_estimated),
        misses_per_seek: mean(|site| site.misses_per_seek),
        size_bytes: job.share.size_bytes,
        entries: job.share.entries,
        deletions: job.share.deletions,
        density: job.share.density(),
        pain_seconds_per_second: sum(|site| site.pain_seconds_per_second),
        relief_seconds_per_second,
        unexplained_seconds_per_second: sum(|site| site.unexplained_seconds_per_second),
        block_read_seconds_per_second: sum(|site| site.block_read_seconds_per_second),
        cost_bytes: Some(job.cost_bytes),
        relief_per_byte: worth(relief_seconds_per_second, job.cost_bytes.saturating_add(job.linked_bytes)),
        ..worst.clone()
    })
}

/// Why a job is done: one of `count` that these ranges are compacted by.
pub(crate) fn job_reason(
    job: &Job,
    sites: &[&RangeAssessment],
    before: &RangeAssessment,
    (number, count): (usize, usize),
    keys: KeyDisplay,
) -> String {
    let bytes = words::bytes(job.cost_bytes);
    let kept = match job.linked_bytes {
        0 => String::new(),
        bytes => {
            format!("; hard links elsewhere keep {} of what it replaces on the disk", words::bytes(bytes))
        }
    };
    let by_call =
        job.primitive.reason(job.cost_bytes).map(|reason| format!("; {reason}")).unwrap_or_default();
    let kept = format!("{by_call}{kept}");
    let mut all = parts(job, sites);
    if let (Some((site, share)), None) = (all.next(), all.next()) {
        // Told where the range alone would cost less.
        let is_more = job.range == KeyRange::everything() && Some(job.cost_bytes) > site.cost_bytes;
        let of_it = match share >= ALL_OF_IT {
            _ if is_more => format!("; the whole column family is compacted: {bytes}"),
            true => String::new(),
            false => {
                let deletions = words::count(job.share.deletions);
                format!("; job {number} of {count}: {deletions} deletions, {bytes}")
            }
        };
        return format!("{}{of_it}{kept}", before.reason);
    }
    format!(
        "readers lose {} in {} ranges of {}; {} of {} entries in them are deletions ({}); compacting their files \
         rewrites {bytes}; {} would go{kept}; the worst of them: {}",
        words::pain(before.pain_seconds_per_second),
        words::count(job.sites.len() as u64),
        words::range(&hull(job, sites), keys),
        words::count(before.deletions),
        words::count(before.entries),
        words::percent(before.density),
        words::pain(before.relief_seconds_per_second),
        before.reason,
    )
}

//! Assessment: evidence in, ranges out, ranked by relief per byte.

pub(crate) mod attribution;
pub(crate) mod candidate;
mod families;
pub mod index_blocks;
pub(crate) mod join;
mod quiet;
pub mod ranker;
pub(crate) mod relief_map;
pub mod survey;

pub(crate) use self::families::families_with_files;
pub use self::families::{Families, Family, OBSERVATIONS_MAX, families};
pub(crate) use self::quiet::quiet_ranges;

use self::families::{by_column_family, observations_of};
use crate::facts::evidence::{
    BlockReadSource, EventCosts, Evidence, KEYS_PER_TOMBSTONE, Observation, SstFile, TOMBSTONES_PER_RESEEK,
};
use crate::facts::range::KeyRange;
use crate::loss::read_time::{Events, Scale, events};
use crate::lsm::cost::{Bottommost, Levels};
use crate::lsm::share::Share;
use crate::plan::remedy::are_in_memtables;
use crate::policy::{Policy, TargetPolicy};
use crate::rank::attribution::ColumnFamily;
use crate::rank::candidate::CandidateInput;
use crate::rank::join::{RangeRow, join};
use crate::words;
use serde::{Deserialize, Serialize};

/// Why evidence could not be assessed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssessError {
    /// Observations without a time they were made in give no rate.
    #[error(
        "{database}: the window has {observations} observations and a duration of zero; open a new window"
    )]
    WindowWithoutDuration { database: String, observations: usize },
    /// The join failed; that is a defect.
    #[error(
        "{database}: joining observations and files failed: {source}; please report it with this message"
    )]
    Join {
        database: String,
        /// What Polars said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// One range that readers lost time in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangeAssessment {
    pub target: String,
    pub database: String,
    /// Column family; `None` where no probe could tell: then the range is everything, and is only reported.
    pub column_family: Option<String>,
    /// Whether these are operations whose iterator could not be told from others of its thread: then there is
    /// no column family either.
    #[serde(default)]
    pub ambiguous: bool,
    pub range: KeyRange,
    /// Operations that lost time in it, per second.
    pub operations_per_second: f64,
    /// Tombstones skipped in it per such operation.
    pub tombstones_per_seek: f64,
    /// Those of them that are in no SST file but in a memtable, by what RocksDB says of its memtables.
    pub memtable_tombstones_per_seek: f64,
    /// Those of them that are in no SST file that was seen, nor in a memtable as far as RocksDB could be
    /// asked: nothing is promised for them.
    #[serde(default)]
    pub unexplained_tombstones_per_seek: f64,
    /// Older versions of keys stepped over in it per such operation.
    #[serde(default)]
    pub old_versions_per_seek: f64,
    /// Merge operands merged in it per such operation.
    #[serde(default)]
    pub merge_operands_per_seek: f64,
    /// Seeks behind range tombstones in it per such operation.
    #[serde(default)]
    pub reseeks_per_seek: f64,
    /// Calls of `Next` and `Prev` in it per such operation, as far as they were counted.
    #[serde(default)]
    pub steps_per_seek: f64,
    /// Whether tombstones are an estimate: keys of all kinds, by the iterators' own count.
    #[serde(default)]
    pub is_estimated: bool,
    /// Block-cache misses per such operation.
    pub misses_per_seek: f64,
    /// Reader time spent on fetching blocks, in seconds per such miss, reading ahead included; 0 without
    /// misses.
    #[serde(default)]
    pub seconds_per_miss: f64,
    /// Blocks that these operations found in the cache, per block they needed, 0 to 1; `None` where they
    /// needed none.
    #[serde(default)]
    pub cache_hit_ratio: Option<f64>,
    /// Bytes of SST files in it, all levels, estimated.
    pub size_bytes: u64,
    /// Entries in it, deletions included, estimated.
    pub entries: u64,
    /// Deletions in it, estimated.
    pub deletions: u64,
    /// Deletions per entry, 0 to 1.
    pub density: f64,
    /// Reader time lost in it per second of wall clock.
    pub pain_seconds_per_second: f64,
    /// The part of the pain that goes with what is dead and in a place that is known: what compaction would
    /// relieve.
    pub relief_seconds_per_second: f64,
    /// The part of the pain that goes with what is dead and in no place that is known.
    #[serde(default)]
    pub unexplained_seconds_per_second: f64,
    /// The block misses' part of the pain, relieved or not.
    #[serde(default)]
    pub block_read_seconds_per_second: f64,
    /// Bytes that compacting it would rewrite, over all levels; `None` where its SST files cannot be seen.
    pub cost_bytes: Option<u64>,
    /// Relief per byte rewritten (at least [`crate::rank::ranker::COST_BYTES_MIN`] bytes): the rank. 0 where
    /// the cost is not known.
    pub relief_per_byte: f64,
    pub reason: String,
}

impl RangeAssessment {
    /// Keys in which nobody is known to lose time, nor what files hold there.
    pub(crate) fn without_loss(
        target: &str,
        database: &str,
        column_family: &str,
        range: KeyRange,
    ) -> RangeAssessment {
        RangeAssessment {
            target: target.to_owned(),
            database: database.to_owned(),
            column_family: Some(column_family.to_owned()),
            ambiguous: false,
            range,
            operations_per_second: 0.0,
            tombstones_per_seek: 0.0,
            memtable_tombstones_per_seek: 0.0,
            unexplained_tombstones_per_seek: 0.0,
            old_versions_per_seek: 0.0,
            merge_operands_per_seek: 0.0,
            reseeks_per_seek: 0.0,
            steps_per_seek: 0.0,
            is_estimated: false,
            misses_per_seek: 0.0,
            seconds_per_miss: 0.0,
            cache_hit_ratio: None,
            size_bytes: 0,
            entries: 0,
            deletions: 0,
            density: 0.0,
            pain_seconds_per_second: 0.0,
            relief_seconds_per_second: 0.0,
            unexplained_seconds_per_second: 0.0,
            block_read_seconds_per_second: 0.0,
            cost_bytes: Some(0),
            relief_per_byte: 0.0,
            reason: "no reader was seen to lose time".to_owned(),
        }
    }

    /// What it is where readers meet so many times as much of it in the same time.
    #[must_use]
    pub fn at_pace(self, factor: f64) -> RangeAssessment {
        RangeAssessment {
            operations_per_second: self.operations_per_second * factor,
            pain_seconds_per_second: self.pain_seconds_per_second * factor,
            relief_seconds_per_second: self.relief_seconds_per_second * factor,
            unexplained_seconds_per_second: self.unexplained_seconds_per_second * factor,
            block_read_seconds_per_second: self.block_read_seconds_per_second * factor,
            relief_per_byte: self.relief_per_byte * factor,
            ..self
        }
    }

    /// Whether anything is known to be in it that a compaction drops: deletions in SST files or in memtables,
    /// or what newer entries hide.
    pub fn has_dead_entries(&self) -> bool {
        self.deletions > 0 || self.memtable_tombstones_per_seek > 0.0 || self.hidden_per_seek() > 0.0
    }

    /// Time that operations lost in it to what entries hide that are no point tombstones: in tombstones that
    /// take as long, per operation.
    pub fn hidden_per_seek(&self) -> f64 {
        self.old_versions_per_seek / KEYS_PER_TOMBSTONE as f64
            + self.merge_operands_per_seek
            + self.reseeks_per_seek * TOMBSTONES_PER_RESEEK as f64
    }

    /// Whether most of what a compaction would drop in it is that.
    pub(crate) fn is_mostly_hidden(&self) -> bool {
        let hidden = self.hidden_per_seek();
        hidden > 0.0 && hidden >= self.tombstones_per_seek - self.unexplained_tombstones_per_seek
    }
}

/// Ranges that readers lost time in, best first; `families` are the evidence's.
pub fn assess(
    evidence: &Evidence,
    families: &Families<'_>,
    target_policy: &TargetPolicy,
    policy: &Policy,
) -> Result<Vec<RangeAssessment>, AssessError> {
    let observations = observations_of(evidence);
    if observations.is_empty() {
        return Ok(Vec::new());
    }
    if evidence.window.duration_ns == 0 {
        let (database, observations) = (evidence.database.clone(), observations.len());
        return Err(AssessError::WindowWithoutDuration { database, observations });
    }
    let costs = evidence.event_costs();
    let assessor = Assessor {
        evidence,
        policy,
        costs,
        factor: Scale::of(&evidence.window, &evidence.sentinel).factor() * left_out(evidence),
    };
    let ambiguous: Vec<&Observation> = observations.iter().filter(|seen| seen.ambiguous).collect();
    let mut picture = Picture::default();
    for (name, observations) in by_column_family(evidence) {
        match name.and_then(|name| families.get_key_value(name)) {
            Some(family) => picture.add(&assessor, target_policy, family, &observations),
            None => picture.unknown = picture.add_nowhere(&assessor, &observations),
        }
    }
    picture.ambiguous = picture.add_nowhere(&assessor, &ambiguous);
    let rows = join(&picture.observation_shares, &picture.file_shares).map_err(|error| {
        AssessError::Join { database: evidence.database.clone(), source: Box::new(error) }
    })?;
    let mut assessments: Vec<RangeAssessment> =
        rows.iter().filter_map(|row| assessor.assessment(&picture, row)).collect();
    assessments.sort_by(compare);
    Ok(assessments)
}

/// Observations for each one that is looked at, at least 1.
fn left_out(evidence: &Evidence) -> f64 {
    evidence.observations.len() as f64 / observations_of(evidence).len().max(1) as f64
}

/// Ranges with something to drop before those of which nothing is known, greatest relief per byte first, then
/// greatest pain; equal ones by name and keys, so that the order is total.
pub fn compare(one: &RangeAssessment, two: &RangeAssessment) -> std::cmp::Ordering {
    fn place(item: &RangeAssessment) -> (&str, &str, Option<&str>, &KeyRange) {
        (&item.target, &item.database, item.column_family.as_deref(), &item.range)
    }
    (two.has_dead_entries().cmp(&one.has_dead_entries()))
        .then_with(|| two.relief_per_byte.total_cmp(&one.relief_per_byte))
        .then_with(|| two.pain_seconds_per_second.total_cmp(&one.pain_seconds_per_second))
        .then_with(|| place(one).cmp(&place(two)))
}

struct Assessor<'a> {
    evidence: &'a Evidence,
    policy: &'a Policy,
    costs: EventCosts,
    /// What counts and times of the window are multiplied by.
    factor: f64,
}

/// All column families with their shares, ranges numbered through.
#[derive(Default)]
struct Picture<'a> {
    families: Vec<(&'a str, &'a Levels, ColumnFamily<'a>)>,
    /// The range of operations whose column family is not known.
    unknown: Option<u32>,
    /// The range of those whose iterator is not known.
    ambiguous: Option<u32>,
    next_range: u32,
    observation_shares: Vec<RangeRow>,
    file_shares: Vec<RangeRow>,
}

impl<'a> Picture<'a> {
    fn add(
        &mut self,
        assessor: &Assessor<'a>,
        target_policy: &TargetPolicy,
        (name, family): (&&'a str, &'a Family),
        observations: &[&Observation],
    ) {
        let name = *name;
        let evidence = assessor.evidence;
        let files: Vec<&SstFile> = evidence.files.iter().filter(|file| file.column_family == name).collect();
        let waiting =
            evidence.past_actions.iter().filter(|past| past.column_family == name && past.awaits_verdict);
        let kept: Vec<&KeyRange> = waiting.map(|past| &past.range).collect();
        let input = CandidateInput {
            files: &files,
            placement: &family.placement,
            observations,
            prefix_rule: target_policy.prefix_rule(name),
            kept: &kept,
            range_bytes_max: assessor.policy.range_bytes_max.bytes(),
            density: assessor.policy.thresholds.density,
        };
        let cut = ColumnFamily::new(&input, (&family.placement, &family.hidden), self.next_range);
        let ranges = u32::try_from(cut.ranges.len()).unwrap_or(u32::MAX);
        self.next_range = self.next_range.saturating_add(ranges);
        self.file_shares.extend(cut.file_shares());
        for observation in observations {
            let loss = assessor.costs.loss(observation);
            self.observation_shares.extend(cut.observation_shares(observation, loss));
        }
        self.families.push((name, &family.levels, cut));
    }

    /// Operations that lie nowhere in the key space; the number of the range that stands for them.
    fn add_nowhere(&mut self, assessor: &Assessor<'_>, observations: &[&Observation]) -> Option<u32> {
        if observations.is_empty() {
            return None;
        }
        let number = self.next_range;
        self.next_range = self.next_range.saturating_add(1);
        for observation in observations {
            let loss = assessor.costs.loss(observation);
            let Events { tombstones, block_reads, block_cache_hits, hidden, steps } = events(observation);
            let row = RangeRow {
                range: number,
                operations: 1,
                tombstones,
                memtable_tombstones: 0,
                unexplained_tombstones: tombstones,
                old_versions: hidden.old_versions,
                merge_operands: hidden.merge_operands,
                reseeks: hidden.reseeks,
                steps,
                estimated: u64::from(observation.estimated),
                block_reads,
                block_cache_hits,
                lost_ns: loss.lost_ns,
                relief_ns: 0,
                unexplained_ns: loss.relief_ns,
                block_read_ns: loss.block_read_ns,
                share: Share::default(),
            };
            self.observation_shares.push(row.times(observation.weight));
        }
        Some(number)
    }

    /// Name, keys and files (none of the unknown column family's) of the range with this number.
    fn find(&self, number: u32) -> Option<(Option<&'a str>, KeyRange, Option<&Levels>)> {
        if [self.unknown, self.ambiguous].contains(&Some(number)) {
            return Some((None, KeyRange::everything(), None));
        }
        self.families
            .iter()
            .find_map(|(name, levels, cut)| Some((Some(*name), cut.range(number)?.clone(), Some(*levels))))
    }
}

impl Assessor<'_> {
    fn assessment(&self, picture: &Picture<'_>, row: &RangeRow) -> Option<RangeAssessment> {
        if row.lost_ns == 0 {
            return None;
        }
        let (column_family, range, levels) = picture.find(row.range)?;
        let seconds = self.evidence.window.duration_ns as f64 / 1e9;
        let per_second = |count: f64| count / seconds * self.factor;
        let per_operation = |count: u64| count as f64 / row.operations.max(1) as f64;
        let blocks = row.block_reads.saturating_add(row.block_cache_hits);
        let levels = levels.filter(|_| self.evidence.files_unseen.is_none());
        let relief = per_second(row.relief_ns as f64 / 1e9);
        let mut assessment = RangeAssessment {
            target: self.evidence.target.clone(),
            database: self.evidence.database.clone(),
            column_family: column_family.map(str::to_owned),
            ambiguous: picture.ambiguous == Some(row.range),
            range,
            operations_per_second: per_second(row.operations as f64),
            tombstones_per_seek: per_operation(row.tombstones),
            memtable_tombstones_per_seek: per_operation(row.memtable_tombstones),
            unexplained_tombstones_per_seek: per_operation(row.unexplained_tombstones),
            old_versions_per_seek: per_operation(row.old_versions),
            merge_operands_per_seek: per_operation(row.merge_operands),
            reseeks_per_seek: per_operation(row.reseeks),
            steps_per_seek: per_operation(row.steps),
            is_estimated: row.estimated > 0,
            misses_per_seek: per_operation(row.block_reads),
            seconds_per_miss: match row.block_reads {
                0 => 0.0,
                reads => row.block_read_ns as f64 / 1e9 / reads as f64,
            },
            cache_hit_ratio: (blocks > 0).then(|| row.block_cache_hits as f64 / blocks as f64),
            size_bytes: row.share.size_bytes,
            entries: row.share.entries,
            deletions: row.share.deletions,
            density: row.share.density(),
            pain_seconds_per_second: per_second(row.lost_ns as f64 / 1e9),
            relief_seconds_per_second: relief,
            unexplained_seconds_per_second: per_second(row.unexplained_ns as f64 / 1e9),
            block_read_seconds_per_second: per_second(row.block_read_ns as f64 / 1e9),
            cost_bytes: None,
            relief_per_byte: 0.0,
            reason: String::new(),
        };
        assessment.cost_bytes = levels.map(|levels| {
            // What is flushed first would be moved down as it is, were the bottommost level not forced.
            match are_in_memtables(&assessment) {
                true => levels.predict(&assessment.range, Bottommost::Force).read_bytes,
                false => levels.compaction_cost_bytes(&assessment.range),
            }
        });
        assessment.relief_per_byte = assessment.cost_bytes.map_or(0.0, |bytes| ranker::worth(relief, bytes));
        assessment.reason = self.reason(&assessment);
        Some(assessment)
    }

    fn reason(&self, range: &RangeAssessment) -> String {
        let would_go = match range.cost_bytes {
            Some(_) => format!("{} would go", words::pain(range.relief_seconds_per_second)),
            None => "what a compaction costs and relieves is not known".to_owned(),
        };
        let events = Some(self.events_in_words(range)).filter(|events| !events.is_empty());
        format!(
            "readers lose {} in {}: {} painful operations/s{}; {}; {would_go}",
            words::pain(range.pain_seconds_per_second),
            words::range(&range.range, self.policy.keys),
            words::number(range.operations_per_second),
            events.map(|events| format!(" {events}")).unwrap_or_default(),
            self.files_in_words(range),
        )
    }

    fn files_in_words(&self, range: &RangeAssessment) -> String {
        if let Some(why) = &self.evidence.files_unseen {
            return format!("its SST files cannot be seen ({why})");
        }
        let Some(cost_bytes) = range.cost_bytes else {
            return "which column family's SST files they are in is not known".to_owned();
        };
        if range.entries == 0 {
            return "its SST files have no entries".to_owned();
        }
        format!(
            "{} of {} entries are deletions ({}); compacting rewrites {}",
            words::count(range.deletions),
            words::count(range.entries),
            words::percent(range.density),
            words::bytes(cost_bytes),
        )
    }

    /// How many tombstones are in no place that is known, and what is known of that.
    fn unexplained_in_words(&self, range: &RangeAssessment) -> String {
        let count = words::number(range.unexplained_tombstones_per_seek);
        let is_asked = |name: &String| self.evidence.memtables.contains_key(name);
        if range.cost_bytes.is_none() {
            format!("{count} of them are unexplained: where they lie is not known")
        } else if range.column_family.as_ref().is_some_and(is_asked) {
            format!("{count} of them are unexplained: neither in its SST files nor in memtables")
        } else {
            format!("{count} of them are unexplained: not in its SST files, and memtables could not be asked")
        }
    }

    /// What each operation did.
    fn events_in_words(&self, range: &RangeAssessment) -> String {
        let mut parts = Vec::new();
        if range.tombstones_per_seek > 0.0 {
            let source = if self.costs.tombstone_learnt { "measured" } else { "assumed" };
            let ns = self.costs.ns_per_tombstone;
            let skipped = words::number(range.tombstones_per_seek);
            parts.push(match range.is_estimated {
                false => format!("skip {skipped} tombstones each ({ns:.0} ns a tombstone, {source})"),
                true => format!(
                    "skip an estimate of {skipped} tombstones each (keys of all kinds, by the iterators' own count; \
                     {ns:.0} ns a tombstone, {source})"
                ),
            });
        }
        if range.memtable_tombstones_per_seek > 0.0 {
            let count = words::number(range.memtable_tombstones_per_seek);
            parts.push(format!("{count} of them are not in its SST files but in memtables"));
        }
        if range.unexplained_tombstones_per_seek > 0.0 {
            parts.push(self.unexplained_in_words(range));
        }
        parts.extend(hidden_in_words(range));
        if range.misses_per_seek > 0.0 {
            let seconds = match self.costs.block_read_source {
                BlockReadSource::Timed => range.seconds_per_miss,
                BlockReadSource::Assumed | BlockReadSource::Learnt => self.costs.ns_per_block_read / 1e9,
            };
            let (time, source) = (words::seconds(seconds), self.costs.block_read_source.in_words());
            let misses = words::number(range.misses_per_seek);
            parts.push(format!("read {misses} blocks each ({time} a block, {source})"));
        }
        if let Some(ratio) = range.cache_hit_ratio.filter(|ratio| *ratio > 0.0) {
            parts.push(format!("find {} of their blocks in the cache", words::percent(ratio)));
        }
        parts.join(", ")
    }
}

/// What each operation met beside point tombstones that a compaction drops.
fn hidden_in_words(range: &RangeAssessment) -> impl Iterator<Item = String> {
    let met = [
        (range.old_versions_per_seek, "step over", "older versions of keys each"),
        (range.merge_operands_per_seek, "merge", "operands each"),
        (range.reseeks_per_seek, "seek behind range tombstones", "times each"),
    ];
    let met = met.into_iter().filter(|(count, ..)| *count > 0.0);
    met.map(|(count, what, of)| format!("{what} {} {of}", words::number(count)))
}

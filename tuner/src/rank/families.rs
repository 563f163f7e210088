//! A database's column families, made ready once for ranking and for planning.

use crate::facts::evidence::{Evidence, Observation, SstFile};
use crate::facts::options::ColumnFamilyOptions;
use crate::lsm::cost::Levels;
use crate::lsm::hidden_entries::HiddenEntries;
use crate::lsm::kept::KeptBySnapshot;
use crate::lsm::layout::Layout;
use crate::lsm::tombstone_placement::{Legs, Placement};
use crate::rank::relief_map::ReliefMap;
use std::collections::{BTreeMap, BTreeSet};

/// Most observations of one window that are looked at; the rest counts as lost records do.
pub const OBSERVATIONS_MAX: usize = 100_000;

/// One column family that readers were seen in.
pub struct Family {
    pub(crate) levels: Levels,
    /// What its files hold where.
    pub(crate) placement: Placement,
    /// And where entries lie that others hide.
    pub(crate) hidden: HiddenEntries,
    /// Where its readers lose time to what they hold.
    pub(crate) relief: ReliefMap,
    /// What the oldest RocksDB snapshot may keep, while one is held.
    pub(crate) kept: Option<KeptBySnapshot>,
    pub(crate) options: ColumnFamilyOptions,
}

pub type Families<'a> = BTreeMap<&'a str, Family>;

/// The column families that observations are known to be in.
pub fn families(evidence: &Evidence) -> Families<'_> {
    let groups = by_column_family(evidence);
    let known = groups.iter().filter_map(|(name, seen)| Some(((*name)?, seen)));
    known.map(|(name, seen)| (name, Family::of(evidence, name, seen))).collect()
}

/// All column families that have files.
pub(crate) fn families_with_files(evidence: &Evidence) -> Families<'_> {
    let mut families = families(evidence);
    for file in &evidence.files {
        let name = file.column_family.as_str();
        families.entry(name).or_insert_with(|| Family::of(evidence, name, &[]));
    }
    families
}

impl Family {
    fn of(evidence: &Evidence, name: &str, observations: &[&Observation]) -> Family {
        let files: Vec<&SstFile> = evidence.files.iter().filter(|file| file.column_family == name).collect();
        let options = evidence.options_of(name);
        let legs = Legs::of(&files, observations);
        let layout = Layout::of(&files, &evidence.index_marks, legs.spans());
        let levels = Levels::on(&layout, &files, &options, &evidence.linked_files);
        let memtables = evidence.memtables.get(name).copied();
        let placement = Placement::on(&layout, &files, &legs, memtables);
        let hidden = HiddenEntries::of(&files, &placement, observations);
        let relief = ReliefMap::of(&placement, &hidden, observations, &evidence.event_costs());
        let snapshot = evidence.oldest_snapshot.as_ref();
        let kept = snapshot.map(|snapshot| {
            let kept = KeptBySnapshot::of(&files, &placement, snapshot);
            kept.with_hidden(&placement, &hidden, observations)
        });
        Family { levels, placement, hidden, relief, kept, options }
    }
}

/// The observations that are looked at.
pub(super) fn observations_of(evidence: &Evidence) -> &[Observation] {
    evidence.observations.get(..OBSERVATIONS_MAX).unwrap_or(&evidence.observations)
}

/// Observations by column family. Where a probe could not tell and only one column family has files,
/// it is that one. Those whose iterator is not known are left out.
pub(super) fn by_column_family(evidence: &Evidence) -> BTreeMap<Option<&str>, Vec<&Observation>> {
    let names: BTreeSet<&str> = evidence.files.iter().map(|file| file.column_family.as_str()).collect();
    let only = if names.len() == 1 { names.first().copied() } else { None };
    let mut groups: BTreeMap<Option<&str>, Vec<&Observation>> = BTreeMap::new();
    for observation in observations_of(evidence).iter().filter(|seen| !seen.ambiguous) {
        groups.entry(observation.column_family.as_deref().or(only)).or_default().push(observation);
    }
    groups
}

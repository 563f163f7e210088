//! What is needed of column families to choose a remedy in one: their levels, parts and options.

use crate::facts::evidence::{Evidence, Observation, SstFile};
use crate::facts::options::ColumnFamilyOptions;
use crate::lsm::cost::Levels;
use crate::rank::{by_column_family, observations_of, parts};
use std::collections::BTreeMap;

/// One database's column families, looked up as they are needed.
pub(crate) struct Families<'a> {
    pub(crate) evidence: &'a Evidence,
    observations: BTreeMap<Option<&'a str>, Vec<&'a Observation>>,
    by_name: BTreeMap<&'a str, Family>,
}

/// What is needed to choose a remedy in a column family.
pub(crate) struct Family {
    pub(crate) levels: Levels,
    pub(crate) parts: Vec<SstFile>,
    pub(crate) options: ColumnFamilyOptions,
}

impl<'a> Families<'a> {
    pub(crate) fn of(evidence: &'a Evidence) -> Families<'a> {
        let observations = by_column_family(evidence, observations_of(evidence));
        Families { evidence, observations, by_name: BTreeMap::new() }
    }

    pub(crate) fn get(&mut self, name: &str) -> Option<&Family> {
        let is_it = |known: Option<&str>| known == Some(name);
        let (name, observations) = self.observations.iter().find(|(known, _)| is_it(**known))?;
        let family = || Family::of(self.evidence, name.unwrap_or(""), observations);
        Some(self.by_name.entry((*name)?).or_insert_with(family))
    }
}

impl Family {
    fn of(evidence: &Evidence, name: &str, observations: &[&Observation]) -> Family {
        let files: Vec<&SstFile> = evidence.files.iter().filter(|file| file.column_family == name).collect();
        let options = evidence.options_of(name);
        let levels = Levels::of_linked(&files, &options, &evidence.linked_files);
        Family { levels, parts: parts(evidence, name, observations), options }
    }
}

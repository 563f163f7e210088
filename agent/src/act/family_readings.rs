//! What guards read of column families.

use crate::observe::Watched;
use sexton_hook_protocol::ColumnFamilyLoad;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::guard::FamilyReadings;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The readings of all column families: those that no probe has seen are known by the files that they had
/// when these were last read.
pub fn family_readings(
    watched: &Watched,
    database: &Path,
    loads: Vec<ColumnFamilyLoad>,
) -> Vec<FamilyReadings> {
    let evidence = watched.evidence.iter().find(|evidence| Path::new(&evidence.database) == database);
    let files = evidence.map_or(&[][..], |evidence| &evidence.files);
    with_limits(watched, database, with_files(loads, files))
}

/// Adds the column families that are known by their files alone.
fn with_files(mut loads: Vec<ColumnFamilyLoad>, files: &[SstFile]) -> Vec<ColumnFamilyLoad> {
    let asked: HashSet<String> = loads.iter().map(|load| load.name.clone()).collect();
    let mut level0: BTreeMap<&str, u64> = BTreeMap::new();
    for file in files.iter().filter(|file| !asked.contains(&file.column_family)) {
        *level0.entry(&file.column_family).or_default() += u64::from(file.level == 0);
    }
    loads.extend(level0.into_iter().map(|(name, files)| ColumnFamilyLoad {
        name: name.to_owned(),
        level0_files: Some(files),
        pending_compaction_bytes: None,
    }));
    loads
}

/// Loads with the limits that their column families have.
pub fn with_limits(watched: &Watched, database: &Path, loads: Vec<ColumnFamilyLoad>) -> Vec<FamilyReadings> {
    let known = watched.options.get(database);
    let readings = |load: ColumnFamilyLoad| {
        let options = known.and_then(|families| families.get(&load.name));
        FamilyReadings {
            level0_files: load.level0_files,
            level0_slowdown_files: options
                .and_then(|options| i64::try_from(options.level0_slowdown_writes_trigger).ok()),
            pending_compaction_bytes: load.pending_compaction_bytes,
            pending_compaction_bytes_soft: options.map(|options| options.soft_pending_compaction_bytes_limit),
            disable_auto_compactions: options.is_some_and(|options| options.disable_auto_compactions),
            name: load.name,
        }
    };
    loads.into_iter().map(readings).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A column family that no reader has opened an iterator on is none the less one of the database.
    #[test]
    fn column_families_that_cannot_be_asked_are_known_by_their_files() {
        let file = |number: u64, column_family: &str, level: u32| SstFile {
            number,
            column_family: column_family.to_owned(),
            level,
            size_bytes: 1,
            entries: 1,
            deletions: 0,
            smallest: sexton_tuner::Key::default(),
            largest: sexton_tuner::Key::default(),
        };
        let files = [file(1, "asked", 0), file(2, "other", 0), file(3, "other", 0), file(4, "other", 6)];
        let asked = ColumnFamilyLoad {
            name: "asked".to_owned(),
            level0_files: Some(9),
            pending_compaction_bytes: Some(5),
        };
        let loads = with_files(vec![asked.clone()], &files);
        let other = ColumnFamilyLoad {
            name: "other".to_owned(),
            level0_files: Some(2),
            pending_compaction_bytes: None,
        };
        assert_eq!(loads, [asked, other]);
    }
}

//! Which files' index blocks are worth reading: those that operations with tombstones went through.
//!
//! What lies inside of a file matters where readers meet a part of it. A file that none of them crosses is
//! rewritten as a whole or not at all, wherever its entries are.

use crate::facts::evidence::{Evidence, Observation, SeekKind, SstFile};
use crate::facts::key::Key;
use crate::rank::families::by_column_family;

/// Most files of a database whose index blocks are held: 64 marks of 32 bytes each are 3 MiB for them all.
pub const FILES_MAX: usize = 1024;

/// Smallest file whose index block says anything: it has a few data blocks of RocksDB's default size.
const FILE_BYTES_MIN: u64 = 16 << 10;

/// Numbers of these files, those first through which readers stepped over most tombstones.
pub fn worth_reading(evidence: &Evidence) -> Vec<u64> {
    let mut worth = Vec::new();
    for (name, seen) in by_column_family(evidence) {
        let Some(name) = name else { continue };
        let crossings = Crossings::of(&seen);
        let files = evidence.files.iter().filter(|file| file.column_family == name);
        let files = files.filter(|file| file.size_bytes >= FILE_BYTES_MIN);
        let crossed = files.map(|file| (crossings.tombstones(file), file.number));
        worth.extend(crossed.filter(|(tombstones, _)| *tombstones > 0));
    }
    worth.sort_unstable_by_key(|(tombstones, number)| (std::cmp::Reverse(*tombstones), *number));
    worth.truncate(FILES_MAX);
    worth.into_iter().map(|(_, number)| number).collect()
}

/// Where operations began and ended, in the order of keys.
struct Crossings<'k> {
    /// Least keys, and the tombstones of all operations up to that one.
    begins: Vec<(&'k Key, u64)>,
    /// Greatest keys, the same; without those whose end is not known or is behind all keys.
    ends: Vec<(&'k Key, u64)>,
}

impl<'k> Crossings<'k> {
    fn of(seen: &[&'k Observation]) -> Crossings<'k> {
        let (mut begins, mut ends) = (Vec::new(), Vec::new());
        for operation in seen {
            let tombstones = operation.weighted().tombstones_skipped;
            let end = operation.end_key.as_ref().unwrap_or(&operation.key);
            let (low, high) = match operation.kind {
                SeekKind::SeekToLast => (end, None),
                // The empty key is before all others.
                SeekKind::SeekToFirst => (&operation.key, Some(end)),
                SeekKind::Seek | SeekKind::SeekForPrev => {
                    ((&operation.key).min(end), Some((&operation.key).max(end)))
                }
            };
            begins.push((low, tombstones));
            ends.extend(high.map(|high| (high, tombstones)));
        }
        [&mut begins, &mut ends].into_iter().for_each(sum_up);
        Crossings { begins, ends }
    }

    /// Tombstones of the operations that touch the keys of a file.
    fn tombstones(&self, file: &SstFile) -> u64 {
        let up_to = |sums: &[(&Key, u64)], count: usize| {
            count.checked_sub(1).and_then(|last| sums.get(last)).map_or(0, |sum| sum.1)
        };
        let begun = self.begins.partition_point(|(key, _)| **key <= file.largest);
        let ended = self.ends.partition_point(|(key, _)| **key < file.smallest);
        up_to(&self.begins, begun).saturating_sub(up_to(&self.ends, ended))
    }
}

fn sum_up(amounts: &mut Vec<(&Key, u64)>) {
    amounts.sort_unstable();
    let mut sum = 0_u64;
    for (_, amount) in amounts {
        sum = sum.saturating_add(*amount);
        *amount = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::evidence::Counters;

    fn file(number: u64, smallest: &str, largest: &str, size_bytes: u64) -> SstFile {
        SstFile {
            number,
            column_family: "default".to_owned(),
            level: 0,
            size_bytes,
            entries: 1,
            deletions: 0,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        }
    }

    fn walk(kind: SeekKind, key: &str, end_key: &str, tombstones_skipped: u64) -> Observation {
        Observation {
            end_key: Some(Key::new(end_key)),
            scan: Counters { tombstones_skipped, ..Counters::default() },
            ..Observation::at(kind, Key::new(key))
        }
    }

    #[test]
    fn files_that_painful_operations_cross_are_worth_it() {
        let large = 1 << 20;
        let files = vec![
            file(1, "a", "c", large),
            file(2, "d", "f", large),
            file(3, "g", "i", large),
            file(4, "d", "i", 4096),
            file(5, "x", "z", large),
        ];
        let observations = vec![
            walk(SeekKind::Seek, "e", "g", 10),
            walk(SeekKind::SeekForPrev, "h", "gg", 5),
            walk(SeekKind::Seek, "a", "b", 0),
        ];
        let evidence = Evidence { files: files.clone(), observations, ..Evidence::default() };
        assert_eq!(worth_reading(&evidence), [3, 2]);
        let all = |kind, key| {
            let observations = vec![walk(kind, "", key, 1)];
            worth_reading(&Evidence { files: files.clone(), observations, ..Evidence::default() })
        };
        assert_eq!(all(SeekKind::SeekToFirst, "e"), [1, 2]);
        assert_eq!(all(SeekKind::SeekToLast, "h"), [3, 5]);
    }
}

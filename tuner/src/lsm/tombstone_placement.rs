//! Where inside a file its deletions lie.
//!
//! A file says how many deletions it holds, not where. In a queue it holds the deletions of the oldest
//! keys and the entries of the newest, with nothing in between: spreading the deletions evenly over the
//! whole file puts most of them where there are none. The probes say which keys painful operations
//! walked over; a file that such a walk crosses has its deletions there, as far as anybody suffers from
//! them.
//!
//! So for the statistics such a file counts as two: its deletions, between the ends of the walks, and the
//! rest of it, spread as before. Sums over a file stay what they are.

use crate::facts::evidence::{Observation, SstFile};
use crate::facts::key::Key;

/// Closed spans of keys that painful operations walked over, merged, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walks(Vec<(Key, Key)>);

impl Walks {
    /// From the operations whose both ends are known and that skipped tombstones.
    pub fn of<'a>(observations: impl IntoIterator<Item = &'a Observation>) -> Walks {
        let walked = observations.into_iter().filter(|operation| operation.total().tombstones_skipped > 0);
        let mut spans: Vec<(Key, Key)> = walked
            .filter_map(|operation| {
                let (one, two) = (operation.key.clone(), operation.end_key.clone()?);
                Some(if one <= two { (one, two) } else { (two, one) })
            })
            .collect();
        spans.sort();
        let mut merged: Vec<(Key, Key)> = Vec::new();
        for (low, high) in spans {
            match merged.last_mut() {
                Some(last) if low <= last.1 => last.1 = high.max(last.1.clone()),
                _ => merged.push((low, high)),
            }
        }
        Walks(merged)
    }

    /// The part of `[smallest, largest]` from the first to the last key that a walk crossed.
    fn hull(&self, smallest: &Key, largest: &Key) -> Option<(Key, Key)> {
        let first = self.0.partition_point(|(_, high)| high < smallest);
        let behind = self.0.partition_point(|(low, _)| low <= largest);
        let crossing = self.0.get(first..behind).filter(|crossing| !crossing.is_empty())?;
        let low = crossing.first()?.0.clone().max(smallest.clone());
        let high = crossing.last()?.1.clone().min(largest.clone());
        Some((low, high))
    }
}

/// The files for the statistics: those that a walk crosses in two parts, the others as they are.
pub fn concentrate(files: &[&SstFile], walks: &Walks) -> Vec<SstFile> {
    let mut parts = Vec::with_capacity(files.len());
    for file in files {
        match walks.hull(&file.smallest, &file.largest) {
            Some((low, high)) if file.deletions > 0 => parts.extend(in_two(file, low, high)),
            _ => parts.push((*file).clone()),
        }
    }
    parts
}

/// The file's deletions within `[low, high]`, and the rest of it.
fn in_two(file: &SstFile, low: Key, high: Key) -> [SstFile; 2] {
    let deletions = file.deletions.min(file.entries);
    let size = u128::from(file.size_bytes) * u128::from(deletions) / u128::from(file.entries.max(1));
    let size_bytes = u64::try_from(size).unwrap_or(file.size_bytes);
    let dead = SstFile {
        size_bytes,
        entries: deletions,
        deletions: file.deletions,
        smallest: low,
        largest: high,
        ..file.clone()
    };
    let rest = SstFile {
        size_bytes: file.size_bytes - size_bytes,
        entries: file.entries - deletions,
        deletions: 0,
        ..file.clone()
    };
    [dead, rest]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]
    use super::*;
    use crate::facts::evidence::{Counters, SeekKind};
    use proptest::prelude::*;

    fn walk(key: &str, end_key: Option<&str>) -> Observation {
        Observation {
            end_key: end_key.map(Key::new),
            seek: Counters { tombstones_skipped: 1000, ..Counters::default() },
            ..Observation::at(SeekKind::Seek, Key::new(key))
        }
    }

    fn file(smallest: &str, largest: &str, entries: u64, deletions: u64) -> SstFile {
        SstFile {
            number: 1,
            column_family: "default".to_owned(),
            level: 0,
            size_bytes: entries * 10,
            entries,
            deletions,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        }
    }

    #[test]
    fn a_queues_file_has_its_deletions_where_readers_walk() {
        // Oldest keys deleted, newest ones created: k3 to k8, readers walk from the start to k32.
        let file = file("k30", "k80", 100, 27);
        let parts = concentrate(&[&file], &Walks::of(&[walk("k", Some("k32"))]));
        let [dead, rest] = parts.as_slice() else { panic!("two parts") };
        assert_eq!((&dead.smallest, &dead.largest), (&Key::new("k30"), &Key::new("k32")));
        assert_eq!((dead.entries, dead.deletions, rest.entries, rest.deletions), (27, 27, 73, 0));
        assert_eq!(dead.size_bytes + rest.size_bytes, file.size_bytes);
    }

    #[test]
    fn without_an_end_or_without_a_walk_nothing_is_moved() {
        let one = file("k30", "k80", 100, 27);
        for walks in [Walks::of(&[walk("k", None)]), Walks::of(&[walk("a", Some("b"))]), Walks::default()] {
            assert_eq!(concentrate(&[&one], &walks), std::slice::from_ref(&one));
        }
    }

    #[test]
    fn walks_in_both_directions_merge() {
        let walks = Walks::of(&[walk("m", Some("k")), walk("a", Some("c")), walk("b", Some("d"))]);
        let expected = [("a", "d"), ("k", "m")].map(|(low, high)| (Key::new(low), Key::new(high)));
        assert_eq!(walks, Walks(expected.to_vec()));
    }

    fn key() -> impl Strategy<Value = String> {
        "[a-d]{1,3}"
    }

    proptest! {
        #[test]
        fn sums_of_a_file_stay_what_they_are(
            ends in (key(), key()), entries in 0u64..1000, deletions in 0u64..1000,
            walks in proptest::collection::vec((key(), proptest::option::of(key())), 0..6),
        ) {
            let (smallest, largest) = if ends.0 <= ends.1 { ends } else { (ends.1, ends.0) };
            let file = file(&smallest, &largest, entries, deletions);
            let walks: Vec<Observation> =
                walks.iter().map(|(key, end)| walk(key, end.as_deref())).collect();
            let parts = concentrate(&[&file], &Walks::of(&walks));
            prop_assert_eq!(parts.iter().map(|part| part.size_bytes).sum::<u64>(), file.size_bytes);
            prop_assert_eq!(parts.iter().map(|part| part.entries).sum::<u64>(), file.entries);
            prop_assert_eq!(parts.iter().map(|part| part.deletions).sum::<u64>(), file.deletions);
            for part in &parts {
                prop_assert!(part.smallest >= file.smallest && part.largest <= file.largest);
                prop_assert!(part.smallest <= part.largest);
            }
        }
    }
}

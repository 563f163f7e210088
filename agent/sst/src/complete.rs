//! Fills in the number of entries and deletions that RocksDB did not load, from the files on disk.

use super::properties::TableProperties;
use super::reader::{Place, Reader};
use super::tails::file_name;
use super::wire::Tail;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::sighting::TableDetails;
use std::collections::{HashMap, HashSet};

/// Files that one call reads at most: some three reads of a few KiB each, a second on a slow disk. What is
/// left over is read by the next calls.
pub const FILES_READ_MAX: usize = 512;

/// Properties of one database's files by number. Files never change once they are written, and the number
/// is not used again; the size is compared all the same, should the database have been made anew.
#[derive(Debug, Default)]
pub struct PropertiesCache {
    by_number: HashMap<u64, Cached>,
}

#[derive(Debug)]
struct Cached {
    size_bytes: u64,
    /// `None` for a file that is not readable for good: damaged or of another format.
    properties: Option<TableProperties>,
}

/// What one call to [`complete`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Files filled in from the cache.
    pub cached: usize,
    /// Files read from disk now and filled in.
    pub read: usize,
    /// Files left for the next call because of [`FILES_READ_MAX`].
    pub left: usize,
    /// Files that are gone or could not be opened or read this time.
    pub unreadable: usize,
    /// Files that will never be read: damaged or not block-based tables.
    pub unsupported: usize,
    /// The first error of this call, for an operator.
    pub first_error: Option<String>,
}

impl PropertiesCache {
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// What the file of this number says of itself, where that is known.
    pub fn details(&self, number: u64) -> Option<TableDetails> {
        let properties = self.by_number.get(&number)?.properties.as_ref()?;
        Some(TableDetails {
            raw_bytes: properties.raw_bytes,
            merge_operands: properties.merge_operands,
            range_deletions: properties.range_deletions,
            created_unix_s: properties.created_unix_s,
            collectors: properties.collectors.clone(),
        })
    }

    /// Whether no file is remembered.
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }
}

/// Fills `entries` and `deletions` of those files that have no entries, with what the files themselves say
/// in `place`. The cache forgets all files that are not in `files`, so it never holds more than these; use
/// one cache per database. At most [`FILES_READ_MAX`] files are read, by a process that can do nothing else.
///
/// A file that cannot be read keeps its zeros; how many there are is in the result.
pub fn complete(
    reader: &Reader,
    files: &mut [SstFile],
    place: Place<'_>,
    cache: &mut PropertiesCache,
) -> Completion {
    let live: HashSet<u64> = files.iter().map(|file| file.number).collect();
    cache.by_number.retain(|number, _| live.contains(number));
    let mut completion = Completion::default();
    let mut wanted = Vec::new();
    for file in files.iter_mut().filter(|file| file.entries == 0) {
        let known = cache.by_number.get(&file.number).filter(|cached| cached.size_bytes == file.size_bytes);
        if let Some(cached) = known {
            match &cached.properties {
                Some(properties) => {
                    completion.cached += 1;
                    fill(file, properties);
                }
                None => completion.unsupported += 1,
            }
        } else if wanted.len() == FILES_READ_MAX {
            completion.left += 1;
        } else {
            wanted.push(file);
        }
    }
    if !wanted.is_empty() {
        let numbers: Vec<u64> = wanted.iter().map(|file| file.number).collect();
        match reader.tails(place, &numbers) {
            Ok(tails) => wanted.into_iter().for_each(|file| {
                let tail = tails.get(&file.number);
                take(file, tail, place, cache, &mut completion);
            }),
            Err(error) => {
                completion.unreadable += wanted.len();
                completion.first_error = Some(error.to_string());
            }
        }
    }
    completion
}

/// Takes in what was read of one file.
fn take(
    file: &mut SstFile,
    tail: Option<&Tail>,
    place: Place<'_>,
    cache: &mut PropertiesCache,
    completion: &mut Completion,
) {
    let mut note = |error: &str| {
        let path = place.path.join(file_name(file.number));
        completion.first_error.get_or_insert_with(|| format!("{}: {error}", path.display()));
    };
    let properties = match tail {
        Some(Tail::Properties(properties)) => {
            completion.read += 1;
            fill(file, properties);
            Some(properties.clone())
        }
        Some(Tail::Unsupported(error)) => {
            note(error);
            completion.unsupported += 1;
            None
        }
        Some(Tail::Unreadable(error)) => {
            note(error);
            completion.unreadable += 1;
            return;
        }
        None => {
            note("nothing was said of it");
            completion.unreadable += 1;
            return;
        }
    };
    cache.by_number.insert(file.number, Cached { size_bytes: file.size_bytes, properties });
}

/// As RocksDB itself fills them from the same properties (`Version::MaybeInitializeFileMetaData`).
fn fill(file: &mut SstFile, properties: &TableProperties) {
    file.deletions = properties.deletions.max(properties.range_deletions);
    file.entries = properties.entries.max(file.deletions);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

    use super::*;
    use sexton_tuner::key::Key;
    use std::path::Path;

    fn file(number: u64, size_bytes: u64) -> SstFile {
        SstFile {
            number,
            column_family: "default".to_owned(),
            level: 0,
            size_bytes,
            entries: 0,
            deletions: 0,
            smallest: Key::default(),
            largest: Key::default(),
        }
    }

    /// An SST file with `entries` entries, every third a deletion; returns its size.
    fn write_sst(directory: &Path, number: u64, entries: u64) -> u64 {
        let path = directory.join(file_name(number));
        let options = rust_rocksdb::Options::default();
        let mut writer = rust_rocksdb::SstFileWriter::create(&options);
        writer.open(&path).unwrap();
        for at in 0..entries {
            let key = format!("key-{at:08}");
            match at % 3 {
                0 => writer.delete(key).unwrap(),
                _ => writer.put(key, "value").unwrap(),
            }
        }
        writer.finish().unwrap();
        std::fs::metadata(path).unwrap().len()
    }

    #[test]
    fn fills_zeros_once_from_disk_and_then_from_the_cache() {
        let directory = tempfile::tempdir().unwrap();
        let size_bytes = write_sst(directory.path(), 7, 300);
        let mut known = file(9, 1);
        known.entries = 5;
        let mut cache = PropertiesCache::default();
        let mut files = [file(7, size_bytes), known.clone()];
        let completion = complete(&Reader::default(), &mut files, Place::of(directory.path()), &mut cache);
        assert_eq!(completion, Completion { read: 1, ..Completion::default() });
        assert_eq!((files[0].entries, files[0].deletions), (300, 100));
        assert_eq!(files[1], known, "a file with entries is left as it is");

        std::fs::remove_file(directory.path().join("000007.sst")).unwrap();
        let mut files = [file(7, size_bytes)];
        let completion = complete(&Reader::default(), &mut files, Place::of(directory.path()), &mut cache);
        assert_eq!(completion, Completion { cached: 1, ..Completion::default() });
        assert_eq!(files[0].entries, 300);

        complete(&Reader::default(), &mut [], Place::of(directory.path()), &mut cache);
        assert!(cache.is_empty(), "files that are no longer live are forgotten");
    }

    #[test]
    fn a_number_used_again_with_another_size_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = PropertiesCache::default();
        let first = write_sst(directory.path(), 7, 300);
        complete(&Reader::default(), &mut [file(7, first)], Place::of(directory.path()), &mut cache);
        let second = write_sst(directory.path(), 7, 30_000);
        let mut files = [file(7, second)];
        assert_eq!(complete(&Reader::default(), &mut files, Place::of(directory.path()), &mut cache).read, 1);
        assert_eq!((files[0].entries, files[0].deletions), (30_000, 10_000));
    }

    #[test]
    fn what_cannot_be_read_is_counted_and_keeps_its_zeros() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("000001.sst"), vec![7; 4096]).unwrap();
        std::fs::write(directory.path().join("elsewhere"), vec![7; 4096]).unwrap();
        std::os::unix::fs::symlink("elsewhere", directory.path().join("000002.sst")).unwrap();
        std::fs::create_dir(directory.path().join("000003.sst")).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(directory.path().join("000004.sst")).status();
        assert!(fifo.unwrap().success());
        let mut files = [file(1, 4096), file(2, 4096), file(3, 0), file(4, 0), file(5, 0)];
        let mut cache = PropertiesCache::default();
        let completion = complete(&Reader::default(), &mut files, Place::of(directory.path()), &mut cache);
        assert_eq!((completion.unsupported, completion.unreadable, completion.read), (1, 4, 0));
        assert!(completion.first_error.unwrap().contains("000001.sst"), "the error names the file");
        assert!(files.iter().all(|file| file.entries == 0));
        assert_eq!(cache.len(), 1, "only what stays unreadable is remembered");
    }

    #[test]
    fn one_call_reads_a_bounded_number_of_files() {
        let directory = tempfile::tempdir().unwrap();
        let total = FILES_READ_MAX + 10;
        let size_bytes = write_sst(directory.path(), 0, 30);
        for number in 1..total as u64 {
            std::fs::hard_link(directory.path().join("000000.sst"), directory.path().join(file_name(number)))
                .unwrap();
        }
        let mut cache = PropertiesCache::default();
        let fresh = || (0..total as u64).map(|number| file(number, size_bytes)).collect::<Vec<_>>();
        let first = complete(&Reader::default(), &mut fresh(), Place::of(directory.path()), &mut cache);
        assert_eq!((first.read, first.left, first.cached), (FILES_READ_MAX, 10, 0));
        let mut files = fresh();
        let second = complete(&Reader::default(), &mut files, Place::of(directory.path()), &mut cache);
        assert_eq!((second.read, second.left, second.cached), (10, 0, FILES_READ_MAX));
        assert!(files.iter().all(|file| (file.entries, file.deletions) == (30, 10)));
    }
}

//! Index marks of a database's files, read as they are wanted and remembered.

use super::reader::{Place, Reader};
use super::wire::Index;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::index_marks::IndexMarks;
use std::collections::{BTreeMap, HashMap};

/// Files whose index one call reads at most: with blocks of 4 KiB those of 64 MiB have half a megabyte
/// each, a second on a slow disk. What is left over is read by the next calls.
const INDEXES_READ_MAX: usize = 64;

/// Files whose marks are held of one database: no more than are worth reading.
const FILES_MAX: usize = sexton_tuner::index_blocks::FILES_MAX;

/// Marks of one database's files by number. What was once read stays true for as long as the file lives.
#[derive(Debug, Default)]
pub struct IndexCache {
    by_number: HashMap<u64, Cached>,
}

#[derive(Debug)]
struct Cached {
    size_bytes: u64,
    /// `None` for a file whose index is not readable for good: damaged or of another form.
    marks: Option<IndexMarks>,
}

/// What one call to [`IndexCache::complete`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexesRead {
    /// Files read now.
    pub read: usize,
    /// Files left for the next call.
    pub left: usize,
    /// Files that are gone or could not be opened or read this time.
    pub unreadable: usize,
    /// Files whose index will never be read: damaged, of another form, or of a compression that is not known.
    pub unsupported: usize,
    /// The first error of this call, for an operator.
    pub first_error: Option<String>,
}

impl IndexCache {
    /// Reads the indexes of the files of these numbers that are not known yet, at most `INDEXES_READ_MAX`,
    /// by a process that can do nothing else. Forgets all files that are not in `files`.
    pub fn complete(
        &mut self,
        reader: &Reader,
        files: &[SstFile],
        wanted: &[u64],
        place: Place<'_>,
    ) -> IndexesRead {
        let sizes: HashMap<u64, u64> = files.iter().map(|file| (file.number, file.size_bytes)).collect();
        self.by_number.retain(|number, cached| sizes.get(number) == Some(&cached.size_bytes));
        let room = FILES_MAX.saturating_sub(self.by_number.len()).min(INDEXES_READ_MAX);
        let is_new = |number: &&u64| sizes.contains_key(number) && !self.by_number.contains_key(number);
        let mut wanted: Vec<u64> = wanted.iter().filter(is_new).copied().collect();
        let mut done = IndexesRead { left: wanted.len().saturating_sub(room), ..IndexesRead::default() };
        wanted.truncate(room);
        if wanted.is_empty() {
            return done;
        }
        match reader.indexes(place, &wanted) {
            Ok(read) => wanted.iter().for_each(|number| {
                let size_bytes = sizes.get(number).copied().unwrap_or_default();
                self.take(*number, size_bytes, read.get(number), &mut done);
            }),
            Err(error) => {
                done.unreadable += wanted.len();
                done.first_error = Some(error.to_string());
            }
        }
        done
    }

    fn take(&mut self, number: u64, size_bytes: u64, index: Option<&Index>, done: &mut IndexesRead) {
        let mut note = |error: &str| {
            done.first_error.get_or_insert_with(|| format!("{number:06}.sst: {error}"));
        };
        let marks = match index {
            Some(Index::Marks(marks)) => {
                done.read += 1;
                Some(marks.clone())
            }
            Some(Index::Unsupported(error)) => {
                note(error);
                done.unsupported += 1;
                None
            }
            Some(Index::Unreadable(error)) => {
                note(error);
                done.unreadable += 1;
                return;
            }
            // The child has read enough.
            None => {
                done.left += 1;
                return;
            }
        };
        self.by_number.insert(number, Cached { size_bytes, marks });
    }

    /// What is known.
    pub fn marks(&self) -> BTreeMap<u64, IndexMarks> {
        let known =
            self.by_number.iter().filter_map(|(number, cached)| Some((*number, cached.marks.clone()?)));
        known.filter(|(_, marks)| !marks.is_empty()).collect()
    }
}

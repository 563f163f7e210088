//! One look at a database, whether or not anybody reads in it: what advice is made of.

use super::Session;
use super::options::place_of;
use sexton_inspect::log_sizes;
use sexton_sst::Reader;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::sighting::{SightedFile, Sighting, worth_marking};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::debug;

/// Longest that a look may take: listing the files, reading what new ones say of themselves, and the indexes
/// of a few. Nobody waits for it.
pub const SIGHTING_LIMIT: Duration = Duration::from_secs(20);

/// Longest that each of these may take. What a window saw waits behind a look.
const READING_LIMIT: Duration = Duration::from_secs(5);

/// Threads of a process whose names are read. A process with more has its readers counted with compactions.
const THREADS_MAX: usize = 4096;

/// What RocksDB's own threads are called, with the pool's name and a number behind it.
const BACKGROUND_THREAD: &str = "rocksdb:";

/// What a look has found.
#[derive(Debug)]
pub struct Sighted {
    pub database: PathBuf,
    /// Readers are yet to be filled in.
    pub sighting: Sighting,
    /// Threads of the process that RocksDB flushes and compacts with.
    pub background_threads: HashSet<u32>,
}

impl Session {
    /// Looks at the database in `directory`; `None` where it has gone, or cannot be read.
    pub fn sight(&mut self, directory: &Path) -> Option<Sighted> {
        let database = self.database(directory)?.clone();
        let place = place_of(&database);
        let reader = Reader { time_limit: READING_LIMIT, ..Reader::default() };
        let name = &self.target.name;
        let sizes = log_sizes::read(&database).unwrap_or_default();
        let known = self.sighted.entry(database.path.clone()).or_default();
        let read = known.files_at(&sizes, || reader.read(place));
        let read = read.inspect_err(|error| debug!(target = name, %error, "a database is not seen")).ok()?;
        let mut files = read.files;
        // All of them: what a file says beside its numbers of entries nobody else tells.
        files.iter_mut().for_each(|file| (file.entries, file.deletions) = (0, 0));
        sexton_sst::complete(&reader, &mut files, place, &mut known.properties);
        let mut files: Vec<SightedFile> = files
            .into_iter()
            .map(|file| SightedFile {
                sequences: read.sequences.get(&file.number).copied(),
                details: known.properties.details(file.number),
                marks: Vec::new(),
                file,
            })
            .collect();
        let wanted = worth_marking(&files);
        let of_wanted = files.iter().filter(|file| wanted.contains(&file.file.number));
        let of_wanted: Vec<SstFile> = of_wanted.map(|file| file.file.clone()).collect();
        known.indexes.complete(&reader, &of_wanted, &wanted, place);
        let marks = known.indexes.marks();
        for file in &mut files {
            let marks = marks.get(&file.file.number);
            file.marks =
                marks.map(|marks| marks.iter().map(|mark| mark.key.clone()).collect()).unwrap_or_default();
        }
        let families = read.column_families.into_iter();
        Some(Sighted {
            sighting: Sighting {
                at: jiff::Timestamp::now(),
                wal_bytes: sizes.wal,
                files,
                options: families.map(|family| (family.name, family.options)).collect::<BTreeMap<_, _>>(),
                readers: None,
            },
            database: database.path,
            background_threads: background_threads(self.target.process.pid),
        })
    }
}

/// The threads of a process that RocksDB has given a name to.
fn background_threads(pid: u32) -> HashSet<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().take(THREADS_MAX);
    let named = threads.filter_map(|thread| {
        let thread = thread.ok()?;
        let name = fs::read(thread.path().join("comm")).ok()?;
        name.starts_with(BACKGROUND_THREAD.as_bytes()).then(|| thread.file_name().to_str()?.parse().ok())?
    });
    named.collect()
}

//! Which of the files that a process has mapped hold RocksDB.
//!
//! Says of each whether it could be opened and understood; what follows from it is the business of
//! `assemble`, what is in the file that of `verdicts`.

use super::elf::ElfError;
use super::error::InspectError;
use super::examiner::Examiner;
use super::facts::FileIdentity;
use super::linker;
use super::maps::{Mapping, Maps};
use super::module::ModuleFacts;
use super::process;
use super::symbols::ROCKSDB_BYTES_MIN;
use super::verdicts::{FileKey, Verdict, Verdicts, View};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A module of one process that holds RocksDB.
pub(super) struct Found {
    /// The mapping that holds its code.
    pub mapping: Mapping,
    /// A path that opens the mapped file.
    pub path_from_agent: PathBuf,
    /// The file's identity and state.
    pub key: FileKey,
    pub facts: Arc<ModuleFacts>,
}

/// Searches processes and remembers what it learnt of their files.
#[derive(Debug, Default)]
pub(super) struct Searcher {
    verdicts: Verdicts,
    /// Files without RocksDB, by what `maps` says: spares opening the C library of each process again.
    /// Only for one round, as an inode can be given to another file.
    without: HashSet<FileIdentity>,
}

/// What a search over a process's files gave.
#[derive(Default)]
struct Search {
    found: Vec<Found>,
    /// A file named like RocksDB that could not be understood.
    broken: Option<(PathBuf, ElfError)>,
    /// A file whose examination gave no answer.
    unexamined: Option<(PathBuf, ElfError)>,
    /// A file that may not be opened.
    denied: Option<PathBuf>,
    hint: Option<String>,
}

impl Searcher {
    /// One that has files examined in this way.
    pub fn by(examiner: Examiner) -> Searcher {
        Searcher { verdicts: Verdicts::by(examiner), without: HashSet::new() }
    }

    /// Begins a new round over processes.
    pub fn begin_round(&mut self) {
        self.without.clear();
    }

    /// The modules with RocksDB inside, the likeliest first.
    pub fn find_modules(&mut self, pid: u32, maps: &Maps) -> Result<Vec<Found>, InspectError> {
        let mut search = Search::default();
        for mapping in candidates(maps) {
            if !self.without.contains(&mapping.file) {
                self.examine(pid, maps, mapping, &mut search)?;
            }
            // Of a process whose files do not answer the others are left alone, too.
            if search.unexamined.is_some() {
                break;
            }
        }
        if !search.found.is_empty() {
            return Ok(search.found);
        }
        if let Some((path, source)) = search.unexamined {
            return Err(InspectError::NotExamined { pid, path, source });
        }
        match (search.broken, search.denied) {
            (Some((path, ElfError::OtherMachine { what })), _) => {
                Err(InspectError::Unsupported { pid, path, what })
            }
            (Some((path, source @ (ElfError::TooMuch { .. } | ElfError::TooLarge { .. }))), _) => {
                Err(InspectError::TooMuch { pid, path, source })
            }
            (Some((path, source)), _) => Err(InspectError::CorruptElf { pid, path, source }),
            (None, Some(path)) => Err(InspectError::PermissionDenied { pid, path }),
            (None, None) => Err(InspectError::NoRocksDb { pid, hint: search.hint }),
        }
    }

    /// Whether the process' dynamic linker is musl's.
    pub fn has_musl(&mut self, pid: u32, maps: &Maps, executable: &Path) -> bool {
        let mapping = linker::mapping(pid, maps, executable);
        let Some(Ok((file, _))) = mapping.map(|mapping| open_mapped(pid, mapping)) else { return false };
        let examined = self.verdicts.examine(&file, &View::of_process(pid));
        matches!(examined, Ok((_, Verdict::MuslLinker)))
    }

    fn examine(
        &mut self,
        pid: u32,
        maps: &Maps,
        mapping: &Mapping,
        search: &mut Search,
    ) -> Result<(), InspectError> {
        let (file, path) = match open_mapped(pid, mapping) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                search.denied.get_or_insert_with(|| mapping.path.clone());
                return Ok(());
            }
            // Unmapped meanwhile, or the process ended, which the next reading of it will tell.
            Err(_) => return Ok(()),
        };
        let named = is_named_rocksdb(mapping);
        let from_io = |error| InspectError::from_io(pid, &path, error);
        if !named && file.metadata().map_err(from_io)?.len() < ROCKSDB_BYTES_MIN {
            self.without.insert(mapping.file);
            return Ok(());
        }
        let (key, verdict) = self.verdicts.examine(&file, &View::of_process(pid)).map_err(from_io)?;
        match verdict {
            Verdict::RocksDb(facts) => {
                let (mapping, path_from_agent) = with_the_code(pid, maps, mapping, path, &facts);
                search.found.push(Found { mapping, path_from_agent, key, facts });
            }
            Verdict::Hidden => {
                let text = "holds RocksDB, but its symbols were stripped and it was built without RTTI";
                search.hint.get_or_insert_with(|| format!("{} {text}", mapping.path.display()));
            }
            Verdict::Unreadable(error @ ElfError::NotExamined { .. }) => {
                search.unexamined.get_or_insert_with(|| (mapping.path.clone(), error));
            }
            Verdict::Other if named => {
                let text = "does not define DBIter::Seek: it only calls RocksDB";
                search.hint.get_or_insert_with(|| format!("{} {text}", mapping.path.display()));
            }
            Verdict::Unreadable(error) if named => {
                search.broken.get_or_insert_with(|| (mapping.path.clone(), error));
            }
            Verdict::Unreadable(
                error @ (ElfError::Malformed { .. } | ElfError::TooMuch { .. } | ElfError::TooLarge { .. }),
            ) => {
                search.hint.get_or_insert_with(|| format!("{}: {error}", mapping.path.display()));
            }
            Verdict::Other | Verdict::MuslLinker | Verdict::Unreadable(_) => {
                self.without.insert(mapping.file);
            }
        }
        Ok(())
    }
}

/// Device and inode of the executable of a process, named as in `/proc`.
pub(super) fn executable_identity(process: &str) -> Option<(u64, u64)> {
    let data = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
    Some((data.dev(), data.ino()))
}

fn is_named_rocksdb(mapping: &Mapping) -> bool {
    mapping.file_name().to_lowercase().contains("rocksdb")
}

/// One mapping of each file, those named like RocksDB first.
fn candidates(maps: &Maps) -> Vec<&Mapping> {
    let mut seen = HashSet::new();
    let mut files: Vec<&Mapping> =
        maps.executable.iter().filter(|mapping| seen.insert(mapping.file)).collect();
    files.sort_by_key(|mapping| !is_named_rocksdb(mapping));
    files
}

/// Of the file's mappings the one that holds `DBIter::Seek`, with its own path. A file opened in another
/// way keeps that path: all of its mappings are reached by it.
fn with_the_code(
    pid: u32,
    maps: &Maps,
    examined: &Mapping,
    path: PathBuf,
    facts: &ModuleFacts,
) -> (Mapping, PathBuf) {
    let seek = facts.sites.seek.as_ref().map_or(examined.file_offset, |site| site.file_offset);
    let holds = |mapping: &&Mapping| mapping.file == examined.file && mapping.contains_file_offset(seek);
    let mapping = maps.executable.iter().find(holds).unwrap_or(examined);
    let through_map_files = path == examined.map_files_path(pid);
    let path = if through_map_files { mapping.map_files_path(pid) } else { path };
    (mapping.clone(), path)
}

/// Opens the very file that is mapped and gives the path that did it. `map_files` needs
/// CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN; without it the file is opened by name and compared.
pub(super) fn open_mapped(pid: u32, mapping: &Mapping) -> io::Result<(File, PathBuf)> {
    let path = mapping.map_files_path(pid);
    let denied = match open_regular(&path) {
        Ok(file) => return Ok((file, path)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        Err(error) => return Err(error),
    };
    let (_, by_name) = process::inside_and_from_agent(pid, &mapping.path);
    let others = [PathBuf::from(format!("/proc/{pid}/exe")), by_name];
    for path in others {
        if let Ok(file) = open_regular(&path)
            && file.metadata().is_ok_and(|data| is_same_file(&data, mapping.file))
        {
            return Ok((file, path));
        }
    }
    Err(denied)
}

/// Opens a regular file. Looks before it opens, since opening a device can have effects of its own.
fn open_regular(path: &Path) -> io::Result<File> {
    let not_regular = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

fn is_same_file(data: &std::fs::Metadata, file: FileIdentity) -> bool {
    let device = (libc::major(data.dev()), libc::minor(data.dev()));
    data.ino() == file.inode && device == (file.device_major, file.device_minor)
}

#[cfg(test)]
#[path = "search_tests.rs"]
pub(super) mod tests;

//! From a pid, or from all processes of the node, to targets.
//!
//! Puts together what the sibling modules read, and says in words what is missing.

use super::database;
use super::elf::ElfError;
use super::error::InspectError;
use super::facts::{Gap, PerfContextLayout, RocksDbModule, Target, TlsRecipe, Version};
use super::gaps;
use super::layout;
use super::maps::{self, FileIdentity, Mapping, Maps};
use super::memory;
use super::module::{self, FileKey, ModuleCache, ModuleFacts, PERF_CONTEXT, Verdict};
use super::process::{self, ProcessFacts};
use super::tls;
use super::version;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use super::process::is_alive;

/// Turns processes into targets and remembers what it learnt of their files.
#[derive(Debug, Default)]
pub struct Inspector {
    modules: ModuleCache,
    /// Files without RocksDB, by what `maps` says: spares opening the C library of each process again.
    /// Only for one call, as an inode can be given to another file.
    without: HashSet<FileIdentity>,
}

/// The module of one process that holds RocksDB.
struct Found {
    mapping: Mapping,
    path_from_agent: PathBuf,
    key: FileKey,
    facts: Arc<ModuleFacts>,
}

/// What a search over a process's files gave.
#[derive(Default)]
struct Search {
    found: Vec<Found>,
    /// A file named like RocksDB that could not be understood.
    broken: Option<(PathBuf, ElfError)>,
    /// A file that may not be opened.
    denied: Option<PathBuf>,
    hint: Option<String>,
}

impl Inspector {
    /// An inspector that knows nothing yet.
    pub fn new() -> Inspector {
        Inspector::default()
    }

    /// Finds out all that is needed to watch a process.
    ///
    /// # Errors
    /// [`InspectError`]: each cause has its own variant and its remedy.
    pub fn inspect(&mut self, pid: u32) -> Result<Target, InspectError> {
        self.without.clear();
        match self.look_into(pid) {
            Err(InspectError::NoRocksDb { hint: None, .. }) => {
                Err(InspectError::NoRocksDb { pid, hint: stripped_hint(pid) })
            }
            result => result,
        }
    }

    /// Looks into all processes but those of our own executable, which has a RocksDB inside for its own
    /// use. Processes without RocksDB and those that end meanwhile are
    /// left out; of the processes that may not be looked into only the first is reported.
    pub fn discover(&mut self) -> Vec<Result<Target, InspectError>> {
        self.without.clear();
        let mut results = Vec::new();
        let mut denied = false;
        let own = executable_identity("self");
        for pid in pids() {
            if own.is_some() && own == executable_identity(&pid.to_string()) {
                continue;
            }
            match self.look_into(pid) {
                Err(InspectError::NoRocksDb { .. } | InspectError::NoSuchProcess { .. }) => {}
                Err(InspectError::PermissionDenied { .. }) if denied => {}
                result => {
                    denied |= matches!(result, Err(InspectError::PermissionDenied { .. }));
                    results.push(result);
                }
            }
        }
        results
    }

    /// Whatever goes wrong with a process that ended meanwhile, went wrong because it ended.
    fn look_into(&mut self, pid: u32) -> Result<Target, InspectError> {
        let process = process::process_id(pid)?;
        let result = self.look_into_living(pid);
        if is_alive(&process) { result } else { Err(InspectError::NoSuchProcess { pid }) }
    }

    fn look_into_living(&mut self, pid: u32) -> Result<Target, InspectError> {
        let maps_path = PathBuf::from(format!("/proc/{pid}/maps"));
        let maps = maps::read(pid).map_err(|error| InspectError::from_io(pid, &maps_path, error))?;
        if !maps.any {
            // A kernel thread; it has no executable either.
            return Err(InspectError::NoRocksDb { pid, hint: None });
        }
        let modules = self.find_modules(pid, &maps)?;
        let (first, others) = modules.split_first().ok_or(InspectError::NoRocksDb { pid, hint: None })?;
        assemble(process::read(pid)?, &maps, first, others)
    }

    /// The modules with RocksDB inside, the likeliest first.
    fn find_modules(&mut self, pid: u32, maps: &Maps) -> Result<Vec<Found>, InspectError> {
        let mut search = Search::default();
        for mapping in candidates(maps) {
            if !self.without.contains(&mapping.file) {
                self.examine(pid, maps, mapping, &mut search)?;
            }
        }
        if !search.found.is_empty() {
            return Ok(search.found);
        }
        match (search.broken, search.denied) {
            (Some((path, ElfError::OtherMachine { what })), _) => {
                Err(InspectError::Unsupported { pid, path, what })
            }
            (Some((path, source)), _) => Err(InspectError::CorruptElf { pid, path, source }),
            (None, Some(path)) => Err(InspectError::PermissionDenied { pid, path }),
            (None, None) => Err(InspectError::NoRocksDb { pid, hint: search.hint }),
        }
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
        let examined = self.modules.examine(&file);
        let (key, verdict) = examined.map_err(|error| InspectError::from_io(pid, &path, error))?;
        let named = is_named_rocksdb(mapping);
        match verdict {
            Verdict::RocksDb(facts) => {
                let (mapping, path_from_agent) = with_the_code(pid, maps, mapping, path, &facts);
                search.found.push(Found { mapping, path_from_agent, key, facts });
            }
            Verdict::Other if named => {
                let text =
                    "does not define DBIter::Seek: its symbols were stripped, or it only calls RocksDB";
                search.hint.get_or_insert_with(|| format!("{} {text}", mapping.path.display()));
            }
            Verdict::Unreadable(error) if named => {
                search.broken.get_or_insert_with(|| (mapping.path.clone(), error));
            }
            Verdict::Unreadable(error @ ElfError::Malformed { .. }) => {
                search.hint.get_or_insert_with(|| format!("{}: {error}", mapping.path.display()));
            }
            Verdict::Other | Verdict::Unreadable(_) => {
                self.without.insert(mapping.file);
            }
        }
        Ok(())
    }
}

/// Device and inode of the executable of a process, named as in `/proc`.
fn executable_identity(process: &str) -> Option<(u64, u64)> {
    let data = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
    Some((data.dev(), data.ino()))
}

/// Says so when the executable has RocksDB's texts but not its symbols.
fn stripped_hint(pid: u32) -> Option<String> {
    let file = open_regular(Path::new(&format!("/proc/{pid}/exe"))).ok()?;
    let text = "its executable has RocksDB's texts, but its symbols were stripped";
    module::mentions_rocksdb(&file).then(|| text.to_string())
}

/// All processes but our own.
fn pids() -> Vec<u32> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = numbers.filter(|&pid| pid != own).collect();
    pids.sort_unstable();
    pids
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
fn open_mapped(pid: u32, mapping: &Mapping) -> io::Result<(File, PathBuf)> {
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

/// Puts a target together from its parts.
fn assemble(
    facts: ProcessFacts,
    maps: &Maps,
    first: &Found,
    others: &[Found],
) -> Result<Target, InspectError> {
    let pid = facts.process.pid;
    let others: Vec<PathBuf> = others.iter().map(|found| found.mapping.path.clone()).collect();
    let mut gaps = first.facts.gaps.clone();
    let databases = match database::find(pid) {
        Ok(databases) => databases,
        Err(error) => {
            gaps.push(gaps::unreadable_descriptors(&error));
            database::OpenDatabases::default()
        }
    };
    gaps.extend(gaps::databases(&databases));
    gaps.extend(gaps::other_modules(&first.mapping.path, &others));
    gaps.extend(gaps::truncated_maps(maps));
    let path = first.mapping.path.clone();
    let perf_context = first.facts.perf_context.filter(|symbol| symbol.thread_local).ok_or_else(|| {
        InspectError::NoCounters { pid, path: path.clone(), reason: no_counters_reason(&first.facts) }
    })?;
    let size_bytes = Some(perf_context.size).filter(|&size| size > 0);
    let (layout, version) = layout_and_version(first, &databases.directories, size_bytes, &mut gaps)
        .map_err(|source| InspectError::UnknownLayout { pid, path: path.clone(), source })?;
    let load_bias =
        first.facts.load_bias(first.mapping.start, first.mapping.file_offset).ok_or_else(|| {
            let what = format!("its mapping at {:#x} fits no segment of the file", first.mapping.start);
            InspectError::Unsupported { pid, path: path.clone(), what }
        })?;
    let tls = tls_recipe(pid, maps, first, load_bias)?;
    let module = RocksDbModule {
        path,
        deleted: first.mapping.deleted,
        path_from_agent: first.path_from_agent.clone(),
        build_id: first.facts.build_id.clone(),
        load_bias,
        version,
        sites: first.facts.sites.clone(),
        db_iter_offset: first.facts.db_iter_offset,
        current_key_offset: first.facts.current_key_offset,
        tls,
        perf_level_offset: first.facts.perf_level.map(|symbol| symbol.value),
        perf_context_offset: perf_context.value,
        layout,
    };
    Ok(Target {
        process: facts.process,
        name: facts.name(),
        executable: facts.executable,
        command_line: facts.command_line,
        user_id: facts.user_id,
        group_id: facts.group_id,
        is_jvm: maps.has_file_named("libjvm.so"),
        module,
        databases: databases.directories,
        gaps,
    })
}

fn no_counters_reason(facts: &ModuleFacts) -> String {
    match facts.perf_context {
        None => format!("the module has no symbol {PERF_CONTEXT} (its symbols were stripped)"),
        Some(_) => "`perf_context` is one object for all threads: the build has -DNPERF_CONTEXT, or no \
                    thread-local storage, and what it counts belongs to no thread"
            .to_string(),
    }
}

/// Tries what is known of the version, the surest source first; the size of `perf_context` has the last word.
fn layout_and_version(
    found: &Found,
    databases: &[super::facts::DatabaseDirectory],
    size_bytes: Option<u64>,
    gaps: &mut Vec<Gap>,
) -> Result<(PerfContextLayout, Version), layout::LayoutError> {
    let module = &found.mapping.path;
    let tag = found.facts.build_tag.as_deref();
    let versions: Vec<Version> = [
        version::from_options_files(databases),
        tag.and_then(|tag| version::from_build_tag(tag, module)),
        version::from_log_files(databases),
        version::from_file_name(module),
    ]
    .into_iter()
    .flatten()
    .collect();
    if size_bytes.is_none() {
        gaps.push(gaps::unchecked_layout());
    }
    let mut refused = None;
    for version in versions {
        match layout::choose(Some(&version), size_bytes) {
            Ok(layout) => {
                gaps.extend(refused.map(gaps::contradicted_version));
                return Ok((layout, version));
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    if let Some(error) = refused {
        return Err(error);
    }
    let layout = layout::choose(None, size_bytes)?;
    let (major, minor) = layout::oldest_version_of(&layout).unwrap_or_default();
    let source = format!("size of perf_context, as in RocksDB {}", layout.versions);
    gaps.push(gaps::version_from_size(&layout));
    Ok((layout, Version { major, minor, patch: None, source }))
}

fn tls_recipe(pid: u32, maps: &Maps, found: &Found, load_bias: u64) -> Result<TlsRecipe, InspectError> {
    let path = &found.mapping.path;
    let facts = &found.facts;
    let exe = executable_identity(&pid.to_string());
    let is_executable = facts.fixed_address || facts.says_pie || exe == Some(found.key.device_and_inode());
    let failed = |source| InspectError::ThreadLocalStorage { pid, path: path.clone(), source };
    let symbol = facts.perf_context.ok_or_else(|| failed(tls::TlsError::NoSegment))?;
    let plan = tls::plan(facts.tls.as_ref(), is_executable, &facts.tls_relocations, (PERF_CONTEXT, symbol));
    let plan = plan.map_err(failed)?;
    let recipe = tls::resolve(plan, load_bias, |address| memory::read_u64(pid, address)).map_err(failed)?;
    let is_musl = maps.has_file_named("ld-musl-") || maps.has_file_named("libc.musl-");
    if is_musl && matches!(recipe, TlsRecipe::DynamicThreadVector { .. }) {
        let what = "its thread-local storage is laid out by musl, not by glibc".to_string();
        return Err(InspectError::Unsupported { pid, path: path.clone(), what });
    }
    Ok(recipe)
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;

//! What is known of one target: plain data, gathered once, with the reasons for what is missing.
//!
//! Finding these facts is the business of the sibling modules; using them that of `probe`, `sst` and
//! `executor`. Nothing here touches the system.

use serde::{Deserialize, Serialize};
use sexton_tuner::policy::Candidate;
use sexton_tuner::run::DatabaseIdentity;
use std::ops::Range;
use std::path::PathBuf;

pub use sexton_tuner::run::ProcessId;

/// Identity of a mapped file, as the kernel prints it in `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct FileIdentity {
    /// Major number of the device.
    pub device_major: u32,
    /// Minor number of the device.
    pub device_minor: u32,
    /// Inode number, never 0.
    pub inode: u64,
}

/// Names a target for as long as it lives: a process may hold RocksDB more than once, and may become
/// another program by `exec` without changing its pid or start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TargetId {
    pub process: ProcessId,
    pub module: FileIdentity,
}

/// A RocksDB inside a running process. A process with several copies of RocksDB is several targets.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// Which process and which of its modules.
    pub id: TargetId,
    /// Which process; the one in `id`.
    pub process: ProcessId,
    /// Whether it is the copy of its process that was seen first. Only that one is acted on.
    pub is_primary: bool,
    /// Short name for people and the API: the program and the pid, `mariadbd-4711`; for further copies in the
    /// process followed by the module's file name, `mariadbd-4711-librocksdb.so.7.8`.
    pub name: String,
    /// What the process is, without its pid: the main class of a JVM, else the executable's file name.
    pub program: String,
    /// `/proc/PID/exe`, as the target sees it.
    pub executable: PathBuf,
    /// Arguments, joined with spaces, the first MiB of them.
    pub command_line: String,
    /// Whether there is more: the policy's match cannot see it.
    pub is_command_line_cut: bool,
    /// Effective user of the process.
    pub user_id: u32,
    /// Effective group of the process.
    pub group_id: u32,
    /// That user's name on this host; `None` where it has none.
    pub user_name: Option<String>,
    /// Path of its control group; empty where it cannot be read.
    pub cgroup: String,
    /// Whether it is a HotSpot JVM (it has `libjvm.so` mapped).
    pub is_jvm: bool,
    /// The module that holds RocksDB.
    pub module: RocksDbModule,
    /// Directories of the databases that the process has open, as far as they show. Which of several copies
    /// opened one does not show.
    pub databases: Vec<DatabaseDirectory>,
    /// What could not be found out, and what to do about it.
    pub gaps: Vec<Gap>,
}

impl Target {
    /// What a policy's conditions are asked of.
    pub fn candidate(&self) -> Candidate<'_> {
        Candidate {
            pid: self.process.pid,
            executable: self.executable.to_string_lossy(),
            command_line: self.command_line.as_str().into(),
            user_id: self.user_id,
            user_name: self.user_name.as_deref().map(Into::into),
            cgroup: self.cgroup.as_str().into(),
        }
    }
}

/// One open database of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatabaseDirectory {
    /// The directory as the target sees it (inside its own root), without a trailing slash.
    pub path: PathBuf,
    /// The same directory reached from the agent: `/proc/PID/root/...`.
    pub path_from_agent: PathBuf,
    /// Whether the process has it open for reading only: it neither holds its lock nor writes its log or
    /// manifest.
    pub is_read_only: bool,
    /// The directory's inode; 0 where it could not be read.
    pub inode: u64,
    /// The device that it lies on, as `stat` numbers it; `None` where it could not be read.
    pub device: Option<u64>,
}

impl DatabaseDirectory {
    /// The directory as it is read: the one that was found, and no other one that is there by now.
    pub fn place(&self) -> Option<(u64, u64)> {
        self.device.map(|device| (device, self.inode))
    }

    /// The identity of an open database.
    pub fn identity(&self) -> DatabaseIdentity {
        DatabaseIdentity { path: self.path.clone(), inode: self.inode }
    }
}

/// The function of RocksDB's C API without which the hook can do nothing.
pub const COMPACT_RANGE: &str = "rocksdb_compact_range_cf_opt";

/// The executable or shared library that holds RocksDB's code in a target.
#[derive(Clone, Debug, Serialize)]
pub struct RocksDbModule {
    /// Path as `/proc/PID/maps` shows it, without ` (deleted)`.
    pub path: PathBuf,
    /// Whether the file is gone from its directory (a JVM deletes the unpacked JNI library).
    pub deleted: bool,
    /// A path that opens the very file that is mapped: `/proc/PID/map_files/START-END`.
    pub path_from_agent: PathBuf,
    pub file: FileIdentity,
    /// GNU build id in hexadecimal, where the file has one.
    pub build_id: Option<String>,
    /// What to add to an address in the file (`st_value`) to get the address in the process.
    pub load_bias: u64,
    /// RocksDB's version and where it was read.
    pub version: Version,
    /// How `DBIter`'s functions were found; each site says it for itself, too.
    pub found_by: FoundBy,
    pub sites: ProbeSites,
    /// Offset of the `DBIter*` inside `ArenaWrappedDBIter`, from its methods' code; `None` where the code did
    /// not show it.
    pub db_iter_offset: Option<u32>,
    /// Offset of the `{pointer, length}` of the current key inside `DBIter`, from the code of its `key()`;
    /// `None` where the code did not show it: then it is not known where a scan ended.
    pub current_key_offset: Option<u32>,
    /// Offset of `DBIter::num_internal_keys_skipped_` inside `DBIter`, a `uint64_t` that counts what the
    /// iterator's last call stepped over, from its methods' code; `None` where the code did not show it.
    pub keys_skipped_offset: Option<u32>,
    /// Offset of `DBIter::local_stats_.skip_count_` inside `DBIter`, a `uint64_t` that the former is added to
    /// before each further call, from the same code; `None` where it did not show it: then iterators of one
    /// thread are not told apart by what they have stepped over.
    pub skip_count_offset: Option<u32>,
    /// What can be counted in this module.
    pub counts: CountSource,
    /// How to find the module's thread-local block of a thread; `None` where nothing wanted is thread-local.
    pub tls: Option<TlsRecipe>,
    /// `rocksdb::perf_level`'s offset in the module's thread-local block; `None` where it was not found.
    pub perf_level_offset: Option<u64>,
    /// Where the process has what a thread's block of the module begins as; what is beyond begins as zeros.
    #[serde(skip)]
    pub tls_image: Range<u64>,
    /// `rocksdb::perf_context`'s offset in the module's thread-local block; there with
    /// [`CountSource::PerfContext`].
    pub perf_context_offset: Option<u64>,
    /// Where the counters stand inside `perf_context`; there with [`CountSource::PerfContext`].
    pub layout: Option<PerfContextLayout>,
    /// Where the layout was read.
    pub layout_source: Option<LayoutSource>,
    /// Whether it exports [`COMPACT_RANGE`].
    #[serde(skip)]
    pub exports_compact_range: bool,
}

impl RocksDbModule {
    /// Where the process has the level that a thread begins with; `None` where it begins as zero, which no
    /// level is.
    pub fn initial_perf_level(&self) -> Option<u64> {
        let address = self.tls_image.start.checked_add(self.perf_level_offset?)?;
        self.tls_image.contains(&address).then_some(address)
    }
}

/// How a function was found in a module.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, strum::Display,
)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// `.symtab` of the mapped file.
    #[strum(to_string = ".symtab")]
    SymbolTable,
    /// `.dynsym` of the mapped file.
    #[strum(to_string = ".dynsym")]
    DynamicSymbols,
    /// The symbols packed into its `.gnu_debugdata`.
    #[strum(to_string = ".gnu_debugdata")]
    MiniDebugInfo,
    /// A separate file with debug information, found by build id.
    #[strum(to_string = "a debug file")]
    DebugFile,
    /// No symbol: the vtable of its class, found by the class's name.
    #[strum(to_string = "RTTI and vtable")]
    Rtti,
    /// No symbol and no name: the vtable of its class, found by what the functions in it do.
    #[strum(to_string = "code and vtable")]
    Code,
}

/// Where the layout of `PerfContext` was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum LayoutSource {
    /// The table of released versions, by version or by the size of `perf_context`.
    #[strum(to_string = "the table")]
    Table,
    /// The library itself, asked in a process of its own.
    #[strum(to_string = "the library itself")]
    Library,
    #[strum(to_string = "its code")]
    Code,
}

/// What can be counted in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum CountSource {
    /// Each thread's `perf_context`, exactly, while its perf level is at least `kEnableCount`.
    #[strum(to_string = "exact, by perf_context")]
    PerfContext,
    /// Only `DBIter::num_internal_keys_skipped_`: an estimate, keys and tombstones together.
    #[strum(to_string = "an estimate, by iterators: keys and tombstones together")]
    IteratorEstimate,
    /// Nothing that can be read.
    #[strum(to_string = "nothing")]
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    /// `ROCKSDB_MAJOR`.
    pub major: u32,
    /// `ROCKSDB_MINOR`.
    pub minor: u32,
    /// `ROCKSDB_PATCH`, where known.
    pub patch: Option<u32>,
    /// Where it was read, in words: "OPTIONS-000007 of /var/lib/om.db".
    pub source: String,
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(formatter, ".{patch}"))
    }
}

/// Whether the kernel can emulate the probed instruction or has to single-step it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum SiteKind {
    /// `push` or one-byte `nop`: about 0.7 microseconds a hit in a virtual machine.
    #[strum(to_string = "emulated")]
    Emulated,
    /// Anything else: about 9.4 microseconds a hit in a virtual machine.
    #[strum(to_string = "single-stepped")]
    SingleStepped,
}

/// One place for a probe. The stack pointer there is what it was at the function's entry, so that a
/// return probe works as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSite {
    /// Mangled name of the function.
    pub symbol: String,
    /// Offset of the probed instruction in the file.
    pub file_offset: u64,
    /// Distance from the function's first instruction. What is before it (`endbr64`, loads of addresses)
    /// leaves stack pointer and arguments as they were.
    pub bytes_into_function: u8,
    pub kind: SiteKind,
    /// How the function was found.
    pub found_by: FoundBy,
}

/// The sites of one module; `None` where the function was not found (then there is a [`Gap`] too).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSites {
    /// `rocksdb::DBIter::Seek(Slice const&)`.
    pub seek: Option<ProbeSite>,
    /// `rocksdb::DBIter::SeekForPrev(Slice const&)`.
    pub seek_for_prev: Option<ProbeSite>,
    /// `rocksdb::DBIter::SeekToFirst()`.
    pub seek_to_first: Option<ProbeSite>,
    /// `rocksdb::DBIter::SeekToLast()`.
    pub seek_to_last: Option<ProbeSite>,
    /// `rocksdb::ArenaWrappedDBIter`'s deleting destructor.
    pub iterator_destructor: Option<ProbeSite>,
    /// `rocksdb::DBImpl::NewIterator(ReadOptions const&, ColumnFamilyHandle*)`.
    pub new_iterator: Option<ProbeSite>,
    /// `rocksdb::BlockFetcher::ReadBlockContents()`; it returns a `Status` by value, so that `this` is its
    /// second argument.
    pub read_block_contents: Option<ProbeSite>,
    /// `rocksdb::PerfContext::Reset()`: called by programs that set a thread's counters to zero.
    pub perf_context_reset: Option<ProbeSite>,
}

impl ProbeSites {
    /// Whether at least one positioning call can be probed.
    pub fn has_a_seek(&self) -> bool {
        [&self.seek, &self.seek_for_prev, &self.seek_to_first, &self.seek_to_last]
            .iter()
            .any(|site| site.is_some())
    }
}

/// How a thread's copy of the module's thread-local block is reached from its thread pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TlsRecipe {
    /// `block = thread pointer + offset`: executables, and libraries loaded at start.
    #[strum(to_string = "static, thread pointer {offset:+}")]
    Static {
        /// Added to the thread pointer; negative on x86-64.
        offset: i64,
    },
    /// `block = dtv[module_id]`: libraries loaded with `dlopen`.
    #[strum(to_string = "dynamic, module {module_id}")]
    DynamicThreadVector {
        /// Module id that the dynamic linker assigned.
        module_id: u64,
    },
    /// The same with musl's vector, which is an array of pointers.
    #[strum(to_string = "dynamic by musl, module {module_id}")]
    MuslThreadVector {
        /// Module id that the dynamic linker assigned.
        module_id: u64,
    },
}

/// Byte offsets of counters inside `rocksdb::PerfContext`; all are `uint64_t`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PerfContextLayout {
    /// `block_cache_hit_count`.
    pub block_cache_hit_count: u32,
    /// `block_read_count`.
    pub block_read_count: u32,
    /// `block_read_byte`.
    pub block_read_byte: u32,
    /// `internal_key_skipped_count`.
    pub internal_key_skipped_count: u32,
    /// `internal_delete_skipped_count`.
    pub internal_delete_skipped_count: u32,
    /// `internal_range_del_reseek_count`; `None` before 7.7, and where it is not known which of two
    /// offsets it has.
    pub internal_range_del_reseek_count: Option<u32>,
    /// Size of the whole struct from the symbol's `st_size`, where known.
    pub size_bytes: Option<u64>,
    /// Row of the table it came from: "7.7-8.0".
    pub versions: String,
}

/// Something that could not be found out or will not work, in words for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// What is missing: "perf_level is below kEnableCount".
    pub what: String,
    /// Why it matters or why it is so.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

/// A thread's perf level and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadLevel {
    /// Thread id in the agent's pid namespace.
    pub thread_id: u32,
    /// When the thread started, nanoseconds since boot: a thread id alone can be reused.
    pub start_boot_ns: u64,
    /// The thread-local `rocksdb::perf_level`.
    pub level: u8,
    /// Address of that byte in the target.
    pub address: u64,
}

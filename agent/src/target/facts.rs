//! What is known of one target: plain data, gathered once, with the reasons for what is missing.
//!
//! Finding these facts is the business of the sibling modules; using them that of `probe`, `sst` and
//! `actuator`. Nothing here touches the system.

use serde::Serialize;
use std::path::PathBuf;

/// Names a process for as long as it lives: a pid alone can be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ProcessId {
    /// Process id in the agent's own pid namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot, from `/proc/PID/stat`.
    pub start_time_ticks: u64,
}

/// A running process with a RocksDB inside.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// Which process.
    pub process: ProcessId,
    /// Short name for people, metrics and the API: the executable's file name and the pid, `java-4711`.
    pub name: String,
    /// `/proc/PID/exe`, as the target sees it.
    pub executable: PathBuf,
    /// Arguments, joined with spaces.
    pub command_line: String,
    /// Effective user of the process.
    pub user_id: u32,
    /// Effective group of the process.
    pub group_id: u32,
    /// Whether it is a HotSpot JVM (it has `libjvm.so` mapped).
    pub is_jvm: bool,
    /// The module that holds RocksDB.
    pub module: RocksDbModule,
    /// Directories of the databases that are open, as far as they show.
    pub databases: Vec<DatabaseDirectory>,
    /// What could not be found out, and what to do about it.
    pub gaps: Vec<Gap>,
}

/// One open database of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatabaseDirectory {
    /// The directory as the target sees it (inside its own root), without a trailing slash.
    pub path: PathBuf,
    /// The same directory reached from the agent: `/proc/PID/root/...`.
    pub path_from_agent: PathBuf,
}

/// The executable or shared library that holds RocksDB's code in a target.
#[derive(Clone, Debug, Serialize)]
pub struct RocksDbModule {
    /// Path as `/proc/PID/maps` shows it, without ` (deleted)`.
    pub path: PathBuf,
    /// Whether the file is gone from its directory (a JVM deletes the unpacked JNI library).
    pub deleted: bool,
    /// A path that opens the very file that is mapped: `/proc/PID/map_files/START-END`.
    pub path_from_agent: PathBuf,
    /// GNU build id in hexadecimal, where the file has one.
    pub build_id: Option<String>,
    /// What to add to an address in the file (`st_value`) to get the address in the process.
    pub load_bias: u64,
    /// RocksDB's version and where it was read.
    pub version: Version,
    /// Where to place probes.
    pub sites: ProbeSites,
    /// Offset of the `DBIter*` inside `ArenaWrappedDBIter`, from its methods' code; `None` where the code did not
    /// show it.
    pub db_iter_offset: Option<u32>,
    /// Offset of the `{pointer, length}` of the current key inside `DBIter`, from the code of its `key()`;
    /// `None` where the code did not show it: then it is not known where a scan ended.
    pub current_key_offset: Option<u32>,
    /// How to find the module's thread-local block of a thread.
    pub tls: TlsRecipe,
    /// `rocksdb::perf_level`'s offset in the module's thread-local block; `None` without that symbol.
    pub perf_level_offset: Option<u64>,
    /// `rocksdb::perf_context`'s offset in the module's thread-local block.
    pub perf_context_offset: u64,
    /// Where the counters stand inside `perf_context`.
    pub layout: PerfContextLayout,
}

/// RocksDB's version.
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

/// Whether the kernel can emulate the probed instruction or has to single-step it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SiteKind {
    /// `push` or one-byte `nop`: about 0.7 microseconds a hit in a virtual machine.
    Emulated,
    /// Anything else: about 9.4 microseconds a hit in a virtual machine.
    SingleStepped,
}

/// One place for a probe. The stack pointer there is what it was at the function's entry, so that a
/// return probe works as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeSite {
    /// Mangled name of the function.
    pub symbol: String,
    /// Offset of the probed instruction in the file.
    pub file_offset: u64,
    /// Distance from the function's first instruction. What is before it (`endbr64`, loads of addresses)
    /// leaves stack pointer and arguments as they were.
    pub bytes_into_function: u8,
    /// Price class.
    pub kind: SiteKind,
}

/// The sites of one module; `None` where the function was not found (then there is a [`Gap`] too).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
}

/// How a thread's copy of the module's thread-local block is reached from its thread pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TlsRecipe {
    /// `block = thread pointer + offset`: executables, and libraries loaded at start.
    Static {
        /// Added to the thread pointer; negative on x86-64.
        offset: i64,
    },
    /// `block = dtv[module_id]`: libraries loaded with `dlopen`.
    DynamicThreadVector {
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
    /// Size of the whole struct from the symbol's `st_size`, where known.
    pub size_bytes: Option<u64>,
    /// Row of the table it came from: "7.7-8.0".
    pub versions: String,
}

/// Something that could not be found out or will not work, in words for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// What is missing: "perf_level is below kEnableCount".
    pub what: String,
    /// Why it matters or why it is so.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

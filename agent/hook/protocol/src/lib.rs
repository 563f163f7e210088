//! The messages between the Sexton agent and its hook inside a target.
//!
//! Here live the frames (a length and JSON), the requests, the responses and every limit both sides
//! keep to. Sockets, pointers and RocksDB do not: the agent's half is `sexton_execute::hook`, the
//! target's half is `sexton-hook`.
//!
//! The agent asks, the hook answers. Every request has exactly one response, except
//! [`Request::SstFiles`], whose answer is a run of [`Response::SstFiles`] pages that ends with the
//! one that has `last` set. A connection begins with [`Request::Hello`]; a hook that speaks another
//! [`PROTOCOL_VERSION`] answers with [`ErrorKind::VersionMismatch`] and closes. Only [`Request::Detach`]
//! needs no greeting, so that an agent can be rid of a hook it does not understand.
//!
//! Any agent may ask and look. The first that acts (compacts, flushes, sets options) holds the target until
//! it has ended or been silent for a while; others are answered with [`ErrorKind::Taken`]. Options that it
//! has changed are put back when it is gone: see [`OptionChange::restore`].

#![warn(missing_docs)]

mod frame;
mod key;
pub mod limits;
mod message;

pub use frame::{FrameError, decode, encode, read, write};
pub use key::{KeyBytes, KeyError};
pub use message::{
    BottommostLevelCompaction, ChangedOption, ColumnFamilyLoad, ColumnFamilyPointers, CompactFiles,
    CompactRange, CompactionState, ErrorKind, Finished, Hello, OptionChange, Request, Response, Scanner,
    SetOptions, SstFile, VerifiedColumnFamily,
};

/// Version of this protocol; both sides must have the same, there is no negotiation: the agent brings
/// its own hook along. An attached hook of another version is detached and replaced, a preloaded one by a
/// restart of its host.
pub const PROTOCOL_VERSION: u32 = 8;

/// The option by which a compaction is cancelled, as it is named among the functions that a hook has found or
/// misses.
pub const CANCEL_FLAG: &str = "CompactRangeOptions::canceled";

/// The call that compacts some files, as it is named among the functions that a hook has found or misses.
pub const COMPACT_FILES: &str = "DB::CompactFiles";

/// Files in one [`Request::CompactFiles`]; with the longest numbers far below [`FRAME_BYTES_MAX`].
pub const COMPACT_FILES_MAX: usize = 256;

/// Bytes of these files together. Nothing stops RocksDB once it has begun with them, and a thread that closes
/// the database waits for the end: a second or two of most disks.
pub const COMPACT_FILES_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Bytes of JSON in one frame. A page of SST files needs the most; 256 KiB is small enough to hold in
/// a foreign process without anybody noticing.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;

/// Bytes of a key in either direction. RocksDB allows 8 MiB; keys seen in the field stay below 1 KiB.
pub const KEY_BYTES_MAX: usize = 4 * 1024;

/// SST files in one page of [`Response::SstFiles`]; a page also ends before [`PAGE_BYTES_MAX`].
pub const PAGE_FILES_MAX: usize = 256;

/// Estimated JSON bytes after which a page is closed: the largest file entry (two keys in hexadecimal,
/// a name) still fits below [`FRAME_BYTES_MAX`].
pub const PAGE_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

/// Bytes of a column family's name; RocksDB has no limit, people stay far below.
pub const COLUMN_FAMILY_NAME_BYTES_MAX: usize = 1024;

/// Bytes of a property's name; RocksDB's longest is below 60.
pub const PROPERTY_NAME_BYTES_MAX: usize = 128;

/// Bytes of a property's value that are sent; `rocksdb.stats` has some 10 KiB. Six bytes of JSON per
/// byte, the worst escape, would still fit a frame with half of this.
pub const PROPERTY_VALUE_BYTES_MAX: usize = 32 * 1024;

/// Column families in one [`Request::Loads`]: with the longest names, badly escaped, still below
/// [`FRAME_BYTES_MAX`]. Ozone's manager has some 30.
pub const LOADS_MAX: usize = 32;

/// Options set at a time: what belongs together, not a configuration.
pub const OPTIONS_MAX: usize = 16;

/// Options that the hook puts back when the agent is gone, all databases together: a few each in Ozone's some
/// 30 column families.
pub const CHANGED_OPTIONS_MAX: usize = 256;

/// Data scanners that are told of: a DataNode has one a volume, and at most some 60 disks.
pub const SCANNERS_MAX: usize = 128;

/// Least bandwidth of a data scanner, in bytes a second. Ozone's default is 5 MiB; with less than this a
/// container of 5 GiB would take a day.
pub const SCRUB_BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

/// The greatest one, far above what a disk gives.
pub const SCRUB_BYTES_PER_SECOND_MAX: u64 = 16 * 1024 * 1024 * 1024;

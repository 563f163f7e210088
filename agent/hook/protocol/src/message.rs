//! Requests of the agent and responses of the hook.

use crate::KeyBytes;
use serde::{Deserialize, Serialize};

/// What the agent asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// First request of every connection; answered by [`Response::Hello`].
    Hello {
        /// The agent's [`crate::PROTOCOL_VERSION`].
        protocol_version: u32,
        /// The agent's process id in its own namespace, for the hook's log.
        agent_pid: u32,
        /// A number that no other agent has: drawn once in an agent's life, not once a connection. The
        /// hook tells two agents apart by it.
        agent_id: u64,
    },
    /// The column families the hook has verified so far and still can; answered by
    /// [`Response::Databases`].
    Databases {},
    /// The live SST files of all column families of a database; answered by pages of
    /// [`Response::SstFiles`].
    SstFiles {
        /// Any column family of that database: it vouches for the database pointer.
        column_family: ColumnFamilyPointers,
    },
    /// One of RocksDB's properties, `rocksdb.estimate-pending-compaction-bytes`; answered by
    /// [`Response::Property`].
    Property {
        /// Column family it is asked of.
        column_family: ColumnFamilyPointers,
        /// Name, at most [`crate::PROPERTY_NAME_BYTES_MAX`] bytes, without a NUL byte.
        name: String,
    },
    /// What waits to be compacted in several column families; answered by [`Response::Loads`].
    Loads {
        /// At most [`crate::LOADS_MAX`].
        column_families: Vec<ColumnFamilyPointers>,
    },
    /// Compact a range, in the hook's own thread; answered at once by [`Response::Started`], or by
    /// [`ErrorKind::Busy`] while another compaction or flush runs.
    CompactRange(CompactRange),
    /// Compact some files into one level, in the hook's own thread; answered as [`Request::CompactRange`].
    CompactFiles(CompactFiles),
    /// Write the column family's memtables to SST files, in the hook's own thread; answered as
    /// [`Request::CompactRange`].
    Flush {
        /// Which.
        column_family: ColumnFamilyPointers,
    },
    /// How the compaction or flush stands; answered by [`Response::Compaction`].
    CompactionStatus {
        /// From [`Response::Started`].
        id: u64,
    },
    /// Stop the compaction; answered by [`Response::Compaction`] when it has stopped, or did not within the
    /// hook's time limit. Then it stops as soon as its turn comes. A flush cannot be stopped, nor a
    /// compaction of files, nor one of a range where the hook did not find [`crate::CANCEL_FLAG`]:
    /// [`ErrorKind::Unsupported`].
    Cancel {
        /// From [`Response::Started`].
        id: u64,
    },
    /// Change options of the running database, also in its OPTIONS file; answered by [`Response::Done`].
    SetOptions(SetOptions),
    /// The options that would be put back if the agent were gone; answered by [`Response::ChangedOptions`].
    /// An agent that wants to keep them asks now and then: one that is silent counts as gone.
    ChangedOptions {},
    /// How many bytes a second the data scanners of an Ozone DataNode may read; answered by
    /// [`Response::Scanners`].
    Scanners {},
    /// Give each of these scanners another bandwidth, which lasts until the process ends; answered by
    /// [`Response::Scanners`] with what holds then. It is not put back when the agent is gone.
    SetScrubBandwidth {
        /// [`crate::SCRUB_BYTES_PER_SECOND_MIN`] to [`crate::SCRUB_BYTES_PER_SECOND_MAX`].
        bytes_per_second: u64,
    },
    /// Cancel what runs, take the guard out of the target, stop listening; answered by
    /// [`Response::Done`], then the connection closes. A hook of another version can be brought in then.
    /// Understood without a [`Request::Hello`], from any agent's version.
    Detach {},
}

/// Pointers to a column family inside the target, as seen by a probe, and what they are expected to
/// be. The hook believes none of it: it checks all against the target's memory before every use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnFamilyPointers {
    /// `rocksdb::DBImpl*`.
    pub database: u64,
    /// `rocksdb::ColumnFamilyHandleImpl*`.
    pub handle: u64,
    /// Name the column family must have.
    pub name: String,
    /// Id the column family must have.
    pub id: u32,
}

/// What waits to be compacted in a column family; `None` where this RocksDB does not know the property.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnFamilyLoad {
    /// Its name.
    pub name: String,
    /// `rocksdb.num-files-at-level0`.
    pub level0_files: Option<u64>,
    /// `rocksdb.estimate-pending-compaction-bytes`.
    pub pending_compaction_bytes: Option<u64>,
}

/// A range to compact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactRange {
    /// Where.
    pub column_family: ColumnFamilyPointers,
    /// First key; empty: from the start.
    pub begin: KeyBytes,
    /// First key no longer inside; `None`: to the end.
    pub end: Option<KeyBytes>,
    /// What happens at the bottommost level.
    pub bottommost: BottommostLevelCompaction,
}

/// Files to compact. RocksDB adds to them what keeps its levels consistent, so they should be all that that
/// takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactFiles {
    /// Where.
    pub column_family: ColumnFamilyPointers,
    /// Numbers of one to [`crate::COMPACT_FILES_MAX`] live files of it, in the output level or above, of
    /// together at most [`crate::COMPACT_FILES_BYTES_MAX`] bytes.
    pub files: Vec<u64>,
    /// The level that they go to, from 1 on.
    pub output_level: u32,
    /// Most bytes of a file that comes of it.
    pub output_file_bytes: u64,
}

/// RocksDB's `CompactRangeOptions::bottommost_level_compaction`. With all but the forced ones files may be
/// moved down as they are, tombstones and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BottommostLevelCompaction {
    /// `kSkip`: it is not compacted.
    Skip,
    /// `kIfHaveCompactionFilter`, RocksDB's default.
    IfHaveCompactionFilter,
    /// `kForce`: it is rewritten.
    Force,
    /// `kForceOptimized`: it is rewritten, but for files that this compaction has just written.
    ForceOptimized,
}

/// Options to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetOptions {
    /// Whose options they are.
    pub column_family: ColumnFamilyPointers,
    /// One to [`crate::OPTIONS_MAX`]; RocksDB takes all or none.
    pub options: Vec<OptionChange>,
}

/// One option to change, as the OPTIONS file writes it; no part has a NUL byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionChange {
    /// Name, of the hook's closed list.
    pub name: String,
    /// Value, within the bounds that the hook's list has for it.
    pub value: String,
    /// The value that is in force, of the same length at most. The hook puts it back when the agent has ended
    /// or fallen silent, and before it goes; of several changes the one before the first. Without it the new
    /// value stays, and nothing is put back any more.
    pub restore: Option<String>,
}

/// An option that is not what it was, and will be put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangedOption {
    /// `rocksdb::DBImpl*`.
    pub database: u64,
    /// The column family's id.
    pub column_family_id: u32,
    /// Its name.
    pub name: String,
}

/// What the hook answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
pub enum Response {
    /// To [`Request::Hello`].
    Hello(Hello),
    /// To [`Request::Databases`].
    Databases {
        /// Verified again just now.
        column_families: Vec<VerifiedColumnFamily>,
    },
    /// To [`Request::SstFiles`], one page of several.
    SstFiles {
        /// At most [`crate::PAGE_FILES_MAX`].
        files: Vec<SstFile>,
        /// Whether this is the last page.
        last: bool,
    },
    /// To [`Request::Property`].
    Property {
        /// The value; `None` where RocksDB does not know the property.
        value: Option<String>,
        /// Whether the value was longer than [`crate::PROPERTY_VALUE_BYTES_MAX`] and is cut.
        truncated: bool,
    },
    /// To [`Request::Loads`].
    Loads {
        /// Of those that passed the checks, in their order.
        loads: Vec<ColumnFamilyLoad>,
    },
    /// To [`Request::CompactRange`], [`Request::CompactFiles`] and [`Request::Flush`].
    Started {
        /// Counts up from 1 within one hook.
        id: u64,
    },
    /// To [`Request::CompactionStatus`] and [`Request::Cancel`].
    Compaction {
        /// From [`Response::Started`].
        id: u64,
        /// How it stands.
        state: CompactionState,
    },
    /// To [`Request::ChangedOptions`].
    ChangedOptions {
        /// At most [`crate::CHANGED_OPTIONS_MAX`]. What was changed in a database that its owner has closed
        /// since is not among them.
        options: Vec<ChangedOption>,
    },
    /// To [`Request::Scanners`] and [`Request::SetScrubBandwidth`].
    Scanners {
        /// One to [`crate::SCANNERS_MAX`].
        scanners: Vec<Scanner>,
    },
    /// To requests that have nothing to tell but that they were done.
    Done {},
    /// To any request that was not done.
    Error {
        /// For the agent to decide on.
        kind: ErrorKind,
        /// For people: one line, cause first.
        message: String,
    },
}

/// A data scanner of an Ozone DataNode: it reads what is stored on one volume, over and over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scanner {
    /// The name of its thread, which names the volume; its first 170 characters.
    pub name: String,
    /// How much it may read.
    pub bytes_per_second: u64,
}

/// The hook about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The hook's [`crate::PROTOCOL_VERSION`].
    pub protocol_version: u32,
    /// Version of the hook's package.
    pub hook_version: String,
    /// Process id in the target's own namespace.
    pub pid: u32,
    /// Path of the module that holds RocksDB, as `/proc/self/maps` shows it, without ` (deleted)`;
    /// `None` where RocksDB's C API was not found.
    pub library: Option<String>,
    /// Functions of RocksDB's C API that were found and are used.
    pub functions_found: Vec<String>,
    /// Functions that the hook would use and that this RocksDB does not export.
    pub functions_missing: Vec<String>,
    /// Why the hook cannot tell when a database is closed; `None` where it can. It then acts only on
    /// databases that the program itself has registered.
    pub unguarded: Option<String>,
}

/// A column family that passed the checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifiedColumnFamily {
    /// Its pointers.
    pub pointers: ColumnFamilyPointers,
    /// The database's directory as the target names it; `None` where it could not be read.
    pub directory: Option<String>,
}

/// One live SST file, from `rocksdb_livefiles`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SstFile {
    /// File number.
    pub number: u64,
    /// Column family.
    pub column_family: String,
    /// Level, 0 first.
    pub level: u32,
    /// Size of the file.
    pub size_bytes: u64,
    /// `num_entries`, deletions included.
    pub entries: u64,
    /// `num_deletions`.
    pub deletions: u64,
    /// Smallest user key; of a very long one its first [`crate::KEY_BYTES_MAX`] bytes.
    pub smallest: KeyBytes,
    /// Largest user key, inclusive; a very long one is rounded up, see [`KeyBytes::ceiling`].
    pub largest: KeyBytes,
    /// Sequence number of its oldest entry; `None` where this RocksDB does not tell, before RocksDB 10.
    pub smallest_sequence: Option<u64>,
    /// Of its newest.
    pub largest_sequence: Option<u64>,
}

/// How a compaction or flush stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum CompactionState {
    /// It runs, or waits within RocksDB for a compaction of the same files.
    Running {
        /// Since it started.
        elapsed_ns: u64,
    },
    /// RocksDB's function returned, or was never called.
    Finished(Finished),
}

/// How a compaction or flush ended. RocksDB's C API keeps the status of a range compaction to itself: `ok`
/// says that the call was made, ran through, was not cancelled and that the database counted no new
/// background error meanwhile. What it achieved shows in the SST files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// Whether all went well.
    pub ok: bool,
    /// Whether it was asked to stop before it ended.
    pub cancelled: bool,
    /// Whether that was its owner, by closing the database.
    pub closed_by_owner: bool,
    /// Whether nothing was done, because RocksDB compacts some of the files itself, or has done so: later it
    /// may go.
    pub busy: bool,
    /// Why not, where not `ok`.
    pub error: Option<String>,
    /// How long the call took.
    pub duration_ns: u64,
}

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is not understood or breaks a limit.
    BadRequest,
    /// The agent and the hook speak different versions.
    VersionMismatch,
    /// The pointers failed a check: nothing was called.
    Refused,
    /// Another compaction or flush runs.
    Busy,
    /// Another agent acts on this target.
    Taken,
    /// RocksDB did not do it; the message has its words.
    Failed,
    /// This RocksDB does not export what it would take.
    Unsupported,
    /// No compaction has that id, or no data scanner runs.
    NotFound,
    /// The hook could not do its own part.
    Internal,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{
        CHANGED_OPTIONS_MAX, COLUMN_FAMILY_NAME_BYTES_MAX, COMPACT_FILES_MAX, KEY_BYTES_MAX, OPTIONS_MAX,
        PAGE_BYTES_MAX, SCANNERS_MAX, decode, encode,
    };

    /// More than the name and the value of any option have.
    const OPTION_NAME_BYTES_MAX: usize = 128;
    const OPTION_VALUE_BYTES_MAX: usize = 1024;

    fn pointers(name: &str) -> ColumnFamilyPointers {
        ColumnFamilyPointers { database: u64::MAX, handle: 0x7fff_0000_0008, name: name.into(), id: 3 }
    }

    #[test]
    fn requests_have_the_documented_shape() {
        let request = Request::CompactRange(CompactRange {
            column_family: pointers("keyTable"),
            begin: KeyBytes::new(*b"/v").unwrap(),
            end: None,
            bottommost: BottommostLevelCompaction::ForceOptimized,
        });
        let json = serde_json::to_value(&request).unwrap();
        assert_eq!(json["command"], "compact_range");
        assert_eq!(json["begin"], "2f76");
        assert_eq!(json["bottommost"], "force_optimized");
        assert_eq!(json["column_family"]["database"], u64::MAX);
        assert_eq!(serde_json::from_value::<Request>(json).unwrap(), request);
    }

    #[test]
    fn responses_round_trip() {
        let finished = Finished {
            ok: false,
            cancelled: true,
            closed_by_owner: false,
            busy: false,
            error: Some("cancelled".into()),
            duration_ns: 5,
        };
        for response in [
            Response::Compaction { id: 1, state: CompactionState::Running { elapsed_ns: 9 } },
            Response::Compaction { id: 1, state: CompactionState::Finished(finished) },
            Response::Property { value: None, truncated: false },
            Response::Loads { loads: vec![ColumnFamilyLoad::default()] },
            Response::Done {},
            Response::SstFiles { files: vec![], last: true },
            Response::Error { kind: ErrorKind::Refused, message: "misaligned".into() },
        ] {
            let bytes = encode(&response).unwrap();
            assert_eq!(decode::<Response>(&bytes).unwrap().unwrap(), (response, bytes.len()));
        }
    }

    #[test]
    fn the_largest_messages_fit_a_frame() {
        let name = "\u{1}".repeat(COLUMN_FAMILY_NAME_BYTES_MAX);
        let key = KeyBytes::new(vec![0xff; KEY_BYTES_MAX]).unwrap();
        let request = Request::CompactRange(CompactRange {
            column_family: pointers(&name),
            begin: key.clone(),
            end: Some(key.clone()),
            bottommost: BottommostLevelCompaction::Force,
        });
        assert!(encode(&request).is_ok());
        let request = Request::CompactFiles(CompactFiles {
            column_family: pointers(&name),
            files: vec![u64::MAX; COMPACT_FILES_MAX],
            output_level: u32::MAX,
            output_file_bytes: u64::MAX,
        });
        assert!(encode(&request).is_ok());
        let option = OptionChange {
            name: "\u{1}".repeat(OPTION_NAME_BYTES_MAX),
            value: "\u{1}".repeat(OPTION_VALUE_BYTES_MAX),
            restore: Some("\u{1}".repeat(OPTION_VALUE_BYTES_MAX)),
        };
        let options = vec![option; OPTIONS_MAX];
        let column_family = pointers(&name);
        let request = Request::SetOptions(SetOptions { column_family, options });
        assert!(encode(&request).is_ok());
        let changed = ChangedOption {
            database: u64::MAX,
            column_family_id: u32::MAX,
            name: "\u{1}".repeat(OPTION_NAME_BYTES_MAX),
        };
        assert!(encode(&Response::ChangedOptions { options: vec![changed; CHANGED_OPTIONS_MAX] }).is_ok());
        let scanner = Scanner { name: "\u{1}".repeat(170), bytes_per_second: u64::MAX };
        assert!(encode(&Response::Scanners { scanners: vec![scanner; SCANNERS_MAX] }).is_ok());
        let file = SstFile {
            number: u64::MAX,
            column_family: name,
            level: u32::MAX,
            size_bytes: u64::MAX,
            entries: u64::MAX,
            deletions: u64::MAX,
            smallest: key.clone(),
            largest: key,
            smallest_sequence: Some(u64::MAX),
            largest_sequence: Some(u64::MAX),
        };
        let one = encode(&Response::SstFiles { files: vec![file], last: false }).unwrap().len();
        assert!(PAGE_BYTES_MAX + one < crate::FRAME_BYTES_MAX, "{one}");
    }
}

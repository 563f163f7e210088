//! By which of RocksDB's calls a job is done.

use crate::lsm::compact_files::CompactFiles;
use crate::words;
use serde::{Deserialize, Serialize};

/// A call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Primitive {
    /// All that overlaps the job's keys, level by level, memtables first.
    #[default]
    CompactRange,
    /// Some files, at once. Nothing can stop it.
    CompactFiles {
        files: CompactFiles,
        /// What `CompactRange` over the same keys would rewrite.
        by_range_bytes: u64,
    },
}

impl Primitive {
    /// The files of `CompactFiles`.
    pub fn files(&self) -> Option<&CompactFiles> {
        match self {
            Primitive::CompactRange => None,
            Primitive::CompactFiles { files, .. } => Some(files),
        }
    }

    /// Why it is not `CompactRange`, in words; `cost_bytes` is what it rewrites.
    pub(crate) fn reason(&self, cost_bytes: u64) -> Option<String> {
        let Primitive::CompactFiles { files, by_range_bytes } = self else { return None };
        Some(format!(
            "CompactFiles of {} files into level {} rewrites {}, where CompactRange over its keys rewrites {}",
            files.files.len(),
            files.output_level,
            words::bytes(cost_bytes),
            words::bytes(*by_range_bytes),
        ))
    }
}

//! By which of RocksDB's calls a target can be asked to compact.

use serde::{Deserialize, Serialize};

/// What there is beside `CompactRange`, which every target has that can be acted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Primitives {
    /// `CompactFiles`: some files, at once, into one level.
    pub compact_files: bool,
}

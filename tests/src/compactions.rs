//! What several tests ask a hook to compact.

use sexton_hook_protocol::{BottommostLevelCompaction, ColumnFamilyPointers, CompactRange, KeyBytes};

/// All keys of a column family.
pub fn everything(family: &ColumnFamilyPointers, bottommost: BottommostLevelCompaction) -> CompactRange {
    CompactRange { column_family: family.clone(), begin: KeyBytes::default(), end: None, bottommost }
}

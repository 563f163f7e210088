//! What a tree is set to: RocksDB's options, as far as they decide its shape.

use super::names::Names;
use crate::facts::options::ColumnFamilyOptions;

/// One column family's options, beyond those that the tuner knows.
#[derive(Clone, Debug)]
pub struct Settings {
    pub names: Names,
    pub options: ColumnFamilyOptions,
    /// `level0_file_num_compaction_trigger`.
    pub level0_file_num_compaction_trigger: usize,
    /// `block_size`.
    pub block_size: u64,
    /// FIFO's `max_table_files_size`.
    pub max_table_files_size: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            names: Names::default(),
            options: ColumnFamilyOptions::default(),
            level0_file_num_compaction_trigger: 4,
            block_size: 4096,
            max_table_files_size: 1 << 30,
        }
    }
}

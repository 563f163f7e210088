//! An LSM tree by RocksDB's rules, whose readers and compactions are exact: the truth that a plan is held
//! against.
//!
//! A [`Tree`] is one column family: memtable, levels of sorted files, snapshots. Writes go in, a flush and
//! RocksDB's own compactions follow its options, and `CompactRange`, `CompactFiles` and `SuggestCompactRange`
//! do what they do there. A [`reader::Reader`] walks over it and counts as `DBIter` does. Keys are numbers; a
//! tree's [`names::Names`] says which bytes they stand for.
//!
//! Not modelled: compression, blobs, compaction filters, compactions that run at the same time or within L0,
//! what a block cache holds, and that a job's output can end where a range tombstone begins.

mod automatic;
mod compaction;
pub mod entry;
mod file;
mod manual;
pub mod names;
mod output;
pub mod picture;
pub mod reader;
pub mod settings;
mod table;
#[cfg(test)]
mod tests;
mod tombstones;
pub mod tree;

pub use settings::Settings;
pub use tree::{Tree, Work};

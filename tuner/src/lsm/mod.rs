//! A column family's LSM tree: which part of its files lies where, and what a compaction would do with them.

pub(crate) mod automatic_compaction;
pub mod compact_files;
pub(crate) mod compaction_simulator;
pub(crate) mod contents;
pub mod cost;
mod fitting;
pub(crate) mod hidden_entries;
pub(crate) mod kept;
pub(crate) mod layout;
mod level_view;
mod placed;
pub mod replaced;
pub mod rest;
pub(crate) mod ruler;
pub mod share;
pub mod tombstone_placement;

//! Worlds to decide in: what decisions lead to is worked out in a model, where the real thing would be too
//! slow, too rare or not known exactly. Neither has a clock, a file or a thread.
//!
//! `lsm` is an LSM tree that behaves as RocksDB's does: what readers of it skip and what a compaction
//! relieves is known to the unit. `workload` plays hours on one, with somebody who decides. `trace`
//! reads what RocksDB records of a program's calls. `replay` plays policies on the agent's own history.
//! `faults` are histories of actions in a world where everything fails.

#[cfg(test)]
mod faults;
pub mod lsm;
pub mod random;
pub mod replay;
pub mod trace;
pub mod workload;

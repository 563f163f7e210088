//! Sexton, a node agent that keeps a RocksDB's tombstones in order.
//!
//! This library is the agent's parts; `main.rs` wires them to a command line. Deciding what to do is
//! not here: that is the pure crate `sexton-tuner`.

pub mod actuator;
pub mod api;
pub mod audit;
pub mod command;
pub mod confinement;
pub mod doctor;
pub mod engine;
pub mod failure;
#[cfg(test)]
mod fuzz;
pub mod keeper;
pub mod log;
pub mod policy_file;
pub mod probe;
pub mod snapshot;
pub mod sst;
pub mod state;
pub mod target;
pub mod text;
pub mod top;

//! Sexton, a node agent that keeps a RocksDB's tombstones in order.
//!
//! This library is the engine, the API and the command line; `main.rs` starts it. Deciding what to do is not
//! here: that is the pure crate `sexton-tuner`. Finding a RocksDB, probing it, reading its SST files and
//! acting on it are the crates `sexton-inspect`, `sexton-probe`, `sexton-sst` and `sexton-execute`.

mod act;
pub mod api;
pub mod command;
mod commands;
mod discovery;
pub mod doctor;
pub mod engine;
pub mod failure;
mod guard_commands;
mod guarded_file;
pub mod history;
mod inbox;
pub mod log;
mod node;
mod observe;
pub mod policy_file;
mod publish;
mod service;
mod session;
mod signals;
pub mod snapshot;
pub mod text;
pub mod top;
mod worker;

//! Decides which key ranges of a RocksDB to compact, and why.
//!
//! Evidence (what was observed) and a policy (what the operator wants) go in; a plan comes out. What
//! never lives here: files, sockets, clocks, BPF, threads. Time comes in as an argument. That is what
//! makes a dry run, a simulation and a property test the same call as the real thing.

pub mod evidence;
pub mod key;
pub mod policy;
pub mod prefix;
pub mod range;

//! Finding running RocksDBs and how to read them.
//!
//! [`inspect::Inspector`] turns a pid, or all processes of the node, into [`facts::Target`]s; the other
//! modules each read one thing it needs. What never lives here: probes, decisions, and any write into a
//! target: everything is read from `/proc`, from the mapped file and from the target's memory.

mod assemble;
mod counters;
mod creation;
mod database;
mod debug_file;
pub mod elf;
mod elf_error;
pub mod error;
pub mod examiner;
pub mod examiner_child;
pub mod facts;
pub mod finding;
#[cfg(test)]
mod fuzz;
mod gaps;
pub mod identity;
pub mod inspect;
pub mod layout;
mod learn;
pub mod library;
pub mod library_child;
mod linker;
pub mod links;
pub mod log_sizes;
pub mod maps;
pub mod memory;
mod mini_debug_info;
mod module;
mod names;
pub mod process;
pub mod program_memory;
pub mod prologue;
mod raw;
mod scan;
mod search;
pub mod source;
mod symbols;
mod tls;
mod trace;
mod unwind;
pub mod users;
mod verdicts;
mod version;
mod vtables;

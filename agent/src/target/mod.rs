//! Finding running RocksDBs and how to read them.
//!
//! [`inspect::Inspector`] turns a pid, or all processes of the node, into [`facts::Target`]s; the other
//! modules each read one thing it needs. What never lives here: probes, decisions, and any write into a
//! target: everything is read from `/proc`, from the mapped file and from the target's memory.

mod assemble;
pub mod database;
pub mod elf;
pub mod error;
pub mod facts;
mod gaps;
pub mod inspect;
pub mod layout;
pub mod maps;
pub mod memory;
pub mod module;
mod names;
pub mod process;
pub mod prologue;
mod scan;
mod search;
pub mod tls;
pub mod version;

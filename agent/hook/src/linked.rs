//! For programs that link the hook: they say which column families there are and when they end, so that
//! nothing has to be found out from outside. C programs include `sexton_hook.h`.
//!
//! A program that says nothing is served too, once a probe of the agent has seen its column families in use,
//! as long as the guard can stand in front of its calls.
//!
//! # Panics
//! A Rust program shares its standard library with this crate. Its panic hook stays in force for its own
//! panics; those of the hook's threads are kept from it, go to the hook's log and end nothing but what was
//! asked for. A program that is built with `panic = "abort"` has no such containment: there any panic ends
//! the process, a panic of this crate's too. Who cannot accept that loads `libsexton_hook.so` instead, which
//! is built to unwind.

use crate::guard::GUARD;
use crate::options::Options;
use crate::registered::{REGISTERED_MAX, list};
use crate::{memory, owner, panics, start, verify};
use sexton_hook_protocol::ColumnFamilyPointers;
use std::ffi::{c_int, c_void};

/// Return code: done.
const DONE: c_int = 0;

/// Return code: not the handle of a column family, or one that is not registered.
const NOT_A_COLUMN_FAMILY: c_int = 1;

/// Return code: the hook could not be started, or has no room.
const NOT_POSSIBLE: c_int = 2;

/// Return code after a panic, which would be a bug of ours.
const PANICKED: c_int = 3;

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkedError {
    /// What was given is not a `rocksdb_column_family_handle_t*`, or not a registered one.
    NotAColumnFamily,
    /// No more than some thousand column families are registered.
    TooMany,
    /// The listener could not be started, and why.
    NotStarted(String),
}

impl std::fmt::Display for LinkedError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkedError::NotAColumnFamily => {
                formatter.write_str("this is not the handle of a column family that the hook knows")
            }
            LinkedError::TooMany => {
                write!(formatter, "more than {REGISTERED_MAX} column families are registered")
            }
            LinkedError::NotStarted(reason) => write!(formatter, "the hook does not listen: {reason}"),
        }
    }
}

impl std::error::Error for LinkedError {}

/// Starts the listener where it does not run yet. The program must export RocksDB's C API to the dynamic
/// linker: by linking to a shared RocksDB, or with `-rdynamic`.
pub fn start() -> Result<(), LinkedError> {
    start::start(Options::preload()).map_err(LinkedError::NotStarted)
}

/// Tells the hook of a column family, given as the C API's `rocksdb_column_family_handle_t*`. Call
/// [`unregister`] before the handle is destroyed or the database closed.
pub fn register(column_family: *const c_void) -> Result<(), LinkedError> {
    let pointers = read(column_family).ok_or(LinkedError::NotAColumnFamily)?;
    let mut registered = list();
    if registered.contains(&pointers) {
        return Ok(());
    }
    if registered.len() >= REGISTERED_MAX || !GUARD.register(pointers.database) {
        return Err(LinkedError::TooMany);
    }
    registered.push(pointers);
    Ok(())
}

/// Takes a column family back. A compaction that runs in its database is cancelled; when this returns,
/// nothing uses the handle, nor, where it was its last, the database, and the owner may end them.
pub fn unregister(column_family: *const c_void) -> Result<(), LinkedError> {
    let pointers = read(column_family).ok_or(LinkedError::NotAColumnFamily)?;
    let mut registered = list();
    let before = registered.len();
    registered.retain(|known| *known != pointers);
    if registered.len() == before {
        return Err(LinkedError::NotAColumnFamily);
    }
    let has_others = registered.iter().any(|known| known.database == pointers.database);
    drop(registered);
    owner::let_go(pointers.database, has_others);
    Ok(())
}

/// Pointers of the column family at a `rocksdb_column_family_handle_t*`.
fn read(column_family: *const c_void) -> Option<ColumnFamilyPointers> {
    let [handle] = memory::words::<1>(column_family as u64)?;
    verify::describe(handle)
}

/// The same for C programs; see `sexton_hook.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sexton_hook_start() -> c_int {
    code(start)
}

/// [`register`] for C programs; see `sexton_hook.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sexton_hook_register(column_family: *const c_void) -> c_int {
    code(|| register(column_family))
}

/// [`unregister`] for C programs; see `sexton_hook.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sexton_hook_unregister(column_family: *const c_void) -> c_int {
    code(|| unregister(column_family))
}

fn code(work: impl FnOnce() -> Result<(), LinkedError> + std::panic::UnwindSafe) -> c_int {
    match panics::contain(work) {
        Ok(Ok(())) => DONE,
        Ok(Err(LinkedError::NotAColumnFamily)) => NOT_A_COLUMN_FAMILY,
        Ok(Err(LinkedError::TooMany | LinkedError::NotStarted(_))) => NOT_POSSIBLE,
        Err(_) => PANICKED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_column_family_is_refused() {
        let nothing = [0u64; 4];
        for pointer in [std::ptr::null(), nothing.as_ptr().cast(), 8 as *const c_void] {
            assert_eq!(register(pointer), Err(LinkedError::NotAColumnFamily));
            assert_eq!(sexton_hook_unregister(pointer), NOT_A_COLUMN_FAMILY);
        }
        assert!(list().is_empty());
    }
}

//! Column families that programs with the hook linked in have told it of.

use sexton_hook_protocol::ColumnFamilyPointers;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Column families that are registered at a time.
pub const REGISTERED_MAX: usize = 4096;

static REGISTERED: Mutex<Vec<ColumnFamilyPointers>> = Mutex::new(Vec::new());

/// The list, until the guard is dropped.
pub fn list() -> MutexGuard<'static, Vec<ColumnFamilyPointers>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn all() -> Vec<ColumnFamilyPointers> {
    list().clone()
}

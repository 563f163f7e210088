//! The way to a database: under the guard, and checked.

use crate::guard::{GUARD, Pass};
use crate::rocksdb::{Handles, RocksDb};
use crate::verify::Checker;
use sexton_hook_protocol::{COLUMN_FAMILY_NAME_BYTES_MAX, ColumnFamilyPointers, ErrorKind};

/// Why a request was not done.
pub type Failure = (ErrorKind, String);

/// A database and one of its column families; both stay what they are until this is dropped.
pub struct Access<'guard> {
    pass: Pass<'guard>,
    handles: Handles,
}

impl Access<'_> {
    /// For RocksDB's functions, and not to be kept longer than this.
    pub fn handles(&self) -> Handles {
        self.handles
    }

    /// Whether the owner waits to close the database.
    pub fn is_ending(&self) -> bool {
        self.pass.is_ending()
    }
}

/// Takes a pass, then checks the pointers: what they lead to cannot go away in between.
pub fn enter(rocksdb: &RocksDb, pointers: &ColumnFamilyPointers) -> Result<Access<'static>, Failure> {
    if pointers.name.len() > COLUMN_FAMILY_NAME_BYTES_MAX {
        return Err((ErrorKind::BadRequest, "the column family's name is too long".to_owned()));
    }
    let refused = |reason: String| (ErrorKind::Refused, reason);
    let pass = GUARD
        .enter(pointers.database, pointers.handle)
        .map_err(|refusal| refused(refusal.reason().to_owned()))?;
    Checker::new(rocksdb).check(pointers).map_err(refused)?;
    // SAFETY: both were just found to be live objects of these classes, the second of the first, and their
    // owner does not end them before the pass comes back.
    let handles = unsafe { Handles::new(pointers.database, pointers.handle) };
    Ok(Access { pass, handles })
}

//! The owner's calls that end a database or a column family handle, led through the guard.
//!
//! All of them are virtual: `delete database` of a C++ program, `rocksdb_close`, RocksJava's close and
//! dispose in all its versions, the wrappers of transactions and expiry, and RocksDB's own clean-up all fetch
//! the address from the class' virtual table. So that is where the guard stands: five words of two tables
//! point to functions here, which call the former ones. One way serves programs that were attached to,
//! preloaded or linked, however their RocksDB was loaded; symbols put in front of others would miss what is
//! linked into the executable and hide what is loaded later, and methods of RocksJava have another name in
//! each version.
//!
//! Only objects of exactly these classes are ever used by the hook (`verify`), so only their tables matter.

use crate::guard::{Ended, GUARD};
use crate::panics::Scope;
use crate::rocksdb::{Database, RocksDb};
use crate::{cancel, log, maps, memory};
use sexton_rocksdb_layout::virtual_table;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Words of a virtual table that are looked through; `DBImpl`'s has some 200 functions.
const SLOTS_MAX: u64 = 512;

/// `rocksdb::Status::kAborted`, the first byte of a `Status`. `DB::Close` keeps it for what can be tried
/// again: the database has snapshots and was not closed.
const STATUS_ABORTED: u8 = 10;

/// The functions that stood in the tables: where a call goes on from here.
static DATABASE_DELETE: AtomicU64 = AtomicU64::new(0);
static DATABASE_DESTROY: AtomicU64 = AtomicU64::new(0);
static DATABASE_CLOSE: AtomicU64 = AtomicU64::new(0);
static HANDLE_DELETE: AtomicU64 = AtomicU64::new(0);
static HANDLE_DESTROY: AtomicU64 = AtomicU64::new(0);

/// The process in which the guard stands; a forked child has the tables, but none of our threads.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// RocksDB's functions, to have it give up what runs.
static ROCKSDB: Mutex<Option<Arc<RocksDb>>> = Mutex::new(None);

/// The words that lead here.
static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

/// A word of a virtual table.
struct Slot {
    address: u64,
    theirs: u64,
    ours: u64,
}

type Destructor = unsafe extern "C-unwind" fn(*mut c_void);
/// A method that returns a `Status` gets the place for it first, and gives that back.
type Close = unsafe extern "C-unwind" fn(*mut u8, *mut c_void) -> *mut u8;

/// Puts the guard in front of the owner's calls; why not, where that cannot be done. A second time changes
/// nothing.
pub fn install(rocksdb: &Arc<RocksDb>) -> Result<(), String> {
    *locked(&ROCKSDB) = Some(Arc::clone(rocksdb));
    let mut slots = locked(&SLOTS);
    if !slots.is_empty() {
        return Ok(());
    }
    if !cfg!(target_arch = "x86_64") {
        return Err("how this processor returns a Status is not known".to_owned());
    }
    let found = find(rocksdb)?;
    PROCESS.store(std::process::id(), Ordering::SeqCst);
    for (at, slot) in found.iter().enumerate() {
        if let Err(reason) = write(slot.address, slot.ours) {
            for done in found.iter().take(at) {
                let _ = write(done.address, done.theirs);
            }
            return Err(reason);
        }
    }
    *slots = found;
    GUARD.set_installed(true);
    Ok(())
}

/// Takes the guard away again. Nothing may be in use. `false`: somebody has changed the tables since,
/// and they are left as they are, our functions included.
pub fn remove() -> bool {
    let mut slots = locked(&SLOTS);
    if !slots.iter().all(|slot| memory::words::<1>(slot.address) == Some([slot.ours])) {
        return false;
    }
    GUARD.set_installed(false);
    for slot in slots.drain(..) {
        if let Err(reason) = write(slot.address, slot.theirs) {
            log::line(&format!("a virtual table keeps our function: {reason}"));
        }
    }
    true
}

/// A program that links the hook is about to end a handle of `database`, or the database itself, which then
/// has no other handle that is in use.
pub fn let_go(database: u64, has_others: bool) {
    let ended = if has_others { Ended::NotYet } else { Ended::Destroyed };
    let can_cancel = locked(&ROCKSDB).as_ref().is_some_and(|rocksdb| rocksdb.can_cancel());
    if has_others && can_cancel {
        // The database goes on, and with it the application's own compactions.
        let _ours = Scope::ours();
        return GUARD.end_database(database, || cancel::request_in(database), || ended);
    }
    end(database as *mut c_void, true, || ended);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(rocksdb: &RocksDb) -> Result<Vec<Slot>, String> {
    let database = rocksdb.database_vtable.ok_or("the virtual table of rocksdb::DBImpl has no symbol")?;
    let handle =
        rocksdb.handle_vtable.ok_or("the virtual table of rocksdb::ColumnFamilyHandleImpl has no symbol")?;
    let functions = &rocksdb.owner;
    let wanted = [
        (database, functions.database_delete, &DATABASE_DELETE, delete_database as *const () as u64),
        (database, functions.database_destroy, &DATABASE_DESTROY, destroy_database as *const () as u64),
        (database, functions.database_close, &DATABASE_CLOSE, close_database as *const () as u64),
        (handle, functions.handle_delete, &HANDLE_DELETE, delete_handle as *const () as u64),
        (handle, functions.handle_destroy, &HANDLE_DESTROY, destroy_handle as *const () as u64),
    ];
    let mut slots = Vec::with_capacity(wanted.len());
    for (table, theirs, former, ours) in wanted {
        let theirs = theirs.ok_or("a destructor or Close of RocksDB has no symbol")?;
        let address = slot_of(table, theirs).ok_or("a virtual table does not hold RocksDB's own function")?;
        former.store(theirs, Ordering::SeqCst);
        slots.push(Slot { address, theirs, ours });
    }
    Ok(slots)
}

/// Address of the word of `table` that holds `function`.
fn slot_of(table: u64, function: u64) -> Option<u64> {
    let first = table.checked_add(virtual_table::HEADER_BYTES)?;
    let slots = (0..SLOTS_MAX).map_while(|index| first.checked_add(8 * index));
    let read = slots.map_while(|address| memory::words::<1>(address).map(|[word]| (address, word)));
    read.into_iter().find(|(_, word)| *word == function).map(|(address, _)| address)
}

/// Writes one word of this process' memory, whose page the dynamic linker has made read-only as a rule.
fn write(address: u64, word: u64) -> Result<(), String> {
    let mappings = maps::own();
    let home = maps::at(&mappings, address).ok_or("a virtual table is in no file")?;
    // SAFETY: asks the system for a constant.
    let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
        .ok()
        .filter(|bytes| bytes.is_power_of_two())
        .ok_or("the size of a page is not known")?;
    let page = (address & !(page_bytes - 1)) as *mut c_void;
    let protect = |protection| {
        // SAFETY: the page is mapped, holds data of RocksDB's module and stays readable throughout.
        match unsafe { libc::mprotect(page, page_bytes as usize, protection) } {
            0 => Ok(()),
            _ => Err(format!("a virtual table cannot be changed: {}", std::io::Error::last_os_error())),
        }
    };
    if !home.writable {
        protect(libc::PROT_READ | libc::PROT_WRITE)?;
    }
    // SAFETY: aligned, mapped and writable now; readers in other threads see the one word or the other.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(word, Ordering::SeqCst);
    if home.writable { Ok(()) } else { protect(libc::PROT_READ) }
}

/// Whether the guard's account is this process' own.
fn is_ours() -> bool {
    PROCESS.load(Ordering::SeqCst) == std::process::id()
}

/// # Safety
/// `former` holds the address of a destructor, which the caller has been called in place of.
unsafe fn call(former: &AtomicU64, object: *mut c_void) {
    let address = former.load(Ordering::SeqCst);
    // SAFETY: stored before any table led here, and never changed but by the same.
    let destructor = unsafe { std::mem::transmute::<*const (), Destructor>(address as *const ()) };
    let _theirs = Scope::theirs();
    // SAFETY: as the caller promises.
    unsafe { destructor(object) }
}

/// Has RocksDB give up manual compactions and waits until nothing uses the database, then has the owner go
/// on. Where the object `is_still_there` afterwards they are allowed again.
///
/// Only manual compactions are given up. The marker of a shutdown, which would end them sooner where they
/// wait for an automatic one, would also have RocksDB drop the flush that a range compaction begins with, and
/// with it what was written without a write-ahead log (seen in 7.8).
fn end(database: *mut c_void, is_still_there: bool, original: impl FnOnce() -> Ended) {
    let _ours = Scope::ours();
    // SAFETY: its owner has called a method of it, or has just been seen to hold a column family of it; it is
    // used before the owner goes on, and afterwards only where the caller says that it is still there.
    let object = unsafe { Database::new(database as u64) };
    let mut disabled = None;
    let stop = || {
        disabled = locked(&ROCKSDB).clone();
        if let Some(rocksdb) = &disabled {
            rocksdb.disable_manual_compaction(object);
        }
    };
    GUARD.end_database(database as u64, stop, original);
    if let Some(rocksdb) = disabled.filter(|_| is_still_there) {
        rocksdb.enable_manual_compaction(object);
    }
}

/// # Safety
/// Called through `DBImpl`'s virtual table.
unsafe extern "C-unwind" fn delete_database(database: *mut c_void) {
    // SAFETY: called in place of it.
    unsafe { end_database(&DATABASE_DELETE, database) }
}

/// # Safety
/// As [`delete_database`].
unsafe extern "C-unwind" fn destroy_database(database: *mut c_void) {
    // SAFETY: called in place of it.
    unsafe { end_database(&DATABASE_DESTROY, database) }
}

/// # Safety
/// As [`call`].
unsafe fn end_database(former: &AtomicU64, database: *mut c_void) {
    if !is_ours() {
        // SAFETY: as the caller promises.
        return unsafe { call(former, database) };
    }
    end(database, false, || {
        // SAFETY: as the caller promises.
        unsafe { call(former, database) };
        Ended::Destroyed
    });
}

/// # Safety
/// Called through `DBImpl`'s virtual table.
unsafe extern "C-unwind" fn close_database(status: *mut u8, database: *mut c_void) -> *mut u8 {
    let address = DATABASE_CLOSE.load(Ordering::SeqCst);
    // SAFETY: as in `call`; the type is that of a method without arguments that returns a `Status`.
    let close = unsafe { std::mem::transmute::<*const (), Close>(address as *const ()) };
    if !is_ours() {
        // SAFETY: called in place of it.
        return unsafe { close(status, database) };
    }
    end(database, true, || {
        let _theirs = Scope::theirs();
        // SAFETY: called in place of it, and `status` is what it has just filled in.
        let code = unsafe { *close(status, database) };
        if code == STATUS_ABORTED { Ended::NotYet } else { Ended::Closed }
    });
    status
}

/// # Safety
/// Called through `ColumnFamilyHandleImpl`'s virtual table.
unsafe extern "C-unwind" fn delete_handle(handle: *mut c_void) {
    if !is_ours() {
        // SAFETY: called in place of it.
        return unsafe { call(&HANDLE_DELETE, handle) };
    }
    let _ours = Scope::ours();
    let address = handle as u64;
    // SAFETY: called in place of it; the object is the hook's to delete from here on, and nobody else's.
    GUARD.delete_handle(address, move || unsafe { call(&HANDLE_DELETE, address as *mut c_void) });
}

/// # Safety
/// As [`delete_handle`].
unsafe extern "C-unwind" fn destroy_handle(handle: *mut c_void) {
    if !is_ours() {
        // SAFETY: called in place of it.
        return unsafe { call(&HANDLE_DESTROY, handle) };
    }
    let _ours = Scope::ours();
    // SAFETY: called in place of it.
    GUARD.destroy_handle(handle as u64, || unsafe { call(&HANDLE_DESTROY, handle) });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Constant and full of addresses: the dynamic linker makes it read-only, as it does virtual tables.
    static TABLE: [fn() -> u64; 4] = [zero, zero, one, zero];

    #[inline(never)]
    fn zero() -> u64 {
        0
    }

    #[inline(never)]
    fn one() -> u64 {
        1
    }

    #[inline(never)]
    fn two() -> u64 {
        2
    }

    #[test]
    fn a_word_of_a_read_only_table_is_found_changed_and_put_back() {
        let first = (&raw const TABLE) as u64;
        let slot = slot_of(first - virtual_table::HEADER_BYTES, one as *const () as u64).unwrap();
        assert_eq!(slot, first + 16);
        assert!(!maps::at(&maps::own(), slot).unwrap().writable);
        let call = |index: usize| std::hint::black_box(&TABLE)[index]();
        write(slot, two as *const () as u64).unwrap();
        assert_eq!([call(0), call(2), call(3)], [0, 2, 0]);
        write(slot, one as *const () as u64).unwrap();
        assert_eq!(call(2), 1);
        assert!(!maps::at(&maps::own(), slot).unwrap().writable);
    }

    #[test]
    fn what_is_not_in_a_table_is_not_found_and_the_end_of_memory_is_no_fault() {
        const NO_FUNCTION: u64 = 0x5ca1_ab1e_0bad_cafe;
        assert_eq!(slot_of((&raw const TABLE) as u64, NO_FUNCTION), None);
        assert_eq!(slot_of(0xdead_0000, NO_FUNCTION), None);
        assert_eq!(slot_of(u64::MAX - 8, NO_FUNCTION), None);
        assert!(write(0xdead_0000, NO_FUNCTION).is_err());
    }
}

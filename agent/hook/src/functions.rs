//! The functions of RocksDB's C API that are used, by name and type.
//!
//! Signatures are those of `include/rocksdb/c.h`, unchanged from 6.x to 11.12 for all functions here.

use crate::cancel;
use crate::rocksdb::Wrapper;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Functions for a range compaction.
#[derive(Clone, Copy)]
pub struct CompactFunctions {
    pub options_create: unsafe extern "C" fn() -> *mut c_void,
    pub options_destroy: unsafe extern "C" fn(*mut c_void),
    pub options_set_exclusive: unsafe extern "C" fn(*mut c_void, u8),
    pub options_set_bottommost: unsafe extern "C" fn(*mut c_void, u8),
    /// Since RocksDB 6.18; from what it writes the place of `CompactRangeOptions::canceled` is found.
    pub options_set_timestamp: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>,
    pub compact_range: unsafe extern "C" fn(
        *mut Wrapper,
        *mut Wrapper,
        *mut c_void,
        *const c_char,
        usize,
        *const c_char,
        usize,
    ),
}

impl CompactFunctions {
    /// In which word of the options the flag of [`cancel`] stands; `None` where this RocksDB has none.
    pub fn canceled_word(&self) -> Option<usize> {
        const BOTTOMMOST: u8 = 2;
        let set_timestamp = self.options_set_timestamp?;
        let timestamp = *b"sexton\0\0";
        // SAFETY: RocksDB's functions with c.h's signatures. RocksDB copies the address of the timestamp,
        // which outlives the options. A version that has the function has at least four words of options, and
        // behind them the two of the timestamp.
        unsafe {
            let options = (self.options_create)();
            if options.is_null() {
                return None;
            }
            (self.options_set_bottommost)(options, BOTTOMMOST);
            set_timestamp(options, timestamp.as_ptr().cast(), timestamp.len());
            let read = |word| options.cast::<u64>().add(word).read();
            let found = cancel::find(options, read, &timestamp, BOTTOMMOST);
            (self.options_destroy)(options);
            found
        }
    }
}

/// Functions for compacting some files; in the C API since RocksDB 11.
#[derive(Clone, Copy)]
pub struct CompactFilesFunctions {
    pub options_create: unsafe extern "C" fn() -> *mut c_void,
    pub options_destroy: unsafe extern "C" fn(*mut c_void),
    pub options_set_output_file_size_limit: unsafe extern "C" fn(*mut c_void, u64),
    pub compact_files: CompactFilesFunction,
    pub free: Free,
}

/// Database, column family, options; names of the files and how many; output level and path; names of the
/// files that came of it, how many, and what is known of the job, where that is wanted; the error.
pub type CompactFilesFunction = unsafe extern "C" fn(
    *mut Wrapper,
    *mut Wrapper,
    *const c_void,
    *const *const c_char,
    usize,
    c_int,
    c_int,
    *mut *mut *mut c_char,
    *mut usize,
    *mut c_void,
    *mut *mut c_char,
);

#[derive(Clone, Copy)]
pub struct ManualFunctions {
    pub disable: unsafe extern "C" fn(*mut Wrapper),
    pub enable: unsafe extern "C" fn(*mut Wrapper),
}

#[derive(Clone, Copy)]
pub struct FlushFunctions {
    pub options_create: unsafe extern "C" fn() -> *mut c_void,
    pub options_destroy: unsafe extern "C" fn(*mut c_void),
    pub options_set_wait: unsafe extern "C" fn(*mut c_void, u8),
    pub flush: unsafe extern "C" fn(*mut Wrapper, *mut c_void, *mut Wrapper, *mut *mut c_char),
    pub free: Free,
}

/// Gives back what RocksDB has allocated for its caller.
pub type Free = unsafe extern "C" fn(*mut c_void);

#[derive(Clone, Copy)]
pub struct OptionsFunctions {
    pub set: unsafe extern "C" fn(
        *mut Wrapper,
        *mut Wrapper,
        c_int,
        *const *const c_char,
        *const *const c_char,
        *mut *mut c_char,
    ),
    pub free: Free,
}

/// Addresses of the functions by which an owner ends a database or a handle; they are never called by name.
#[derive(Clone, Copy)]
pub struct OwnerFunctions {
    pub database_delete: Option<u64>,
    pub database_destroy: Option<u64>,
    pub database_close: Option<u64>,
    pub handle_delete: Option<u64>,
    pub handle_destroy: Option<u64>,
}

pub type FileNumber<T> = unsafe extern "C" fn(*const c_void, c_int) -> T;
pub type FileKey = unsafe extern "C" fn(*const c_void, c_int, *mut usize) -> *const c_char;

/// Functions for the list of live SST files.
#[derive(Clone, Copy)]
pub struct LiveFilesFunctions {
    pub livefiles: unsafe extern "C" fn(*mut Wrapper) -> *const c_void,
    pub destroy: unsafe extern "C" fn(*const c_void),
    pub count: unsafe extern "C" fn(*const c_void) -> c_int,
    pub column_family_name: FileNumber<*const c_char>,
    pub name: FileNumber<*const c_char>,
    pub level: FileNumber<c_int>,
    pub size: FileNumber<usize>,
    pub entries: FileNumber<u64>,
    pub deletions: FileNumber<u64>,
    pub smallest_key: FileKey,
    pub largest_key: FileKey,
    /// Since RocksDB 10.
    pub smallest_sequence: Option<FileNumber<u64>>,
    pub largest_sequence: Option<FileNumber<u64>>,
}

#[derive(Clone, Copy)]
pub struct PropertyFunctions {
    pub property_value: unsafe extern "C" fn(*mut Wrapper, *mut Wrapper, *const c_char) -> *mut c_char,
    pub free: Free,
}

/// Looks symbols up and keeps account.
pub struct Symbols {
    handle: *mut c_void,
    pub found: Vec<String>,
    pub missing: Vec<String>,
}

impl Symbols {
    /// Of a module's handle, or of the default search order.
    pub fn new(handle: *mut c_void) -> Symbols {
        Symbols { handle, found: Vec::new(), missing: Vec::new() }
    }

    pub fn address(&self, name: &CStr) -> Option<u64> {
        // SAFETY: a valid handle and a NUL-terminated name; nothing is called.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol as u64)
    }

    /// # Safety
    /// `F` is the type of a pointer to the C function `name`.
    unsafe fn function<F: Copy>(&mut self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<u64>()) };
        let address = self.address(name);
        let list = if address.is_some() { &mut self.found } else { &mut self.missing };
        let name = name.to_string_lossy();
        if !list.iter().any(|known| *known == name) {
            list.push(name.into_owned());
        }
        // SAFETY: of the same size, not null, and of that type as the caller promises.
        address.map(|address| unsafe { std::mem::transmute_copy::<u64, F>(&address) })
    }

    /// The functions for range compaction; `None` if one is missing.
    pub fn compact(&mut self) -> Option<CompactFunctions> {
        // SAFETY: the fields' types are the signatures in c.h.
        let (create, destroy, exclusive, bottommost, timestamp, compact) = unsafe {
            (
                self.function(c"rocksdb_compactoptions_create"),
                self.function(c"rocksdb_compactoptions_destroy"),
                self.function(c"rocksdb_compactoptions_set_exclusive_manual_compaction"),
                self.function(c"rocksdb_compactoptions_set_bottommost_level_compaction"),
                self.function(c"rocksdb_compactoptions_set_full_history_ts_low"),
                self.function(c"rocksdb_compact_range_cf_opt"),
            )
        };
        Some(CompactFunctions {
            options_create: create?,
            options_destroy: destroy?,
            options_set_exclusive: exclusive?,
            options_set_bottommost: bottommost?,
            options_set_timestamp: timestamp,
            compact_range: compact?,
        })
    }

    /// The functions for compacting some files; `None` if one is missing.
    pub fn compact_files(&mut self) -> Option<CompactFilesFunctions> {
        // SAFETY: the fields' types are the signatures in c.h.
        let (create, destroy, limit, compact, free) = unsafe {
            (
                self.function(c"rocksdb_compaction_options_create"),
                self.function(c"rocksdb_compaction_options_destroy"),
                self.function(c"rocksdb_compaction_options_set_output_file_size_limit"),
                self.function(c"rocksdb_compact_files_cf"),
                self.function(c"rocksdb_free"),
            )
        };
        Some(CompactFilesFunctions {
            options_create: create?,
            options_destroy: destroy?,
            options_set_output_file_size_limit: limit?,
            compact_files: compact?,
            free: free?,
        })
    }

    /// The functions for giving up all manual compactions; `None` if one is missing.
    pub fn manual(&mut self) -> Option<ManualFunctions> {
        // SAFETY: the fields' types are the signatures in c.h.
        let (disable, enable) = unsafe {
            (
                self.function(c"rocksdb_disable_manual_compaction"),
                self.function(c"rocksdb_enable_manual_compaction"),
            )
        };
        Some(ManualFunctions { disable: disable?, enable: enable? })
    }

    /// The functions for flushing; `None` if one is missing.
    pub fn flush(&mut self) -> Option<FlushFunctions> {
        // SAFETY: the fields' types are the signatures in c.h.
        let (create, destroy, wait, flush, free) = unsafe {
            (
                self.function(c"rocksdb_flushoptions_create"),
                self.function(c"rocksdb_flushoptions_destroy"),
                self.function(c"rocksdb_flushoptions_set_wait"),
                self.function(c"rocksdb_flush_cf"),
                self.function(c"rocksdb_free"),
            )
        };
        Some(FlushFunctions {
            options_create: create?,
            options_destroy: destroy?,
            options_set_wait: wait?,
            flush: flush?,
            free: free?,
        })
    }

    /// The functions for changing options; `None` if one is missing.
    pub fn options(&mut self) -> Option<OptionsFunctions> {
        // SAFETY: the fields' types are the signatures in c.h.
        let (set, free) =
            unsafe { (self.function(c"rocksdb_set_options_cf"), self.function(c"rocksdb_free")) };
        Some(OptionsFunctions { set: set?, free: free? })
    }

    /// Where the owners' functions are; `~T` has two forms, with (D0) and without (D1) giving back the
    /// memory.
    pub fn owner(&self) -> OwnerFunctions {
        OwnerFunctions {
            database_delete: self.address(c"_ZN7rocksdb6DBImplD0Ev"),
            database_destroy: self.address(c"_ZN7rocksdb6DBImplD1Ev"),
            database_close: self.address(c"_ZN7rocksdb6DBImpl5CloseEv"),
            handle_delete: self.address(c"_ZN7rocksdb22ColumnFamilyHandleImplD0Ev"),
            handle_destroy: self.address(c"_ZN7rocksdb22ColumnFamilyHandleImplD1Ev"),
        }
    }

    /// The functions for listing live SST files; `None` if one is missing.
    pub fn live_files(&mut self) -> Option<LiveFilesFunctions> {
        // SAFETY: the fields' types are the signatures in c.h.
        let (livefiles, destroy, count, column_family_name, name) = unsafe {
            (
                self.function(c"rocksdb_livefiles"),
                self.function(c"rocksdb_livefiles_destroy"),
                self.function(c"rocksdb_livefiles_count"),
                self.function(c"rocksdb_livefiles_column_family_name"),
                self.function(c"rocksdb_livefiles_name"),
            )
        };
        // SAFETY: as above.
        let (level, size, entries, deletions, smallest_key, largest_key) = unsafe {
            (
                self.function(c"rocksdb_livefiles_level"),
                self.function(c"rocksdb_livefiles_size"),
                self.function(c"rocksdb_livefiles_entries"),
                self.function(c"rocksdb_livefiles_deletions"),
                self.function(c"rocksdb_livefiles_smallestkey"),
                self.function(c"rocksdb_livefiles_largestkey"),
            )
        };
        // SAFETY: as above.
        let (smallest_sequence, largest_sequence) = unsafe {
            (
                self.function(c"rocksdb_livefiles_smallest_seqno"),
                self.function(c"rocksdb_livefiles_largest_seqno"),
            )
        };
        Some(LiveFilesFunctions {
            livefiles: livefiles?,
            destroy: destroy?,
            count: count?,
            column_family_name: column_family_name?,
            name: name?,
            level: level?,
            size: size?,
            entries: entries?,
            deletions: deletions?,
            smallest_key: smallest_key?,
            largest_key: largest_key?,
            smallest_sequence,
            largest_sequence,
        })
    }

    /// The functions for properties; `None` if one is missing.
    pub fn property(&mut self) -> Option<PropertyFunctions> {
        // SAFETY: the fields' types are the signatures in c.h.
        let (property_value, free) =
            unsafe { (self.function(c"rocksdb_property_value_cf"), self.function(c"rocksdb_free")) };
        Some(PropertyFunctions { property_value: property_value?, free: free? })
    }
}

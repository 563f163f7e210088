//! RocksDB's C API as the target exports it, found at run time: this library links to no RocksDB.
//!
//! A C++ exception (out of memory, in practice) cannot be caught here and ends the host, as it would in
//! any of its own threads.

use crate::functions::{
    CompactFilesFunctions, CompactFunctions, FileKey, FlushFunctions, Free, LiveFilesFunctions,
    ManualFunctions, OptionsFunctions, OwnerFunctions, PropertyFunctions, Symbols,
};
use crate::panics::Scope;
use crate::{cancel, maps, module};
use sexton_hook_protocol::{BottommostLevelCompaction, CANCEL_FLAG, COMPACT_FILES, PROPERTY_VALUE_BYTES_MAX};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};

/// Bytes of RocksDB's own words on a failure that are kept.
const ERROR_BYTES_MAX: usize = 1024;

/// Stands in for `rocksdb_t` and `rocksdb_column_family_handle_t`, structs of the C API whose first
/// word is the C++ pointer. Later versions have more behind it (`bool immortal`): zeros, and room.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Wrapper {
    rep: u64,
    zeros: [u64; 7],
}

impl Wrapper {
    fn around(pointer: u64) -> Wrapper {
        Wrapper { rep: pointer, zeros: [0; 7] }
    }
}

/// A database and one of its column families, as the C API takes them. Made from pointers that were
/// checked; nothing here checks again.
#[derive(Clone, Copy)]
pub struct Handles {
    database: Wrapper,
    column_family: Wrapper,
}

impl Handles {
    /// From `DBImpl*` and `ColumnFamilyHandleImpl*`.
    ///
    /// # Safety
    /// Both must point to live objects of these classes, the second of the first, and stay so for as
    /// long as the value is used in a call.
    pub unsafe fn new(database: u64, column_family: u64) -> Handles {
        Handles { database: Wrapper::around(database), column_family: Wrapper::around(column_family) }
    }

    fn database(&mut self) -> *mut Wrapper {
        &raw mut self.database
    }

    fn column_family(&mut self) -> *mut Wrapper {
        &raw mut self.column_family
    }
}

/// A database, as the C API takes it.
#[derive(Clone, Copy)]
pub struct Database(Wrapper);

impl Database {
    /// From `DBImpl*`.
    ///
    /// # Safety
    /// As [`Handles::new`].
    pub unsafe fn new(database: u64) -> Database {
        Database(Wrapper::around(database))
    }
}

/// How RocksDB's words begin where it has not begun something that may go later (`Status::Aborted`).
const ABORTED: &str = "Operation aborted";

/// Why RocksDB did not do something.
pub enum Failed {
    /// It does not export the function.
    Missing,
    Status(String),
}

impl Failed {
    /// Whether it was not even begun, and may go later.
    pub fn is_aborted(&self) -> bool {
        matches!(self, Failed::Status(words) if words.starts_with(ABORTED))
    }
}

/// RocksDB as this process has it.
pub struct RocksDb {
    /// Path of the module, as `/proc/self/maps` shows it.
    pub library: String,
    /// Device and inode of the module.
    pub library_file: String,
    /// Address of `rocksdb::DBImpl`'s virtual table, where its symbol is visible.
    pub database_vtable: Option<u64>,
    /// Address of `rocksdb::ColumnFamilyHandleImpl`'s.
    pub handle_vtable: Option<u64>,
    /// Functions by which owners end their databases.
    pub owner: OwnerFunctions,
    pub found: Vec<String>,
    pub missing: Vec<String>,
    compact: Option<CompactFunctions>,
    /// Where in the options of a range compaction the flag stands by which it is given up.
    canceled_word: Option<usize>,
    compact_files: Option<CompactFilesFunctions>,
    manual: Option<ManualFunctions>,
    flush: Option<FlushFunctions>,
    options: Option<OptionsFunctions>,
    live_files: Option<LiveFilesFunctions>,
    property: Option<PropertyFunctions>,
}

/// Whether the program and the libraries it started with export RocksDB's C API.
pub fn is_exported_globally() -> bool {
    // SAFETY: a NUL-terminated name and the default search order; nothing is called.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rocksdb_compact_range_cf_opt".as_ptr()) }.is_null()
}

impl RocksDb {
    /// Finds RocksDB in `library`, or in whatever the program exports; `None` with the reason logged
    /// by the caller where there is none.
    pub fn find(library: Option<&OsStr>) -> Result<RocksDb, String> {
        let handle = match library {
            None => libc::RTLD_DEFAULT,
            Some(path) => module::handle(path)
                .ok_or_else(|| format!("{} is not loaded here", path.to_string_lossy()))?,
        };
        let mut symbols = Symbols::new(handle);
        let anchor = symbols
            .address(c"rocksdb_compact_range_cf_opt")
            .or_else(|| symbols.address(c"rocksdb_livefiles"))
            .ok_or("RocksDB's C API is not exported")?;
        let mappings = maps::own();
        let home = maps::at(&mappings, anchor).ok_or("RocksDB's module is not in /proc/self/maps")?;
        let compact = symbols.compact();
        let canceled_word = compact.as_ref().and_then(CompactFunctions::canceled_word);
        let list = if canceled_word.is_some() { &mut symbols.found } else { &mut symbols.missing };
        list.push(CANCEL_FLAG.to_owned());
        let compact_files = symbols.compact_files();
        let list = if compact_files.is_some() { &mut symbols.found } else { &mut symbols.missing };
        list.push(COMPACT_FILES.to_owned());
        Ok(RocksDb {
            library: home.path.clone(),
            library_file: home.file.clone(),
            database_vtable: symbols.address(c"_ZTVN7rocksdb6DBImplE"),
            handle_vtable: symbols.address(c"_ZTVN7rocksdb22ColumnFamilyHandleImplE"),
            owner: symbols.owner(),
            compact,
            canceled_word,
            compact_files,
            manual: symbols.manual(),
            flush: symbols.flush(),
            options: symbols.options(),
            live_files: symbols.live_files(),
            property: symbols.property(),
            found: symbols.found,
            missing: symbols.missing,
        })
    }

    /// Whether range compactions can be asked for.
    pub fn can_compact(&self) -> bool {
        self.compact.is_some()
    }

    /// Compacts the closed range `[begin, limit]` and returns when RocksDB is done with it. An empty
    /// `begin` and a `limit` of `None` are the ends of the column family. `false` where this RocksDB
    /// lacks the functions.
    pub fn compact_range(
        &self,
        mut handles: Handles,
        begin: &[u8],
        limit: Option<&[u8]>,
        level: BottommostLevelCompaction,
    ) -> bool {
        let Some(functions) = self.compact else { return false };
        let start = if begin.is_empty() { std::ptr::null() } else { begin.as_ptr().cast::<c_char>() };
        let (end, end_length) = limit.map_or((std::ptr::null(), 0), |key| (key.as_ptr().cast(), key.len()));
        // It may call the host's own comparator in this thread.
        let _theirs = Scope::theirs();
        // SAFETY: the functions are RocksDB's, by name, with c.h's signatures; the handles point to live
        // objects (`Handles::new`); keys are valid for their lengths during the call; the options come
        // from and go back to RocksDB.
        unsafe {
            let options = (functions.options_create)();
            if options.is_null() {
                return false;
            }
            (functions.options_set_exclusive)(options, 0);
            (functions.options_set_bottommost)(options, bottommost(level));
            if let Some(word) = self.canceled_word {
                cancel::set(options, word);
            }
            (functions.compact_range)(
                handles.database(),
                handles.column_family(),
                options,
                start,
                begin.len(),
                end,
                end_length,
            );
            (functions.options_destroy)(options);
        }
        true
    }

    /// Whether some files can be compacted by themselves.
    pub fn can_compact_files(&self) -> bool {
        self.compact_files.is_some()
    }

    /// Compacts files of these names into a level, at most so many bytes a file, in this thread. All of it
    /// is on the database's first path: where there are several, RocksDB refuses.
    pub fn compact_files(
        &self,
        mut handles: Handles,
        names: &[CString],
        output_level: c_int,
        output_file_bytes: u64,
    ) -> Result<(), Failed> {
        const CHOSEN_BY_ROCKSDB: c_int = -1;
        let functions = self.compact_files.ok_or(Failed::Missing)?;
        let names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let mut error = std::ptr::null_mut();
        // It may call the host's own comparator and compaction filter in this thread.
        let _theirs = Scope::theirs();
        // SAFETY: as for compactions of ranges; as many NUL-terminated names as is said, which outlive the
        // call. Of what came of it nothing is asked, so that null will do for it; `error` is null and valid
        // for writing.
        unsafe {
            let options = (functions.options_create)();
            if options.is_null() {
                return Err(Failed::Missing);
            }
            (functions.options_set_output_file_size_limit)(options, output_file_bytes);
            (functions.compact_files)(
                handles.database(),
                handles.column_family(),
                options,
                names.as_ptr(),
                names.len(),
                output_level,
                CHOSEN_BY_ROCKSDB,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &raw mut error,
            );
            (functions.options_destroy)(options);
            outcome(error, functions.free)
        }
    }

    /// Whether column families can be flushed.
    pub fn can_flush(&self) -> bool {
        self.flush.is_some()
    }

    /// Writes the column family's memtables to SST files and returns when that is done.
    pub fn flush(&self, mut handles: Handles) -> Result<(), Failed> {
        let functions = self.flush.ok_or(Failed::Missing)?;
        let mut error = std::ptr::null_mut();
        let _theirs = Scope::theirs();
        // SAFETY: as for compactions; `error` is null and valid for writing.
        unsafe {
            let options = (functions.options_create)();
            if options.is_null() {
                return Err(Failed::Missing);
            }
            (functions.options_set_wait)(options, 1);
            (functions.flush)(handles.database(), options, handles.column_family(), &raw mut error);
            (functions.options_destroy)(options);
            outcome(error, functions.free)
        }
    }

    /// Changes options of a column family, all or none.
    pub fn set_options(&self, mut handles: Handles, options: &[(CString, CString)]) -> Result<(), Failed> {
        let functions = self.options.ok_or(Failed::Missing)?;
        let names: Vec<*const c_char> = options.iter().map(|(name, _)| name.as_ptr()).collect();
        let values: Vec<*const c_char> = options.iter().map(|(_, value)| value.as_ptr()).collect();
        let count = c_int::try_from(options.len()).map_err(|_| Failed::Missing)?;
        let (names, values, mut error) = (names.as_ptr(), values.as_ptr(), std::ptr::null_mut());
        let (database, column_family) = (handles.database(), handles.column_family());
        // SAFETY: as for compactions; both lists have `count` NUL-terminated strings that outlive the call.
        unsafe {
            (functions.set)(database, column_family, count, names, values, &raw mut error);
            outcome(error, functions.free)
        }
    }

    /// Whether a running compaction can be stopped, by [`cancel::request`].
    pub fn can_cancel(&self) -> bool {
        self.canceled_word.is_some()
    }

    /// Has RocksDB give up every manual compaction of the database and refuse new ones, until
    /// [`RocksDb::enable_manual_compaction`]. Newer versions return when those that are queued have ended.
    /// Only for a database that its owner closes: the application's own would fail as well.
    pub fn disable_manual_compaction(&self, mut database: Database) {
        if let Some(functions) = self.manual {
            // SAFETY: RocksDB's function with c.h's signature, on a live database (`Database::new`).
            unsafe { (functions.disable)(&raw mut database.0) }
        }
    }

    /// Allows manual compactions again; every disabling needs exactly one enabling.
    pub fn enable_manual_compaction(&self, mut database: Database) {
        if let Some(functions) = self.manual {
            // SAFETY: as for disabling.
            unsafe { (functions.enable)(&raw mut database.0) }
        }
    }

    /// The live SST files of all column families; `None` where this RocksDB lacks the functions.
    pub fn live_files(&self, mut handles: Handles) -> Option<LiveFiles> {
        let functions = self.live_files?;
        // SAFETY: RocksDB's function with c.h's signature, on a live database (`Handles::new`).
        let list = unsafe { (functions.livefiles)(handles.database()) };
        if list.is_null() {
            return None;
        }
        // SAFETY: `list` was returned by `rocksdb_livefiles` and is destroyed only by `LiveFiles`.
        let count = unsafe { (functions.count)(list) };
        Some(LiveFiles { functions, list, count })
    }

    /// Whether properties can be asked for.
    pub fn can_read_properties(&self) -> bool {
        self.property.is_some()
    }

    /// A property's value and whether it was cut at [`PROPERTY_VALUE_BYTES_MAX`]; `None` where RocksDB
    /// does not know it.
    pub fn property(&self, mut handles: Handles, name: &CStr) -> Option<(String, bool)> {
        let functions = self.property?;
        // SAFETY: RocksDB's function with c.h's signature, on live objects (`Handles::new`).
        let value =
            unsafe { (functions.property_value)(handles.database(), handles.column_family(), name.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: not null, so a NUL-terminated string that is ours until it is freed below.
        let bytes = unsafe { CStr::from_ptr(value) }.to_bytes();
        let cut = bytes.get(..PROPERTY_VALUE_BYTES_MAX).unwrap_or(bytes);
        let answer = (String::from_utf8_lossy(cut).into_owned(), cut.len() < bytes.len());
        // SAFETY: allocated by RocksDB for the caller to free, not used afterwards.
        unsafe { (functions.free)(value.cast()) };
        Some(answer)
    }
}

fn bottommost(mode: BottommostLevelCompaction) -> u8 {
    match mode {
        BottommostLevelCompaction::Skip => 0,
        BottommostLevelCompaction::IfHaveCompactionFilter => 1,
        BottommostLevelCompaction::Force => 2,
        BottommostLevelCompaction::ForceOptimized => 3,
    }
}

/// What a function of the C API has said by its last argument.
///
/// # Safety
/// `error` is null or a NUL-terminated string that RocksDB has allocated for the caller, who uses it no more.
unsafe fn outcome(error: *mut c_char, free: Free) -> Result<(), Failed> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: not null; the rest is the caller's promise.
    let bytes = unsafe { CStr::from_ptr(error) }.to_bytes();
    let words = String::from_utf8_lossy(bytes.get(..ERROR_BYTES_MAX).unwrap_or(bytes)).into_owned();
    // SAFETY: allocated by RocksDB for the caller to free, not used afterwards.
    unsafe { free(error.cast()) };
    Err(Failed::Status(words))
}

/// RocksDB's list of live SST files, given back when dropped.
pub struct LiveFiles {
    functions: LiveFilesFunctions,
    list: *const c_void,
    count: c_int,
}

/// One live SST file, borrowed from the list.
pub struct LiveFile<'list> {
    pub name: &'list [u8],
    pub column_family: &'list [u8],
    pub level: c_int,
    pub size_bytes: usize,
    pub entries: u64,
    pub deletions: u64,
    pub smallest: &'list [u8],
    pub largest: &'list [u8],
    /// Of its oldest and of its newest entry; `None` where this RocksDB does not tell.
    pub sequences: Option<(u64, u64)>,
}

impl LiveFiles {
    /// The files, in RocksDB's order.
    pub fn iter(&self) -> impl Iterator<Item = LiveFile<'_>> {
        (0..self.count).map(|index| self.file(index))
    }

    fn file(&self, index: c_int) -> LiveFile<'_> {
        let functions = &self.functions;
        // SAFETY: `index` is below the list's count; names are NUL-terminated and keys valid for the
        // length written, for as long as the list lives.
        unsafe {
            LiveFile {
                name: self.text((functions.name)(self.list, index)),
                column_family: self.text((functions.column_family_name)(self.list, index)),
                level: (functions.level)(self.list, index),
                size_bytes: (functions.size)(self.list, index),
                entries: (functions.entries)(self.list, index),
                deletions: (functions.deletions)(self.list, index),
                smallest: self.key(functions.smallest_key, index),
                largest: self.key(functions.largest_key, index),
                sequences: functions
                    .smallest_sequence
                    .zip(functions.largest_sequence)
                    .map(|(smallest, largest)| (smallest(self.list, index), largest(self.list, index))),
            }
        }
    }

    /// # Safety
    /// `text` is null or NUL-terminated and lives as long as the list.
    unsafe fn text(&self, text: *const c_char) -> &[u8] {
        if text.is_null() {
            return b"";
        }
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { CStr::from_ptr(text) }.to_bytes()
    }

    /// # Safety
    /// `index` is below the list's count.
    unsafe fn key(&self, function: FileKey, index: c_int) -> &[u8] {
        let mut length = 0;
        // SAFETY: a function of the list with c.h's signature, and an index within.
        let bytes = unsafe { function(self.list, index, &raw mut length) };
        if bytes.is_null() {
            return b"";
        }
        // SAFETY: RocksDB gave `length` bytes at `bytes`, which live as long as the list.
        unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) }
    }
}

impl Drop for LiveFiles {
    fn drop(&mut self) {
        // SAFETY: the list came from `rocksdb_livefiles` and nothing borrows from it any more.
        unsafe { (self.functions.destroy)(self.list) }
    }
}

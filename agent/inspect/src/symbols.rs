//! Where in a module RocksDB's functions and variables are, whatever is left of its symbols.
//!
//! The sources, the surest first: the file's own tables, the symbols packed into its `.gnu_debugdata`, a
//! separate file with debug information, the vtables of its classes by the classes' names, and by what their
//! functions do.

use super::creation;
use super::debug_file::DebugSymbols;
use super::elf::{ElfError, ElfHeaders, Symbol};
use super::facts::{COMPACT_RANGE, FoundBy};
use super::learn::Reader;
use super::mini_debug_info;
use super::scan;
use super::source::Source;
use super::unwind;
use super::vtables::{self, Vtable};
use std::collections::BTreeMap;

/// `rocksdb::DBIter::Seek(Slice const&)`: in every RocksDB from 5.x to 11.x, and in nothing else.
pub const SEEK: &str = "_ZN7rocksdb6DBIter4SeekERKNS_5SliceE";
/// `rocksdb::DBIter::SeekForPrev(Slice const&)`.
pub const SEEK_FOR_PREV: &str = "_ZN7rocksdb6DBIter11SeekForPrevERKNS_5SliceE";
/// `rocksdb::DBIter::SeekToFirst()`.
pub const SEEK_TO_FIRST: &str = "_ZN7rocksdb6DBIter11SeekToFirstEv";
/// `rocksdb::DBIter::SeekToLast()`.
pub const SEEK_TO_LAST: &str = "_ZN7rocksdb6DBIter10SeekToLastEv";
/// `rocksdb::DBIter::Next()`.
pub const NEXT: &str = "_ZN7rocksdb6DBIter4NextEv";
/// `rocksdb::DBIter::Prev()`.
pub const PREV: &str = "_ZN7rocksdb6DBIter4PrevEv";
/// `rocksdb::DBIter::key()`: a pointer and a length, next to each other in the object.
pub const CURRENT_KEY: &str = "_ZNK7rocksdb6DBIter3keyEv";
/// `rocksdb::ArenaWrappedDBIter`'s deleting destructor.
pub const ITERATOR_DESTRUCTOR: &str = "_ZN7rocksdb18ArenaWrappedDBIterD0Ev";
/// `rocksdb::DBImpl::NewIterator(ReadOptions const&, ColumnFamilyHandle*)`.
pub const NEW_ITERATOR: &str = "_ZN7rocksdb6DBImpl11NewIteratorERKNS_11ReadOptionsEPNS_18ColumnFamilyHandleE";
/// `rocksdb::PerfContext::Reset()`.
pub const PERF_CONTEXT_RESET: &str = "_ZN7rocksdb11PerfContext5ResetEv";
/// `rocksdb::BlockFetcher::ReadBlockContents()`.
pub const READ_BLOCK_CONTENTS: &str = "_ZN7rocksdb12BlockFetcher17ReadBlockContentsEv";

/// Methods of `ArenaWrappedDBIter` that only hand on to its `DBIter* db_iter_`. None returns `Status`,
/// whose hidden first argument would take the place of `this`.
pub const ACCESSORS: [&str; 3] = [
    "_ZNK7rocksdb18ArenaWrappedDBIter5ValidEv",
    "_ZNK7rocksdb18ArenaWrappedDBIter3keyEv",
    "_ZNK7rocksdb18ArenaWrappedDBIter5valueEv",
];

/// `DBIter::FindNextUserEntryInternal`, up to 9.x and since.
pub const COUNTING: [&str; 2] = [
    "_ZN7rocksdb6DBIter25FindNextUserEntryInternalEbPKNS_5SliceE",
    "_ZN7rocksdb6DBIter25FindNextUserEntryInternalEb",
];

/// `rocksdb::perf_context`, thread-local.
pub const PERF_CONTEXT: &str = "_ZN7rocksdb12perf_contextE";
/// `rocksdb::perf_level`, thread-local.
pub const PERF_LEVEL: &str = "_ZN7rocksdb10perf_levelE";

/// What of the C API it takes to ask a library where its counters are.
pub const PERF_CONTEXT_API: [&str; 2] = ["rocksdb_perfcontext_create", "rocksdb_perfcontext_metric"];

/// All names that are looked up.
pub(super) const WANTED: [&str; 21] = [
    SEEK,
    SEEK_FOR_PREV,
    SEEK_TO_FIRST,
    SEEK_TO_LAST,
    NEXT,
    PREV,
    CURRENT_KEY,
    ITERATOR_DESTRUCTOR,
    NEW_ITERATOR,
    READ_BLOCK_CONTENTS,
    PERF_CONTEXT_RESET,
    ACCESSORS[0],
    ACCESSORS[1],
    ACCESSORS[2],
    COUNTING[0],
    COUNTING[1],
    PERF_CONTEXT,
    PERF_LEVEL,
    PERF_CONTEXT_API[0],
    PERF_CONTEXT_API[1],
    COMPACT_RANGE,
];

/// The classes whose vtables are looked for.
const CLASSES: [&str; 3] = ["N7rocksdb6DBIterE", "N7rocksdb18ArenaWrappedDBIterE", "N7rocksdb6DBImplE"];

/// Slots of `Iterator`'s virtual functions, the same from 6.8 to 11.12: destructors, `Valid`, then those that
/// move it. Where `key` stands differs by version.
const DB_ITER_SLOTS: [(usize, &str); 6] =
    [(3, SEEK_TO_FIRST), (4, SEEK_TO_LAST), (5, SEEK), (6, SEEK_FOR_PREV), (7, NEXT), (8, PREV)];
const ARENA_WRAPPED_SLOTS: [(usize, &str); 2] = [(1, ITERATOR_DESTRUCTOR), (2, ACCESSORS[0])];

/// Virtual functions that an `Iterator` has at least: `key`, `value` and `status` behind those that move it.
const ITERATOR_SLOTS_MIN: usize = 12;

/// What every RocksDB has among its read-only data, stripped or not: the name of its first ticker.
const TICKER_NAME: &[u8] = b"rocksdb.block.cache.miss";

/// Files smaller than this have no RocksDB inside, whose code alone is 4 MiB. Spares looking through the
/// texts of every library of the node, and a process for each small one.
pub(super) const ROCKSDB_BYTES_MIN: u64 = 2 << 20;

/// A symbol, and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub symbol: Symbol,
    pub by: FoundBy,
}

/// What was found of [`WANTED`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Symbols {
    by_name: BTreeMap<&'static str, Located>,
}

/// Whether a file holds RocksDB.
pub(super) enum Presence {
    /// It does; [`SEEK`] is among the symbols.
    Found(Symbols),
    /// It does, but where does not show.
    Hidden,
    /// It does, and a debug file may say where: that of this build.
    InDebugFile { build_id: String },
    /// It does not.
    Absent,
}

impl Symbols {
    /// What is known of a name.
    pub fn get(&self, name: &str) -> Option<&Located> {
        self.by_name.get(name)
    }

    /// Whether a symbol of the file's own can be found by the dynamic linker.
    pub fn exports_compact_range(&self) -> bool {
        self.get(COMPACT_RANGE).is_some_and(|located| located.symbol.dynamic)
    }

    /// Whether all of these can be found by the dynamic linker.
    pub fn exports(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.get(name).is_some_and(|located| located.by == FoundBy::DynamicSymbols))
    }

    /// The addresses of those of some functions that were found.
    pub fn addresses(&self, names: &[&str]) -> Vec<u64> {
        names.iter().filter_map(|name| self.get(name)).map(|located| located.symbol.value).collect()
    }

    /// Looks for RocksDB in a file. `separate` are the symbols of its debug file, none of them where it has
    /// none; `None`: it was not looked for yet.
    /// Errors: [`ElfError`] when the file's own tables cannot be read.
    pub fn locate(
        source: &Source<'_>,
        headers: &ElfHeaders,
        separate: Option<&DebugSymbols>,
    ) -> Result<Presence, ElfError> {
        // The cheap question first: most files do not have the name in their string tables.
        let mut symbols = Symbols::default();
        if has_symbol_name(source, headers, SEEK)? {
            for (name, symbol) in headers.symbols(source, &WANTED)? {
                let by = if symbol.dynamic { FoundBy::DynamicSymbols } else { FoundBy::SymbolTable };
                symbols.add(name, symbol, by);
            }
            // Without the definition of `Seek` it only calls another file's RocksDB.
            return Ok(if symbols.get(SEEK).is_some() { Presence::Found(symbols) } else { Presence::Absent });
        }
        if source.length() < ROCKSDB_BYTES_MIN || !mentions_rocksdb(source, headers)? {
            return Ok(Presence::Absent);
        }
        // What is exported is there even now: `perf_context`, perhaps.
        for (name, symbol) in headers.symbols(source, &WANTED)? {
            symbols.add(name, symbol, FoundBy::DynamicSymbols);
        }
        symbols.add_separate(mini_debug_info::symbols(source, headers, &WANTED)?, FoundBy::MiniDebugInfo);
        if symbols.get(SEEK).is_none()
            && let Some(build_id) = headers.build_id(source)
        {
            let Some(separate) = separate else { return Ok(Presence::InDebugFile { build_id }) };
            symbols.add_separate(functions_of(source, headers, separate), FoundBy::DebugFile);
        }
        if symbols.get(SEEK).is_none() {
            let found = vtables::of_classes(source, headers, &CLASSES)?;
            if let [db_iter, arena_wrapped, db_impl] = found.as_slice() {
                let iterators = [db_iter.as_ref(), arena_wrapped.as_ref()];
                symbols.add_virtual(
                    iterators,
                    db_impl.as_slice(),
                    &mut Reader::new(source, headers),
                    FoundBy::Rtti,
                );
            }
        }
        if symbols.get(SEEK).is_none() {
            let all = vtables::without_rtti(source, headers, ITERATOR_SLOTS_MIN)?;
            let mut reader = Reader::new(source, headers);
            let iterators = reader.iterator_vtables(&all);
            symbols.add_virtual(iterators, &all, &mut reader, FoundBy::Code);
        }
        Ok(if symbols.get(SEEK).is_some() { Presence::Found(symbols) } else { Presence::Hidden })
    }

    /// Of two sources the first is believed.
    fn add(&mut self, name: &'static str, symbol: Symbol, by: FoundBy) {
        self.by_name.entry(name).or_insert(Located { symbol, by });
    }

    fn add_separate(&mut self, found: BTreeMap<&'static str, Symbol>, by: FoundBy) {
        for (name, symbol) in found {
            self.add(name, symbol, by);
        }
    }

    /// Virtual functions of `DBIter`, of `ArenaWrappedDBIter`, and of the databases, of which one is
    /// `DBImpl`.
    fn add_virtual(
        &mut self,
        iterators: [Option<&Vtable>; 2],
        databases: &[Vtable],
        reader: &mut Reader<'_, '_>,
        by: FoundBy,
    ) {
        let [db_iter, arena_wrapped] =
            iterators.map(|vtable| vtable.filter(|vtable| vtable.slots.len() >= ITERATOR_SLOTS_MIN));
        let mut add = |value: u64, name| {
            self.add(name, Symbol { value, size: 0, thread_local: false, dynamic: false }, by);
        };
        let classes = [(db_iter, &DB_ITER_SLOTS[..]), (arena_wrapped, &ARENA_WRAPPED_SLOTS[..])];
        for (vtable, slots) in classes {
            for (slot, name) in slots {
                if let Some(&value) = vtable.and_then(|vtable| vtable.slots.get(*slot)) {
                    add(value, *name);
                }
            }
        }
        if let Some(value) = db_iter.and_then(|vtable| reader.key_method(vtable)) {
            add(value, CURRENT_KEY);
        }
        let created = arena_wrapped.and_then(|vtable| creation::new_iterator(reader, databases, vtable));
        if let Some(value) = created {
            add(value, NEW_ITERATOR);
        }
    }
}

/// What a debug file says of this very file. Anybody can write a build id: the file itself has to say that
/// its functions begin there.
fn functions_of(
    source: &Source<'_>,
    headers: &ElfHeaders,
    separate: &DebugSymbols,
) -> BTreeMap<&'static str, Symbol> {
    let wanted = WANTED.into_iter().filter_map(|name| Some((name, *separate.get(name)?)));
    let is_of_file = |symbol: &Symbol| {
        symbol.thread_local || unwind::begins_function(source, headers, symbol.value) == Some(true)
    };
    wanted.filter(|(_, symbol)| is_of_file(symbol)).collect()
}

fn has_symbol_name(source: &Source<'_>, headers: &ElfHeaders, name: &str) -> Result<bool, ElfError> {
    for (offset, size) in headers.symbol_string_tables() {
        if scan::find(source, offset, size, name.as_bytes())?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn mentions_rocksdb(source: &Source<'_>, headers: &ElfHeaders) -> Result<bool, ElfError> {
    for (offset, size) in headers.read_only_data() {
        if scan::find(source, offset, size, TICKER_NAME)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
#[path = "symbols_tests.rs"]
mod tests;

//! What the file that holds RocksDB tells: where to probe, how to find the counters, who built it.
//!
//! The result depends on the file alone and is kept by the file's identity, "no RocksDB in here" too: a
//! node has thousands of mapped files and nearly all are such. What only a live process knows (load
//! address, module id) is added in `inspect`.

use super::elf::{ElfError, ElfHeaders, LoadSegment, Symbol, TlsRelocation, TlsSegment};
use super::facts::{FoundBy, Gap, ProbeSite, ProbeSites};
use super::gaps;
use super::layout;
use super::learn::{CountingCode, Reader};
use super::prologue;
use super::scan;
use super::symbols::{
    ACCESSORS, COUNTING, CURRENT_KEY, ITERATOR_DESTRUCTOR, Located, NEW_ITERATOR, NEXT, PERF_CONTEXT,
    PERF_CONTEXT_API, PERF_CONTEXT_RESET, PERF_LEVEL, PREV, Presence, READ_BLOCK_CONTENTS, SEEK,
    SEEK_FOR_PREV, SEEK_TO_FIRST, SEEK_TO_LAST, Symbols,
};
use super::version::{BUILD_TAG_BYTES_MAX, BUILD_TAG_PREFIX};
use object::{ReadCache, ReadRef};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Files whose result is kept: some times what a crowded node has mapped. When it is full it is emptied;
/// what is in use comes back with the next scan.
pub const CACHED_FILES_MAX: usize = 16_384;

/// Methods of `DBIter` that begin by taking stock of the keys skipped before.
const STOCK_TAKING: [&str; 6] = [SEEK, SEEK_FOR_PREV, SEEK_TO_FIRST, SEEK_TO_LAST, NEXT, PREV];

/// What is known of a module that holds RocksDB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFacts {
    /// Loaded where it says, without a bias.
    pub fixed_address: bool,
    /// Whether it calls itself a position-independent executable.
    pub says_pie: bool,
    /// `PT_LOAD` segments.
    pub load: Vec<LoadSegment>,
    /// `PT_TLS`.
    pub tls: Option<TlsSegment>,
    /// GNU build id.
    pub build_id: Option<String>,
    /// What follows "rocksdb_build_git_tag:", possibly nothing.
    pub build_tag: Option<Vec<u8>>,
    /// How `DBIter`'s functions were found.
    pub found_by: FoundBy,
    /// Where to probe.
    pub sites: ProbeSites,
    /// Offset of `db_iter_` in `ArenaWrappedDBIter`.
    pub db_iter_offset: Option<u32>,
    /// Offset of the current key's pointer and length in `DBIter`.
    pub current_key_offset: Option<u32>,
    /// Offset of `num_internal_keys_skipped_` in `DBIter`.
    pub keys_skipped_offset: Option<u32>,
    /// The symbol `rocksdb::perf_context`.
    pub perf_context: Option<Symbol>,
    /// The symbol `rocksdb::perf_level`, where it is thread-local.
    pub perf_level: Option<Symbol>,
    /// Where the code counts, if it shows.
    pub counting_code: Option<CountingCode>,
    /// Whether it exports what it takes to ask it where its counters are.
    pub exports_perf_context_api: bool,
    /// The offset of `internal_key_skipped_count` by the library's own word, once it was asked.
    pub library_answer: OnceLock<Result<u32, String>>,
    /// Relocations of thread-local storage.
    pub tls_relocations: Vec<TlsRelocation>,
    /// What is missing.
    pub gaps: Vec<Gap>,
}

impl ModuleFacts {
    /// The bias of a mapping of this file: what to add to the file's addresses. `None` when the mapping
    /// is of no executable segment.
    pub fn load_bias(&self, mapping_start: u64, mapping_file_offset: u64) -> Option<u64> {
        if self.fixed_address {
            return Some(0);
        }
        // A mapping begins at a page border, up to a page before the segment's first byte.
        let segment = self.load.iter().filter(|segment| segment.executable).find(|segment| {
            let first = segment.file_offset & !0xfff;
            mapping_file_offset >= first
                && mapping_file_offset < segment.file_offset.saturating_add(segment.file_size)
        })?;
        let address = segment.address.wrapping_add(mapping_file_offset).wrapping_sub(segment.file_offset);
        Some(mapping_start.wrapping_sub(address)).filter(|bias| bias & 0xfff == 0)
    }
}

/// What a file turned out to be.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// RocksDB is defined in it.
    RocksDb(Arc<ModuleFacts>),
    /// RocksDB is in it, but neither symbols nor the names of classes say where.
    Hidden,
    /// It is a valid ELF file without RocksDB.
    Other,
    /// It could not be read.
    Unreadable(ElfError),
}

/// Identity and state of a file: any change gives another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    device: u64,
    inode: u64,
    owner: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileKey {
    /// The key of an open file.
    ///
    /// # Errors
    /// What `fstat` gives.
    pub fn of(file: &File) -> io::Result<FileKey> {
        let data = file.metadata()?;
        Ok(FileKey {
            device: data.dev(),
            inode: data.ino(),
            owner: data.uid(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }

    /// Device and inode.
    pub fn device_and_inode(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// What makes two files the same build: a JVM unpacks its library anew each time it starts. Size, because
/// stripping keeps the build id; owner and file system, so that nobody's forgery of a build id is believed
/// of somebody else's file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BuildKey {
    build_id: String,
    size: u64,
    owner: u32,
    device: u64,
}

/// Results by file, and by build.
#[derive(Debug, Default)]
pub struct ModuleCache {
    by_file: HashMap<FileKey, Verdict>,
    by_build: HashMap<BuildKey, Verdict>,
}

impl ModuleCache {
    /// Examines an open file, or gives what was found before, "no RocksDB" included. Separate files with
    /// debug information are looked for below `roots`.
    ///
    /// # Errors
    /// Only what `fstat` gives; a file that cannot be understood is [`Verdict::Unreadable`].
    pub fn examine(&mut self, file: &File, roots: &[PathBuf]) -> io::Result<(FileKey, Verdict)> {
        let key = FileKey::of(file)?;
        if let Some(verdict) = self.by_file.get(&key) {
            return Ok((key, verdict.clone()));
        }
        let build = build_key(file, &key);
        let known = build.as_ref().and_then(|build| self.by_build.get(build)).cloned();
        let verdict = known.unwrap_or_else(|| examine(file, roots));
        if self.by_file.len().max(self.by_build.len()) >= CACHED_FILES_MAX {
            self.by_file.clear();
            self.by_build.clear();
        }
        if let Some(build) = build {
            self.by_build.insert(build, verdict.clone());
        }
        self.by_file.insert(key, verdict.clone());
        Ok((key, verdict))
    }
}

fn build_key(file: &File, key: &FileKey) -> Option<BuildKey> {
    let cache = ReadCache::new(file);
    let build_id = ElfHeaders::read(&cache).ok()?.build_id(&cache)?;
    Some(BuildKey { build_id, size: key.size, owner: key.owner, device: key.device })
}

fn examine(file: &File, roots: &[PathBuf]) -> Verdict {
    let cache = ReadCache::new(file);
    let outcome = ElfHeaders::read(&cache).and_then(|headers| {
        Ok(match Symbols::locate(file, &headers, &cache, roots)? {
            Presence::Found(symbols) => {
                Verdict::RocksDb(Arc::new(analyse(file, &headers, &cache, &symbols)?))
            }
            Presence::Hidden => Verdict::Hidden,
            Presence::Absent => Verdict::Other,
        })
    });
    outcome.unwrap_or_else(Verdict::Unreadable)
}

/// Reads all that is wanted of a file.
fn analyse<'data, R: ReadRef<'data>>(
    file: &File,
    headers: &ElfHeaders,
    data: R,
    symbols: &Symbols,
) -> Result<ModuleFacts, ElfError> {
    let mut gaps = Vec::new();
    let mut site = |name: &str| probe_site(headers, data, symbols, name).map_err(|gap| gaps.push(gap)).ok();
    let sites = ProbeSites {
        seek: site(SEEK),
        seek_for_prev: site(SEEK_FOR_PREV),
        seek_to_first: site(SEEK_TO_FIRST),
        seek_to_last: site(SEEK_TO_LAST),
        iterator_destructor: site(ITERATOR_DESTRUCTOR),
        new_iterator: site(NEW_ITERATOR),
        read_block_contents: site(READ_BLOCK_CONTENTS),
        perf_context_reset: site(PERF_CONTEXT_RESET),
    };
    gaps.extend(gaps::single_stepped(&sites));
    let db_iter_offset = db_iter_offset(headers, data, symbols).map_err(|gap| gaps.push(gap)).ok();
    let symbol = |name| symbols.get(name).map(|located| located.symbol);
    let mut reader = Reader::new(headers, data);
    let counting = symbols.addresses(&[&STOCK_TAKING[..], &COUNTING[..]].concat());
    Ok(ModuleFacts {
        fixed_address: headers.fixed_address,
        says_pie: headers.says_pie(data),
        load: headers.load.clone(),
        tls: headers.tls,
        build_id: headers.build_id(data),
        build_tag: build_tag(file, headers),
        found_by: symbols.get(SEEK).map_or(FoundBy::SymbolTable, |located| located.by),
        sites,
        db_iter_offset,
        current_key_offset: symbol(CURRENT_KEY).and_then(|key| reader.slice_member(key.value, key.size)),
        keys_skipped_offset: reader.keys_skipped_offset(&symbols.addresses(&STOCK_TAKING)),
        perf_context: symbol(PERF_CONTEXT),
        perf_level: symbol(PERF_LEVEL).filter(|symbol| symbol.thread_local),
        counting_code: reader.counting_code(&counting, &layout::known_skip_offsets()),
        exports_perf_context_api: symbols.exports(&PERF_CONTEXT_API),
        library_answer: OnceLock::new(),
        tls_relocations: headers.tls_relocations(data)?,
        gaps,
    })
}

fn probe_site<'data, R: ReadRef<'data>>(
    headers: &ElfHeaders,
    data: R,
    symbols: &Symbols,
    name: &str,
) -> Result<ProbeSite, Gap> {
    let gap = |reason: String, remedy: &str| Gap {
        what: format!("no probe on {}", readable_name(name)),
        reason,
        remedy: remedy.to_string(),
    };
    let missing =
        "Use a RocksDB whose symbols are not stripped; what this function does is not seen until then.";
    let &Located { symbol, by } =
        symbols.get(name).ok_or_else(|| gap(format!("the module has no symbol {name}"), missing))?;
    let (file_offset, _) = headers
        .file_offset_of(symbol.value)
        .ok_or_else(|| gap(format!("its address {:#x} is in no segment", symbol.value), missing))?;
    let length = match symbol.size {
        0 => prologue::PROLOGUE_BYTES as u64,
        size => size.min(prologue::PROLOGUE_BYTES as u64),
    };
    let code = headers.bytes_at(data, symbol.value, length).unwrap_or_default();
    let choice = prologue::choose(code).map_err(|refusal| {
        gap(refusal.to_string(), "Nothing to do: the other probes work; what this function does is not seen.")
    })?;
    Ok(ProbeSite {
        symbol: name.to_string(),
        file_offset: file_offset + u64::from(choice.bytes_into_function),
        bytes_into_function: choice.bytes_into_function,
        kind: choice.kind,
        found_by: by,
    })
}

/// A probe site's function as people write it.
pub(super) fn readable_name(name: &str) -> &str {
    match name {
        SEEK => "DBIter::Seek",
        SEEK_FOR_PREV => "DBIter::SeekForPrev",
        PERF_CONTEXT_RESET => "PerfContext::Reset",
        SEEK_TO_FIRST => "DBIter::SeekToFirst",
        SEEK_TO_LAST => "DBIter::SeekToLast",
        ITERATOR_DESTRUCTOR => "ArenaWrappedDBIter's destructor",
        NEW_ITERATOR => "DBImpl::NewIterator",
        READ_BLOCK_CONTENTS => "BlockFetcher::ReadBlockContents",
        other => other,
    }
}

/// The offset that all accessors agree on.
fn db_iter_offset<'data, R: ReadRef<'data>>(
    headers: &ElfHeaders,
    data: R,
    symbols: &Symbols,
) -> Result<u32, Gap> {
    let offsets: Vec<u32> = ACCESSORS
        .iter()
        .filter_map(|name| {
            let symbol = symbols.get(name)?.symbol;
            let length = if symbol.size == 0 { u64::MAX } else { symbol.size };
            let code = headers.bytes_at(data, symbol.value, length.min(prologue::ACCESSOR_BYTES as u64))?;
            prologue::first_member_load(code)
        })
        .collect();
    let gap = |reason: &str| Gap {
        what: "scans cannot be told to end with their iterator".into(),
        reason: reason.to_string(),
        remedy: "Nothing to do: a scan is settled at the thread's next seek or at the window's end instead."
            .into(),
    };
    match offsets.split_first() {
        None => Err(gap("the code of ArenaWrappedDBIter does not show where it keeps its DBIter")),
        Some((first, rest)) if rest.iter().all(|offset| offset == first) => Ok(*first),
        Some(_) => Err(gap("ArenaWrappedDBIter's methods disagree about where it keeps its DBIter")),
    }
}

/// What follows "rocksdb_build_git_tag:" in the read-only data.
fn build_tag(file: &File, headers: &ElfHeaders) -> Option<Vec<u8>> {
    let section = headers.section_named(".rodata")?;
    let at = scan::find(file, section.file_offset, section.size, BUILD_TAG_PREFIX).ok()??;
    let mut tag = vec![0u8; BUILD_TAG_BYTES_MAX];
    let count = file.read_at(&mut tag, at + BUILD_TAG_PREFIX.len() as u64).ok()?;
    tag.truncate(count);
    let end = tag.iter().position(|&byte| byte == 0).unwrap_or(tag.len());
    tag.truncate(end);
    Some(tag)
}

#[cfg(test)]
#[path = "module_tests.rs"]
mod tests;

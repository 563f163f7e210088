//! What the file that holds RocksDB tells: where to probe, how to find the counters, who built it.
//!
//! The result depends on the file alone, and on its debug file. What only a live process knows (load address,
//! module id) is added in `counters`. Who keeps the result is `verdicts`; in which process this runs is not
//! seen here.

use super::debug_file::DebugSymbols;
use super::elf::{ElfError, ElfHeaders, LoadSegment, Symbol, TlsRelocation, TlsSegment};
use super::facts::{FoundBy, Gap, ProbeSite, ProbeSites};
use super::finding::Finding;
use super::gaps;
use super::layout;
use super::learn::{CountingCode, Reader};
use super::linker;
use super::prologue;
use super::scan;
use super::source::Source;
use super::symbols::{
    ACCESSORS, COUNTING, CURRENT_KEY, ITERATOR_DESTRUCTOR, Located, NEW_ITERATOR, NEXT, PERF_CONTEXT,
    PERF_CONTEXT_API, PERF_CONTEXT_RESET, PERF_LEVEL, PREV, Presence, READ_BLOCK_CONTENTS, SEEK,
    SEEK_FOR_PREV, SEEK_TO_FIRST, SEEK_TO_LAST, Symbols,
};
use super::version::{BUILD_TAG_BYTES_MAX, BUILD_TAG_PREFIX};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// Methods of `DBIter` that begin by taking stock of the keys skipped before.
const STOCK_TAKING: [&str; 6] = [SEEK, SEEK_FOR_PREV, SEEK_TO_FIRST, SEEK_TO_LAST, NEXT, PREV];

/// What is known of a module that holds RocksDB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleFacts {
    /// Loaded where it says, without a bias.
    pub fixed_address: bool,
    /// Whether it calls itself a position-independent executable.
    pub says_pie: bool,
    /// `PT_LOAD` segments.
    pub load: Vec<LoadSegment>,
    /// `PT_TLS`.
    pub tls: Option<TlsSegment>,
    pub build_id: Option<String>,
    /// What follows "rocksdb_build_git_tag:", possibly nothing.
    pub build_tag: Option<Vec<u8>>,
    /// How `DBIter`'s functions were found.
    pub found_by: FoundBy,
    pub sites: ProbeSites,
    /// Offset of `db_iter_` in `ArenaWrappedDBIter`.
    pub db_iter_offset: Option<u32>,
    /// Offset of the current key's pointer and length in `DBIter`.
    pub current_key_offset: Option<u32>,
    /// Offset of `num_internal_keys_skipped_` in `DBIter`.
    pub keys_skipped_offset: Option<u32>,
    /// Offset of `local_stats_.skip_count_` in `DBIter`.
    pub skip_count_offset: Option<u32>,
    /// The symbol `rocksdb::perf_context`.
    pub perf_context: Option<Symbol>,
    /// The symbol `rocksdb::perf_level`, where it is thread-local.
    pub perf_level: Option<Symbol>,
    /// Where the code counts, if it shows.
    pub counting_code: Option<CountingCode>,
    /// Whether it exports what it takes to ask it where its counters are.
    pub exports_perf_context_api: bool,
    /// Whether it exports [`super::facts::COMPACT_RANGE`].
    pub exports_compact_range: bool,
    /// The offset of `internal_key_skipped_count` by the library's own word, once it was asked.
    #[serde(skip)]
    pub library_answer: OnceLock<Result<u32, String>>,
    pub tls_relocations: Vec<TlsRelocation>,
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

/// Examines a file. `debug_symbols` are those of its debug file, none of them where it has none; `None`: it
/// was not looked for yet.
pub(super) fn examine(source: &Source<'_>, debug_symbols: Option<&DebugSymbols>) -> Finding {
    let examined = find(source, debug_symbols);
    // What was found with half of the code unread may be what somebody wants to be found.
    examined.and_then(|found| source.allowance().check().map(|()| found)).unwrap_or_else(Finding::Unreadable)
}

fn find(source: &Source<'_>, debug_symbols: Option<&DebugSymbols>) -> Result<Finding, ElfError> {
    let headers = ElfHeaders::read(source)?;
    Ok(match Symbols::locate(source, &headers, debug_symbols)? {
        Presence::Found(symbols) => Finding::RocksDb(Box::new(analyse(source, &headers, &symbols)?)),
        Presence::InDebugFile { build_id } => Finding::DebugFileWanted { build_id },
        Presence::Hidden => Finding::Hidden,
        Presence::Absent if linker::is_musl(source, &headers) => Finding::MuslLinker,
        Presence::Absent => Finding::Other,
    })
}

/// Reads all that is wanted of a file.
fn analyse(source: &Source<'_>, headers: &ElfHeaders, symbols: &Symbols) -> Result<ModuleFacts, ElfError> {
    let mut gaps = Vec::new();
    let mut site = |name: &str| probe_site(source, headers, symbols, name).map_err(|gap| gaps.push(gap)).ok();
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
    let db_iter_offset = db_iter_offset(source, headers, symbols).map_err(|gap| gaps.push(gap)).ok();
    let symbol = |name| symbols.get(name).map(|located| located.symbol);
    let mut reader = Reader::new(source, headers);
    let counting = symbols.addresses(&[&STOCK_TAKING[..], &COUNTING[..]].concat());
    let stock_taking = symbols.addresses(&STOCK_TAKING);
    Ok(ModuleFacts {
        fixed_address: headers.fixed_address,
        says_pie: headers.says_pie(source),
        load: headers.load.clone(),
        tls: headers.tls,
        build_id: headers.build_id(source),
        build_tag: build_tag(source, headers),
        found_by: symbols.get(SEEK).map_or(FoundBy::SymbolTable, |located| located.by),
        sites,
        db_iter_offset,
        current_key_offset: symbol(CURRENT_KEY).and_then(|key| reader.slice_member(key.value, key.size)),
        keys_skipped_offset: reader.keys_skipped_offset(&stock_taking),
        skip_count_offset: reader.skip_count_offset(&stock_taking),
        perf_context: symbol(PERF_CONTEXT),
        perf_level: symbol(PERF_LEVEL).filter(|symbol| symbol.thread_local),
        counting_code: reader.counting_code(&counting, &layout::known_skip_offsets()),
        exports_perf_context_api: symbols.exports(&PERF_CONTEXT_API),
        exports_compact_range: symbols.exports_compact_range(),
        library_answer: OnceLock::new(),
        tls_relocations: tls_relocations(source, headers)?,
        gaps,
    })
}

/// The relocations of thread-local storage that can be asked for: the first of each kind, of `perf_context`
/// and of the module itself.
fn tls_relocations(source: &Source<'_>, headers: &ElfHeaders) -> Result<Vec<TlsRelocation>, ElfError> {
    let mut kept: Vec<TlsRelocation> = Vec::new();
    for relocation in headers.tls_relocations(source)? {
        let is_like =
            |other: &TlsRelocation| (other.kind, &other.symbol) == (relocation.kind, &relocation.symbol);
        let is_asked_for = relocation.symbol.as_deref().is_none_or(|name| name == PERF_CONTEXT);
        if is_asked_for && !kept.iter().any(is_like) {
            kept.push(relocation);
        }
    }
    Ok(kept)
}

fn probe_site(
    source: &Source<'_>,
    headers: &ElfHeaders,
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
    let code = headers.bytes_at(source, symbol.value, length).unwrap_or_default();
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
fn db_iter_offset(source: &Source<'_>, headers: &ElfHeaders, symbols: &Symbols) -> Result<u32, Gap> {
    let offsets: Vec<u32> = ACCESSORS
        .iter()
        .filter_map(|name| {
            let symbol = symbols.get(name)?.symbol;
            let length = if symbol.size == 0 { u64::MAX } else { symbol.size };
            let code = headers.bytes_at(source, symbol.value, length.min(prologue::ACCESSOR_BYTES as u64))?;
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
fn build_tag(source: &Source<'_>, headers: &ElfHeaders) -> Option<Vec<u8>> {
    let section = headers.section_named(".rodata")?;
    let at = scan::find(source, section.file_offset, section.size, BUILD_TAG_PREFIX).ok()??;
    let begin = at + BUILD_TAG_PREFIX.len() as u64;
    let length = source.length().saturating_sub(begin).min(BUILD_TAG_BYTES_MAX as u64);
    let mut tag = vec![0u8; usize::try_from(length).unwrap_or_default()];
    source.read_exact_at(&mut tag, begin).ok()?;
    let end = tag.iter().position(|&byte| byte == 0).unwrap_or(tag.len());
    tag.truncate(end);
    Some(tag)
}

#[cfg(test)]
#[path = "module_tests.rs"]
pub(super) mod tests;

//! What a process that examined a file says of it, and what of that is believed.
//!
//! Whoever wrote the file may have taken that process over. Then all of this is that person's word: it is
//! held against the file's length and against what there can be at all, and of texts the beginning is kept.

use super::debug_file::DebugSymbols;
use super::elf::{BUILD_ID_BYTES_MAX, ElfError, LOAD_SEGMENTS_MAX, LoadSegment, TlsSegment};
use super::elf_error::cut;
use super::facts::{Gap, ProbeSite};
use super::module::ModuleFacts;
use super::prologue::PROLOGUE_BYTES;
use super::raw::{TLS_ALIGNMENT_MAX, TLS_BYTES_MAX};
use super::symbols::{
    ITERATOR_DESTRUCTOR, NEW_ITERATOR, PERF_CONTEXT, PERF_CONTEXT_RESET, READ_BLOCK_CONTENTS, SEEK,
    SEEK_FOR_PREV, SEEK_TO_FIRST, SEEK_TO_LAST, WANTED,
};
use super::version::BUILD_TAG_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// Gaps of one file: one for each site, and some more.
const GAPS_MAX: usize = 16;

/// Relocations that are told: one of each kind, of `perf_context` and of the module itself.
const RELOCATIONS_MAX: usize = 4;

/// Offsets at which the code may count; a file that shows more shows nothing.
const COUNTERS_MAX: usize = 64;

/// What a file was found to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finding {
    /// RocksDB is defined in it.
    RocksDb(Box<ModuleFacts>),
    /// RocksDB is in it, and where may stand in the debug file of this build.
    DebugFileWanted { build_id: String },
    /// RocksDB is in it, but neither symbols nor the names of classes say where.
    Hidden,
    /// It is musl's dynamic linker.
    MuslLinker,
    /// It is a valid ELF file with nothing of interest.
    Other,
    /// It could not be read.
    Unreadable(ElfError),
}

impl Finding {
    /// The finding, if it can be that of a file of so many bytes.
    /// Errors: what of it cannot be.
    pub fn believed(self, file_bytes: u64) -> Result<Finding, &'static str> {
        match self {
            Finding::RocksDb(mut facts) => {
                check_facts(&facts, file_bytes)?;
                facts.gaps.iter_mut().for_each(cut_gap);
                Ok(Finding::RocksDb(facts))
            }
            Finding::DebugFileWanted { build_id } => {
                must(is_build_id(&build_id), "the build id")?;
                Ok(Finding::DebugFileWanted { build_id })
            }
            Finding::Unreadable(error) => Ok(Finding::Unreadable(error.cut())),
            plain @ (Finding::Hidden | Finding::MuslLinker | Finding::Other) => Ok(plain),
        }
    }
}

/// The symbols of a debug file, if all have names that were asked for.
/// Errors: what of them cannot be.
pub(super) fn believed_symbols(symbols: DebugSymbols) -> Result<DebugSymbols, &'static str> {
    must(symbols.keys().all(|name| WANTED.contains(&name.as_str())), "the symbols")?;
    Ok(symbols)
}

fn must(is_so: bool, what: &'static str) -> Result<(), &'static str> {
    if is_so { Ok(()) } else { Err(what) }
}

fn check_facts(facts: &ModuleFacts, file_bytes: u64) -> Result<(), &'static str> {
    let is_inside = |segment: &LoadSegment| {
        segment.file_offset.checked_add(segment.file_size).is_some_and(|end| end <= file_bytes)
    };
    let segments = &facts.load;
    must(segments.len() <= LOAD_SEGMENTS_MAX && segments.iter().all(is_inside), "the load segments")?;
    must(facts.tls.is_none_or(is_tls), "the thread-local segment")?;
    must(facts.build_id.as_deref().is_none_or(is_build_id), "the build id")?;
    must(facts.build_tag.as_ref().is_none_or(|tag| tag.len() <= BUILD_TAG_BYTES_MAX), "the build tag")?;
    must(are_sites(facts), "the places of probes")?;
    let shown = facts.counting_code.as_ref().map(|code| code.internal_key_skipped_count.len());
    must(shown.is_none_or(|count| count <= COUNTERS_MAX), "the counters")?;
    let relocations = &facts.tls_relocations;
    let is_asked_for = |name: &str| name == PERF_CONTEXT;
    must(
        relocations.len() <= RELOCATIONS_MAX
            && relocations.iter().all(|one| one.symbol.as_deref().is_none_or(is_asked_for)),
        "the relocations",
    )?;
    must(facts.gaps.len() <= GAPS_MAX, "the gaps")
}

fn is_tls(segment: TlsSegment) -> bool {
    segment.alignment.is_power_of_two()
        && segment.alignment <= TLS_ALIGNMENT_MAX
        && segment.memory_size <= TLS_BYTES_MAX
        && segment.image_size <= segment.memory_size
}

fn is_build_id(build_id: &str) -> bool {
    build_id.len() <= 2 * BUILD_ID_BYTES_MAX && build_id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether each site is of its function, and in what of the file is loaded.
fn are_sites(facts: &ModuleFacts) -> bool {
    let sites = &facts.sites;
    let of = [
        (&sites.seek, SEEK),
        (&sites.seek_for_prev, SEEK_FOR_PREV),
        (&sites.seek_to_first, SEEK_TO_FIRST),
        (&sites.seek_to_last, SEEK_TO_LAST),
        (&sites.iterator_destructor, ITERATOR_DESTRUCTOR),
        (&sites.new_iterator, NEW_ITERATOR),
        (&sites.read_block_contents, READ_BLOCK_CONTENTS),
        (&sites.perf_context_reset, PERF_CONTEXT_RESET),
    ];
    let is_loaded = |site: &ProbeSite| {
        facts.load.iter().any(|segment| {
            let into = site.file_offset.checked_sub(segment.file_offset);
            into.is_some_and(|into| into < segment.file_size)
        })
    };
    let is_site = |site: &ProbeSite, name: &str| {
        site.symbol == name && usize::from(site.bytes_into_function) < PROLOGUE_BYTES && is_loaded(site)
    };
    of.into_iter().all(|(site, name)| site.as_ref().is_none_or(|site| is_site(site, name)))
}

fn cut_gap(gap: &mut Gap) {
    [&mut gap.what, &mut gap.reason, &mut gap.remedy].into_iter().for_each(cut);
}

#[cfg(test)]
#[path = "finding_tests.rs"]
mod tests;

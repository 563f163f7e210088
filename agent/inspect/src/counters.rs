//! Where the counters of a target's threads are: the way to `perf_context`, and the layout of it.
//!
//! Symbols are believed before code, the size of `perf_context` before the version, the version before the
//! library's own word, and that before the offsets that the code shows; what contradicts itself is refused,
//! since a wrong offset would give plausible nonsense.

use super::facts::{Gap, LayoutSource, PerfContextLayout, TlsRecipe, Version};
use super::gaps;
use super::layout;
use super::library;
use super::memory;
use super::search::{Found, executable_identity};
use super::symbols::PERF_CONTEXT;
use super::tls::{self, Placed, TlsError};
use std::collections::BTreeSet;

/// The counters of one module in one process.
pub(super) struct Counters {
    pub place: Placed,
    pub layout: PerfContextLayout,
    pub layout_source: LayoutSource,
    /// RocksDB's version, which may only have shown by the layout.
    pub version: Version,
}

/// One module in one process.
pub(super) struct Place<'a> {
    pub pid: u32,
    pub found: &'a Found,
    /// Whether the process' dynamic linker is musl's.
    pub has_musl: bool,
    /// What to add to the file's addresses.
    pub load_bias: u64,
    /// Whether a library may be asked for its layout, which runs its code.
    pub asks_libraries: bool,
}

/// Why there are no counters.
pub(super) enum NoCounters {
    /// The process is just starting.
    NotYet(TlsError),
    /// For a reason that stays.
    Never(String),
}

/// Finds the counters. `versions` are what is known of the version, the surest first.
pub(super) fn find(
    place: &Place<'_>,
    versions: &[Version],
    gaps: &mut Vec<Gap>,
) -> Result<Counters, NoCounters> {
    let found = placed(place)?;
    let (layout, layout_source, version) = layout(place, versions, gaps).map_err(NoCounters::Never)?;
    if found.perf_level_offset.is_none() {
        gaps.push(gaps::perf_level());
    }
    Ok(Counters { place: found, layout, layout_source, version })
}

/// The way to `perf_context`: by its symbol, else by the code that counts.
fn placed(place: &Place<'_>) -> Result<Placed, NoCounters> {
    let facts = &place.found.facts;
    let exe = executable_identity(&place.pid.to_string());
    let is_executable =
        facts.fixed_address || facts.says_pie || exe == Some(place.found.key.device_and_inode());
    let read = |address| memory::read_u64(place.pid, address);
    let result = match (facts.perf_context, &facts.counting_code) {
        (Some(symbol), _) if symbol.thread_local => {
            let variable = (PERF_CONTEXT, symbol);
            let plan = tls::plan(facts.tls.as_ref(), is_executable, &facts.tls_relocations, variable);
            plan.and_then(|plan| tls::resolve(plan, place.load_bias, read)).map(|recipe| Placed {
                recipe,
                perf_context_offset: symbol.value,
                perf_level_offset: facts.perf_level.map(|level| level.value),
            })
        }
        (Some(_), _) => {
            let reason = "`perf_context` is one object for all threads: the build has -DNPERF_CONTEXT, or no \
                          thread-local storage, and what it counts belongs to no thread";
            return Err(NoCounters::Never(reason.into()));
        }
        (None, Some(code)) => {
            let tls = facts.tls.as_ref();
            tls::place(tls, is_executable, code.perf_context, code.perf_level, place.load_bias, read)
        }
        (None, None) => {
            let reason = format!(
                "the module has no symbol {PERF_CONTEXT}, and its code does not show where it counts"
            );
            return Err(NoCounters::Never(reason));
        }
    };
    match result {
        Ok(placed) => Ok(Placed { recipe: by_linker(place, placed.recipe), ..placed }),
        Err(error @ TlsError::NotInitialised) => Err(NoCounters::NotYet(error)),
        Err(error) => Err(NoCounters::Never(error.to_string())),
    }
}

/// The way through the vector that the process' dynamic linker lays out.
fn by_linker(place: &Place<'_>, recipe: TlsRecipe) -> TlsRecipe {
    match recipe {
        TlsRecipe::DynamicThreadVector { module_id } if place.has_musl => {
            TlsRecipe::MuslThreadVector { module_id }
        }
        recipe => recipe,
    }
}

/// The layout and the version that goes with it. Without the symbol's size the code has to agree with the
/// version, as far as it shows.
fn layout(
    place: &Place<'_>,
    versions: &[Version],
    gaps: &mut Vec<Gap>,
) -> Result<(PerfContextLayout, LayoutSource, Version), String> {
    let facts = &place.found.facts;
    let size_bytes = facts.perf_context.map(|symbol| symbol.size).filter(|&size| size > 0);
    let shown = facts.counting_code.as_ref().map(|code| &code.internal_key_skipped_count);
    let mut refused: Option<String> = None;
    for version in versions {
        match layout::choose(Some(version), size_bytes) {
            Ok(layout) if size_bytes.is_some() || agrees(&layout, shown) => {
                gaps.extend(refused.map(gaps::contradicted_version));
                if size_bytes.is_none() && shown.is_none() {
                    gaps.push(gaps::unchecked_layout());
                }
                return Ok((layout, LayoutSource::Table, version.clone()));
            }
            Ok(layout) => {
                let reason = format!("the code counts elsewhere than RocksDB {} does", layout.versions);
                refused = refused.or(Some(reason));
            }
            Err(error) => refused = refused.or(Some(error.to_string())),
        }
    }
    if versions.is_empty()
        && let Ok(layout) = layout::choose(None, size_bytes)
    {
        gaps.push(gaps::version_from_layout(&layout));
        let version = oldest_version(&layout);
        return Ok((layout, LayoutSource::Table, version));
    }
    let reason =
        refused.unwrap_or_else(|| "neither its version nor the size of `perf_context` is known".into());
    let (offset, source) = without_table(place, shown, &reason)?;
    let layout = layout::of_skip_offset(offset, size_bytes);
    gaps.push(gaps::layout_without_table(source, reason));
    let version = versions.first().cloned().unwrap_or_else(|| oldest_version(&layout));
    Ok((layout, source, version))
}

/// The offset of `internal_key_skipped_count` when no table has it: the library's own word, else what its
/// code shows. The two must not contradict each other.
fn without_table(
    place: &Place<'_>,
    shown: Option<&BTreeSet<u32>>,
    reason: &str,
) -> Result<(u32, LayoutSource), String> {
    let facts = &place.found.facts;
    let path = &place.found.path_from_agent;
    let asks = facts.exports_perf_context_api && place.asks_libraries;
    let ask = || library::ask(&sexton_sandbox::own_executable(), path);
    let asked = asks.then(|| facts.library_answer.get_or_init(ask));
    let only_shown = shown.filter(|offsets| offsets.len() == 1).and_then(BTreeSet::first);
    match (asked, only_shown) {
        (Some(Ok(told)), _) if shown.is_some_and(|offsets| !offsets.contains(told)) => {
            Err(format!("{reason}; the library says {told}, but its code counts elsewhere"))
        }
        (Some(Ok(told)), _) => Ok((*told, LayoutSource::Library)),
        (_, Some(shown)) => Ok((*shown, LayoutSource::Code)),
        (Some(Err(why)), None) => Err(format!("{reason}; asked for it, the library does not tell: {why}")),
        (None, None) if facts.exports_perf_context_api => Err(format!(
            "{reason}; the library itself could be asked, which runs its code: `ask_libraries: true` in the policy \
             allows that"
        )),
        (None, None) => Err(reason.to_owned()),
    }
}

fn agrees(layout: &PerfContextLayout, shown: Option<&BTreeSet<u32>>) -> bool {
    shown.is_none_or(|offsets| offsets.contains(&layout.internal_key_skipped_count))
}

fn oldest_version(layout: &PerfContextLayout) -> Version {
    let (major, minor) = layout::oldest_version_of(layout).unwrap_or_default();
    Version { major, minor, patch: None, source: format!("its counters, as in RocksDB {}", layout.versions) }
}

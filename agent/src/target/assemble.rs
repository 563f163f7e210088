//! Puts a target together from what its process and its module tell, and says in words what is missing.

use super::database::{self, OpenDatabases};
use super::error::InspectError;
use super::facts::{
    CountSource, DatabaseDirectory, Gap, LayoutSource, PerfContextLayout, RocksDbModule, Target, TargetId,
    TlsRecipe, Version,
};
use super::gaps;
use super::layout;
use super::maps::Maps;
use super::memory;
use super::module::{ModuleFacts, PERF_CONTEXT};
use super::names::Names;
use super::process::{self, ProcessFacts};
use super::search::{Found, executable_identity};
use super::tls;
use super::version;

/// What all targets of one process have in common.
pub(super) struct Surroundings<'a> {
    facts: ProcessFacts,
    maps: &'a Maps,
    databases: OpenDatabases,
    gaps: Vec<Gap>,
}

impl<'a> Surroundings<'a> {
    /// Reads them.
    ///
    /// # Errors
    /// When the process has ended, or may not be looked into.
    pub fn read(pid: u32, maps: &'a Maps) -> Result<Surroundings<'a>, InspectError> {
        let facts = process::read(pid)?;
        let mut gaps = Vec::new();
        let databases = database::find(pid).unwrap_or_else(|error| {
            gaps.push(gaps::unreadable_descriptors(&error));
            OpenDatabases::default()
        });
        gaps.extend(gaps::databases(&databases));
        gaps.extend(gaps::truncated_maps(maps));
        Ok(Surroundings { facts, maps, databases, gaps })
    }
}

/// The targets of one process, one for each module that holds RocksDB and can be read; those that cannot
/// are a gap in the others.
///
/// # Errors
/// When none of the modules can be read: why the first cannot.
pub(super) fn assemble(
    around: &Surroundings<'_>,
    found: &[Found],
    names: &mut Names,
) -> Result<Vec<Target>, InspectError> {
    let mut targets = Vec::new();
    let mut errors = Vec::new();
    for module in found {
        match target(around, module, found.len() > 1) {
            Ok(target) => targets.push(target),
            Err(error) => errors.push(error),
        }
    }
    if targets.is_empty() {
        let none = InspectError::NoRocksDb { pid: around.facts.process.pid, hint: None };
        return Err(errors.into_iter().next().unwrap_or(none));
    }
    let modules: Vec<_> = targets.iter().map(|target| (target.id, target.module.path.as_path())).collect();
    let names = names.of_process(&around.facts, &modules);
    for (target, name) in targets.iter_mut().zip(names) {
        target.is_primary = name == around.facts.name();
        target.name = name;
        target.gaps.extend(errors.iter().map(gaps::unreadable_copy));
        if !target.is_primary {
            target.gaps.push(gaps::not_acted_on());
        }
    }
    targets.sort_by_key(|target| !target.is_primary);
    Ok(targets)
}

/// One target; its name is given to it later.
fn target(around: &Surroundings<'_>, found: &Found, is_one_of_several: bool) -> Result<Target, InspectError> {
    let process = around.facts.process;
    let mut gaps = found.facts.gaps.clone();
    gaps.extend(around.gaps.iter().cloned());
    let module = module(around, found, is_one_of_several, &mut gaps)?;
    Ok(Target {
        id: TargetId { process, module: module.file },
        process,
        is_primary: false,
        name: String::new(),
        executable: around.facts.executable.clone(),
        command_line: around.facts.command_line.clone(),
        user_id: around.facts.user_id,
        group_id: around.facts.group_id,
        is_jvm: around.maps.has_file_named("libjvm.so"),
        module,
        databases: around.databases.directories.clone(),
        gaps,
    })
}

fn module(
    around: &Surroundings<'_>,
    found: &Found,
    is_one_of_several: bool,
    gaps: &mut Vec<Gap>,
) -> Result<RocksDbModule, InspectError> {
    let pid = around.facts.process.pid;
    let facts = &found.facts;
    let path = found.mapping.path.clone();
    let perf_context = facts.perf_context.filter(|symbol| symbol.thread_local).ok_or_else(|| {
        InspectError::NoCounters { pid, path: path.clone(), reason: no_counters_reason(facts) }
    })?;
    let size_bytes = Some(perf_context.size).filter(|&size| size > 0);
    let versions = versions(found, &around.databases.directories, is_one_of_several);
    let (layout, version) = layout_and_version(versions, size_bytes, gaps)
        .map_err(|source| InspectError::UnknownLayout { pid, path: path.clone(), source })?;
    let load_bias = facts.load_bias(found.mapping.start, found.mapping.file_offset).ok_or_else(|| {
        let what = format!("its mapping at {:#x} fits no segment of the file", found.mapping.start);
        InspectError::Unsupported { pid, path: path.clone(), what }
    })?;
    let tls = tls_recipe(pid, around.maps, found, load_bias)?;
    Ok(RocksDbModule {
        path,
        deleted: found.mapping.deleted,
        path_from_agent: found.path_from_agent.clone(),
        file: found.mapping.file,
        build_id: facts.build_id.clone(),
        load_bias,
        version,
        found_by: facts.found_by,
        sites: facts.sites.clone(),
        db_iter_offset: facts.db_iter_offset,
        current_key_offset: facts.current_key_offset,
        keys_skipped_offset: facts.keys_skipped_offset,
        counts: CountSource::PerfContext,
        tls: Some(tls),
        perf_level_offset: facts.perf_level.map(|symbol| symbol.value),
        perf_context_offset: Some(perf_context.value),
        layout: Some(layout),
        layout_source: Some(LayoutSource::Table),
    })
}

fn no_counters_reason(facts: &ModuleFacts) -> String {
    match facts.perf_context {
        None => format!("the module has no symbol {PERF_CONTEXT} (its symbols were stripped)"),
        Some(_) => "`perf_context` is one object for all threads: the build has -DNPERF_CONTEXT, or no \
                    thread-local storage, and what it counts belongs to no thread"
            .to_string(),
    }
}

/// What is known of the version, the surest source first. With several copies in one process a database
/// may be another copy's, and what the module says of itself is surer.
fn versions(found: &Found, databases: &[DatabaseDirectory], is_one_of_several: bool) -> Vec<Version> {
    let module = &found.mapping.path;
    let tag = found.facts.build_tag.as_deref().and_then(|tag| version::from_build_tag(tag, module));
    let options = version::from_options_files(databases);
    let log = version::from_log_files(databases);
    let file_name = version::from_file_name(module);
    let versions =
        if is_one_of_several { [tag, file_name, options, log] } else { [options, tag, log, file_name] };
    versions.into_iter().flatten().collect()
}

/// Tries one version after the other; the size of `perf_context` has the last word.
fn layout_and_version(
    versions: Vec<Version>,
    size_bytes: Option<u64>,
    gaps: &mut Vec<Gap>,
) -> Result<(PerfContextLayout, Version), layout::LayoutError> {
    if size_bytes.is_none() {
        gaps.push(gaps::unchecked_layout());
    }
    let mut refused = None;
    for version in versions {
        match layout::choose(Some(&version), size_bytes) {
            Ok(layout) => {
                gaps.extend(refused.map(gaps::contradicted_version));
                return Ok((layout, version));
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    if let Some(error) = refused {
        return Err(error);
    }
    let layout = layout::choose(None, size_bytes)?;
    let (major, minor) = layout::oldest_version_of(&layout).unwrap_or_default();
    let source = format!("size of perf_context, as in RocksDB {}", layout.versions);
    gaps.push(gaps::version_from_size(&layout));
    Ok((layout, Version { major, minor, patch: None, source }))
}

fn tls_recipe(pid: u32, maps: &Maps, found: &Found, load_bias: u64) -> Result<TlsRecipe, InspectError> {
    let path = &found.mapping.path;
    let facts = &found.facts;
    let exe = executable_identity(&pid.to_string());
    let is_executable = facts.fixed_address || facts.says_pie || exe == Some(found.key.device_and_inode());
    let failed = |source| InspectError::ThreadLocalStorage { pid, path: path.clone(), source };
    let symbol = facts.perf_context.ok_or_else(|| failed(tls::TlsError::NoSegment))?;
    let plan = tls::plan(facts.tls.as_ref(), is_executable, &facts.tls_relocations, (PERF_CONTEXT, symbol));
    let plan = plan.map_err(failed)?;
    let recipe = tls::resolve(plan, load_bias, |address| memory::read_u64(pid, address)).map_err(failed)?;
    let is_musl = maps.has_file_named("ld-musl-") || maps.has_file_named("libc.musl-");
    if is_musl && matches!(recipe, TlsRecipe::DynamicThreadVector { .. }) {
        let what = "its thread-local storage is laid out by musl, not by glibc".to_string();
        return Err(InspectError::Unsupported { pid, path: path.clone(), what });
    }
    Ok(recipe)
}

//! Puts a target together from what its process and its module tell, and says in words what is missing.

use super::counters::{self, NoCounters, Place};
use super::database::{self, OpenDatabases};
use super::error::InspectError;
use super::facts::{CountSource, DatabaseDirectory, Gap, RocksDbModule, Target, TargetId, Version};
use super::gaps;
use super::maps::Maps;
use super::module::ModuleFacts;
use super::names::Names;
use super::process::ProcessFacts;
use super::search::Found;
use super::version;
use std::ops::Range;

/// What all targets of one process have in common.
pub(super) struct Surroundings<'a> {
    facts: ProcessFacts,
    maps: &'a Maps,
    databases: OpenDatabases,
    gaps: Vec<Gap>,
    asks_libraries: bool,
    /// Whether its dynamic linker is musl's.
    has_musl: bool,
}

impl<'a> Surroundings<'a> {
    pub fn read(
        facts: ProcessFacts,
        maps: &'a Maps,
        asks_libraries: bool,
        has_musl: bool,
    ) -> Surroundings<'a> {
        let mut gaps = Vec::new();
        let databases = database::find(facts.process.pid).unwrap_or_else(|error| {
            gaps.push(gaps::unreadable_descriptors(&error));
            OpenDatabases::default()
        });
        gaps.extend(gaps::databases(&databases));
        gaps.extend(gaps::truncated_maps(maps));
        gaps.extend(facts.is_command_line_cut.then(gaps::cut_command_line));
        Surroundings { facts, maps, databases, gaps, asks_libraries, has_musl }
    }
}

/// The targets of one process, one for each module that holds RocksDB and can be read; those that cannot
/// are a gap in the others.
/// Errors: when none of the modules can be read: why the first cannot.
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
        program: around.facts.program.clone(),
        executable: around.facts.executable.clone(),
        command_line: around.facts.command_line.clone(),
        is_command_line_cut: around.facts.is_command_line_cut,
        user_id: around.facts.user_id,
        group_id: around.facts.group_id,
        user_name: around.facts.user_name(),
        cgroup: around.facts.cgroup.clone(),
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
    let load_bias = facts.load_bias(found.mapping.start, found.mapping.file_offset).ok_or_else(|| {
        let what = format!("its mapping at {:#x} fits no segment of the file", found.mapping.start);
        InspectError::Unsupported { pid, path: path.clone(), what }
    })?;
    let versions = versions(found, &around.databases.directories, is_one_of_several);
    let (asks_libraries, has_musl) = (around.asks_libraries, around.has_musl);
    let place = Place { pid, found, has_musl, load_bias, asks_libraries };
    let counters = match counters::find(&place, &versions, gaps) {
        Ok(counters) => Some(counters),
        Err(NoCounters::NotYet(source)) => {
            return Err(InspectError::ThreadLocalStorage { pid, path, source });
        }
        Err(NoCounters::Never(reason)) => {
            gaps.push(gaps::no_counters(reason, without_perf_context(facts)));
            None
        }
    };
    let known = counters.as_ref();
    let version = known.map(|counters| counters.version.clone()).or_else(|| versions.first().cloned());
    Ok(RocksDbModule {
        path,
        deleted: found.mapping.deleted,
        path_from_agent: found.path_from_agent.clone(),
        file: found.mapping.file,
        build_id: facts.build_id.clone(),
        load_bias,
        version: version.unwrap_or_else(|| {
            gaps.push(gaps::unknown_version());
            Version { major: 0, minor: 0, patch: None, source: "nothing that tells it".into() }
        }),
        found_by: facts.found_by,
        sites: facts.sites.clone(),
        db_iter_offset: facts.db_iter_offset,
        current_key_offset: facts.current_key_offset,
        keys_skipped_offset: facts.keys_skipped_offset,
        skip_count_offset: facts.skip_count_offset,
        counts: known.map_or_else(|| without_perf_context(facts), |_| CountSource::PerfContext),
        tls: known.map(|counters| counters.place.recipe),
        tls_image: tls_image(facts, load_bias),
        perf_level_offset: known.and_then(|counters| counters.place.perf_level_offset),
        perf_context_offset: known.map(|counters| counters.place.perf_context_offset),
        layout_source: known.map(|counters| counters.layout_source),
        layout: counters.map(|counters| counters.layout),
        exports_compact_range: facts.exports_compact_range,
    })
}

fn tls_image(facts: &ModuleFacts, load_bias: u64) -> Range<u64> {
    facts.tls.map_or(0..0, |segment| {
        let begin = load_bias.wrapping_add(segment.address);
        begin..begin.saturating_add(segment.image_size)
    })
}

/// What can be counted without `perf_context`.
fn without_perf_context(facts: &ModuleFacts) -> CountSource {
    facts.keys_skipped_offset.map_or(CountSource::Nothing, |_| CountSource::IteratorEstimate)
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

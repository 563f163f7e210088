//! What can be missing of a target, in words for an operator: what, why, and what to do about it.
//!
//! Noticing that something is missing is the business of the other modules.

use super::database::OpenDatabases;
use super::error::InspectError;
use super::facts::{CountSource, Gap, LayoutSource, PerfContextLayout, ProbeSites, SiteKind};
use super::maps::Maps;
use super::module::readable_name;
use super::symbols::PERF_LEVEL;
use std::io;

/// The layout cannot be checked.
pub(super) fn unchecked_layout() -> Gap {
    Gap {
        what: "the layout of perf_context rests on the version alone".into(),
        reason: "the symbol has no size to check it with".into(),
        remedy: "Use a RocksDB whose symbols keep their sizes.".into(),
    }
}

/// Only the layout of `perf_context` names the version.
pub(super) fn version_from_layout(layout: &PerfContextLayout) -> Gap {
    Gap {
        what: format!("RocksDB's version is only known to be in {}", layout.versions),
        reason: "no OPTIONS or LOG file of an open database is visible, and the module has no build tag"
            .into(),
        remedy: "Nothing to do: the layout of perf_context is known; look again when the database is open."
            .into(),
    }
}

/// No table has the layout.
pub(super) fn layout_without_table(source: LayoutSource, reason: String) -> Gap {
    let what = match source {
        LayoutSource::Library => "the layout of perf_context is the library's own word",
        _ => "the layout of perf_context was read in RocksDB's code",
    };
    Gap {
        what: what.into(),
        reason,
        remedy:
            "Nothing to do: the counters of skipped keys are where RocksDB itself has them, the others where \
                 every version has them."
                .into(),
    }
}

/// A source of the version contradicts the size of `perf_context`.
pub(super) fn contradicted_version(reason: String) -> Gap {
    Gap {
        what: "one source of RocksDB's version was not believed".into(),
        reason,
        remedy: "Nothing to do, if the process has more than one RocksDB inside; else report it.".into(),
    }
}

/// `/proc/PID/fd` cannot be read.
pub(super) fn unreadable_descriptors(error: &io::Error) -> Gap {
    Gap {
        what: "the open files of the process cannot be listed".into(),
        reason: error.to_string(),
        remedy: "Run sexton as root, or give it CAP_SYS_PTRACE.".into(),
    }
}

/// No database is visible, or not all of them.
pub(super) fn databases(databases: &OpenDatabases) -> Option<Gap> {
    if databases.truncated {
        return Some(Gap {
            what: "not all databases of the process are listed".into(),
            reason: "it has more open files or databases than are looked at".into(),
            remedy: "Name the databases in the policy.".into(),
        });
    }
    databases.directories.is_empty().then(|| Gap {
        what: "no database directory is visible".into(),
        reason: "the process holds no LOCK, MANIFEST, SST or log file of a RocksDB open: no database is open, or its \
                 files are not in the host's file systems"
            .into(),
        remedy: "Look again when a database is open; without its files there are no SST statistics.".into(),
    })
}

/// Another copy of RocksDB in the process cannot be read.
pub(super) fn unreadable_copy(error: &InspectError) -> Gap {
    Gap {
        what: "another copy of RocksDB in the process is not watched".into(),
        reason: error.to_string(),
        remedy: error.remedy().to_string(),
    }
}

/// This copy of RocksDB is not the first of its process.
pub(super) fn not_acted_on() -> Gap {
    Gap {
        what: "this copy of RocksDB is watched but not acted on through the hook".into(),
        reason: "the process has several, and the hook in it serves the one that was seen first".into(),
        remedy: "Use the executor `exec` or `advise` for this target.".into(),
    }
}

/// Not all mappings were read.
pub(super) fn truncated_maps(maps: &Maps) -> Option<Gap> {
    maps.truncated.then(|| Gap {
        what: "not all mappings of the process were looked at".into(),
        reason: "it has more than are read".into(),
        remedy: "Nothing to do when RocksDB was found.".into(),
    })
}

/// What the policy matches may stand behind what was read.
pub(super) fn cut_command_line() -> Gap {
    Gap {
        what: "the end of the command line is not known".into(),
        reason: "it is longer than 1 MiB, and no more of it is read".into(),
        remedy: "Match the process by its executable, or by what stands in the first MiB.".into(),
    }
}

pub(super) fn single_stepped(sites: &ProbeSites) -> Option<Gap> {
    let all = [
        &sites.seek,
        &sites.seek_for_prev,
        &sites.seek_to_first,
        &sites.seek_to_last,
        &sites.iterator_destructor,
        &sites.new_iterator,
        &sites.read_block_contents,
    ];
    let slow = all.into_iter().flatten().filter(|site| site.kind == SiteKind::SingleStepped);
    let names: Vec<&str> = slow.map(|site| readable_name(&site.symbol)).collect();
    (!names.is_empty()).then(|| Gap {
        what: format!("probes on {} cost ten times as much", names.join(", ")),
        reason: "their first instruction is none that the kernel emulates, it has to be single-stepped"
            .into(),
        remedy: "Nothing to do: windows are shortened to keep within the budget.".into(),
    })
}

/// The perf level cannot be read.
pub(super) fn perf_level() -> Gap {
    Gap {
        what: "the perf level of threads is not known".into(),
        reason: format!("the module has no thread-local symbol {PERF_LEVEL}, and its code does not show it"),
        remedy: "Counters that stay at zero may mean a perf level below kEnableCount: check it in the application."
            .into(),
    }
}

/// The counters cannot be read.
pub(super) fn no_counters(reason: String, counts: CountSource) -> Gap {
    let (what, remedy) = match counts {
        CountSource::IteratorEstimate => (
            "tombstones are not counted, only estimated",
            "Take the figures as an estimate: they are each iterator's own count of keys it stepped over, tombstones \
             and hidden keys together. For exact ones use a released RocksDB built without -DNPERF_CONTEXT.",
        ),
        _ => (
            "nothing can be counted",
            "Use a released RocksDB from 5.8 to 11.12, built without -DNPERF_CONTEXT and with its symbols.",
        ),
    };
    Gap { what: what.into(), reason, remedy: remedy.into() }
}

pub(super) fn unknown_version() -> Gap {
    Gap {
        what: "RocksDB's version is not known".into(),
        reason: "no OPTIONS or LOG file of an open database is visible, and the module has no build tag"
            .into(),
        remedy: "Look again when a database is open.".into(),
    }
}

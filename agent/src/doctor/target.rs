//! One RocksDB: its facts in words, and one reading of its threads.

use super::Means;
use super::databases;
use super::executors;
use super::finding::Finding;
use super::prices::Placing;
use super::report::{ProbeReport, TargetReport, ThreadsReport};
use super::throttles;
use sexton_execute::perf_level::LEVEL_COUNTS;
use sexton_inspect::facts::{CountSource, ProbeSite, ProbeSites, RocksDbModule, Target};
use sexton_inspect::layout::check_invariants;
use sexton_probe::{KernelFeatures, Sentinel, SentinelReading, Site, Slot};

/// Targets are read one after the other.
const SLOT: Slot = 0;

/// Looks at a target. Reads its threads' counters once, where there is a sentinel.
pub fn examine(target: &Target, sentinel: &mut Result<Sentinel, String>, means: &Means) -> TargetReport {
    let reading = read(target, sentinel);
    let module = &target.module;
    TargetReport {
        facts: target.clone(),
        probes: Site::SHOWN.map(|site| probe(site, &module.sites, &means.placing)).into(),
        threads: reading.as_ref().ok().map(threads),
        findings: findings(module, &reading, &means.features),
        databases: databases::reports(&target.databases),
        executors: executors::findings(target, means.policy.as_ref()),
        throttles: throttles::findings(target, means.policy.as_ref()),
    }
}

fn read(target: &Target, sentinel: &mut Result<Sentinel, String>) -> Result<SentinelReading, String> {
    let sentinel = sentinel.as_mut().map_err(|reason| reason.clone())?;
    if let Some(reason) = sentinel.absence() {
        return Err(format!("the kernel has no sentinel: {reason}"));
    }
    let reading = sentinel.watch(target, SLOT).and_then(|()| sentinel.read(SLOT));
    sentinel.forget(SLOT);
    reading.map_err(|error| error.to_string())
}

fn threads(reading: &SentinelReading) -> ThreadsReport {
    ThreadsReport {
        threads: reading.threads,
        threads_with_counters: reading.threads_with_counters,
        perf_level: reading.perf_level,
    }
}

fn probe(function: Site, sites: &ProbeSites, placing: &Placing) -> ProbeReport {
    let site = function.place(sites);
    let price_ns = |site: &ProbeSite| {
        placing.prices.as_ref().ok().map(|prices| prices.entry_ns(function, site.kind).round() as u64)
    };
    ProbeReport {
        function: function.label(),
        price_ns: site.and_then(price_ns),
        mechanism: site.and(placing.mechanism).map(|mechanism| mechanism.name()),
        site: site.cloned(),
    }
}

fn findings(
    module: &RocksDbModule,
    reading: &Result<SentinelReading, String>,
    features: &KernelFeatures,
) -> Vec<Finding> {
    let mut findings = vec![seek_found(module).essential(), counters(module).essential()];
    match reading {
        Ok(reading) => {
            findings.push(perf_level(module, reading.perf_level, reading.threads_with_counters));
            findings.push(plausible(reading).essential());
        }
        Err(reason) => {
            let finding = Finding::unknown(
                "reading of its threads",
                "exact totals, perf level",
                reason.as_str(),
                "see the kernel's findings above",
            );
            // Without a sentinel windows still count.
            findings.push(if features.task_iterator.is_yes() { finding.essential() } else { finding });
        }
    }
    findings
}

fn seek_found(module: &RocksDbModule) -> Finding {
    let (name, note) = ("positioning calls", "windows can be opened");
    match module.sites.has_a_seek() {
        true => Finding::yes(name, note),
        false => Finding::no(
            name,
            note,
            "none of DBIter's Seek functions was found",
            "install the library's debug symbols, or use a build that keeps its symbols or RTTI",
        ),
    }
}

fn counters(module: &RocksDbModule) -> Finding {
    let (name, note) = ("counters", "tombstones skipped, blocks read");
    let remedy = "use a RocksDB built without -DNPERF_CONTEXT";
    match module.counts {
        CountSource::PerfContext => Finding::yes(name, format!("{note}, exactly (perf_context)")),
        CountSource::IteratorEstimate => Finding::yes(
            name,
            "an estimate: keys stepped over by iterators; RocksDB was built without PerfContext",
        ),
        CountSource::Nothing => Finding::no(name, note, "RocksDB was built without PerfContext", remedy),
    }
}

fn perf_level(module: &RocksDbModule, level: Option<u8>, threads_with_counters: u32) -> Finding {
    let (name, note) = ("perf level", "counters move");
    let remedy = "set it in the host: MyRocks `SET GLOBAL rocksdb_perf_context_level=2`, db_bench \
                  `--perf_level=2`, else rocksdb::SetPerfLevel; or let sexton raise it: `raise_perf_level: true` \
                  in the policy's target";
    match level {
        Some(level @ LEVEL_COUNTS..) => Finding::yes(name, format!("{note} (level {level})")),
        Some(level) => {
            let reason = format!("a thread has level {level}, at which RocksDB counts nothing");
            let finding = Finding::no(name, note, reason, remedy);
            // Without counters there is still what iterators count for themselves.
            if module.keys_skipped_offset.is_some() { finding } else { finding.essential() }
        }
        None if module.counts != CountSource::PerfContext => {
            Finding::yes(name, "of no importance: there is no PerfContext")
        }
        None if threads_with_counters == 0 => Finding::unknown(
            name,
            note,
            "no thread has used RocksDB yet",
            "look again when the process has work",
        ),
        None => Finding::unknown(name, note, "the thread-local rocksdb::perf_level was not found", remedy),
    }
}

fn plausible(reading: &SentinelReading) -> Finding {
    let (name, note) = ("counters make sense", "they hold to RocksDB's own invariants");
    match check_invariants(&reading.thread_counters()) {
        Ok(()) => Finding::yes(name, note),
        Err(reason) => Finding::no(
            name,
            note,
            reason,
            "report the RocksDB build: its PerfContext is laid out differently",
        ),
    }
}

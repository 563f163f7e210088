//! Windows that do not see everything: their credit runs out, or there is no sentinel beside them.
//!
//! Method: `db_bench` makes the same random seeks again and again (same seed, same table), observed through
//! the agent's library. What a window attributes is compared with what `db_bench` counted and, operation by
//! operation, with a window that saw everything.

use anyhow::{Context, Result, bail, ensure};
use sexton_inspect::facts::Target;
use sexton_probe::{
    Answer, Credit, KernelFeatures, Mechanism, OpenWindow, Sentinel, Thresholds, TotalsBy, WindowResult,
    Windows,
};
use sexton_tests::agent;
use sexton_tests::db_bench::{self, SeekPlan, Seeks};
use sexton_tests::inspected;
use sexton_tests::truth::Truth;
use sexton_tuner::evidence::{Counters, Observation};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

const READS: u64 = 60;
const NEXTS: u64 = 20;
const SEED: u64 = 7;
const RUN_LIMIT: Duration = Duration::from_secs(300);
/// Between two looks at a window's credit: some seeks of some milliseconds each.
const POLL: Duration = Duration::from_millis(20);
const SLOT: u32 = 0;
/// What a seek is said to cost, and how many of them are granted at a time.
const SEEK_NS: u64 = 1_000;
const SEEKS_GRANTED: u64 = 5;

/// Looks at the credit until more is granted: the pauses are as long as some seeks.
const LOOKS_A_GRANT: u32 = 10;

/// Every operation is recorded, so that all can be compared.
const ALL_PAINFUL: Thresholds = Thresholds { tombstones_per_operation: 0, block_reads_per_operation: 0 };

#[test]
fn sums_stay_exact_when_the_credit_runs_out_in_the_middle() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    let features = KernelFeatures::probe();
    let chosen = Mechanism::choose(&features)?;
    let full = observe(&database, &features, chosen, |_| Credit::unlimited(), |_, _| Ok(()))?;
    ensure!(full.result.window.operations == READS, "not {READS} operations: {full:?}");
    let few = |target: &Target| {
        Credit::limited(SEEKS_GRANTED * SEEK_NS, &target.module.sites, |site, _| {
            if site.is_positioning() { SEEK_NS } else { 0 }
        })
    };
    // One that does not arm a skipped call's return, and one that does.
    for mechanism in [Mechanism::Session, Mechanism::Perf] {
        if let Err(missing) = mechanism.check(&features) {
            println!("{}: {missing}", mechanism.name());
            continue;
        }
        let mut looks = 0;
        let partial = observe(&database, &features, mechanism, few, |windows, window| {
            looks += 1;
            if looks % LOOKS_A_GRANT == 0 && windows.credit_ns(window)? == 0 {
                windows.grant(window, SEEKS_GRANTED * SEEK_NS)?;
            }
            Ok(())
        })?;
        check(&partial, &full).with_context(|| format!("{mechanism:?}: {:?}", partial.result.window))?;
        println!("{}: {} of {READS} operations", mechanism.name(), partial.result.window.operations);
    }
    Ok(())
}

#[test]
fn without_a_sentinel_a_window_counts_what_its_probes_saw() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    let mut features = KernelFeatures::probe();
    features.task_iterator = Answer::No("as before Linux 6.1".into());
    let mechanism = Mechanism::choose(&features)?;
    let seen = observe(&database, &features, mechanism, |_| Credit::unlimited(), |_, _| Ok(()))?;
    let WindowResult { window, totals_by, unowned, .. } = &seen.result;
    ensure!(*totals_by == TotalsBy::Windows, "{totals_by:?}");
    ensure!(window.total == window.attributed.plus(*unowned), "{window:?} {unowned:?}");
    ensure!(window.attributed.tombstones_skipped == seen.truth.tombstones_skipped, "{seen:?}");
    ensure!(window.operations == READS, "{window:?}");
    Ok(())
}

/// Beside the records, which a window chooses by what was lost, all operations are counted: here each is
/// recorded, and both say the same.
#[test]
fn how_long_operations_took_is_counted_for_each_of_them() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    let features = KernelFeatures::probe();
    for mechanism in [Mechanism::Session, Mechanism::Multi, Mechanism::Perf] {
        if let Err(missing) = mechanism.check(&features) {
            println!("{}: {missing}", mechanism.name());
            continue;
        }
        let seen = observe(&database, &features, mechanism, |_| Credit::unlimited(), |_, _| Ok(()))?;
        let WindowResult { families, operations, .. } = &seen.result;
        let [family] = families.as_slice() else { bail!("not one column family: {families:?}") };
        ensure!(family.addresses.column_family_data != 0, "{family:?}");
        let waits = &family.waits;
        let counts = [&waits.seeks, &waits.lists, &waits.tombstones].map(|spread| spread.histogram.count());
        ensure!(counts == [READS; 3], "{counts:?} of {READS}");
        let observed = || operations.iter().map(|operation| &operation.observation);
        let seek_ns: u64 = observed().map(|it| it.seek_latency_ns).sum();
        let scan_ns: u64 = observed().map(|it| it.scan_elapsed_ns).sum();
        ensure!(waits.seeks.sum == seek_ns && waits.lists.sum == seek_ns + scan_ns, "{waits:?} {seek_ns}");
        ensure!(waits.tombstones.sum >= seen.truth.tombstones_skipped, "{waits:?} {:?}", seen.truth);
        let reads_ns: u64 = observed().map(|it| it.block_fetches.latency_ns).sum();
        let reads: u64 = observed().map(|it| it.block_fetches.count).sum();
        let block_reads = &waits.block_reads;
        ensure!(
            block_reads.sum <= reads_ns && block_reads.histogram.count() <= reads,
            "{block_reads:?} {reads}"
        );
        ensure!((reads > 0) == (block_reads.sum > 0), "{block_reads:?} {reads}");
    }
    Ok(())
}

/// The steps of a window, with those that may block in other threads: what is hit before the last step is a
/// cost and nothing else, and what comes after it is followed.
#[test]
fn nothing_is_followed_before_all_probes_are_in_their_places() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    let process = db_bench::seek_for(&database, RUN_LIMIT.as_secs(), 2)?;
    let features = KernelFeatures::probe();
    let target = wait_for(|| Ok(inspected::target(process.pid()).ok()))?;
    let mut sentinel = Sentinel::load(&features)?;
    let mut windows = Windows::load(Mechanism::choose(&features)?)?;
    sentinel.watch(&target, SLOT)?;
    let unattached = windows.prepare(&target, SLOT, ALL_PAINFUL, &Credit::unlimited())?;
    let attached = elsewhere(move || unattached.attach())??;
    let before = wait_for(|| {
        let hits = windows.hits_before_opening(&attached)?;
        Ok((hits.skipped() > 0).then_some(hits))
    })?;
    ensure!(before.entries() == 0 && before.returns() == 0, "{before:?}");
    let reader = sentinel.reader(SLOT)?;
    let totals = elsewhere(move || reader.read())??;
    let opening = sentinel.take(SLOT, totals)?;
    let mut window = windows.arm(attached, &opening)?;
    wait_for(|| {
        windows.poll()?;
        let hits = windows.hits(&window)?;
        Ok(hits.sites.iter().any(|site| site.site.is_positioning() && site.returns > 0).then_some(()))
    })?;
    let settling = sentinel.read(SLOT)?;
    let stopped = window.stop();
    elsewhere(move || stopped.detach())?;
    let closing = sentinel.read(SLOT)?;
    let result = windows.collect(window, &settling, &closing)?;
    ensure!(result.window.operations > 0 && result.probe_cost.skipped() >= before.skipped(), "{result:?}");
    Ok(())
}

/// Whoever takes the probes away may not be heard any more when the process ends: what was seen counts.
#[test]
fn a_window_that_is_being_closed_when_its_process_ends_keeps_its_sums() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    let features = KernelFeatures::probe();
    let seeks = Seeks::start_stopped(&database, SeekPlan { reads: READS, nexts: NEXTS, seed: SEED })?;
    let target = inspected::target(seeks.pid())?;
    let mut sentinel = Sentinel::load(&features)?;
    let mut windows = Windows::load(Mechanism::choose(&features)?)?;
    sentinel.watch(&target, SLOT)?;
    let opening = sentinel.read(SLOT)?;
    let mut window = windows.open(&target, SLOT, ALL_PAINFUL, &Credit::unlimited(), &opening)?;
    let unheard = window.hand_over();
    let truth = seeks.finish(RUN_LIMIT)?;
    let settling = sentinel.read(SLOT)?;
    let closing = sentinel.read(SLOT)?;
    let result = windows.collect(window, &settling, &closing)?;
    drop(unheard);
    ensure!(result.window.operations == READS && result.window.duration_ns > 0, "{result:?}");
    ensure!(result.window.total.tombstones_skipped == truth.tombstones_skipped, "{result:?} {truth:?}");
    ensure!(result.window.attributed.tombstones_skipped == truth.tombstones_skipped, "{result:?} {truth:?}");
    Ok(())
}

fn elsewhere<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    std::thread::spawn(act).join().map_err(|_| anyhow::anyhow!("the other thread panicked"))
}

fn wait_for<T>(mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let until = Instant::now() + RUN_LIMIT;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(Instant::now() < until, "not within {RUN_LIMIT:?}");
        std::thread::sleep(POLL);
    }
}

/// A run of the benchmark and what a window saw of it.
#[derive(Debug)]
struct Observed {
    truth: Truth,
    result: WindowResult,
}

fn observe(
    database: &Path,
    features: &KernelFeatures,
    mechanism: Mechanism,
    credit: impl FnOnce(&Target) -> Credit,
    mut look: impl FnMut(&mut Windows, &mut OpenWindow) -> Result<()>,
) -> Result<Observed> {
    let seeks = Seeks::start_stopped(database, SeekPlan { reads: READS, nexts: NEXTS, seed: SEED })?;
    let target = inspected::target(seeks.pid())?;
    let mut sentinel = Sentinel::load(features)?;
    let mut windows = Windows::load(mechanism)?;
    sentinel.watch(&target, SLOT)?;
    let opening = sentinel.read(SLOT)?;
    let mut window = windows.open(&target, SLOT, ALL_PAINFUL, &credit(&target), &opening)?;
    let run = std::thread::spawn(move || seeks.finish(RUN_LIMIT));
    while !run.is_finished() {
        std::thread::sleep(POLL);
        windows.poll()?;
        look(&mut windows, &mut window)?;
    }
    let truth = run.join().map_err(|_| anyhow::anyhow!("the run panicked"))??;
    let settling = sentinel.read(SLOT)?;
    window.disarm();
    let closing = sentinel.read(SLOT)?;
    let result = windows.collect(window, &settling, &closing)?;
    Ok(Observed { truth, result })
}

fn check(partial: &Observed, full: &Observed) -> Result<()> {
    let window = &partial.result.window;
    ensure!(partial.truth.tombstones_skipped == full.truth.tombstones_skipped, "the runs differ");
    ensure!(window.total.tombstones_skipped == partial.truth.tombstones_skipped, "not the truth");
    ensure!(window.attributed.plus(partial.result.unattributed()) == window.total, "sums differ");
    let charged = partial
        .result
        .operations
        .iter()
        .fold(Counters::default(), |sum, operation| sum.plus(operation.observation.total()));
    ensure!(charged == window.attributed, "operations were charged {charged:?}");
    ensure!(partial.result.probe_cost.skipped() > 0, "nothing was skipped: this run shows nothing");
    ensure!(window.operations < READS && window.operations >= SEEKS_GRANTED, "{window:?}");
    // Whoever was charged was charged his own: not more than when all was seen, and for the seek the same.
    let mut by_key: HashMap<&[u8], Vec<&Observation>> = HashMap::new();
    for operation in &full.result.operations {
        by_key.entry(operation.observation.key.as_bytes()).or_default().push(&operation.observation);
    }
    for operation in &partial.result.operations {
        let seen = &operation.observation;
        let whole = by_key.get(seen.key.as_bytes()).context("a key that was not there")?;
        let fits = |whole: &&&Observation| {
            whole.seek.tombstones_skipped == seen.seek.tombstones_skipped
                && whole.scan.tombstones_skipped >= seen.scan.tombstones_skipped
        };
        ensure!(whole.iter().any(|whole| fits(&whole)), "charged {seen:?}, and in full {whole:?}");
    }
    Ok(())
}

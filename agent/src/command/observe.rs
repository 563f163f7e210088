//! `sexton observe`: one window on one process, and what it saw.

use super::interrupt::Interrupt;
use crate::failure::Failure;
use crate::text::{json_shown, print_line, shown};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use sexton_inspect::facts::Target;
use sexton_inspect::identity::{Identities, SstIdentity};
use sexton_inspect::inspect::Inspector;
use sexton_inspect::process::is_alive;
use sexton_probe::{
    Credit, FileFetches, KernelFeatures, Loader, Mechanism, OpenWindow, Sentinel, Thresholds, TotalsBy,
    WindowResult, Windows,
};
use sexton_tuner::evidence::{BlockFetches, Counters, SeekKind};
use sexton_tuner::key::Key;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Observations printed; the sums are always over all of them.
const OBSERVATIONS_SHOWN_MAX: usize = 1_000;

/// Files printed; the sums are always over all of them.
const FILES_SHOWN_MAX: usize = 1_000;

/// How often the ring buffer is emptied while the window is open.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The only slot in use: one process is observed.
const SLOT: u32 = 0;

/// Arguments of `sexton observe`.
#[derive(Args, Debug)]
pub struct ObserveArguments {
    /// Process to observe.
    #[arg(long)]
    pid: u32,
    /// Which copy of RocksDB, where the process has several: a part of its file's path.
    #[arg(long, value_name = "PART")]
    module: Option<String>,
    /// How long to keep the probes attached; Ctrl-C ends it earlier.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Go on until the process ends, at most --seconds (then 3600 unless given).
    #[arg(long)]
    until_exit: bool,
    /// Operations that skip at least this many tombstones are recorded one by one; of smaller ones one is
    /// for so many tombstones.
    #[arg(long, default_value_t = 1_000)]
    tombstones_per_operation: u64,
    /// The same for the blocks that they read.
    #[arg(long, default_value_t = 64)]
    block_reads_per_operation: u64,
    /// How to attach probes; by default the cheapest way that the kernel has.
    #[arg(long)]
    mechanism: Option<Mechanism>,
    /// The library that loads the BPF programs: two implementations that have to count the same.
    #[arg(long, default_value = "libbpf")]
    loader: Loader,
    /// Show whole keys; by default only their first bytes and their length are shown.
    #[arg(long)]
    show_keys: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Arms the probes, waits, prints.
/// Errors: when the process has no RocksDB that can be read, or the kernel refuses.
pub fn run(arguments: &ObserveArguments) -> Result<(), Failure> {
    let target = choose_target(arguments)?;
    let features = KernelFeatures::probe();
    let loader = arguments.loader;
    let mechanism = loader.mechanism(arguments.mechanism, &features)?;
    let mut sentinel = Sentinel::load_with(loader, &features)?;
    let mut windows = Windows::load_with(loader, mechanism)?;
    let interrupt = Interrupt::listen()?;
    sentinel.watch(&target, SLOT)?;
    let opening = sentinel.read(SLOT)?;
    let thresholds = Thresholds {
        tombstones_per_operation: arguments.tombstones_per_operation,
        block_reads_per_operation: arguments.block_reads_per_operation,
    };
    let mut window = windows.open(&target, SLOT, thresholds, &Credit::unlimited(), &opening)?;
    eprintln!("observing {}", shown(&target.name));
    if let Some(reason) = sentinel.absence() {
        eprintln!("this kernel has no sentinel, totals are those of the window: {reason}");
    }
    let names = wait(arguments, &target, &mut windows, &mut window, &interrupt)?;
    let settling = sentinel.read(SLOT)?;
    window.disarm();
    let closing = sentinel.read(SLOT)?;
    let result = windows.collect(window, &settling, &closing)?;
    let files = files(&names, &result.files);
    let observations = observations(&target, &result, arguments.show_keys);
    if !arguments.json {
        print_text(&result, &files, &observations);
        return Ok(());
    }
    let report = json!({
        "target": target.name,
        "loader": loader,
        "mechanism": result.mechanism,
        "totals_by": result.totals_by,
        "threads": closing.threads,
        "threads_ended": closing.threads_ended,
        "threads_ended_unread": closing.threads_ended_unread,
        "perf_level": opening.perf_level.or(closing.perf_level),
        "total": result.window.total,
        "attributed": result.window.attributed,
        "recorded": result.window.recorded,
        "unattributed": result.unattributed(),
        "unowned": result.unowned,
        "operations": result.window.operations,
        "operations_recorded": result.window.operations_recorded,
        "operations_estimated": result.window.operations_estimated,
        "records_lost": result.window.records_lost,
        "probe_hits": result.probe_cost.total(),
        "probe_sites": result.probe_cost.sites,
        "read_failures": result.read_failures,
        "map_full": result.map_full,
        "duration_ns": result.window.duration_ns,
        "block_reads_timed": result.window.block_reads_timed,
        "files": files,
        "observations": observations,
    });
    println!("{}", json_shown(&report.to_string()));
    Ok(())
}

/// The copy of RocksDB that is meant.
fn choose_target(arguments: &ObserveArguments) -> Result<Target, Failure> {
    let mut inspector = Inspector::new();
    let Some(part) = &arguments.module else { return Ok(inspector.inspect(arguments.pid)?) };
    let targets = inspector.inspect_all(arguments.pid)?;
    let paths: Vec<String> = targets.iter().map(|target| target.module.path.display().to_string()).collect();
    let mut meant = targets.into_iter().zip(&paths).filter(|(_, path)| path.contains(part.as_str()));
    match (meant.next(), meant.next()) {
        (Some((target, _)), None) => Ok(target),
        (None, _) => Err(Failure::usage(
            format!("no copy of RocksDB in process {} has {part:?} in its path", arguments.pid),
            format!("it has {}", paths.join(", ")),
        )),
        (Some(_), Some(_)) => Err(Failure::usage(
            format!("several copies of RocksDB in process {} have {part:?} in their paths", arguments.pid),
            format!("name more of one of {}", paths.join(", ")),
        )),
    }
}

/// Names of the files that blocks were read from, by the address that the probes saw.
type FileNames = HashMap<u64, SstIdentity>;

/// Waits for the window's end. Files are asked for their names meanwhile: in the end the process may have
/// gone.
fn wait(
    arguments: &ObserveArguments,
    target: &Target,
    windows: &mut Windows,
    window: &mut OpenWindow,
    interrupt: &Interrupt,
) -> Result<FileNames, Failure> {
    let mut identities = Identities::default();
    let mut names = FileNames::new();
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    while Instant::now() < until {
        std::thread::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())));
        windows.poll()?;
        windows.count(window)?;
        if interrupt.is_raised() || !is_alive(&target.process) {
            break;
        }
        windows.learn_file_offset(window, |fetcher| identities.find_file(target, fetcher))?;
        for read in windows.files(window)? {
            if let Entry::Vacant(unnamed) = names.entry(read.file) {
                identities.file(target, read.file).map(|name| unnamed.insert(name));
            }
        }
    }
    Ok(names)
}

/// A recorded operation, as it is printed: its keys redacted or whole.
#[derive(Serialize)]
struct Shown {
    kind: SeekKind,
    key: String,
    end_key: Option<String>,
    seek: Counters,
    scan: Counters,
    seek_latency_ns: u64,
    scan_elapsed_ns: u64,
    block_fetches: BlockFetches,
    /// Calls of `Next` and `Prev`, where they are known.
    steps: Option<u64>,
    /// Older versions that it has stepped over, as far as they can be told from tombstones and steps.
    old_versions: u64,
    estimated: bool,
    ambiguous: bool,
    /// Operations like it that it stands for.
    weight: u64,
    database: Option<PathBuf>,
    column_family: Option<String>,
}

fn observations(target: &Target, result: &WindowResult, show_keys: bool) -> Vec<Shown> {
    let mut identities = Identities::default();
    let words = |key: &Key| if show_keys { key.escaped() } else { key.redacted() };
    let shown = result.operations.iter().take(OBSERVATIONS_SHOWN_MAX);
    shown
        .map(|operation| {
            let seen = &operation.observation;
            let (database, column_family) = identities.resolve(target, operation.addresses);
            Shown {
                kind: seen.kind,
                key: words(&seen.key),
                end_key: seen.end_key.as_ref().map(words),
                seek: seen.seek,
                scan: seen.scan,
                seek_latency_ns: seen.seek_latency_ns,
                scan_elapsed_ns: seen.scan_elapsed_ns,
                block_fetches: seen.block_fetches,
                steps: seen.steps,
                old_versions: seen.old_versions(),
                estimated: seen.estimated,
                ambiguous: seen.ambiguous,
                weight: seen.weight,
                database,
                column_family,
            }
        })
        .collect()
}

/// What was read from one file.
#[derive(Serialize)]
struct FileShown<'w> {
    database: Option<&'w Path>,
    number: Option<u64>,
    fetches: BlockFetches,
    latency_histogram: &'w [u64],
}

/// Files that blocks were read from, most reads first.
fn files<'w>(names: &'w FileNames, files: &'w [FileFetches]) -> Vec<FileShown<'w>> {
    let mut files: Vec<&FileFetches> = files.iter().collect();
    files.sort_by_key(|file| std::cmp::Reverse((file.fetches.count, file.file)));
    let shown = files.into_iter().take(FILES_SHOWN_MAX).map(|read| {
        let name = names.get(&read.file);
        FileShown {
            database: name.map(|name| name.database.as_path()),
            number: name.map(|name| name.number),
            fetches: read.fetches,
            latency_histogram: &read.latency_histogram,
        }
    });
    shown.collect()
}

fn print_text(result: &WindowResult, files: &[FileShown<'_>], observations: &[Shown]) {
    let WindowResult { window, totals_by, .. } = result;
    let counters = |Counters { tombstones_skipped, block_reads, .. }: Counters| {
        format!("{tombstones_skipped:>14} tombstones skipped {block_reads:>14} block reads")
    };
    let whose = if *totals_by == TotalsBy::Windows { ", of the window only" } else { "" };
    println!("total         {}{whose}", counters(window.total));
    println!("attributed    {}", counters(window.attributed));
    println!("recorded      {}", counters(window.recorded));
    println!("unattributed  {}", counters(result.unattributed()));
    println!(
        "{} operations, {} of them recorded, {} records lost",
        window.operations, window.operations_recorded, window.records_lost
    );
    if window.operations_estimated != 0 {
        println!(
            "{} operations are an estimate: RocksDB's counters stand still, the iterators' own were taken",
            window.operations_estimated
        );
    }
    for FileShown { number, fetches, .. } in files.iter().take(5) {
        let name = number.map_or_else(|| "unknown".to_owned(), |number| format!("{number:06}.sst"));
        let BlockFetches { count, bytes, latency_ns } = fetches;
        println!("  file {name}: {count} reads of {bytes} bytes took {latency_ns} ns");
    }
    for seen in observations.iter().take(20) {
        let line = format!(
            "  {} {}: {} tombstones in the seek, {} in the scan after it, {} ns + {} ns",
            seen.kind.name(),
            seen.key,
            seen.seek.tombstones_skipped,
            seen.scan.tombstones_skipped,
            seen.seek_latency_ns,
            seen.scan_elapsed_ns,
        );
        print_line(line);
    }
}

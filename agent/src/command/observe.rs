//! `sexton observe`: one window on one process, and what it saw.

use super::interrupt::Interrupt;
use crate::engine::identity::{Identities, SstIdentity};
use crate::failure::Failure;
use crate::text::{json_shown, shown};
use clap::Args;
use serde_json::{Value, json};
use sexton_inspect::facts::Target;
use sexton_inspect::inspect::Inspector;
use sexton_inspect::process::is_alive;
use sexton_probe::{
    Credit, FileFetches, KernelFeatures, Loader, Mechanism, OpenWindow, Sentinel, Thresholds, TotalsBy,
    WindowResult, Windows,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    /// How long to keep the probes armed; Ctrl-C ends it earlier.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Go on until the process ends, at most --seconds (then 3600 unless given).
    #[arg(long)]
    until_exit: bool,
    /// Operations that skip at least this many tombstones are listed one by one.
    #[arg(long, default_value_t = 1_000)]
    tombstones_per_operation: u64,
    /// Operations that read at least this many blocks are listed one by one.
    #[arg(long, default_value_t = 64)]
    block_reads_per_operation: u64,
    /// How to arm probes; by default the best way that the kernel has.
    #[arg(long)]
    mechanism: Option<Mechanism>,
    /// Who brings the programs into the kernel: two implementations that have to count the same.
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
///
/// # Errors
/// When the process has no RocksDB that can be read, or the kernel refuses.
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
        "unattributed": result.unattributed(),
        "unowned": result.unowned,
        "operations": result.window.operations,
        "operations_painful": result.window.operations_painful,
        "operations_estimated": result.window.operations_estimated,
        "records_lost": result.window.records_lost,
        "probe_hits": result.probe_cost.total(),
        "probe_sites": result.probe_cost.sites,
        "read_failures": result.read_failures,
        "map_full": result.map_full,
        "duration_ns": result.window.duration_ns,
        "block_reads_timed": result.window.block_reads_timed,
        "files": files(&names, &result.files),
        "observations": observations(&target, &result, arguments.show_keys),
    });
    if arguments.json {
        println!("{}", json_shown(&report.to_string()))
    } else {
        print_text(&report, result.totals_by)
    }
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

/// Waits for the window's end. Files are asked for their names meanwhile: in the end the process may have gone.
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

fn observations(target: &Target, result: &WindowResult, show_keys: bool) -> Vec<Value> {
    let mut identities = Identities::default();
    let shown = result.operations.iter().take(OBSERVATIONS_SHOWN_MAX);
    shown
        .map(|operation| {
            let seen = &operation.observation;
            let (database, column_family) = identities.resolve(target, operation);
            json!({
                "kind": seen.kind,
                "key": if show_keys { seen.key.escaped() } else { seen.key.redacted() },
                "end_key": seen.end_key.as_ref().map(|key| if show_keys { key.escaped() } else { key.redacted() }),
                "seek": seen.seek,
                "scan": seen.scan,
                "seek_latency_ns": seen.seek_latency_ns,
                "scan_elapsed_ns": seen.scan_elapsed_ns,
                "block_fetches": seen.block_fetches,
                "estimated": seen.estimated,
                "ambiguous": seen.ambiguous,
                "database": database,
                "column_family": column_family,
            })
        })
        .collect()
}

/// Files that blocks were read from, most reads first.
fn files(names: &FileNames, files: &[FileFetches]) -> Vec<Value> {
    let mut files: Vec<&FileFetches> = files.iter().collect();
    files.sort_by_key(|file| std::cmp::Reverse((file.fetches.count, file.file)));
    let shown = files.into_iter().take(FILES_SHOWN_MAX);
    shown
        .map(|read| {
            let name = names.get(&read.file);
            json!({
                "database": name.map(|name| &name.database),
                "number": name.map(|name| name.number),
                "fetches": read.fetches,
                "latency_histogram": read.latency_histogram,
            })
        })
        .collect()
}

fn print_text(report: &Value, totals_by: TotalsBy) {
    let counters = |name: &str| {
        let part = report.get(name).cloned().unwrap_or_default();
        format!(
            "{:>14} tombstones skipped {:>14} block reads",
            part["tombstones_skipped"].to_string(),
            part["block_reads"].to_string()
        )
    };
    let whose = if totals_by == TotalsBy::Windows { ", of the window only" } else { "" };
    println!("total         {}{whose}", counters("total"));
    println!("attributed    {}", counters("attributed"));
    println!("unattributed  {}", counters("unattributed"));
    println!(
        "{} operations, {} of them painful, {} records lost",
        report["operations"], report["operations_painful"], report["records_lost"]
    );
    if report["operations_estimated"] != 0 {
        println!(
            "{} operations are an estimate: RocksDB's counters stand still, the iterators' own were taken",
            report["operations_estimated"]
        );
    }
    for file in report["files"].as_array().into_iter().flatten().take(5) {
        println!(
            "  file {}: {} reads of {} bytes took {} ns",
            file["number"], file["fetches"]["count"], file["fetches"]["bytes"], file["fetches"]["latency_ns"]
        );
    }
    for seen in report["observations"].as_array().into_iter().flatten().take(20) {
        println!(
            "  {} {}: {} tombstones in the seek, {} in the scan after it, {} ns + {} ns",
            seen["kind"].as_str().unwrap_or_default(),
            seen["key"].as_str().unwrap_or_default(),
            seen["seek"]["tombstones_skipped"],
            seen["scan"]["tombstones_skipped"],
            seen["seek_latency_ns"],
            seen["scan_elapsed_ns"],
        );
    }
}

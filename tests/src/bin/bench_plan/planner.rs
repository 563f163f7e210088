//! The planner on one database: windows go into the ledger of pain, and a plan is made of it.

use crate::database::Database;
use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sexton_tuner::comparator::Order;
use sexton_tuner::evidence::{Counters, Evidence, Observation, SentinelInterval, Window};
use sexton_tuner::ledger::PainLedger;
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::plan::{Budget, PlanInput, PlanTarget};
use sexton_tuner::{Policy, TargetPolicy};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Records of one window, as many as the kernel side hands over at most.
const RECORDS_PER_WINDOW: u64 = 4_096;
/// Length of a window, and time from one to the next.
const WINDOW: SignedDuration = SignedDuration::from_secs(1);
const BETWEEN_WINDOWS: SignedDuration = SignedDuration::from_secs(5);

const POLICY: &str = "mode: act\nio_budget: { rate: 1GiB/s, burst: 1TiB }\nthresholds: { pain: 1ms/s }\n";

/// What one planning took.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Figures {
    /// All windows into the ledger.
    pub ledger_seconds: f64,
    /// The longest of them.
    pub window_seconds_max: f64,
    /// The plan, from the ledger and all files.
    pub decision_seconds: f64,
    /// Most memory that this process had resident, its files among it.
    pub resident_bytes: u64,
    /// Memory before anything was planned: the files.
    pub files_bytes: u64,
    pub ranges: usize,
    pub actions: usize,
}

/// Plans once.
pub fn measure(database: Database) -> Result<Figures> {
    let policy = Policy::parse(POLICY)?;
    let target_policy = TargetPolicy::everything();
    let files = database.sst_files();
    let files_bytes = resident("VmRSS")?;
    let mut ledger = PainLedger::default();
    let mut now = Timestamp::from_second(1_800_000_000)?;
    let (mut ledger_time, mut longest) = (Duration::ZERO, Duration::ZERO);
    let mut number = 0;
    while number < database.observations {
        let end = (number + RECORDS_PER_WINDOW).min(database.observations);
        let observations: Vec<Observation> = (number..end).map(|it| database.observation(it)).collect();
        let window = window_of(&observations);
        let begin = Instant::now();
        ledger.take(&window, [("/db", observations.as_slice())], now);
        ledger_time += begin.elapsed();
        longest = longest.max(begin.elapsed());
        (number, now) = (end, now + BETWEEN_WINDOWS);
    }
    let begin = Instant::now();
    let window = ledger.window();
    let options = ColumnFamilyOptions {
        comparator: Order::BYTEWISE_COMPARATOR.to_owned(),
        ..ColumnFamilyOptions::default()
    };
    let evidence = [Evidence {
        target: "bench".to_owned(),
        database: "/db".to_owned(),
        window,
        sentinel: SentinelInterval { duration_ns: window.duration_ns, counters: window.total },
        observations: ledger.observations("/db"),
        column_families: BTreeMap::from([(crate::database::COLUMN_FAMILY.to_owned(), options)]),
        files,
        ..Evidence::default()
    }];
    let targets = [PlanTarget { name: "bench", policy: &target_policy, evidence: &evidence }];
    let plan = sexton_tuner::plan(&PlanInput {
        policy: &policy,
        targets: &targets,
        budget: Budget { available_bytes: 1 << 40 },
        throttles: &BTreeMap::new(),
        now,
        previous: None,
    })?;
    let decision_seconds = begin.elapsed().as_secs_f64();
    anyhow::ensure!(!plan.actions.is_empty(), "nothing was planned: {:?}", plan.refusals.first());
    Ok(Figures {
        ledger_seconds: ledger_time.as_secs_f64(),
        window_seconds_max: longest.as_secs_f64(),
        decision_seconds,
        resident_bytes: resident("VmHWM")?,
        files_bytes,
        ranges: plan.assessments.len(),
        actions: plan.actions.len(),
    })
}

/// A window that saw these operations and nothing else.
fn window_of(observations: &[Observation]) -> Window {
    let counted = observations.iter().fold(Counters::default(), |sum, it| sum.plus(it.weighted()));
    let operations = u64::try_from(observations.len()).unwrap_or(u64::MAX);
    Window {
        duration_ns: u64::try_from(WINDOW.as_nanos()).unwrap_or(u64::MAX),
        operations,
        operations_recorded: operations,
        attributed: counted,
        recorded: counted,
        followed: counted,
        total: counted,
        ..Window::default()
    }
}

/// Memory of this process by a field of `/proc/self/status`.
fn resident(field: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")).with_context(|| format!("no {field}"))?;
    Ok(kib.trim().parse::<u64>()? << 10)
}

//! An agent that acts and is killed again and again: its target's data stay what they are, and each of its
//! actions is in its history exactly once.
//!
//! Method: a queue that reads the whole of its table several times a second and compares each key and value
//! with what it wrote, as of one moment. The agent compacts all the time (low thresholds, a cooldown of a
//! second) and gets `kill -9` at random moments; in some of the rounds just after an action has begun. At the
//! end the store is read with RocksDB itself, the audit log line by line, and both are held against each
//! other and against the log of the hook inside the target, which knows nothing of either.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, START_LIMIT, count};
use sexton_tests::workload::{self, Start, Workload};
use sexton_tests::{artifact, state};
use sexton_tuner::run::{Action, Outcome};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Targets, each with an agent's state of its own: a range that did not stay relieved is left alone for
/// minutes, and after some twenty kills there is little left to act on.
const ROUNDS: u64 = 10;
/// On a slow machine fewer kills meet an action: more rounds follow until enough of them have.
const ROUNDS_MAX: u64 = 20;
/// Actions that were cut off by a kill, and that were done: fewer prove nothing.
const ENOUGH: u64 = 10;
/// Targets at a time, each with its agent: both wait most of the time.
const ROUNDS_AT_A_TIME: usize = 2;
const KILLS_A_ROUND: u64 = 20;
/// Each so many-th kill comes just after an action has begun.
const KILL_IN_ACTION_EVERY: u64 = 3;
/// Each so many-th, of the others, after one has ended.
const KILL_AFTER_ACTION_EVERY: u64 = 4;
/// How long an action is waited for before the agent is killed all the same: a start and a window take less.
const ACTION_WAIT_MAX: Duration = Duration::from_secs(2);
/// The other kills come up to so long after the start: before, in and after the first window and action.
const LIFE_MAX_MS: u64 = 600;
/// Kills after an action has begun or ended come up to so long after that was written down: in it, at its
/// end, when it is being verified, or in the next.
const IN_ACTION_MAX_MS: u64 = 200;
const LIMIT: Duration = Duration::from_secs(60);
const COOLDOWN_SECONDS: i64 = 1;

fn policy(pid: u32) -> String {
    workload::policy(
        pid,
        "act",
        "[compact]",
        &format!(
            "\
thresholds: {{ tombstones_per_operation: 100, block_reads_per_operation: 64, pain: 1ns/s, density: 0.0 }}
margin: {{ benefit_cost_ratio_min: 0 }}
relief_ratio_min: 0
loop: {{ interval: 300ms, window: 200ms, survey: 300ms }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 1GiB/s, burst: 100GiB }}
cooldown: {COOLDOWN_SECONDS}s
guards: {{ process_uptime_min: 0s }}
range_bytes_max: 8MiB
keys: shown
"
        ),
    )
}

/// A generator of the same numbers each time: what fails can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// The same, with small numbers more often: most actions last for tens of milliseconds.
    fn small(&mut self, end: u64) -> u64 {
        let end = 1 + self.below(end);
        self.below(end)
    }
}

/// What a round was about.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Kills after an action had begun or ended.
    kills_in_action: u64,
    done: u64,
    /// Actions that were under way when their agent was killed.
    cut_off: u64,
}

impl Counts {
    fn is_enough(self) -> bool {
        self.cut_off >= ENOUGH && self.done >= ENOUGH
    }
}

#[test]
fn two_hundred_kills_leave_the_data_whole_and_each_action_once_in_the_history() -> Result<()> {
    let _turn = agent::beside_others()?;
    let began = Instant::now();
    let mut all = Counts::default();
    let mut rounds = 0;
    let numbers: Vec<u64> = (1..=ROUNDS_MAX).collect();
    for numbers in numbers.chunks(ROUNDS_AT_A_TIME) {
        if rounds >= ROUNDS && all.is_enough() {
            break;
        }
        rounds += numbers.len() as u64;
        let ended: Vec<Result<Counts>> = std::thread::scope(|scope| {
            let rounds = numbers.iter().map(|number| scope.spawn(|| numbered_round(*number)));
            rounds.collect::<Vec<_>>().into_iter().map(joined).collect()
        });
        for counts in ended {
            let counts = counts?;
            all.kills_in_action += counts.kills_in_action;
            all.done += counts.done;
            all.cut_off += counts.cut_off;
        }
    }
    println!("{} kills in {:?}: {all:?}", rounds * KILLS_A_ROUND, began.elapsed());
    ensure!(all.is_enough(), "too few to prove anything: {all:?}");
    Ok(())
}

fn joined(round: std::thread::ScopedJoinHandle<'_, Result<Counts>>) -> Result<Counts> {
    round.join().unwrap_or_else(|_| bail!("a round has panicked"))
}

/// Each round has numbers of its own, whichever runs beside it.
fn numbered_round(number: u64) -> Result<Counts> {
    round(&mut Random(0x5eed + number)).with_context(|| format!("in round {number}"))
}

/// A target, an agent that is killed again and again, and one that ends in order.
fn round(random: &mut Random) -> Result<Counts> {
    let directory = tempfile::tempdir()?;
    let hook_log = directory.path().join("hook.log");
    let mut workload = start(directory.path(), &hook_log)?;
    std::fs::write(directory.path().join("policy.yaml"), policy(workload.process.pid()))?;
    let pid = workload.process.pid().to_string();
    let audit_log = directory.path().join("state/audit.jsonl");
    let mut kills_in_action = 0;
    for kill in 0..KILLS_A_ROUND {
        let agent = Agent::spawn(directory.path(), &["--pid", &pid])?;
        let awaited = match kill {
            _ if kill % KILL_IN_ACTION_EVERY == 0 => Some("slice_started"),
            _ if kill % KILL_AFTER_ACTION_EVERY == 0 => Some("slice_done"),
            _ => None,
        };
        if awaited.is_some_and(|event| state::wait_for_event(&audit_log, event, ACTION_WAIT_MAX)) {
            std::thread::sleep(Duration::from_millis(random.small(IN_ACTION_MAX_MS)));
            kills_in_action += 1;
        } else {
            std::thread::sleep(Duration::from_millis(random.below(LIFE_MAX_MS)));
        }
        // Dropping it is `kill -9` of its pid, and waiting for its end.
        drop(agent);
        workload.verified_since(LIMIT).with_context(|| format!("after kill {kill}"))?;
    }
    // The last run ends in order, so that all that was begun has an end.
    let mut last = Agent::spawn(directory.path(), &["--pid", &pid])?;
    last.wait_for(START_LIMIT, "a last cycle", |agent| {
        Ok(agent
            .get("/healthz")
            .is_ok_and(|health| count(&health, "/cycles").is_ok_and(|n| n > 2))
            .then_some(()))
    })?;
    last.stop()?;
    workload.verified_since(LIMIT)?;
    let counts = check_history(&directory.path().join("state"), &std::fs::read_to_string(&hook_log)?)?;
    Ok(Counts { kills_in_action, ..counts })
}

fn start(directory: &Path, hook_log: &Path) -> Result<Workload> {
    let mut workload = Workload::start_with(
        Start {
            directory: &directory.join("db"),
            keys: 20_000,
            seconds: 600,
            preload: Some(&artifact::built("libsexton_hook.so")?),
            stderr: Stdio::inherit(),
        },
        &["--verify-interval-ms", "20", "--deletes-per-second", "1100", "--bucket-keys", "2500"],
        &[("SEXTON_HOOK_LOG", hook_log)],
    )?;
    workload.second(LIMIT)?;
    Ok(workload)
}

/// Each action has one number, one beginning and one end, in the store and in the audit log; the hook has
/// done no compaction that is not among them; and no range was acted on again within its cooldown.
fn check_history(state: &Path, hook_log: &str) -> Result<Counts> {
    let actions = state::actions(state)?;
    let mut by_state: BTreeMap<String, u64> = BTreeMap::new();
    for (number, action) in (1..).zip(&actions) {
        ensure!(action.id.0 == number, "ids do not count from 1 without a gap: {action:?}");
        ensure!(action.state.end().is_some(), "an action without an end: {action:?}");
        *by_state.entry(action.state.name().to_owned()).or_default() += 1;
    }
    let of = |states: &[&str]| states.iter().filter_map(|state| by_state.get(*state)).sum::<u64>();
    println!("{} actions: {by_state:?}", actions.len());
    ensure!(of(&["running"]) == 0, "an action still runs: {by_state:?}");
    let cut_off = actions.iter().filter(|action| was_cut_off(action)).count() as u64;
    let done = of(&["done", "helped", "did_not_help"]);

    let compactions =
        hook_log.lines().filter(|line| line.contains("compaction") && line.contains("ended after"));
    let compactions = compactions.count() as u64;
    let most = of(&["done", "helped", "did_not_help", "interrupted", "cancelled", "failed"]);
    println!("the hook has ended {compactions} compactions, {done} to {most} are in the history");
    ensure!((done..=most).contains(&compactions), "{compactions} compactions, {by_state:?}");

    // In the store and in the audit log alike.
    let stored: Vec<Value> = state::records(state, "event")?.into_values().collect();
    let logged = state::events(&state.join("audit.jsonl"))?;
    ensure!(stored == logged, "{} events are stored and {} logged", stored.len(), logged.len());
    for (number, event) in (1..).zip(&logged) {
        ensure!(count(event, "/id")? == number, "events do not count from 1 without a gap: {event}");
    }
    for action in &actions {
        state::check_told_once(action, &logged)?;
    }
    let begun = logged.iter().filter(|event| state::name(event) == "slice_started").count();
    ensure!(begun == actions.len(), "{begun} actions were told of, {} are stored", actions.len());
    check_cooldowns(&actions)?;
    Ok(Counts { done, cut_off, ..Counts::default() })
}

/// Whether an action was under way when its agent was killed: what became of it the hook said afterwards, or
/// nobody.
fn was_cut_off(action: &Action) -> bool {
    action.state.end().is_some_and(|end| end.message.starts_with("the agent ended"))
}

/// Cooldowns are kept in whole seconds.
fn check_cooldowns(actions: &[Action]) -> Result<()> {
    for (at, later) in actions.iter().enumerate() {
        for earlier in actions.iter().take(at) {
            let Some(end) = earlier.state.end() else { continue };
            let rests = matches!(end.outcome, Outcome::Done | Outcome::Interrupted);
            let overlaps =
                earlier.place.as_ref().zip(later.place.as_ref()).is_some_and(|(one, two)| one.overlaps(two));
            let pause = later.started.at.as_second() - end.at.at.as_second();
            ensure!(
                !rests || !overlaps || pause >= COOLDOWN_SECONDS,
                "repeated {pause} s after: {earlier:?}, then {later:?}"
            );
        }
    }
    Ok(())
}

//! Peak, off-peak, pressure and peak again: what Ozone deletes and scrubs by in each, and that it outlives
//! agents.

use crate::Figures;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::daemon::{self, Scanner};
use crate::policy::{self, Period};
use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use sexton_tests::agent::{self, Agent, list, text};
use sexton_tests::{metric_endpoint, minute, state};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Values of all throttles of the shipped policy, in its order.
type Values = [u64; 5];

const MIB: u64 = 1 << 20;
/// Ozone's own.
const DEFAULTS: Values = [50_000, 500_000, 20_000, 10, 5 * MIB];
const PEAK: Values = [5_000, 100_000, 5_000, 5, 2 * MIB];
const PEAK_UNDER_PRESSURE: Values = [500, 20_000, 1_000, 2, MIB];
const OFF_PEAK: Values = [50_000, 500_000, 20_000, 10, 6 * MIB];
const OFF_PEAK_UNDER_PRESSURE: Values = [5_000, 100_000, 4_000, 4, 3 * MIB];

/// How long all five may take to be in force: four of them start a JVM each, one after the other for each
/// daemon.
const IN_FORCE_LIMIT: Duration = Duration::from_secs(240);
/// How long the scanner is watched.
const SCAN_TIME: Duration = Duration::from_secs(15);
/// How far it may be from its bandwidth.
const SCAN_ERROR_MAX: f64 = 0.2;
/// How often keys are deleted for good, how long that is watched, and how far it may be from the limit: an
/// interval begins when the work of the last one is done.
const DELETING_INTERVAL: Duration = Duration::from_secs(10);
const DELETING_TIME: Duration = Duration::from_secs(40);
const DELETING_ERROR_MAX: f64 = 0.35;
/// Keys that are deleted then: more than may be in that time.
const DELETED_KEYS: u32 = 3_000;
/// Length of the period in the schedule; it is cut short when all in it is done.
const PERIOD_MINUTES: u64 = 60;
/// How far a change of the schedule is away at least, for the agent to have read it.
const CHANGE_SECONDS: u64 = 5;
/// What the metric shows under pressure.
const PRESSURE: u64 = 1_000;
/// What an administrator sets.
const ADMINISTERED: &str = "777";

/// The agent, and what it is told by.
pub struct Phases<'a> {
    cluster: &'a mut Cluster,
    pub agent: Agent,
    directory: PathBuf,
    endpoint: String,
    queue: Arc<AtomicU64>,
    say: &'a dyn Fn(&str),
}

/// A period of the schedule, in minutes since the epoch.
fn period(from: u64, to: u64) -> Period {
    Period { from: minute::clock(from), to: minute::clock(to) }
}

impl<'a> Phases<'a> {
    /// Starts the agent; the period of its schedule is hours away.
    pub fn start(cluster: &'a mut Cluster, say: &'a dyn Fn(&str)) -> Result<Phases<'a>> {
        let directory = cluster.base().join("agent");
        std::fs::create_dir(&directory)?;
        let queue = Arc::new(AtomicU64::new(0));
        let endpoint = metric_endpoint::serve(Arc::clone(&queue))?;
        let far = minute::first_after(CHANGE_SECONDS)? + 12 * 60;
        let policy = policy::text(cluster, "act", &endpoint, &period(far, far + PERIOD_MINUTES))?;
        let agent = Agent::start(&directory, &policy)?;
        Ok(Phases { cluster, agent, directory, endpoint, queue, say })
    }

    pub fn say(&self, what: &str) {
        (self.say)(what);
    }

    fn set_policy(&self, mode: &str, period: &Period) -> Result<()> {
        let policy = policy::text(self.cluster, mode, &self.endpoint, period)?;
        Ok(std::fs::write(self.directory.join("policy.yaml"), policy)?)
    }

    /// Goes through them.
    pub fn run(&mut self, client: &mut Client, figures: &mut Figures) -> Result<()> {
        self.phase("peak", PEAK, figures)?;
        self.administer()?;
        self.queue.store(PRESSURE, Ordering::Relaxed);
        self.phase("peak_under_pressure", PEAK_UNDER_PRESSURE, figures)?;
        self.delete_keys(client, figures)?;
        self.queue.store(0, Ordering::Relaxed);

        let from = minute::first_after(CHANGE_SECONDS)?;
        self.set_policy("act", &period(from, from + PERIOD_MINUTES))?;
        self.phase("off_peak", OFF_PEAK, figures)?;
        self.queue.store(PRESSURE, Ordering::Relaxed);
        self.phase("off_peak_under_pressure", OFF_PEAK_UNDER_PRESSURE, figures)?;
        let to = minute::first_after(CHANGE_SECONDS)?;
        self.queue.store(0, Ordering::Relaxed);
        self.set_policy("act", &period(from, to.max(from + 1)))?;
        self.phase("peak_again", PEAK, figures)
    }

    /// All values are in force, the scanner goes by its own, and an agent that is killed changes none of it.
    fn phase(&mut self, name: &str, expected: Values, figures: &mut Figures) -> Result<()> {
        let begin = Instant::now();
        self.wait_for_values(expected)?;
        self.say(&format!("{name}: {expected:?} are in force after {:.0} s", begin.elapsed().as_secs_f64()));
        let scanner = Scanner::of(self.cluster.datanode.pid())?;
        std::thread::sleep(Duration::from_secs(1));
        let scanned = scanner.bytes_per_second(SCAN_TIME)?;
        let ratio = scanned / expected[4] as f64;
        ensure!(
            (ratio - 1.0).abs() <= SCAN_ERROR_MAX,
            "{name}: the scanner reads {scanned:.0} bytes a second, and {} are allowed",
            expected[4]
        );
        figures.insert(format!("{name}_scrub_bytes_per_second"), json!(scanned.round()));
        self.kill(expected)?;
        // The next one restores what the first one has left, and then sets what is wanted anew.
        self.wait_for_values(expected)
    }

    fn wait_for_values(&mut self, expected: Values) -> Result<()> {
        let cluster = &*self.cluster;
        self.agent.wait_for(IN_FORCE_LIMIT, &format!("values {expected:?}"), |agent| {
            let throttles = agent.get("/api/v1/throttles")?;
            let is_settled =
                |throttle: &Value| ["in_force", "not_acted_on"].contains(&text(throttle, "/state"));
            let are_settled = list(&throttles, "throttles")?.iter().all(is_settled);
            Ok((are_settled && in_force(cluster)? == expected).then_some(()))
        })
    }

    /// How often a throttle has been restored so far.
    fn restored(&self) -> Result<usize> {
        let events = state::events(&self.directory.join("state/audit.jsonl"))?;
        Ok(events.iter().filter(|event| state::name(event) == "throttle_restored").count())
    }

    /// `kill -9`, and another agent with the same state, until it has restored what the first one has left.
    fn kill(&mut self, left: Values) -> Result<()> {
        let before = self.restored()?;
        self.agent.process.signal(Signal::KILL)?;
        self.agent.process.wait(agent::STOP_LIMIT)?;
        ensure!(in_force(self.cluster)? == left, "an agent that was killed has changed something");
        self.agent = Agent::start_again(&self.directory)?;
        let deadline = Instant::now() + IN_FORCE_LIMIT;
        while self.restored()? < before + left.len() {
            ensure!(Instant::now() < deadline, "not all throttles were restored: {}", self.agent.log_end());
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// An administrator sets another value; the agent tells it, and sets its own again.
    fn administer(&mut self) -> Result<()> {
        let events = self.directory.join("state/audit.jsonl");
        let mut command = Command::new(self.cluster.base().join("bin/reconfigure"));
        command.args(["set", "http://localhost:9874", "OM", "localhost:9862"]).arg(self.cluster.site());
        let output = command.args(["ozone.key.deleting.limit.per.task", ADMINISTERED]).output()?;
        ensure!(output.status.success(), "{output:?}");
        self.agent.wait_for(IN_FORCE_LIMIT, "the administrator's value to be noticed", |_| {
            let changed = |event: &Value| {
                state::name(event) == "throttle_changed" && text(event, "/value") == ADMINISTERED
            };
            Ok(state::events(&events)?.iter().any(changed).then_some(()))
        })?;
        self.wait_for_values(PEAK)?;
        self.say("an administrator's value was noticed, and the wanted one set again");
        Ok(())
    }

    /// The key deleting service takes out keys for good as fast as it may, and no faster.
    fn delete_keys(&self, client: &mut Client, figures: &mut Figures) -> Result<()> {
        client.ask("bucket deleted OBJECT_STORE")?;
        // Keys without content are gone when they are deleted.
        let create_p99_us = client.ask(&format!("create deleted 0 {DELETED_KEYS} 1"))?;
        figures.insert("create_p99_acting_us".into(), json!(create_p99_us.parse::<u64>()?));
        client.ask(&format!("delete deleted 0 {DELETED_KEYS}"))?;
        let purged = daemon::keys_purged_per_second(DELETING_TIME)? * DELETING_INTERVAL.as_secs_f64();
        let ratio = purged / PEAK_UNDER_PRESSURE[0] as f64;
        self.say(&format!("{purged:.0} keys are taken out for good in an interval, {ratio:.2} of the limit"));
        ensure!((ratio - 1.0).abs() <= DELETING_ERROR_MAX, "{purged:.0} keys are deleted in an interval");
        figures.insert("keys_purged_per_interval_over_limit".into(), json!(ratio));
        Ok(())
    }

    /// The last agent is killed, and the next one may only look: what was changed is restored.
    pub fn end(mut self, figures: &mut Figures) -> Result<()> {
        let far = minute::first_after(CHANGE_SECONDS)? + 12 * 60;
        self.set_policy("advise", &period(far, far + PERIOD_MINUTES))?;
        self.kill(PEAK)?;
        self.wait_for_values(DEFAULTS)?;
        self.say("the agent was killed, and the next one has restored what Ozone had of itself");
        figures.insert("restored".into(), json!(true));
        self.agent.stop()
    }
}

/// What the daemons say that they go by.
fn in_force(cluster: &Cluster) -> Result<Values> {
    let number = |port, property| Ok::<u64, anyhow::Error>(daemon::in_force(port, property)?.parse()?);
    Ok([
        number(daemon::OM, "ozone.key.deleting.limit.per.task")?,
        number(daemon::SCM, "hdds.scm.block.deletion.per-interval.max")?,
        number(daemon::DATANODE, "hdds.datanode.block.deleting.limit.per.interval")?,
        number(daemon::DATANODE, "hdds.datanode.replication.streams.limit")?,
        scrub_bandwidth(cluster)?,
    ])
}

/// No page of the DataNode shows it: the throttler itself is asked.
fn scrub_bandwidth(cluster: &Cluster) -> Result<u64> {
    let mut command = Command::new(cluster.base().join("bin/sexton"));
    command.args(["scrub-bandwidth", "--pid"]).arg(cluster.datanode.pid().to_string());
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

//! What runs beside the load: an agent as operators run it, or probes that nobody takes away.

use anyhow::{Context, Result};
use sexton::snapshot::ProbeView;
use sexton_inspect::facts::{ProbeSites, Target};
use sexton_probe::governor::ProbePrices;
use sexton_probe::{Credit, KernelFeatures, Mechanism, OpenWindow, Sentinel, Thresholds, Windows};
use sexton_tests::agent::{self, Agent};
use sexton_tests::inspected;
use std::path::Path;
use std::time::Duration;

/// A policy under which no probe is ever armed: all else is as by default, and so the sentinel reads every
/// five seconds.
const SENTINEL_ONLY: &str = "\
mode: observe
probes: { budget: 0% }
";

/// A policy that asks for a window all the time, with the default budget: only the governor says no.
const WINDOWS_AS_OFTEN_AS_ALLOWED: &str = "\
mode: observe
loop: { interval: 1s, window: 1s, survey: 1s }
";

/// How long an agent may take until it watches the load.
const WATCH_LIMIT: Duration = Duration::from_secs(30);
/// The only slot in use.
const SLOT: u32 = 0;

/// Something that runs beside the load, now and then.
pub trait Beside {
    /// Begins; when it returns, it is in the state that is to be measured.
    fn start(&mut self) -> Result<()>;
    /// What it says itself that it has cost since its start, in nanoseconds.
    fn cost_ns(&mut self) -> Result<u64>;
    fn stop(&mut self) -> Result<()>;
}

/// Starts `sexton run` with a policy and waits until it watches the load and nothing else.
fn watching(directory: &Path, policy: &str, load: u32, log: Option<&str>) -> Result<Agent> {
    // Other databases of the machine are none of its business.
    let policy = format!("{policy}targets: [{{ name: load, match: {{ pid: {load} }} }}]\n");
    let mut agent = Agent::start_logging(directory, &policy, log)?;
    agent.wait_for(WATCH_LIMIT, "the load to be watched", |agent| {
        Ok((!agent::list(&agent.get("/api/v1/targets")?, "targets")?.is_empty()).then_some(()))
    })?;
    Ok(agent)
}

/// `sexton run` with windows at the default budget; its log says when they are open.
pub fn with_windows(directory: &Path, load: u32) -> Result<Agent> {
    watching(directory, WINDOWS_AS_OFTEN_AS_ALLOWED, load, Some("debug"))
}

/// `sexton run` with its sentinel only.
pub fn with_sentinel_only(directory: &Path, load: u32) -> Result<Agent> {
    watching(directory, SENTINEL_ONLY, load, None)
}

/// What a running agent says of the prices of probes.
#[derive(Clone, Copy, Debug)]
pub struct AgentsWord {
    /// What a firing costs the load, by what the agent has learnt on functions of its own and corrected
    /// since.
    pub prices: ProbePrices,
    /// What the learnt prices are multiplied by.
    pub correction_ratio: f64,
    /// Windows that have told that.
    pub correction_windows: u64,
}

/// What the agent says of its only target by now.
pub fn word_of(agent: &Agent) -> Result<AgentsWord> {
    let answer = agent.get("/api/v1/targets")?;
    let view = answer.pointer("/targets/0/probes").context("the agent has no target")?;
    let view: ProbeView = serde_json::from_value(view.clone()).context("reading what probes cost")?;
    let ns = |kind: &str| {
        let price = view.prices.iter().find(|price| price.kind == kind);
        price.map(|price| price.seconds * 1e9).with_context(|| format!("the agent has no price of {kind}"))
    };
    Ok(AgentsWord {
        prices: ProbePrices {
            seek_ns: ns("seek")?,
            new_iterator_ns: ns("new_iterator")?,
            iterator_end_ns: ns("iterator_end")?,
            skipped_entry_ns: ns("skipped_entry")?,
            skipped_return_ns: ns("skipped_return")?,
            single_step_ns: ns("single_step")?,
        },
        correction_ratio: view.price_correction_ratio,
        correction_windows: view.price_correction_windows,
    })
}

/// Probes that stay, armed by the library itself. What they cost is said by the prices of the agent that had
/// its windows before.
pub struct AlwaysOn {
    target: Target,
    sentinel: Sentinel,
    windows: Windows,
    prices: ProbePrices,
    open: Option<OpenWindow>,
}

impl AlwaysOn {
    /// Entry and return of `DBIter::Seek`, nothing else.
    pub fn seek_pair(load: u32, prices: ProbePrices) -> Result<AlwaysOn> {
        AlwaysOn::with(load, prices, |sites| ProbeSites { seek: sites.seek, ..ProbeSites::default() })
    }

    /// Everything that a window arms.
    pub fn all_probes(load: u32, prices: ProbePrices) -> Result<AlwaysOn> {
        AlwaysOn::with(load, prices, |sites| sites)
    }

    fn with(load: u32, prices: ProbePrices, choose: impl Fn(ProbeSites) -> ProbeSites) -> Result<AlwaysOn> {
        let mut target = inspected::target(load)?;
        target.module.sites = choose(target.module.sites);
        let features = KernelFeatures::probe();
        let mut sentinel = Sentinel::load(&features)?;
        let windows = Windows::load(Mechanism::choose(&features)?)?;
        sentinel.watch(&target, SLOT)?;
        Ok(AlwaysOn { target, sentinel, windows, prices, open: None })
    }
}

impl Beside for AlwaysOn {
    fn start(&mut self) -> Result<()> {
        // Nothing is painful: records are rare in a window, and here there are to be none.
        let thresholds =
            Thresholds { tombstones_per_operation: u64::MAX, block_reads_per_operation: u64::MAX };
        let opening = self.sentinel.read(SLOT)?;
        self.open =
            Some(self.windows.open(&self.target, SLOT, thresholds, &Credit::unlimited(), &opening)?);
        Ok(())
    }

    fn cost_ns(&mut self) -> Result<u64> {
        let open = self.open.as_ref().context("the probes are not armed")?;
        Ok(self.prices.cost_ns(&self.windows.hits(open)?))
    }

    fn stop(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let settling = self.sentinel.read(SLOT)?;
        open.disarm();
        let closing = self.sentinel.read(SLOT)?;
        self.windows.collect(open, &settling, &closing)?;
        Ok(())
    }
}

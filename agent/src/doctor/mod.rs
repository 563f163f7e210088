//! `sexton doctor`: what works on this node and in each RocksDB, what does not, why, and what to do about it.
//!
//! Looking is here ([`examine`]), and so are the words; what follows from what was seen is plain functions
//! over plain data, so that it can be tested without the machine it is about. Nothing is attached to a target
//! and no probe is armed there: the sentinel reads each target once, and probes are priced on functions of
//! our own.

mod databases;
mod executors;
mod finding;
mod kernel;
mod prices;
mod privileges;
mod report;
mod target;
mod text;
mod throttles;

pub use finding::{Answer, Finding};
pub use report::{
    DatabaseReport, KernelReport, ProbeReport, RefusedProcess, Report, TargetReport, ThreadsReport,
};
pub use text::{facts_text, text};

use crate::discovery::{discover, in_turn};
use prices::Placing;
use sexton_inspect::error::InspectError;
use sexton_inspect::facts::Target;
use sexton_inspect::inspect::Inspector;
use sexton_probe::{KernelFeatures, Sentinel};
use sexton_tuner::policy::Policy;
use std::sync::Arc;

/// What targets are looked at with, beside their own facts.
struct Means {
    features: KernelFeatures,
    placing: Placing,
    policy: Option<Policy>,
}

/// Looks at the kernel, at our rights, and at one process or all of them. With a policy, servers that it
/// names for a target are asked how they stand, and values of throttles are read by its commands. A process
/// that does not answer is one that is refused.
pub fn examine(pid: Option<u32>, policy: Option<Policy>) -> Report {
    let features = KernelFeatures::probe();
    let placing = Placing::try_out(&features);
    let mut kernel = kernel::report(&features);
    kernel.findings.push(placing.finding());
    let privileges = privileges::findings(&privileges::Facts::of_ourselves(), &features);
    let means = Arc::new(Means { features, placing, policy });
    let mut targets = Vec::new();
    let mut refused = Vec::new();
    for result in look_at(pid, means) {
        match result {
            Ok(target) => targets.push(target),
            Err(error) => refused.push(RefusedProcess::new(&error, pid.is_some())),
        }
    }
    Report::new(kernel, privileges, targets, refused)
}

fn look_at(pid: Option<u32>, means: Arc<Means>) -> Vec<Result<TargetReport, InspectError>> {
    let features = means.features.clone();
    let make = move || (Inspector::new(), Sentinel::load(&features).map_err(|error| error.to_string()));
    let look = move |sentinel: &mut _, target: &Target| target::examine(target, sentinel, &means);
    let Some(pid) = pid else { return discover(make, look) };
    let found = in_turn(vec![pid], make, move |(inspector, sentinel), pid| {
        let targets = inspector.inspect_all(pid)?;
        Ok(targets.iter().map(|target| look(sentinel, target)).collect::<Vec<_>>())
    });
    let flat = |found: Result<Vec<_>, _>| match found {
        Ok(targets) => targets.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    };
    found.into_iter().flat_map(flat).collect()
}

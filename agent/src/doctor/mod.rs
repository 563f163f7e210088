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

pub use finding::{Answer, Finding};
pub use report::{
    DatabaseReport, KernelReport, ProbeReport, RefusedProcess, Report, TargetReport, ThreadsReport,
};
pub use text::{facts_text, text};

use prices::Placing;
use sexton_inspect::error::InspectError;
use sexton_inspect::inspect::Inspector;
use sexton_probe::{KernelFeatures, Sentinel};
use sexton_tuner::policy::Policy;

/// Looks at the kernel, at our rights, and at one process or all of them. With a policy, servers that it
/// names for a target are asked how they stand.
pub fn examine(pid: Option<u32>, policy: Option<&Policy>) -> Report {
    let features = KernelFeatures::probe();
    let placing = Placing::try_out(&features);
    let mut kernel = kernel::report(&features);
    kernel.findings.push(placing.finding());
    let privileges = privileges::findings(&privileges::Facts::of_ourselves(), &features);
    let mut sentinel = Sentinel::load(&features).map_err(|error| error.to_string());
    let mut targets = Vec::new();
    let mut refused = Vec::new();
    for result in inspect(pid) {
        match result {
            Ok(target) => targets.push(target::examine(&target, &mut sentinel, &features, &placing, policy)),
            Err(error) => refused.push(RefusedProcess::new(&error, pid.is_some())),
        }
    }
    Report::new(kernel, privileges, targets, refused)
}

fn inspect(pid: Option<u32>) -> Vec<Result<sexton_inspect::facts::Target, InspectError>> {
    let mut inspector = Inspector::new();
    match pid {
        None => inspector.discover(),
        Some(pid) => match inspector.inspect_all(pid) {
            Ok(targets) => targets.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        },
    }
}

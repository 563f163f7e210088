//! The whole report, as `sexton doctor --json` prints it. Its shape is stable: fields are added, not changed.

use super::finding::Finding;
use serde::Serialize;
use sexton_inspect::error::InspectError;
use sexton_inspect::facts::{ProbeSite, Target};
use std::path::PathBuf;

/// Everything that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub version: String,
    /// Whether nothing essential is missing: the exit code is 0.
    pub ok: bool,
    /// The same in a sentence.
    pub summary: String,
    pub kernel: KernelReport,
    pub privileges: Vec<Finding>,
    /// One entry a RocksDB: two copies in a process are two.
    pub targets: Vec<TargetReport>,
    /// Processes that look like a RocksDB, or were asked for, and cannot be read.
    pub refused: Vec<RefusedProcess>,
}

#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// `uname -r`.
    pub release: String,
    /// How probes would be placed; `null` where they cannot be.
    pub mechanism: Option<String>,
    pub findings: Vec<Finding>,
}

/// A process that cannot be read.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedProcess {
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
    /// Whether it was this process that was asked for.
    pub essential: bool,
}

impl RefusedProcess {
    pub fn new(error: &InspectError, essential: bool) -> RefusedProcess {
        RefusedProcess { reason: error.to_string(), remedy: error.remedy().to_owned(), essential }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    /// What is known of it: the same as `sexton targets --json` prints.
    pub facts: Target,
    /// One entry a function that is probed.
    pub probes: Vec<ProbeReport>,
    /// What the sentinel read of its threads; `null` where it could not.
    pub threads: Option<ThreadsReport>,
    /// What was looked at: functions, counters, perf level.
    pub findings: Vec<Finding>,
    /// What can be read of its databases.
    pub databases: Vec<DatabaseReport>,
    /// Ways to act on it, and whether each would work.
    pub executors: Vec<Finding>,
    /// Whether the values of the policy's throttles can be read.
    pub throttles: Vec<Finding>,
}

/// One function that is probed, or would be.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// `Seek`, `iterator end`, ...
    pub function: &'static str,
    /// Where the probe goes; its fields are not there where the function was not found.
    #[serde(flatten)]
    pub site: Option<ProbeSite>,
    /// What a call costs with the probe, as calibrated on this node just now: nanoseconds, return included;
    /// `null` where it could not be calibrated.
    pub price_ns: Option<u64>,
    /// How the probe would be placed: `session`, `multi`, ...; `null` where it cannot be.
    pub mechanism: Option<&'static str>,
}

/// What the sentinel read of the threads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ThreadsReport {
    pub threads: u32,
    /// Those of them that have used RocksDB.
    pub threads_with_counters: u32,
    /// Lowest perf level of these; `null` where there is none or it cannot be read.
    pub perf_level: Option<u8>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DatabaseReport {
    /// Directory, as the process sees it.
    pub path: PathBuf,
    /// Names of its column families, at most [`super::databases::COLUMN_FAMILIES_SHOWN_MAX`].
    pub column_families: Vec<String>,
    pub column_families_total: usize,
    pub sst_files: usize,
    /// Why its files could not be read.
    pub error: Option<Finding>,
}

impl Report {
    /// Puts the parts together and says what follows.
    pub fn new(
        kernel: KernelReport,
        privileges: Vec<Finding>,
        targets: Vec<TargetReport>,
        refused: Vec<RefusedProcess>,
    ) -> Report {
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ok: false,
            summary: String::new(),
            kernel,
            privileges,
            targets,
            refused,
        };
        let obstacles = report.obstacles();
        report.ok = obstacles.is_empty();
        report.summary = report.sentence(&obstacles);
        report
    }

    /// Names of what essential is missing.
    fn obstacles(&self) -> Vec<String> {
        let of_node = self.kernel.findings.iter().chain(&self.privileges);
        let of_node = of_node.filter(|finding| finding.is_obstacle()).map(|finding| finding.name.clone());
        let of_targets = self.targets.iter().flat_map(|target| {
            let obstacles = target.findings.iter().filter(|finding| finding.is_obstacle());
            obstacles.map(|finding| format!("{} of {}", finding.name, target.facts.name))
        });
        let refused = self.refused.iter().filter(|refused| refused.essential);
        let refused = refused.map(|_| "a RocksDB that can be read in that process".to_owned());
        of_node.chain(of_targets).chain(refused).collect()
    }

    fn sentence(&self, obstacles: &[String]) -> String {
        let count = self.targets.len();
        let targets = match count {
            0 => "no RocksDB was found".to_owned(),
            1 => "1 RocksDB can be read".to_owned(),
            count => format!("{count} RocksDBs can be read"),
        };
        match obstacles {
            [] => format!("nothing essential is missing; {targets}"),
            missing => format!("missing: {}; {targets}", missing.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(privileges: Vec<Finding>, refused: Vec<RefusedProcess>) -> Report {
        let kernel = KernelReport { release: "6.18".into(), mechanism: None, findings: Vec::new() };
        Report::new(kernel, privileges, Vec::new(), refused)
    }

    #[test]
    fn only_what_is_essential_stands_in_the_way() {
        let lacking = || Finding::no("CAP_BPF", "", "the process does not have it", "run as root");
        let fine = report(vec![lacking()], Vec::new());
        assert!(fine.ok && fine.summary.contains("nothing essential"), "{}", fine.summary);
        let bad = report(vec![lacking().essential()], Vec::new());
        assert!(!bad.ok && bad.summary.contains("CAP_BPF"), "{}", bad.summary);
    }

    #[test]
    fn a_process_that_was_asked_for_must_be_readable() {
        let error = InspectError::NoRocksDb { pid: 7, hint: None };
        assert!(report(Vec::new(), vec![RefusedProcess::new(&error, false)]).ok);
        assert!(!report(Vec::new(), vec![RefusedProcess::new(&error, true)]).ok);
    }
}

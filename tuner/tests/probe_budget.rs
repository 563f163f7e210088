//! Whether a small probe budget is enough: what is planned by the evidence that it pays for.
//!
//! The workloads that come with the program are played with a hundred times their readers, so that to
//! look all the time would take several cores. Windows are as short and as rare as the budget has them,
//! records are chosen as the kernel chooses them, and the ledger keeps what there is.

#![allow(clippy::unwrap_used, reason = "tests")]

use jiff::Timestamp;
use sexton_tuner::evidence::Evidence;
use sexton_tuner::policy::CoreShare;
use sexton_tuner::simulation::workload::{BUILTIN, Looking, Workload, builtin, watch};
use sexton_tuner::{Action, Budget, CompactRange, KnownThrottles, PlanInput, PlanTarget, Policy, plan};
use std::collections::BTreeSet;

/// Everything that pays is planned: nothing but its worth has a say in the order.
const POLICY: &str = "
mode: act
io_budget: { rate: 1GiB/s, burst: 64GiB }
targets: [{ name: simulated, match: { pid: 1 }, remedies: [compact] }]
";

/// As many times as many readers as the workload says.
const READERS_FACTOR: f64 = 100.0;

/// Three calls of a list are followed, at what each was measured to cost beside a busy build.
const NS_PER_OPERATION: u64 = 20_000;

/// The budget that was the default, and to which the default is compared.
const LARGE: CoreShare = CoreShare::from_parts_per_million(10_000);

const JOBS: usize = 10;

/// What other jobs must at least be worth, of those that the large budget finds first: relief, and relief
/// a byte.
const WORTH_MIN: f64 = 0.9;

/// Seconds a second that first jobs have to relieve for others to be held against them.
const RELIEF_MIN: f64 = 0.02;

/// Fewest workloads in which the first jobs are the very same.
const SAME_MIN: usize = 2;

fn busy(name: &str) -> Workload {
    let mut workload = builtin(name).unwrap();
    workload.readers.iter_mut().for_each(|group| group.per_second *= READERS_FACTOR);
    workload.duration = sexton_tuner::policy::TimeSpan::from_seconds(120);
    workload
}

/// The first jobs of the plan.
fn first_jobs(policy: &Policy, evidence: &Evidence) -> Vec<CompactRange> {
    let input = PlanInput {
        policy,
        targets: &[PlanTarget {
            name: "simulated",
            policy: policy.targets.first().unwrap(),
            evidence: std::slice::from_ref(evidence),
        }],
        budget: Budget { available_bytes: 64 << 30 },
        throttles: &KnownThrottles::new(),
        now: Timestamp::from_second(1_767_600_000).unwrap(),
        previous: None,
    };
    let compactions = plan(&input).unwrap().actions.into_iter().filter_map(|action| match action {
        Action::CompactRange(compact) => Some(compact),
        _ => None,
    });
    compactions.take(JOBS).collect()
}

/// The files that a job rewrites.
fn files(job: &CompactRange, evidence: &Evidence) -> BTreeSet<u64> {
    let of_job = evidence.files.iter().filter(|it| job.range.overlaps_closed(&it.smallest, &it.largest));
    of_job.map(|file| file.number).collect()
}

/// Where the readers hurt in a few places these are the same jobs. Where they hurt everywhere alike it is
/// chance which of them are the first, with any budget: there they have to be worth as much.
#[test]
fn the_default_budget_ranks_as_one_of_a_percent_does() {
    let policy = Policy::parse(POLICY).unwrap();
    let of_workload = |name: &str| {
        let workload = busy(name);
        let seen = |budget| {
            let looking = Looking { budget, ns_per_operation: NS_PER_OPERATION };
            watch(&workload, &policy, looking, 1)
        };
        let (small, large) = (seen(policy.probes.budget), seen(LARGE));
        let (few, many) = (first_jobs(&policy, &small.evidence), first_jobs(&policy, &large.evidence));
        let rewritten = |jobs: &[CompactRange]| {
            jobs.iter().map(|job| files(job, &large.evidence)).collect::<Vec<BTreeSet<u64>>>()
        };
        let (of_few, of_many) = (rewritten(&few), rewritten(&many));
        let shared = of_few.iter().filter(|job| of_many.contains(job)).count();
        println!(
            "{name}: {} and {} first jobs, {shared} of them the same, by {} and {} records",
            few.len(),
            many.len(),
            small.evidence.observations.len(),
            large.evidence.observations.len()
        );
        if of_few == of_many {
            return usize::from(!few.is_empty());
        }
        let ((relief, bytes), (relief_large, bytes_large)) = (large.relief_of(&few), large.relief_of(&many));
        println!(
            "{relief:.3} and {relief_large:.3} s/s relieved by {} and {} MiB",
            bytes >> 20,
            bytes_large >> 20
        );
        // What relieves so little is on the edge of what is worth an action at all.
        if relief_large >= RELIEF_MIN {
            let share = relief / relief_large;
            let per_byte_share = share * bytes_large as f64 / bytes as f64;
            assert!(share >= WORTH_MIN && per_byte_share >= WORTH_MIN, "{name}: {share} {per_byte_share}");
        }
        0
    };
    let same: usize = BUILTIN.map(of_workload).iter().sum();
    assert!(same >= SAME_MIN, "{same} workloads with the same first jobs");
}

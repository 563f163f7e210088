//! Cases made up from numbers, each planned for and carried out on a simulated tree: what the tests of
//! decisions share.

use jiff::Timestamp;
use sexton_tuner::cost::Bottommost;
use sexton_tuner::evidence::Evidence;
use sexton_tuner::simulation::lsm::Tree;
use sexton_tuner::{
    Action, Budget, CompactRange, KeyRange, KnownThrottles, Plan, PlanInput, PlanTarget, Policy, plan,
};

/// Cases of each property.
pub const CASES: u64 = 10_000;

/// As long as is waited for what RocksDB does by itself.
pub const WAITED_SECONDS: i64 = 30;

/// Bytes of a value: so large that small trees are worth deciding about.
pub const VALUE_BYTES: u32 = 32 << 10;

/// Any pain counts and nothing limits what is done, so that all that decides is what it relieves and costs.
pub fn policy() -> Policy {
    let policy = "
mode: act
thresholds: { pain: 1us/s }
margin: { benefit_cost_ratio_min: 0 }
io_budget: { rate: 1GiB/s, burst: 64GiB }
targets: [{ name: t, match: { pid: 1 }, remedies: [compact] }]
";
    Policy::parse(policy).unwrap()
}

/// What each case comes to, in their order; all cores work on them.
pub fn of_all_cases<Found: Send>(of: impl Fn(u64) -> Found + Sync) -> Vec<Found> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let part =
        |thread: u64| (thread * CASES / threads..(thread + 1) * CASES / threads).map(&of).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

/// What is planned by whoever has waited for RocksDB's own compactions, which have not come.
pub fn planned(policy: &Policy, evidence: &[Evidence]) -> Plan {
    let before = planned_after(policy, evidence, None, 0);
    planned_after(policy, evidence, Some(&before), WAITED_SECONDS)
}

pub fn planned_after(policy: &Policy, evidence: &[Evidence], previous: Option<&Plan>, seconds: i64) -> Plan {
    let input = PlanInput {
        policy,
        targets: &[PlanTarget { name: "t", policy: policy.targets.first().unwrap(), evidence }],
        budget: Budget { available_bytes: 64 << 30 },
        throttles: &KnownThrottles::new(),
        now: Timestamp::from_second(1_790_000_000 + seconds).unwrap(),
        previous,
    };
    plan(&input).unwrap()
}

pub fn compactions(plan: &Plan) -> impl Iterator<Item = &CompactRange> {
    plan.actions.iter().filter_map(|action| match action {
        Action::CompactRange(compact) => Some(compact),
        _ => None,
    })
}

/// Compacts a range of keys of a tree; bytes that this reads.
pub fn compact(tree: &mut Tree, range: &KeyRange, bottommost: Bottommost) -> u64 {
    let (begin, end) = tree.names().numbers(range);
    let begin = (!range.begin.is_empty()).then_some(begin);
    tree.compact_range(begin, end.map(|end| end.saturating_sub(1)), bottommost).read_bytes
}

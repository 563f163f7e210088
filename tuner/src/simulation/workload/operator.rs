//! Who decides what is compacted, and carries it out on the tree.

use crate::facts::evidence::{Evidence, PastAction};
use crate::facts::range::KeyRange;
use crate::limits::bucket::BudgetBucket;
use crate::limits::throttle::KnownThrottles;
use crate::loss::ledger::{PainLedger, Touched};
use crate::lsm::cost::Bottommost;
use crate::plan::planner::plan;
use crate::plan::{Action, Budget, CompactRange, Plan, PlanInput, PlanTarget, ends};
use crate::policy::{Policy, RemedyKind};
use crate::rank::{AssessError, RangeAssessment};
use crate::simulation::lsm::{Tree, Work};
use crate::verify::{Claim, Seen, verdict};
use jiff::Timestamp;

/// Name of the one column family, and of the target and the database that it is in.
pub(super) const COLUMN_FAMILY: &str = "default";
pub(super) const TARGET: &str = "simulated";

/// What is decided by.
#[derive(Clone, Debug)]
pub enum Strategy {
    /// Nothing is ever done.
    Nothing,
    /// Every so many seconds each file in which so many of the entries are deletions is compacted down.
    Every { seconds: u64, density_min: f64 },
    /// The planner, with this policy.
    Planner(Box<Policy>),
}

/// What was done at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) work: Work,
    pub(super) actions: u64,
    /// Of them those that dropped no tombstone.
    pub(super) in_vain: u64,
}

/// An action whose verdict is owed.
struct Awaiting {
    action: CompactRange,
    seen: Seen,
    /// Its place among the past actions.
    place: usize,
}

/// Decides, at a time, and remembers.
pub(super) struct Operator {
    strategy: Strategy,
    next_at: i64,
    bucket: Option<BudgetBucket>,
    past: Vec<PastAction>,
    awaiting: Vec<Awaiting>,
    previous: Option<Plan>,
    /// What the windows have seen, as the agent keeps it.
    pain: PainLedger,
}

impl Operator {
    pub(super) fn new(strategy: Strategy) -> Operator {
        Operator {
            strategy,
            next_at: i64::MIN,
            bucket: None,
            past: Vec::new(),
            awaiting: Vec::new(),
            previous: None,
            pain: PainLedger::default(),
        }
    }

    /// Does what there is to do now; the evidence is what the agent would have.
    pub(super) fn act(
        &mut self,
        tree: &mut Tree,
        evidence: Evidence,
        now: Timestamp,
    ) -> Result<Done, AssessError> {
        match self.strategy.clone() {
            Strategy::Nothing => Ok(Done::default()),
            Strategy::Every { seconds, density_min } => {
                if now.as_second() < self.next_at {
                    return Ok(Done::default());
                }
                let is_first = self.next_at == i64::MIN;
                self.next_at = now.as_second().saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX));
                Ok(if is_first { Done::default() } else { compact_dense(tree, density_min) })
            }
            Strategy::Planner(policy) => self.follow_plan(tree, evidence, &policy, now),
        }
    }

    fn follow_plan(
        &mut self,
        tree: &mut Tree,
        mut evidence: Evidence,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Done, AssessError> {
        let policy = &policy.at(now, 0);
        let Some(target) = policy.targets.first() else { return Ok(Done::default()) };
        let io_budget = &policy.io_budget;
        let mut bucket = self.bucket.unwrap_or_else(|| BudgetBucket::full(io_budget, now));
        bucket.refill(io_budget, now);
        evidence.past_actions = self.past.clone();
        let window_seconds = evidence.window.duration_ns as f64 / 1e9;
        self.remember(&mut evidence, now);
        let all = [evidence];
        let input = PlanInput {
            policy,
            targets: &[PlanTarget { name: TARGET, policy: target, evidence: &all }],
            budget: Budget { available_bytes: bucket.available_bytes() },
            throttles: &KnownThrottles::new(),
            now,
            previous: self.previous.as_ref(),
        };
        let plan = plan(&input)?;
        self.judge(&plan.assessments, window_seconds, policy);
        let mut done = Done::default();
        for action in &plan.actions {
            let before = tree.deletions();
            let work = match action {
                Action::CompactRange(compact) => {
                    let work = carry_out(tree, compact);
                    let (database, files) = (&compact.database, tree.files(COLUMN_FAMILY));
                    self.pain.forget(Touched::rewritten(database, COLUMN_FAMILY, &compact.range, &files));
                    self.note(compact, now);
                    work
                }
                Action::Flush(_) => tree.flush(),
                Action::SetOptions(_) | Action::SetThrottle(_) => continue,
            };
            bucket.spend(work.read_bytes);
            done.work = done.work.plus(work);
            done.actions += 1;
            done.in_vain += u64::from(work.read_bytes > 0 && tree.deletions() >= before);
        }
        self.bucket = Some(bucket);
        self.previous = Some(plan);
        Ok(done)
    }

    /// Makes evidence of all that windows have seen.
    fn remember(&mut self, evidence: &mut Evidence, now: Timestamp) {
        let seen = [(evidence.database.as_str(), evidence.observations.as_slice())];
        self.pain.take(&evidence.window, seen, now);
        evidence.window = self.pain.window();
        evidence.observations = self.pain.observations(&evidence.database);
    }

    fn note(&mut self, compact: &CompactRange, now: Timestamp) {
        let range = compact.range.clone();
        let earlier =
            self.past.iter().rev().find(|past| past.range.overlaps(&range) && past.helped.is_some());
        let failures_in_a_row = earlier.map_or(0, |past| past.failures_in_a_row);
        self.awaiting.push(Awaiting {
            action: compact.clone(),
            seen: Seen::default(),
            place: self.past.len(),
        });
        self.past.push(PastAction {
            column_family: COLUMN_FAMILY.to_owned(),
            range,
            ended_unix_s: now.as_second(),
            helped: None,
            awaits_verdict: true,
            failures_in_a_row,
            remedy: RemedyKind::Compact,
            delivered: None,
        });
    }

    /// Looks at what the actions before have come to.
    fn judge(&mut self, after: &[RangeAssessment], window_seconds: f64, policy: &Policy) {
        let past = &mut self.past;
        self.awaiting.retain_mut(|awaiting| {
            let before = awaiting.action.prediction();
            awaiting.seen.add(window_seconds, &before, after);
            if !awaiting.seen.is_conclusive(&before) {
                return true;
            }
            let claim = Claim {
                before: &before,
                promised_seconds_per_second: before.relief_seconds_per_second,
                share_min: policy.relief_ratio_min,
                aftermath: None,
                seen: awaiting.seen,
            };
            let helped = verdict(&claim, after).helped;
            if let Some(past) = past.get_mut(awaiting.place) {
                past.helped = Some(helped);
                past.awaits_verdict = false;
                past.failures_in_a_row = if helped { 0 } else { past.failures_in_a_row.saturating_add(1) };
            }
            false
        });
    }
}

pub(super) fn carry_out(tree: &mut Tree, compact: &CompactRange) -> Work {
    let files = tree.files(COLUMN_FAMILY);
    let range = ends::closed(&compact.range, &files.iter().collect::<Vec<_>>(), &compact.before);
    compact_keys(tree, &range, compact.bottommost)
}

/// RocksDB takes the end of a range as inclusive.
fn compact_keys(tree: &mut Tree, range: &KeyRange, bottommost: Bottommost) -> Work {
    let (begin, end) = tree.names().numbers(range);
    let begin = (!range.begin.is_empty()).then_some(begin);
    tree.compact_range(begin, end.map(|end| end.saturating_sub(1)), bottommost)
}

fn compact_dense(tree: &mut Tree, density_min: f64) -> Done {
    let mut done = Done::default();
    for file in tree.files(COLUMN_FAMILY) {
        let is_left = tree.files(COLUMN_FAMILY).iter().any(|left| left.number == file.number);
        if is_left && file.deletions as f64 >= file.entries as f64 * density_min && file.deletions > 0 {
            let before = tree.deletions();
            let range = KeyRange { begin: file.smallest, end: Some(file.largest.successor()) };
            done.work = done.work.plus(compact_keys(tree, &range, Bottommost::ForceOptimized));
            done.actions += 1;
            done.in_vain += u64::from(tree.deletions() >= before);
        }
    }
    done
}

//! The rules of planning: which ranges are worth it, which have to rest, and what the budget pays for.
//!
//! The plan's types and the entry point are in [`crate::plan`].

use crate::evidence::{Evidence, PastAction};
use crate::plan::{
    Action, COMPACTIONS_MAX, CompactRange, PlanInput, PlanTarget, REFUSALS_MAX, Refusal, Rule, SetThrottle,
};
use crate::policy::{Mode, Policy, TimeSpan};
use crate::queue::{DisplacedBy, QUEUE_CAPACITY, Queue, Wanted};
use crate::range::KeyRange;
use crate::rank::RangeAssessment;
use crate::schedule::io_budget_at;
use crate::throttle::{ThrottleSetting, throttle_values};
use crate::words;

/// Least share of a range's pain that compaction must relieve; below it readers wait for block reads.
const RELIEF_SHARE_MIN: f64 = 0.1;

/// From this share of tombstones in memtables on the files' density says nothing about a range.
const MEMTABLE_SHARE_MIN: f64 = 0.5;

/// After a compaction that did not help a range is left alone for twice the cooldown, or this where
/// there is none, then four times, and so on.
const BACK_OFF_MIN: TimeSpan = TimeSpan::from_seconds(60);

/// But never longer than this: what pinned the tombstones goes away some day.
const BACK_OFF_MAX: TimeSpan = TimeSpan::from_seconds(7 * 86_400);

/// Collects what is wanted and what is refused, then spends the budget.
pub(crate) struct Planner<'a> {
    input: &'a PlanInput<'a>,
    queue: Queue,
    /// With the pain (or, from the queue, the relief) that they are sorted by.
    refusals: Vec<(f64, Refusal)>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(input: &'a PlanInput<'a>) -> Planner<'a> {
        Planner { input, queue: Queue::new(QUEUE_CAPACITY), refusals: Vec::new() }
    }

    /// What was refused, greatest pain first.
    pub(crate) fn refusals(mut self) -> Vec<Refusal> {
        self.refusals.sort_by(|one, two| two.0.total_cmp(&one.0));
        self.refusals.into_iter().take(REFUSALS_MAX).map(|(_, refusal)| refusal).collect()
    }

    /// Throttles of a target whose value is not in force yet.
    pub(crate) fn throttles(&self, target: &PlanTarget<'_>) -> Vec<Action> {
        if self.input.policy.mode_of(target.policy) == Mode::Observe {
            return Vec::new();
        }
        let settings = throttle_values(self.input.policy, target.policy, self.input.now).into_iter();
        let changed = settings.filter(|setting| {
            let name = (target.name.to_owned(), setting.name.clone());
            self.input.throttles_in_force.get(&name) != Some(&setting.value)
        });
        let action = |setting: ThrottleSetting| {
            Action::SetThrottle(SetThrottle {
                target: target.name.to_owned(),
                name: setting.name,
                value: setting.value,
                command: setting.command,
                timeout: setting.timeout,
                reason: setting.reason,
            })
        };
        changed.map(action).collect()
    }

    /// Queues a range, or refuses it.
    pub(crate) fn consider(&mut self, target: &PlanTarget<'_>, evidence: &Evidence, range: &RangeAssessment) {
        let column_family = match self.objection(target, evidence, range) {
            Ok(column_family) => column_family,
            Err((rule, reason)) => {
                let refusal = Refusal {
                    target: range.target.clone(),
                    database: range.database.clone(),
                    column_family: range.column_family.clone(),
                    range: range.range.clone(),
                    subject: self.subject(range.column_family.as_deref(), &range.range),
                    rule,
                    reason,
                };
                return self.refusals.push((range.pain_seconds_per_second, refusal));
            }
        };
        let displaced = self.queue.push(Wanted {
            target: range.target.clone(),
            database: range.database.clone(),
            column_family,
            range: range.range.clone(),
            relief_per_byte: range.relief_per_byte,
            relief_seconds_per_second: range.relief_seconds_per_second,
            cost_bytes: range.cost_bytes,
            deletions: range.deletions,
            reason: range.reason.clone(),
            queued_at: self.input.now,
        });
        for out in displaced {
            let (rule, reason) = match out.cause {
                DisplacedBy::Overlap => {
                    (Rule::Overlap, "a range that relieves more per byte shares keys with it".to_owned())
                }
                DisplacedBy::Capacity => {
                    (Rule::QueueFull, format!("{QUEUE_CAPACITY} ranges relieve more per byte"))
                }
            };
            self.refuse(out.wanted, rule, reason);
        }
    }

    fn refuse(&mut self, wanted: Wanted, rule: Rule, reason: String) {
        let refusal = Refusal {
            subject: self.subject(Some(&wanted.column_family), &wanted.range),
            target: wanted.target,
            database: wanted.database,
            column_family: Some(wanted.column_family),
            range: wanted.range,
            rule,
            reason,
        };
        self.refusals.push((wanted.relief_seconds_per_second, refusal));
    }

    fn subject(&self, column_family: Option<&str>, range: &KeyRange) -> String {
        let keys = words::range(range, self.input.policy.keys);
        format!("{} {keys}", column_family.unwrap_or("unknown column family"))
    }

    /// The column family to act in, or the first rule that forbids it.
    fn objection(
        &self,
        target: &PlanTarget<'_>,
        evidence: &Evidence,
        range: &RangeAssessment,
    ) -> Result<String, (Rule, String)> {
        let policy = self.input.policy;
        if policy.mode_of(target.policy) == Mode::Observe {
            return Err((Rule::ModeObserve, "the policy's mode for this target is observe".to_owned()));
        }
        let Some(column_family) = &range.column_family else {
            let reason = "the probes could not tell which column family these operations were in";
            return Err((Rule::UnknownColumnFamily, reason.to_owned()));
        };
        if !target.policy.includes(column_family) {
            let reason = format!("the policy's target {} does not list {column_family}", target.policy.name);
            return Err((Rule::ExcludedColumnFamily, reason));
        }
        worth_it(policy, range)?;
        self.rested(evidence, column_family, range)?;
        Ok(column_family.clone())
    }

    /// Whether enough time has passed since the range was last acted on.
    fn rested(
        &self,
        evidence: &Evidence,
        column_family: &str,
        range: &RangeAssessment,
    ) -> Result<(), (Rule, String)> {
        let past = evidence.past_actions.iter();
        let past =
            past.filter(|past| past.column_family == column_family && past.range.overlaps(&range.range));
        let cooldown = self.input.policy.cooldown;
        let rests = past.map(|past| self.rest(past, cooldown));
        let Some((left_s, ended_s_ago, failures)) = rests.filter(|rest| rest.0 > 0).max() else {
            return Ok(());
        };
        let ago = words::span(ended_s_ago);
        if ended_s_ago < seconds(cooldown) {
            let reason =
                format!("compacted {ago} ago, the cooldown of {cooldown} ends in {}", words::span(left_s));
            return Err((Rule::Cooldown, reason));
        }
        let times =
            if failures == 1 { "the last time".to_owned() } else { format!("{failures} times in a row") };
        let reason =
            format!("compacting it did not help {times} ({ago} ago), tried again in {}", words::span(left_s));
        Err((Rule::BackOff, reason))
    }

    /// Seconds that are left, seconds since the end of the action, and how often in a row it has not helped.
    fn rest(&self, past: &PastAction, cooldown: TimeSpan) -> (i64, i64, u32) {
        // An end in the future is a clock that was set back: as if it had ended just now.
        let ago_s = self.input.now.as_second().saturating_sub(past.ended_unix_s).max(0);
        let rest_s = match past.failures_in_a_row {
            0 => seconds(cooldown),
            failures => {
                let factor = 1i64.checked_shl(failures.min(32)).unwrap_or(i64::MAX);
                seconds(cooldown.max(BACK_OFF_MIN))
                    .saturating_mul(factor)
                    .min(seconds(BACK_OFF_MAX))
                    .max(seconds(cooldown))
            }
        };
        (rest_s.saturating_sub(ago_s), ago_s, past.failures_in_a_row)
    }

    /// Takes ranges out of the queue, best first, as far as the budget goes; returns what they cost.
    pub(crate) fn spend(&mut self, actions: &mut Vec<Action>) -> u64 {
        let budget_bytes = self.input.budget.available_bytes;
        let mut spent_bytes: u64 = 0;
        let mut compactions = 0;
        while let Some(wanted) = self.queue.pop() {
            if compactions >= COMPACTIONS_MAX {
                self.refuse(
                    wanted,
                    Rule::QueueFull,
                    format!("{COMPACTIONS_MAX} compactions are planned before it"),
                );
                continue;
            }
            let left_bytes = budget_bytes - spent_bytes;
            if wanted.cost_bytes > left_bytes {
                let reason = self.over_budget(wanted.cost_bytes, left_bytes);
                self.refuse(wanted, Rule::OverBudget, reason);
                continue;
            }
            spent_bytes += wanted.cost_bytes;
            compactions += 1;
            actions.push(Action::CompactRange(CompactRange {
                target: wanted.target,
                database: wanted.database,
                column_family: wanted.column_family,
                range: wanted.range,
                cost_bytes: wanted.cost_bytes,
                relief_seconds_per_second: wanted.relief_seconds_per_second,
                deletions: wanted.deletions,
                reason: wanted.reason,
            }));
        }
        spent_bytes
    }

    fn over_budget(&self, cost_bytes: u64, left_bytes: u64) -> String {
        let budget = io_budget_at(self.input.policy, self.input.now);
        let (cost, left) = (words::bytes(cost_bytes), words::bytes(left_bytes));
        if cost_bytes > budget.burst.bytes() {
            let by_day = *budget == self.input.policy.io_budget;
            let (burst, section) = (budget.burst, if by_day { "io_budget" } else { "off_peak.io_budget" });
            return format!(
                "compacting rewrites {cost}, more than a burst of {burst} can ever pay: raise {section}.burst"
            );
        }
        let wait_s = (cost_bytes - left_bytes).div_ceil(budget.rate.bytes_per_second().max(1));
        let wait = words::span(i64::try_from(wait_s).unwrap_or(i64::MAX));
        format!(
            "compacting rewrites {cost}, {left} are left of the budget; at {} it takes {wait} more",
            budget.rate
        )
    }
}

/// Whether a range hurts enough and compacting it would help.
fn worth_it(policy: &Policy, range: &RangeAssessment) -> Result<(), (Rule, String)> {
    let limit = policy.thresholds.pain.seconds_per_second();
    let pain = words::pain(range.pain_seconds_per_second);
    if range.pain_seconds_per_second < limit {
        return Err((
            Rule::BelowThreshold,
            format!("readers lose {pain}, less than {}", policy.thresholds.pain),
        ));
    }
    if range.relief_seconds_per_second < range.pain_seconds_per_second * RELIEF_SHARE_MIN {
        let misses = words::number(range.misses_per_seek);
        let relief = words::pain(range.relief_seconds_per_second);
        let reason = format!(
            "of {pain} only {relief} are lost to tombstones: readers wait for {misses} block reads each"
        );
        return Err((Rule::NoRelief, reason));
    }
    let in_memtables = range.memtable_tombstones_per_seek >= range.tombstones_per_seek * MEMTABLE_SHARE_MIN;
    if range.density < policy.thresholds.density && !in_memtables {
        let (density, least) = (words::percent(range.density), words::percent(policy.thresholds.density));
        let cost = words::bytes(range.cost_bytes);
        let reason = format!(
            "{density} of the entries are deletions, less than {least}; compacting would rewrite {cost}"
        );
        return Err((Rule::LowDensity, reason));
    }
    Ok(())
}

fn seconds(span: TimeSpan) -> i64 {
    i64::try_from(span.duration().as_secs()).unwrap_or(i64::MAX)
}

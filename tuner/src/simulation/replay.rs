//! What policies would have come to in a history that an agent has recorded: the real planner, minute by
//! minute, on evidence that is made of what was recorded.
//!
//! A history tells what readers lost where and when. It tells neither how large files are nor what lies in
//! them, so each recorded range of keys counts as one file of a size that is given. What a range's readers
//! stepped over when it was acted on they do not step over afterwards; what has come since they do. What they
//! lost to block-cache misses stays lost. Where the recording agent has acted itself, its own relief is in
//! the record, whatever the policy: a history in mode observe or advise compares best.

use super::lsm::picture::observe;
use crate::facts::evidence::{
    Counters, Evidence, MemtableDeletions, Observation, PastAction, SeekKind, SstFile,
};
use crate::facts::key::Key;
use crate::facts::options::ColumnFamilyOptions;
use crate::facts::range::KeyRange;
use crate::history::{Bucket, Cell, History, LAYERS, Metric, Place};
use crate::limits::bucket::BudgetBucket;
use crate::limits::throttle::KnownThrottles;
use crate::plan::planner::plan;
use crate::plan::{Action, Budget, CompactRange, Plan, PlanInput, PlanTarget};
use crate::policy::{Policy, RemedyKind};
use crate::rank::AssessError;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two plans, and of what the greatest rate of bytes is told: the finest that is recorded.
const STEP_SECONDS: i64 = 60;

/// Bytes of an entry, where nobody knows: what a database of small values has.
const ENTRY_BYTES: u64 = 200;

/// Time that a seek takes beside what it steps over.
const SEEK_NS: u64 = 5_000;

/// What a policy comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replayed {
    /// Reader time lost.
    pub pain_seconds: f64,
    /// Bytes that actions rewrite.
    pub bytes: u64,
    /// The most of them in any minute, a second.
    pub bytes_per_second_peak: f64,
    pub actions: u64,
    /// How often something began to be refused, by rule.
    pub refusals: BTreeMap<&'static str, u64>,
}

/// Replays a history by a policy; `None`: nothing is done. A range of keys has so many bytes. The policy's
/// first entry counts for all targets, in mode act: who they were is not recorded.
///
/// # Errors
/// What the planner cannot make sense of.
pub fn replay(history: &History, policy: Option<&Policy>, range_bytes: u64) -> Result<Replayed, AssessError> {
    let mut player = Player { range_bytes, ..Player::default() };
    for (begin_s, seconds, bucket) in stretches(history) {
        let losses: Vec<Loss> =
            bucket.cells().filter_map(|(place, cell)| Loss::of(place, cell, seconds)).collect();
        for step in 0..(seconds / STEP_SECONDS).max(1) {
            player.step(begin_s + step * STEP_SECONDS, &losses, policy)?;
        }
    }
    Ok(player.replayed)
}

/// Actions of the agent that has recorded it.
pub fn actions_recorded(history: &History) -> f64 {
    let cells = stretches(history).into_iter().flat_map(|(_, _, bucket)| bucket.cells());
    cells.map(|(_, cell)| cell.sums.get(Metric::Actions)).sum()
}

/// All stretches in the order of time: when each begins and how long it is.
fn stretches(history: &History) -> Vec<(i64, i64, &Bucket)> {
    let of_layer = |(number, layer): (usize, &crate::history::Layer)| {
        let width_s = layer.width_s;
        history.layer(number).map(move |(begin_s, bucket)| (begin_s, width_s, bucket)).collect::<Vec<_>>()
    };
    let mut all: Vec<(i64, i64, &Bucket)> = LAYERS.iter().enumerate().flat_map(of_layer).collect();
    all.sort_by_key(|(begin_s, ..)| *begin_s);
    all
}

/// What readers of a range lost in a stretch of time.
struct Loss {
    place: Place,
    range: KeyRange,
    operations_per_second: f64,
    tombstones_per_operation: f64,
    /// Seconds a second.
    pain: f64,
}

impl Loss {
    fn of(place: &Place, cell: &Cell, seconds: i64) -> Option<Loss> {
        let rate = |metric| cell.sums.get(metric) / seconds.max(1) as f64;
        let operations_per_second = rate(Metric::Operations);
        (operations_per_second > 0.0).then(|| Loss {
            place: place.clone(),
            range: cell.range.clone(),
            operations_per_second,
            tombstones_per_operation: rate(Metric::TombstonesSkipped) / operations_per_second,
            pain: rate(Metric::Pain),
        })
    }

    /// Its greatest key, or one that is greater than most.
    fn largest(&self) -> Key {
        let mut bytes = self.range.begin.as_bytes().to_vec();
        bytes.push(u8::MAX);
        let last = Key::new(bytes);
        match &self.range.end {
            Some(end) if *end <= last => self.range.begin.clone(),
            _ => last,
        }
    }
}

/// What readers of a range have not stepped over since it was acted on.
struct Relieved {
    place: Place,
    range: KeyRange,
    tombstones_per_operation: f64,
}

#[derive(Default)]
struct Player {
    range_bytes: u64,
    relieved: Vec<Relieved>,
    bucket: Option<BudgetBucket>,
    /// By target and database.
    past: BTreeMap<(String, String), Vec<PastAction>>,
    previous: Option<Plan>,
    refused: BTreeSet<(&'static str, String, KeyRange)>,
    replayed: Replayed,
}

impl Player {
    fn step(&mut self, at_s: i64, losses: &[Loss], policy: Option<&Policy>) -> Result<(), AssessError> {
        let left: Vec<f64> = losses.iter().map(|loss| self.left_of(loss)).collect();
        for (loss, left) in losses.iter().zip(&left) {
            self.replayed.pain_seconds += loss.pain * share(loss, *left) * STEP_SECONDS as f64;
        }
        match policy {
            Some(policy) => self.follow_plan(at_s, losses, &left, policy),
            None => Ok(()),
        }
    }

    /// Tombstones that an operation steps over with what has been done so far.
    fn left_of(&mut self, loss: &Loss) -> f64 {
        let recorded = loss.tombstones_per_operation;
        let is_there = |it: &&mut Relieved| it.place == loss.place && it.range.overlaps(&loss.range);
        let mut relieved: f64 = 0.0;
        for it in self.relieved.iter_mut().filter(is_there) {
            // Fewer than were relieved: they have gone by themselves since.
            it.tombstones_per_operation = it.tombstones_per_operation.min(recorded);
            relieved = relieved.max(it.tombstones_per_operation);
        }
        recorded - relieved
    }

    fn follow_plan(
        &mut self,
        at_s: i64,
        losses: &[Loss],
        left: &[f64],
        policy: &Policy,
    ) -> Result<(), AssessError> {
        let now = Timestamp::from_second(at_s).unwrap_or(Timestamp::UNIX_EPOCH);
        let policy = &policy.at(now, 0);
        let Some(entry) = policy.targets.first() else { return Ok(()) };
        let mut bucket = self.bucket.unwrap_or_else(|| BudgetBucket::full(&policy.io_budget, now));
        bucket.refill(&policy.io_budget, now);
        let evidence: Vec<[Evidence; 1]> =
            self.evidence(losses, left).into_values().map(|evidence| [evidence]).collect();
        let target = |evidence| -> PlanTarget<'_> {
            let [one]: &[Evidence; 1] = evidence;
            PlanTarget { name: &one.target, policy: entry, evidence }
        };
        let targets: Vec<PlanTarget<'_>> = evidence.iter().map(target).collect();
        let plan = plan(&PlanInput {
            policy,
            targets: &targets,
            budget: Budget { available_bytes: bucket.available_bytes() },
            throttles: &KnownThrottles::new(),
            now,
            previous: self.previous.as_ref(),
        })?;
        let mut bytes = 0;
        for action in &plan.actions {
            let Action::CompactRange(compact) = action else { continue };
            bytes += compact.cost_bytes;
            bucket.spend(compact.cost_bytes);
            self.carry_out(compact, losses, at_s);
        }
        self.replayed.bytes += bytes;
        let rate = bytes as f64 / STEP_SECONDS as f64;
        self.replayed.bytes_per_second_peak = self.replayed.bytes_per_second_peak.max(rate);
        self.note_refusals(&plan);
        (self.bucket, self.previous) = (Some(bucket), Some(plan));
        Ok(())
    }

    /// What the agent would know, by target and database.
    fn evidence(&self, losses: &[Loss], left: &[f64]) -> BTreeMap<(String, String), Evidence> {
        let mut all: BTreeMap<(String, String), (Evidence, Vec<Observation>)> = BTreeMap::new();
        for ((number, loss), left) in (1..).zip(losses).zip(left) {
            let Place { target, database, column_family } = &loss.place;
            let key = (target.clone(), database.clone());
            let (evidence, operations) = all.entry(key.clone()).or_insert_with(|| {
                let past_actions = self.past.get(&key).cloned().unwrap_or_default();
                let (target, database) = key;
                (Evidence { target, database, past_actions, ..Evidence::default() }, Vec::new())
            });
            evidence.files.push(self.file(number, loss, *left));
            evidence.memtables.insert(column_family.clone(), MemtableDeletions::default());
            evidence
                .column_families
                .entry(column_family.clone())
                .or_insert_with(|| ColumnFamilyOptions::of_text(&BTreeMap::new()));
            operations.push(operation(loss, *left));
        }
        let duration_ns = u64::try_from(STEP_SECONDS * 1_000_000_000).unwrap_or(u64::MAX);
        let finished = all.into_iter().map(|(key, (mut evidence, operations))| {
            observe(&mut evidence, &operations, duration_ns);
            (key, evidence)
        });
        finished.collect()
    }

    fn file(&self, number: u64, loss: &Loss, left: f64) -> SstFile {
        let deletions = left.ceil() as u64;
        SstFile {
            number,
            column_family: loss.place.column_family.clone(),
            level: 6,
            size_bytes: self.range_bytes,
            entries: deletions + self.range_bytes / ENTRY_BYTES,
            deletions,
            smallest: loss.range.begin.clone(),
            largest: loss.largest(),
        }
    }

    fn carry_out(&mut self, compact: &CompactRange, losses: &[Loss], at_s: i64) {
        self.replayed.actions += 1;
        let is_in = |loss: &&Loss| {
            loss.place.target == compact.target
                && loss.place.database == compact.database
                && loss.place.column_family == compact.column_family
                && loss.range.overlaps(&compact.range)
        };
        for loss in losses.iter().filter(is_in) {
            self.relieved.retain(|it| !(it.place == loss.place && it.range == loss.range));
            let (place, range) = (loss.place.clone(), loss.range.clone());
            let tombstones_per_operation = loss.tombstones_per_operation;
            self.relieved.push(Relieved { place, range, tombstones_per_operation });
        }
        let key = (compact.target.clone(), compact.database.clone());
        self.past.entry(key).or_default().push(PastAction {
            column_family: compact.column_family.clone(),
            range: compact.range.clone(),
            ended_unix_s: at_s,
            helped: Some(true),
            awaits_verdict: false,
            failures_in_a_row: 0,
            remedy: RemedyKind::Compact,
            delivered: None,
        });
    }

    /// What is refused now and was not before.
    fn note_refusals(&mut self, plan: &Plan) {
        let now: BTreeSet<(&'static str, String, KeyRange)> = (plan.refusals.iter())
            .map(|refusal| {
                let place = format!("{} {}", refusal.target, refusal.database);
                (refusal.rule.name(), place, refusal.range.clone())
            })
            .collect();
        for (rule, ..) in now.difference(&self.refused) {
            *self.replayed.refusals.entry(rule).or_default() += 1;
        }
        self.refused = now;
    }
}

/// The share of what was lost that is lost all the same.
fn share(loss: &Loss, left: f64) -> f64 {
    if loss.tombstones_per_operation > 0.0 { left / loss.tombstones_per_operation } else { 1.0 }
}

/// All operations of a step in a range, as one that stands for them.
fn operation(loss: &Loss, left: f64) -> Observation {
    let tombstones_skipped = left.round() as u64;
    let pain_ns = loss.pain / loss.operations_per_second * share(loss, left) * 1e9;
    let scan = Counters { tombstones_skipped, keys_skipped: tombstones_skipped * 2, ..Counters::default() };
    Observation {
        column_family: Some(loss.place.column_family.clone()),
        end_key: Some(loss.largest()),
        scan,
        seek_latency_ns: SEEK_NS,
        scan_elapsed_ns: pain_ns as u64,
        steps: Some(0),
        weight: (loss.operations_per_second * STEP_SECONDS as f64).ceil() as u64,
        ..Observation::at(SeekKind::Seek, loss.range.begin.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::history::Amounts;

    const MIB: u64 = 1 << 20;

    /// Ten hours in which a queue's readers step over more and more tombstones, and others over none.
    fn history() -> History {
        let mut history = History::default();
        let place =
            Place { target: "om-1".into(), database: "/om.db".into(), column_family: "keyTable".into() };
        let range = |begin: &str, end: &str| KeyRange::new(Key::new(begin), Some(Key::new(end))).unwrap();
        for minute in 0..600 {
            let tombstones = 500.0 * f64::from(minute);
            let sums = |tombstones: f64| {
                Amounts::default()
                    .with(Metric::Operations, 600.0)
                    .with(Metric::TombstonesSkipped, 600.0 * tombstones)
                    .with(Metric::Pain, 600.0 * tombstones * 200e-9)
            };
            let hurting = Cell::new(&range("/queue/a", "/queue/b"), sums(tombstones), 60.0);
            let quiet = Cell::new(&range("/rest/a", "/rest/b"), sums(1.0), 60.0);
            let counted = Bucket::of([(place.clone(), hurting), (place.clone(), quiet)]);
            history.record(1_795_000_000 + 60 * i64::from(minute), &counted);
        }
        history
    }

    fn policy(text: &str) -> Policy {
        Policy::parse(text).unwrap()
    }

    #[test]
    fn without_a_policy_all_that_was_lost_is_lost() {
        let replayed = replay(&history(), None, 64 * MIB).unwrap();
        let lost: f64 = (0..600).map(|minute| 600.0 * (500.0 * f64::from(minute) + 1.0) * 200e-9).sum();
        assert!((replayed.pain_seconds / lost - 1.0).abs() < 1e-6, "{replayed:?}, {lost}");
        assert_eq!((replayed.actions, replayed.bytes), (0, 0));
        assert_eq!(actions_recorded(&history()), 0.0);
    }

    #[test]
    fn a_policy_that_acts_relieves_readers_for_bytes_and_a_shy_one_for_fewer() {
        let history = history();
        let nothing = replay(&history, None, 64 * MIB).unwrap();
        let eager = replay(&history, Some(&policy("thresholds: { pain: 1ms/s }")), 64 * MIB).unwrap();
        let shy = replay(&history, Some(&policy("cooldown: 4h")), 64 * MIB).unwrap();
        assert!(eager.actions > shy.actions && shy.actions > 0, "{eager:?} {shy:?}");
        assert!(eager.pain_seconds < shy.pain_seconds && shy.pain_seconds < nothing.pain_seconds);
        assert_eq!(eager.bytes, eager.actions * 64 * MIB, "the quiet range is not rewritten: {eager:?}");
        assert!(eager.bytes_per_second_peak >= 64.0 * MIB as f64 / 60.0);
        assert!(shy.refusals.contains_key("cooldown"), "{shy:?}");
        assert_eq!(
            replay(&history, Some(&policy("cooldown: 4h")), 64 * MIB).unwrap(),
            shy,
            "it is no chance"
        );
    }

    #[test]
    fn what_a_budget_does_not_pay_for_is_refused() {
        let poor = policy("io_budget: { rate: 1KiB/s, burst: 32MiB }");
        let replayed = replay(&history(), Some(&poor), 64 * MIB).unwrap();
        assert_eq!(
            (replayed.actions, replayed.refusals.contains_key("over_budget")),
            (0, true),
            "{replayed:?}"
        );
    }
}

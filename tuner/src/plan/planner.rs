//! The rules of planning: which ranges are worth it, which have to rest, and what the budget pays for.
//!
//! The plan's types and the entry point are in [`crate::plan`]; what is done about a range is chosen in
//! [`crate::plan::remedy`].

use super::rules::{Refused, is_bytewise, may_be_acted_on, worth_it};
use crate::facts::evidence::{Evidence, SstFile};
use crate::facts::options::{ColumnFamilyOptions, CompactionStyle};
use crate::facts::range::KeyRange;
use crate::limits::schedule::io_budget_at;
use crate::limits::throttle::{ThrottleStep, throttle_values};
use crate::plan::left_out::LeftOut;
use crate::plan::queue::{DisplacedBy, QUEUE_CAPACITY, Queue, Wanted};
use crate::plan::remedy::{Case, Remedy, are_in_memtables};
use crate::plan::slice::{self, Slice, SliceInput, slices};
use crate::plan::{
    Action, COMPACTIONS_MAX, CompactRange, Flush, Plan, PlanInput, PlanTarget, REFUSALS_MAX, Refusal, Rule,
    SetOptions, SetThrottle,
};
use crate::policy::{Mode, RemedyKind};
use crate::rank::{AssessError, Families, Family, RangeAssessment, assess, compare, families};
use crate::run::cooldown::has_rested;
use crate::{rank::ranker, words};
use std::collections::BTreeMap;

/// A slice that relieves less than this share of what its range does on average, per byte, is left out: at
/// the edge of a range a whole file would be rewritten for a sliver of it.
const SLIVER_SHARE: f64 = 0.125;

/// Plans. The same input gives the same plan; actions never overlap and never cost more than the
/// budget. In mode `advise` the plan is that of `act`: who carries it out decides; in mode `observe` a
/// target gets no actions.
///
/// Errors: evidence that contradicts itself, see [`AssessError`].
pub fn plan(input: &PlanInput<'_>) -> Result<Plan, AssessError> {
    let mut planner = Planner::new(input);
    let mut assessments = Vec::new();
    let mut actions = Vec::new();
    for target in input.targets {
        actions.extend(planner.throttles(target));
        for evidence in target.evidence {
            let families = families(evidence);
            let ranges = assess(evidence, &families, target.policy, input.policy)?;
            for range in &ranges {
                planner.consider(target, (evidence, &families), range);
            }
            assessments.extend(ranges);
        }
    }
    let cost_bytes = planner.spend(&mut actions);
    assessments.sort_by(compare);
    let refusals = planner.refusals();
    let budget_bytes = input.budget.available_bytes;
    Ok(Plan { at: input.now, budget_bytes, cost_bytes, actions, refusals, assessments })
}

/// Target, database directory and column family.
type Place = (String, String, String);

/// Collects what is wanted and what is refused, then spends the budget.
pub(crate) struct Planner<'a> {
    input: &'a PlanInput<'a>,
    queue: Queue,
    /// With whether the tombstones that they are for are an estimate.
    flushes: BTreeMap<Place, (Flush, bool)>,
    options: BTreeMap<Place, SetOptions>,
    /// With the pain (or, from the queue, the relief) that they are sorted by.
    refusals: Vec<(f64, Refusal)>,
    /// Slices that are not acted on.
    left_out: LeftOut,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(input: &'a PlanInput<'a>) -> Planner<'a> {
        Planner {
            input,
            queue: Queue::new(QUEUE_CAPACITY),
            flushes: BTreeMap::new(),
            options: BTreeMap::new(),
            refusals: Vec::new(),
            left_out: LeftOut::default(),
        }
    }

    /// What was refused, greatest pain first.
    pub(crate) fn refusals(mut self) -> Vec<Refusal> {
        self.refusals.sort_by(|one, two| two.0.total_cmp(&one.0));
        self.refusals.into_iter().take(REFUSALS_MAX).map(|(_, refusal)| refusal).collect()
    }

    /// Throttles of a target that are to be set now.
    pub(crate) fn throttles(&self, target: &PlanTarget<'_>) -> Vec<Action> {
        if self.input.policy.mode_of(target.policy) == Mode::Observe {
            return Vec::new();
        }
        let settings = throttle_values(self.input.policy, target.policy, self.input.now).into_iter();
        let changed = settings.filter_map(|setting| {
            let known = self.input.throttles.get(&(target.name.to_owned(), setting.name.clone()));
            let step = setting.step(known, self.input.now);
            // Whoever only looks at the plan has not read anything.
            let is_due = matches!(step, ThrottleStep::Set | ThrottleStep::Read);
            is_due.then(|| Action::SetThrottle(SetThrottle::of(target.name, setting, known)))
        });
        changed.collect()
    }

    /// Finds a remedy for a range, or refuses it.
    pub(crate) fn consider(
        &mut self,
        target: &PlanTarget<'_>,
        evidence: (&Evidence, &Families<'_>),
        range: &RangeAssessment,
    ) {
        let outcome = self.remedy(target, evidence, range);
        if let Err((rule, reason)) = outcome {
            let reason = words::with_estimate(reason, range.is_estimated);
            let refusal = Refusal {
                target: range.target.clone(),
                database: range.database.clone(),
                column_family: range.column_family.clone(),
                range: range.range.clone(),
                subject: self.subject(range.column_family.as_deref(), &range.range),
                rule,
                reason,
            };
            self.refusals.push((range.pain_seconds_per_second, refusal));
        }
    }

    /// Notes what is to be done about a range; the first rule that forbids it otherwise.
    fn remedy(
        &mut self,
        target: &PlanTarget<'_>,
        (evidence, families): (&Evidence, &Families<'_>),
        range: &RangeAssessment,
    ) -> Result<(), Refused> {
        let column_family = self.objection(target, evidence, range)?;
        let Some(family) = families.get(column_family.as_str()) else {
            let reason = "its files and its readers were not seen together".to_owned();
            return Err((Rule::UnknownColumnFamily, reason));
        };
        // Only the hook can flush and set options.
        let needs_hook = |kind: &RemedyKind| matches!(kind, RemedyKind::Flush | RemedyKind::Options);
        let has_hook = target.policy.executor.has_hook();
        let remedies = target.policy.remedies.iter().copied();
        let allowed: Vec<RemedyKind> = remedies.filter(|kind| has_hook || !needs_hook(kind)).collect();
        let rests = |kind| self.rested(evidence, &column_family, &range.range, kind).is_err();
        let case = Case {
            range,
            options: &family.options,
            allowed: &allowed,
            flush_rests: rests(RemedyKind::Flush),
            options_rest: rests(RemedyKind::Options),
            earlier: self.earlier(range),
        };
        let remedy = match worth_it(self.input.policy, range) {
            Ok(()) => case.remedy(self.input.policy),
            Err((Rule::NoRelief, reason)) => match case.remedy_for_block_reads() {
                Remedy::None => return Err((Rule::NoRelief, reason)),
                remedy => remedy,
            },
            Err(refused) => return Err(refused),
        };
        match remedy {
            Remedy::Compact => self.want_slices(target, (family, evidence), &column_family, range),
            Remedy::Flush { relief } => {
                self.want_flush(&family.options, column_family, range, relief);
                Ok(())
            }
            Remedy::SetOption { option, restore, relief } => {
                let name = (option.name, option.value, restore);
                self.want_option(name, column_family, range, relief);
                Ok(())
            }
            Remedy::Wait { reason } => Err((Rule::Waiting, reason)),
            Remedy::None => {
                let allowed: Vec<&str> = target.policy.remedies.iter().map(|kind| kind.name()).collect();
                let reason = format!("none of the policy's remedies ({}) would help", allowed.join(", "));
                Err((Rule::NoRemedy, reason))
            }
        }
    }

    /// Seconds since the earlier plan, and the tombstones that readers skipped in these keys then.
    fn earlier(&self, range: &RangeAssessment) -> Option<(f64, f64)> {
        let previous = self.input.previous?;
        let seconds = self.input.now.duration_since(previous.at).as_secs_f64();
        let same = previous.assessments.iter().filter(|earlier| {
            earlier.target == range.target
                && earlier.database == range.database
                && earlier.column_family == range.column_family
                && earlier.range.overlaps(&range.range)
        });
        let tombstones = same.map(|earlier| earlier.tombstones_per_seek).max_by(f64::total_cmp)?;
        Some((seconds, tombstones))
    }

    /// Queues a range's slices, but for those that have to rest and for slivers.
    fn want_slices(
        &mut self,
        target: &PlanTarget<'_>,
        (family, evidence): (&Family, &Evidence),
        column_family: &str,
        range: &RangeAssessment,
    ) -> Result<(), Refused> {
        if family.levels.style() == CompactionStyle::Fifo {
            let reason =
                "with FIFO compaction a range cannot be compacted: files are dropped when they are old";
            return Err((Rule::FifoCompaction, reason.to_owned()));
        }
        let parts: Vec<&SstFile> = family.parts.iter().collect();
        let input = SliceInput {
            levels: &family.levels,
            parts: &parts,
            range: &range.range,
            slice_bytes_max: self.input.policy.slice_bytes_max.bytes(),
            are_in_memtables: are_in_memtables(range),
        };
        let slices = if target.policy.executor.takes_ranges() {
            slices(&input)
        } else {
            vec![slice::column_family(&family.levels, &parts, &range.range)]
        };
        let count = slices.len();
        let whole = Whole::of(&slices);
        for (number, slice) in (1..).zip(slices) {
            let rested = self.rested(evidence, column_family, &slice.range, RemedyKind::Compact);
            let relief = range.relief_seconds_per_second * whole.relief_share(&slice);
            let compact = CompactRange {
                target: range.target.clone(),
                database: range.database.clone(),
                column_family: column_family.to_owned(),
                before: Box::new(range.clone()),
                bottommost: slice.bottommost,
                relief_seconds_per_second: relief,
                cost_bytes: slice.cost_bytes,
                largest_job_bytes: slice.largest_job_bytes,
                linked_bytes: slice.linked_bytes,
                deletions: slice.deletions,
                reason: slice_reason(range, &slice, number, count),
                range: slice.range,
            };
            let wanted = Wanted {
                relief_per_byte: worth(relief, slice.cost_bytes, slice.linked_bytes),
                is_estimated: range.is_estimated,
                compact,
            };
            match rested {
                Err((rule, reason)) => self.left_out.add(wanted, rule, reason),
                Ok(()) if whole.is_sliver(wanted.relief_per_byte, range) => {
                    let reason = "far less relief per byte than in the rest of the range".to_owned();
                    self.left_out.add(wanted, Rule::Sliver, reason);
                }
                Ok(()) => self.push(wanted),
            }
        }
        Ok(())
    }

    fn push(&mut self, wanted: Wanted) {
        for out in self.queue.push(wanted) {
            let (rule, reason) = match out.cause {
                DisplacedBy::Overlap => {
                    (Rule::Overlap, "a range that relieves more per byte shares keys with it".to_owned())
                }
                DisplacedBy::Capacity => {
                    (Rule::QueueFull, format!("{QUEUE_CAPACITY} slices relieve more per byte"))
                }
            };
            self.left_out.add(out.wanted, rule, reason);
        }
    }

    fn want_flush(
        &mut self,
        options: &ColumnFamilyOptions,
        column_family: String,
        range: &RangeAssessment,
        relief: f64,
    ) {
        let place = (range.target.clone(), range.database.clone(), column_family.clone());
        let (flush, is_estimated) = self.flushes.entry(place).or_insert_with(|| {
            let flush = Flush {
                target: range.target.clone(),
                database: range.database.clone(),
                column_family,
                ranges: Vec::new(),
                before: Box::new(range.clone()),
                pain_seconds_per_second: 0.0,
                cost_bytes: options.write_buffer_size,
                relief_seconds_per_second: 0.0,
                reason: range.reason.clone(),
            };
            (flush, false)
        });
        *is_estimated |= range.is_estimated;
        flush.add(range, relief);
    }

    /// `option` is the name, the new value and the one in force.
    fn want_option(
        &mut self,
        option: (&str, &str, String),
        column_family: String,
        range: &RangeAssessment,
        relief: f64,
    ) {
        let place = (range.target.clone(), range.database.clone(), column_family.clone());
        let (name, value, restore) = option;
        let set = self.options.entry(place).or_insert_with(|| SetOptions {
            target: range.target.clone(),
            database: range.database.clone(),
            column_family,
            name: name.to_owned(),
            value: value.to_owned(),
            restore,
            ranges: Vec::new(),
            before: Box::new(range.clone()),
            pain_seconds_per_second: 0.0,
            relief_seconds_per_second: 0.0,
            reason: range.reason.clone(),
        });
        // One option at a time: what the next one is good for shows when this one is in force.
        set.add(range, if set.name == name { relief } else { 0.0 });
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
    ) -> Result<String, Refused> {
        if self.input.policy.mode_of(target.policy) == Mode::Observe {
            return Err((Rule::ModeObserve, "the policy's mode for this target is observe".to_owned()));
        }
        // All keys are all keys in any order.
        let takes_ranges = target.policy.executor.takes_ranges();
        let comparator = range.column_family.as_deref().and_then(|name| evidence.comparator_of(name));
        if let Some(name) = comparator.filter(|name| takes_ranges && !is_bytewise(name)) {
            let reason = format!("its keys are ordered by {name:?}, and only bytewise order is acted on");
            return Err((Rule::Comparator, reason));
        }
        if let Some(why) = &evidence.files_unseen {
            let pain = words::pain(range.pain_seconds_per_second);
            let reason = format!(
                "readers lose {pain}, and what compacting costs is not known: its SST files cannot be seen ({why})"
            );
            return Err((Rule::FilesNotSeen, reason));
        }
        may_be_acted_on(target.policy, evidence)?;
        if range.ambiguous {
            let reason =
                "several iterators of one thread had moved, and whose the tombstones were does not show";
            return Err((Rule::AmbiguousIterator, reason.to_owned()));
        }
        let Some(column_family) = &range.column_family else {
            let reason = "the probes could not tell which column family these operations were in";
            return Err((Rule::UnknownColumnFamily, reason.to_owned()));
        };
        if !target.policy.includes(column_family) {
            let reason = format!("the policy's target {} does not list {column_family}", target.policy.name);
            return Err((Rule::ExcludedColumnFamily, reason));
        }
        if comparator.is_none() && takes_ranges {
            let reason = "in which order its keys are is not known, and only bytewise order is acted on";
            return Err((Rule::Comparator, reason.to_owned()));
        }
        Ok(column_family.clone())
    }

    /// Whether enough time has passed since these keys were last acted on in this way, and it is known what
    /// came of it.
    fn rested(
        &self,
        evidence: &Evidence,
        column_family: &str,
        range: &KeyRange,
        remedy: RemedyKind,
    ) -> Result<(), Refused> {
        let past = evidence.past_actions.iter().filter(|past| {
            past.column_family == column_family && past.remedy == remedy && past.range.overlaps(range)
        });
        has_rested(past, self.input.policy.cooldown, self.input.now.as_second())
            .map_err(|resting| (resting.rule, resting.reason))
    }

    /// Takes flushes, and then slices out of the queue, best first, as far as the budget goes; returns what
    /// they cost.
    ///
    /// A slice that does not fit any more makes room for smaller ones after it. What is missed against the
    /// best choice of all is less than the relief of the first slice that does not fit, for up to there no
    /// other choice relieves more with as many bytes.
    pub(crate) fn spend(&mut self, actions: &mut Vec<Action>) -> u64 {
        actions.extend(std::mem::take(&mut self.options).into_values().map(Action::SetOptions));
        let budget_bytes = self.input.budget.available_bytes;
        let mut spent_bytes: u64 = 0;
        let mut flushes: Vec<(Flush, bool)> = std::mem::take(&mut self.flushes).into_values().collect();
        let relief = |(flush, _): &(Flush, bool)| flush.relief_seconds_per_second;
        flushes.sort_by(|one, two| relief(two).total_cmp(&relief(one)));
        for (flush, is_estimated) in flushes {
            let left_bytes = budget_bytes - spent_bytes;
            if flush.cost_bytes > left_bytes {
                self.refuse_flush(&flush, is_estimated, left_bytes);
                continue;
            }
            spent_bytes += flush.cost_bytes;
            actions.push(Action::Flush(flush));
        }
        let mut compactions = 0;
        while let Some(wanted) = self.queue.pop() {
            let left_bytes = budget_bytes - spent_bytes;
            if compactions >= COMPACTIONS_MAX {
                let reason = format!("{COMPACTIONS_MAX} compactions are planned before it");
                self.left_out.add(wanted, Rule::QueueFull, reason);
            } else if wanted.compact.cost_bytes > left_bytes {
                let reason = self.over_budget("compacting rewrites", wanted.compact.cost_bytes, left_bytes);
                self.left_out.add(wanted, Rule::OverBudget, reason);
            } else {
                spent_bytes += wanted.compact.cost_bytes;
                compactions += 1;
                actions.push(Action::CompactRange(wanted.compact));
            }
        }
        for left in std::mem::take(&mut self.left_out).into_refusals() {
            let subject = self.subject(left.refusal.column_family.as_deref(), &left.refusal.range);
            self.refusals.push((left.relief, Refusal { subject, ..left.refusal }));
        }
        spent_bytes
    }

    fn refuse_flush(&mut self, flush: &Flush, is_estimated: bool, left_bytes: u64) {
        let reason = self.over_budget("flushing writes up to", flush.cost_bytes, left_bytes);
        let reason = words::with_estimate(reason, is_estimated);
        for range in &flush.ranges {
            let refusal = Refusal {
                subject: self.subject(Some(&flush.column_family), range),
                target: flush.target.clone(),
                database: flush.database.clone(),
                column_family: Some(flush.column_family.clone()),
                range: range.clone(),
                rule: Rule::OverBudget,
                reason: reason.clone(),
            };
            self.refusals.push((flush.relief_seconds_per_second, refusal));
        }
    }

    /// `what` is what costs so many bytes: `compacting rewrites`.
    fn over_budget(&self, what: &str, cost_bytes: u64, left_bytes: u64) -> String {
        let budget = io_budget_at(self.input.policy, self.input.now);
        let (cost, left) = (words::bytes(cost_bytes), words::bytes(left_bytes));
        if cost_bytes > budget.burst.bytes() {
            let by_day = *budget == self.input.policy.io_budget;
            let (burst, section) = (budget.burst, if by_day { "io_budget" } else { "off_peak.io_budget" });
            return format!(
                "{what} {cost}, more than a burst of {burst} can ever pay: raise {section}.burst"
            );
        }
        let wait_s = (cost_bytes - left_bytes).div_ceil(budget.rate.bytes_per_second().max(1));
        let wait = words::span(i64::try_from(wait_s).unwrap_or(i64::MAX));
        format!("{what} {cost}, {left} are left of the budget; at {} it takes {wait} more", budget.rate)
    }
}

/// Compacting takes bytes that are rewritten, and bytes that hard links keep on the disk beside them.
fn worth(relief: f64, cost_bytes: u64, linked_bytes: u64) -> f64 {
    ranker::worth(relief, cost_bytes.saturating_add(linked_bytes))
}

/// All slices of a range together.
struct Whole {
    slices: usize,
    cost_bytes: u64,
    linked_bytes: u64,
    deletions: u64,
}

impl Whole {
    fn of(slices: &[Slice]) -> Whole {
        let sum = |of: fn(&Slice) -> u64| slices.iter().map(of).fold(0, u64::saturating_add);
        Whole {
            slices: slices.len(),
            cost_bytes: sum(|slice| slice.cost_bytes),
            linked_bytes: sum(|slice| slice.linked_bytes),
            deletions: sum(|slice| slice.deletions),
        }
    }

    /// A slice's share of the range's relief: that of its deletions, an equal one where none are known.
    fn relief_share(&self, slice: &Slice) -> f64 {
        match self.deletions {
            0 => 1.0 / self.slices.max(1) as f64,
            deletions => slice.deletions as f64 / deletions as f64,
        }
    }

    fn is_sliver(&self, relief_per_byte: f64, range: &RangeAssessment) -> bool {
        let average = worth(range.relief_seconds_per_second, self.cost_bytes, self.linked_bytes);
        self.deletions > 0 && relief_per_byte < average * SLIVER_SHARE
    }
}

fn slice_reason(range: &RangeAssessment, slice: &Slice, number: usize, count: usize) -> String {
    let kept = match slice.linked_bytes {
        0 => String::new(),
        bytes => {
            format!("; hard links elsewhere keep {} of what it replaces on the disk", words::bytes(bytes))
        }
    };
    if count == 1 {
        // Told where the range alone would cost less.
        let is_more = slice.range == KeyRange::everything() && Some(slice.cost_bytes) > range.cost_bytes;
        let whole = || format!("; the whole column family is compacted: {}", words::bytes(slice.cost_bytes));
        return range.reason.clone() + &is_more.then(whole).unwrap_or_default() + &kept;
    }
    let (deletions, bytes) = (words::count(slice.deletions), words::bytes(slice.cost_bytes));
    format!("{}; slice {number} of {count}: {deletions} deletions, {bytes}{kept}", range.reason)
}

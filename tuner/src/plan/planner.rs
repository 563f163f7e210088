//! The rules of planning: which ranges are worth it, which have to rest, and what the budget pays for.
//!
//! The plan's types and the entry point are in [`crate::plan`]; what is done about a range is chosen in
//! [`crate::plan::remedy`].

use super::automatic::{Automatic, may_wait, waiting_since};
use super::pins::can_be_dropped;
use super::rules::{Refused, helps, hurts_enough, is_bytewise, may_be_acted_on, relieves_enough};
use crate::facts::evidence::Evidence;
use crate::facts::options::{ColumnFamilyOptions, CompactionStyle};
use crate::facts::range::KeyRange;
use crate::limits::throttle::{ThrottleStep, throttle_values};
use crate::plan::job::{self, Job, JobInput, Site, jobs};
use crate::plan::left_out::LeftOut;
use crate::plan::prospect::Market;
use crate::plan::queue::{DisplacedBy, QUEUE_CAPACITY, Queue, Wanted};
use crate::plan::remedy::{Case, Remedy, are_in_memtables};
use crate::plan::together::{hull, job_reason, together};
use crate::plan::{
    Action, COMPACTIONS_MAX, CompactRange, Flush, Plan, PlanInput, PlanTarget, REFUSALS_MAX, Refusal, Rule,
    SetOptions, SetThrottle,
};
use crate::policy::{Mode, RemedyKind};
use crate::rank::ranker::{Margin, Prospect, Ranker, Unworthy, worth};
use crate::rank::{
    AssessError, Families, Family, RangeAssessment, assess, compare, families, families_with_files,
    quiet_ranges,
};
use crate::run::cooldown::has_rested;
use crate::words;
use std::collections::BTreeMap;

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
            let families = match planner.ranker.needs_readers() {
                true => families(evidence),
                false => families_with_files(evidence),
            };
            let ranges = assess(evidence, &families, target.policy, input.policy)?;
            planner.consider_all(target, (evidence, &families), &ranges);
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
    ranker: Box<dyn Ranker>,
    queue: Queue,
    /// With whether the tombstones that they are for are an estimate.
    flushes: BTreeMap<Place, (Flush, bool)>,
    options: BTreeMap<Place, SetOptions>,
    /// With the pain (or, from the queue, the relief) that they are sorted by.
    refusals: Vec<(f64, Refusal)>,
    /// Jobs that are not acted on.
    left_out: LeftOut,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(input: &'a PlanInput<'a>) -> Planner<'a> {
        let (margin, thresholds) = (&input.policy.margin, &input.policy.thresholds);
        let margin = Margin {
            benefit_cost_ratio_min: margin.benefit_cost_ratio_min,
            horizon_seconds: margin.horizon.duration().as_secs_f64(),
        };
        Planner {
            input,
            ranker: input.policy.ranker.ranker(margin, thresholds.density),
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
        let PlanInput { policy, throttles, .. } = self.input;
        let settings = throttle_values(policy, target.policy, target.name, throttles).into_iter();
        let changed = settings.filter_map(|setting| {
            let known = self.input.throttles.get(&(target.name.to_owned(), setting.name.clone()));
            let is_in_force = known.and_then(|known| known.value.as_ref()) == Some(&setting.value);
            let is_due = match setting.step(known, self.input.now) {
                ThrottleStep::Set => true,
                // Whoever only looks at the plan has not read anything.
                ThrottleStep::Read => !is_in_force,
                ThrottleStep::InForce | ThrottleStep::Rest | ThrottleStep::Yield => false,
            };
            is_due.then(|| Action::SetThrottle(SetThrottle::of(target.name, setting, known)))
        });
        changed.collect()
    }

    /// Finds remedies for the ranges of a database, or refuses them. Those to be compacted become jobs,
    /// column family by column family.
    fn consider_all(
        &mut self,
        target: &PlanTarget<'_>,
        evidence: (&Evidence, &Families<'_>),
        ranges: &[RangeAssessment],
    ) {
        let mut to_compact: BTreeMap<&str, Vec<&RangeAssessment>> = BTreeMap::new();
        let quiet = match self.ranker.needs_readers() {
            true => Vec::new(),
            false => quiet_ranges(evidence.0, evidence.1, ranges),
        };
        for range in ranges.iter().chain(&quiet) {
            match self.remedy(target, evidence, range) {
                Ok(Some(())) => {}
                Ok(None) => {
                    let column_family = range.column_family.as_deref().unwrap_or_default();
                    to_compact.entry(column_family).or_default().push(range);
                }
                // Nobody misses what is not done where nobody reads.
                Err(_) if range.pain_seconds_per_second <= 0.0 => {}
                Err(refused) => self.refuse(range, refused),
            }
        }
        let market = Market::of(evidence.0, ranges, self.input.now);
        for (column_family, mut sites) in to_compact {
            let Some(family) = evidence.1.get(column_family) else { continue };
            sites.sort_by(|one, two| one.range.cmp(&two.range));
            self.want_jobs(target, (evidence.0, family, &market), column_family, &sites);
        }
    }

    fn refuse(&mut self, range: &RangeAssessment, (rule, reason): Refused) {
        let reason = words::with_estimate(reason, range.is_estimated);
        let refusal = Refusal {
            target: range.target.clone(),
            database: range.database.clone(),
            column_family: range.column_family.clone(),
            range: range.range.clone(),
            subject: self.subject(range.column_family.as_deref(), &range.range),
            rule,
            since: None,
            reason,
        };
        self.refusals.push((range.pain_seconds_per_second, refusal));
    }

    /// Notes what is to be done about a range; `None` where it is to be compacted, and the first rule that
    /// forbids anything otherwise.
    fn remedy(
        &mut self,
        target: &PlanTarget<'_>,
        (evidence, families): (&Evidence, &Families<'_>),
        range: &RangeAssessment,
    ) -> Result<Option<()>, Refused> {
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
        let helps = helps(range);
        if helps.is_ok() || !self.ranker.needs_readers() {
            can_be_dropped(range, family, evidence)?;
        }
        let remedy = match helps {
            _ if !self.ranker.needs_readers() => {
                let may_compact = allowed.contains(&RemedyKind::Compact);
                if may_compact { Remedy::Compact } else { Remedy::None }
            }
            Ok(()) => case.remedy(self.input.policy),
            Err((Rule::NoRelief, reason)) => match case.remedy_for_block_reads() {
                Remedy::None => return Err((Rule::NoRelief, reason)),
                remedy => remedy,
            },
            Err(refused) => return Err(refused),
        };
        match remedy {
            Remedy::Compact if family.levels.style() == CompactionStyle::Fifo => {
                let reason =
                    "with FIFO compaction a range cannot be compacted: files are dropped when they are old";
                Err((Rule::FifoCompaction, reason.to_owned()))
            }
            Remedy::Compact => Ok(None),
            Remedy::Flush { relief } => {
                self.want_flush(&family.options, column_family, range, relief);
                Ok(Some(()))
            }
            Remedy::SetOption { option, restore, relief } => {
                let name = (option.name, option.value, restore);
                self.want_option(name, column_family, range, relief);
                Ok(Some(()))
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

    /// Queues the jobs that ranges of a column family are to be compacted by, but for those that have to rest
    /// and that are not worth it.
    fn want_jobs(
        &mut self,
        target: &PlanTarget<'_>,
        (evidence, family, market): (&Evidence, &Family, &Market<'_>),
        column_family: &str,
        ranges: &[&RangeAssessment],
    ) {
        let sites: Vec<Site<'_>> = ranges.iter().map(|range| site(range)).collect();
        let value = |job: &Job| self.ranker.value(&market.prospect(ranges, job));
        let input = JobInput {
            levels: &family.levels,
            placement: &family.placement,
            relief: &family.relief,
            sites: &sites,
            resting: &self.resting(evidence, column_family),
            slice_bytes_max: self.input.policy.slice_bytes_max.bytes(),
            primitives: evidence.primitives,
            value: &value,
        };
        let jobs = match target.policy.executor.takes_ranges() {
            true => jobs(&input),
            false => vec![job::column_family(&input)],
        };
        let automatic = Automatic::of(evidence, column_family, family);
        let mut is_in_a_job = vec![false; ranges.len()];
        let count = jobs.len();
        let mut of_memtables: Vec<Wanted> = Vec::new();
        for (number, job) in (1..).zip(jobs) {
            let is_of_memtables = job.is_of_memtables();
            for (site, _) in &job.sites {
                is_in_a_job.get_mut(*site).into_iter().for_each(|is_in| *is_in = true);
            }
            let Some(before) = together(&job, ranges) else { continue };
            let prospect = market.prospect(ranges, &job);
            let reason = job_reason(&job, ranges, &before, (number, count), self.input.policy.keys);
            let (of, value) = (hull(&job, ranges), self.ranker.value(&prospect));
            let left_to_rocksdb = if is_of_memtables { Ok(()) } else { automatic.leaves(family, &job) };
            let is_estimated = before.is_estimated;
            let compact = CompactRange {
                target: before.target.clone(),
                database: before.database.clone(),
                column_family: column_family.to_owned(),
                primitive: job.primitive,
                bottommost: job.bottommost,
                relief_seconds_per_second: job.relief_seconds_per_second,
                cost_bytes: job.cost_bytes,
                largest_job_bytes: job.largest_job_bytes,
                linked_bytes: job.linked_bytes,
                deletions: job.share.deletions,
                reason,
                before: Box::new(before),
                range: job.range,
            };
            let wanted = Wanted { compact, of, worth: worth(value, prospect.cost_bytes), is_estimated };
            let hurts = wanted.compact.before.pain_seconds_per_second > 0.0;
            let left_to_rocksdb = left_to_rocksdb.or_else(|refused| self.has_waited(&wanted, refused));
            let is_worth_it = self.is_worth_it(evidence, &wanted, &prospect);
            match is_worth_it.and_then(|why| left_to_rocksdb.map(|()| why)) {
                Err((Rule::BelowThreshold | Rule::LowDensity, _)) if !hurts => {}
                Err((rule, reason)) => self.left_out.add(wanted, rule, reason),
                Ok(why) if is_of_memtables => of_memtables.push(wanted.because(why)),
                Ok(why) => self.push(wanted.because(why)),
            }
        }
        self.push_best(of_memtables);
        for (range, _) in ranges.iter().zip(is_in_a_job).filter(|(_, is_in)| !is_in) {
            let reason = format!("{} parts of its column family relieve more", job::PARTS_MAX);
            self.refuse(range, (Rule::QueueFull, reason));
        }
    }

    /// Whether a job has waited for RocksDB long enough.
    fn has_waited(&self, wanted: &Wanted, refused: Refused) -> Result<(), Refused> {
        let CompactRange { target, database, column_family, .. } = &wanted.compact;
        let since = waiting_since(self.input, (target, database, column_family), &wanted.of);
        if may_wait(self.input, since) { Err(refused) } else { Ok(()) }
    }

    /// Whether a job has rested and relieves enough for what it costs; what speaks for it.
    fn is_worth_it(
        &self,
        evidence: &Evidence,
        wanted: &Wanted,
        prospect: &Prospect,
    ) -> Result<Option<String>, Refused> {
        let CompactRange { column_family, range, .. } = &wanted.compact;
        self.rested(evidence, column_family, range, RemedyKind::Compact)?;
        if self.ranker.needs_readers() {
            relieves_enough(self.input.policy, prospect.relief_seconds_per_second)?;
        }
        self.ranker.judge(prospect).map_err(|unworthy| match unworthy {
            Unworthy::DoesNotPay(why) => (Rule::DoesNotPay, why),
            Unworthy::BelowThreshold(why) => (Rule::BelowThreshold, why),
            Unworthy::LowDensity(why) => (Rule::LowDensity, why),
        })
    }

    /// Of jobs for what is in memtables there is one at a time: it flushes them, and takes the whole file
    /// that comes of that.
    fn push_best(&mut self, mut of_memtables: Vec<Wanted>) {
        of_memtables.sort_by(|one, two| two.worth.total_cmp(&one.worth));
        let mut of_memtables = of_memtables.into_iter();
        if let Some(best) = of_memtables.next() {
            self.push(best);
        }
        for wanted in of_memtables {
            let reason = "a job that is worth more per byte flushes the same memtables";
            self.left_out.add(wanted, Rule::Overlap, reason.to_owned());
        }
    }

    fn push(&mut self, wanted: Wanted) {
        for out in self.queue.push(wanted) {
            let (rule, reason) = match out.cause {
                DisplacedBy::Overlap => {
                    (Rule::Overlap, "a job that is worth more per byte shares keys with it".to_owned())
                }
                DisplacedBy::Capacity => {
                    (Rule::QueueFull, format!("{QUEUE_CAPACITY} jobs are worth more per byte"))
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

    /// Keys of a column family that have to rest from compactions.
    fn resting<'e>(&self, evidence: &'e Evidence, column_family: &str) -> Vec<&'e KeyRange> {
        let (cooldown, now) = (self.input.policy.cooldown, self.input.now.as_second());
        let past = evidence.past_actions.iter().filter(|past| {
            let is_compaction = past.remedy == RemedyKind::Compact && past.column_family == column_family;
            is_compaction && has_rested(std::iter::once(*past), cooldown, now).is_err()
        });
        past.map(|past| &past.range).collect()
    }

    /// Takes flushes, and then slices out of the queue, best first, as far as the budget goes; returns what
    /// they cost.
    ///
    /// A slice that does not fit any more makes room for smaller ones after it. What is missed against the
    /// best choice of all is less than the relief of the first slice that does not fit, for up to there no
    /// other choice relieves more with as many bytes.
    pub(crate) fn spend(&mut self, actions: &mut Vec<Action>) -> u64 {
        for set in std::mem::take(&mut self.options).into_values() {
            let SetOptions { target, database, column_family, ranges, .. } = &set;
            match hurts_enough(self.input.policy, set.pain_seconds_per_second) {
                Ok(()) => actions.push(Action::SetOptions(set)),
                Err(refused) => {
                    let place = (target.clone(), database.clone(), column_family.clone());
                    self.refuse_all(place, ranges, set.pain_seconds_per_second, refused);
                }
            }
        }
        let budget_bytes = self.input.budget.available_bytes;
        let mut spent_bytes: u64 = 0;
        let mut flushes: Vec<(Flush, bool)> = std::mem::take(&mut self.flushes).into_values().collect();
        let relief = |(flush, _): &(Flush, bool)| flush.relief_seconds_per_second;
        flushes.sort_by(|one, two| relief(two).total_cmp(&relief(one)));
        for (flush, is_estimated) in flushes {
            let left_bytes = budget_bytes - spent_bytes;
            if let Err(refused) = self.may_flush(&flush, left_bytes) {
                let Flush { target, database, column_family, ranges, .. } = &flush;
                let place = (target.clone(), database.clone(), column_family.clone());
                let refused = (refused.0, words::with_estimate(refused.1, is_estimated));
                self.refuse_all(place, ranges, flush.relief_seconds_per_second, refused);
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
            let Refusal { target, database, range, rule, .. } = &left.refusal;
            let place =
                (target.as_str(), database.as_str(), left.refusal.column_family.as_deref().unwrap_or(""));
            let since = (*rule == Rule::AutomaticCompaction).then(|| waiting_since(self.input, place, range));
            self.refusals.push((left.relief, Refusal { subject, since, ..left.refusal }));
        }
        spent_bytes
    }

    fn may_flush(&self, flush: &Flush, left_bytes: u64) -> Result<(), Refused> {
        hurts_enough(self.input.policy, flush.pain_seconds_per_second)?;
        match flush.cost_bytes > left_bytes {
            true => Err((
                Rule::OverBudget,
                self.over_budget("flushing writes up to", flush.cost_bytes, left_bytes),
            )),
            false => Ok(()),
        }
    }

    /// The same for all these ranges of a column family.
    fn refuse_all(&mut self, place: Place, ranges: &[KeyRange], order: f64, (rule, reason): Refused) {
        let (target, database, column_family) = place;
        for range in ranges {
            let refusal = Refusal {
                subject: self.subject(Some(&column_family), range),
                target: target.clone(),
                database: database.clone(),
                column_family: Some(column_family.clone()),
                range: range.clone(),
                rule,
                since: None,
                reason: reason.clone(),
            };
            self.refusals.push((order, refusal));
        }
    }

    /// `what` is what costs so many bytes: `compacting rewrites`.
    fn over_budget(&self, what: &str, cost_bytes: u64, left_bytes: u64) -> String {
        let policy = self.input.policy;
        let budget = &policy.io_budget;
        let (cost, left) = (words::bytes(cost_bytes), words::bytes(left_bytes));
        if cost_bytes > budget.burst.bytes() {
            let burst = budget.burst;
            let place = match policy.open_periods.as_slice() {
                [] => String::new(),
                open => format!(", or that of the schedule's {}", open.join(", ")),
            };
            return format!(
                "{what} {cost}, more than a burst of {burst} can ever pay: raise io_budget.burst{place}"
            );
        }
        let wait_s = (cost_bytes - left_bytes).div_ceil(budget.rate.bytes_per_second().max(1));
        let wait = words::span(i64::try_from(wait_s).unwrap_or(i64::MAX));
        format!("{what} {cost}, {left} are left of the budget; at {} it takes {wait} more", budget.rate)
    }
}

fn site(range: &RangeAssessment) -> Site<'_> {
    Site {
        range: &range.range,
        relief_seconds_per_second: range.relief_seconds_per_second,
        are_in_memtables: are_in_memtables(range),
    }
}

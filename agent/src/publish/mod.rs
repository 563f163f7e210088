//! From what the engine knows to what the outside may see. Keys are redacted here unless the policy says
//! otherwise; behind this line nobody has to remember to do it.

mod action_view;
mod policy_view;
mod throttle_view;

pub use policy_view::policy_view;

use crate::act::Actor;
use crate::history::{self, PublishedRanges, Recorder};
use crate::observe::{Observer, Watched};
use crate::snapshot::{
    AgentView, FamilyWaits, PeriodView, PlanStepView, PlanView, ProbePriceView, RANGES_PUBLISHED_MAX,
    RangeView, RefusalView, SettingView, Snapshot, StateView, TargetView,
};
use action_view::{action_view, step_view};
use sexton_probe::governor::ProbePrices;
use sexton_tuner::plan::{Action, Plan};
use sexton_tuner::policy::{KeyDisplay, Policy};
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::run::{ActionKind, KeptSetting, KeptState, SettingKind};
use sexton_tuner::words;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// All that is known now.
pub struct Known<'a> {
    pub observer: &'a Observer,
    pub actor: &'a Actor,
    pub plan: &'a Plan,
    /// What readers lose time in, best first.
    pub ranges: &'a [RangeAssessment],
    pub history: &'a Recorder,
    pub cycles: u64,
    /// When the next cycle has to have ended.
    pub cycle_due: Option<Instant>,
    /// Where the policy came from, and why the last good one is in force and not what is there.
    pub policy_path: Option<&'a Path>,
    /// What is in it, as [`policy_view`] shows it.
    pub policy_content: &'a Arc<serde_json::Value>,
    pub policy_trouble: Option<&'a str>,
}

impl Known<'_> {
    /// Everything the outside may know now.
    pub fn snapshot(&self) -> Snapshot {
        let now = jiff::Timestamp::now();
        let policy = &self.observer.policy;
        Snapshot {
            cycle_due: self.cycle_due,
            history: self.history.shown(policy.keys).with_ranges(self.published_ranges()),
            shows_keys: policy.keys == KeyDisplay::Shown,
            at: now.to_string(),
            agent: AgentView {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                cycles: self.cycles,
                policy: self.policy_path.map(|path| path.display().to_string()),
                policy_content: Arc::clone(self.policy_content),
                policy_trouble: self.policy_trouble.map(str::to_owned),
                schedule: period_views(policy),
                budget_bytes_per_second: policy.io_budget.rate.bytes_per_second(),
                probe_prices: self.probe_prices(),
                workers_left_behind: self.observer.roster.left_behind(),
                state: self.state_view(),
                events_told: self.actor.journal.events().counts(),
            },
            targets: self.target_views(),
            waits: self.waits(),
            ranges: self.range_views(),
            plan: self.plan_view(),
            actions: self
                .actor
                .journal
                .listed(&self.actor.ledger)
                .map(|listed| action_view(listed, policy.keys))
                .collect(),
            advice: self.observer.roster.watched.iter().flat_map(|it| it.looks.advice()).cloned().collect(),
            settings: self.actor.ledger.settings().iter().map(setting_view).collect(),
            throttles: throttle_view::throttle_views(self.observer, self.actor),
            pressures: throttle_view::pressure_views(self.observer),
            action_counts: self.actor.journal.counts(&self.actor.ledger),
            events: self.actor.journal.events().events(),
        }
    }

    fn state_view(&self) -> StateView {
        let state = self.actor.journal.events().state();
        StateView {
            directory: state.directory().map(|directory| directory.display().to_string()),
            is_writable: state.trouble().is_none(),
            trouble: state.trouble().map(|trouble| trouble.reason.clone()),
            waiting: state.waiting(),
        }
    }

    fn probe_prices(&self) -> Vec<ProbePriceView> {
        self.observer.learnt_prices().map(price_views).unwrap_or_default()
    }

    fn target_views(&self) -> Vec<TargetView> {
        let watched = self.observer.roster.watched.iter().map(|watched| {
            let mut view = watched.view(self.pain_of(watched));
            let ratio = watched.spending.correction_ratio();
            let corrected = self.observer.learnt_prices().map(|prices| prices.corrected(ratio));
            view.probes.prices = corrected.as_ref().map(price_views).unwrap_or_default();
            view
        });
        watched.chain(self.observer.roster.lost.iter().map(|lost| lost.view.clone())).collect()
    }

    fn waits(&self) -> Vec<FamilyWaits> {
        let watched = self.observer.roster.watched.iter();
        let of_target = |watched: &Watched| {
            let target = watched.target.name.clone();
            let named = watched.waits.sums().iter().map(move |(name, waits)| FamilyWaits {
                target: target.clone(),
                column_family: name.column_family.clone().unwrap_or_else(|| "unknown".into()),
                waits: waits.clone(),
            });
            named.collect::<Vec<_>>()
        };
        watched.flat_map(of_target).collect()
    }

    fn pain_of(&self, watched: &Watched) -> f64 {
        let of_target = self.ranges.iter().filter(|range| range.target == watched.target.name);
        // Not `sum`: of nothing that is -0.0, which JSON shows.
        of_target.fold(0.0, |sum, range| sum + range.pain_seconds_per_second)
    }

    fn range_views(&self) -> Vec<RangeView> {
        let keys = self.observer.policy.keys;
        self.ranges.iter().take(RANGES_PUBLISHED_MAX).map(|range| range_view(range, keys)).collect()
    }

    fn published_ranges(&self) -> PublishedRanges {
        let published = self.ranges.iter().take(RANGES_PUBLISHED_MAX);
        published.map(|range| (range_id(range), (history::place_of(range), range.range.clone()))).collect()
    }

    fn plan_view(&self) -> PlanView {
        let Plan { budget_bytes, cost_bytes, actions, refusals, .. } = self.plan;
        PlanView {
            budget_bytes: *budget_bytes,
            cost_bytes: *cost_bytes,
            steps: actions.iter().map(|action| self.step_view(action)).collect(),
            refusals: refusals
                .iter()
                .map(|refusal| RefusalView {
                    target: refusal.target.clone(),
                    database: refusal.database.clone(),
                    subject: refusal.subject.clone(),
                    rule: refusal.rule.name().to_owned(),
                    reason: refusal.reason.clone(),
                })
                .collect(),
        }
    }

    fn step_view(&self, action: &Action) -> PlanStepView {
        let view = step_view(&ActionKind::from(action.clone()), self.observer.policy.keys);
        match action {
            Action::CompactRange(compact) => {
                PlanStepView { commands: self.actor.commands_for(self.observer, compact), ..view }
            }
            _ => view,
        }
    }
}

fn price_views(prices: &ProbePrices) -> Vec<ProbePriceView> {
    let view = |(kind, ns): (&str, f64)| ProbePriceView { kind: kind.to_owned(), seconds: ns / 1e9 };
    prices.by_kind().map(view).into()
}

/// A number made of what tells a range from others, its keys unredacted: so with a secret, which is another
/// one in each run, and keys cannot be guessed from it.
fn range_id(range: &RangeAssessment) -> String {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let what = (&range.target, &range.database, &range.column_family, &range.range.begin, &range.range.end);
    format!("{:016x}", SECRET.hash_one(what))
}

fn range_view(range: &RangeAssessment, keys: KeyDisplay) -> RangeView {
    RangeView {
        id: range_id(range),
        target: range.target.clone(),
        database: range.database.clone(),
        column_family: range.column_family.clone().unwrap_or_else(|| "unknown".into()),
        begin: words::key(&range.range.begin, keys),
        end: range.range.end.as_ref().map(|end| words::key(end, keys)),
        pain_seconds_per_second: range.pain_seconds_per_second,
        tombstones_per_seek: range.tombstones_per_seek,
        memtable_tombstones_per_seek: range.memtable_tombstones_per_seek,
        unexplained_tombstones_per_seek: range.unexplained_tombstones_per_seek,
        is_estimated: range.is_estimated,
        misses_per_seek: range.misses_per_seek,
        seconds_per_miss: range.seconds_per_miss,
        cache_hit_ratio: range.cache_hit_ratio,
        block_read_seconds_per_second: range.block_read_seconds_per_second,
        density: range.density,
        cost_bytes: range.cost_bytes,
        relief_per_byte: range.relief_per_byte,
        reason: range.reason.clone(),
    }
}

fn setting_view(kept: &KeptSetting) -> SettingView {
    let (kind, database, column_family) = match &kept.setting.kind {
        SettingKind::Option { database, column_family } => ("option", Some(database), Some(column_family)),
        SettingKind::Throttle => ("throttle", None, None),
    };
    let (state, reason) = match &kept.state {
        KeptState::Intended => ("intended", None),
        KeptState::InForce => ("in_force", None),
        KeptState::Restoring(reason) => ("restoring", Some(reason.clone())),
    };
    SettingView {
        action_id: kept.action.0,
        target: kept.target.clone(),
        kind: kind.to_owned(),
        database: database.cloned(),
        column_family: column_family.cloned(),
        name: kept.setting.name.clone(),
        wanted: kept.wanted.clone(),
        observed: kept.observed.clone(),
        restore: kept.restore.clone(),
        state: state.to_owned(),
        reason,
    }
}

fn period_views(policy: &Policy) -> Vec<PeriodView> {
    let view = |name: &String| PeriodView { name: name.clone(), is_open: policy.open_periods.contains(name) };
    policy.schedule.iter().map(|period| view(&period.name)).collect()
}

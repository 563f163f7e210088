//! What is known is planned with, and what is new in the plan is told.

use crate::act::Actor;
use crate::observe::{Observer, Watched, databases, remember, survey, tell_lineages};
use sexton_inspect::facts::DatabaseDirectory;
use sexton_journal::clock;
use sexton_tuner::evidence::{SentinelInterval, Window};
use sexton_tuner::loss::Scale;
use sexton_tuner::plan::{Budget, Plan, PlanInput, PlanTarget};
use sexton_tuner::rank::{RangeAssessment, compare};
use sexton_tuner::run::DeviceId;
use std::collections::BTreeMap;
use std::path::Path;
use tracing::warn;

/// The last plan, and which of its targets it has new evidence of.
pub struct Planned {
    pub plan: Plan,
    pub fresh: Vec<String>,
    /// What readers of all targets lose time in at the pace of the last cycle, best first.
    pub shown: Vec<RangeAssessment>,
    /// What is shown of each target.
    known: BTreeMap<String, Assessed>,
}

/// The ranges of one target, by the last plan that had new evidence of it: those without have none, for
/// nothing is done by what an earlier plan was made of.
struct Assessed {
    ranges: Vec<RangeAssessment>,
    window: Window,
    interval: SentinelInterval,
}

impl Assessed {
    /// At the pace that the sentinel sees now.
    fn at_pace_of<'a>(&'a self, now: &SentinelInterval) -> impl Iterator<Item = RangeAssessment> + use<'a> {
        let change = Scale::change(&self.window, &self.interval, now);
        self.ranges.iter().map(move |range| range.clone().at_pace(change))
    }
}

impl Planned {
    /// Nothing to do, nothing known.
    pub fn nothing(at: jiff::Timestamp) -> Planned {
        let plan = Plan {
            at,
            budget_bytes: 0,
            cost_bytes: 0,
            actions: Vec::new(),
            refusals: Vec::new(),
            assessments: Vec::new(),
        };
        Planned { plan, fresh: Vec::new(), shown: Vec::new(), known: BTreeMap::new() }
    }

    /// Plans anew with what is known.
    pub fn renew(&mut self, observer: &mut Observer, actor: &mut Actor) {
        let now = clock::now();
        remember(&mut observer.roster, &mut actor.journal, &actor.ledger, now);
        survey(&mut observer.roster, &mut actor.journal, &observer.policy, now.at);
        let throttles = actor.known_throttles();
        for watched in &mut observer.roster.watched {
            let Watched { target, evidence, .. } = watched;
            for evidence in evidence {
                let path = Path::new(&evidence.database);
                let database = target.databases.iter().find(|database| database.path == path);
                let identity = database.map(DatabaseDirectory::identity);
                let device = database.and_then(|database| database.device).map(DeviceId);
                evidence.device_bytes_per_second =
                    device.and_then(|device| actor.ledger.device_bytes_per_second(device, now));
                evidence.past_actions =
                    identity.map(|identity| actor.ledger.past_actions(&identity, now)).unwrap_or_default();
            }
        }
        tell_lineages(&mut observer.roster);
        let policy = &observer.policy;
        let available_bytes = actor.ledger.available_bytes(policy, now);
        let targets: Vec<PlanTarget<'_>> = observer
            .roster
            .watched
            .iter()
            .map(|watched| PlanTarget {
                name: &watched.target.name,
                policy: &watched.entry,
                evidence: &watched.evidence,
            })
            .collect();
        let plan = sexton_tuner::plan(&PlanInput {
            policy,
            targets: &targets,
            budget: Budget { available_bytes },
            throttles: &throttles,
            now: now.at,
            previous: Some(&self.plan),
        });
        match plan {
            Ok(plan) => self.plan = plan,
            Err(error) => {
                warn!(%error, "no plan");
                *self = Planned::nothing(now.at);
            }
        }
        self.note_fresh(observer);
        let watched = observer.roster.watched.iter();
        let known = watched.filter_map(|it| Some(self.known.get(&it.target.name)?.at_pace_of(&it.interval)));
        self.shown = known.flatten().collect();
        self.shown.sort_by(compare);
    }

    /// Which targets the plan has new evidence of, and what it says of them.
    fn note_fresh(&mut self, observer: &mut Observer) {
        let watched = &mut observer.roster.watched;
        self.known.retain(|name, _| watched.iter().any(|watched| watched.target.name == *name));
        self.fresh.clear();
        for watched in watched.iter_mut().filter(|watched| watched.is_fresh) {
            watched.is_fresh = false;
            let name = watched.target.name.clone();
            let ranges = self.plan.assessments.iter().filter(|range| range.target == name).cloned().collect();
            let of_all = watched.evidence.first();
            let window = of_all.map(|evidence| evidence.window).unwrap_or_default();
            let interval = of_all.map(|evidence| evidence.sentinel).unwrap_or_default();
            self.known.insert(name.clone(), Assessed { ranges, window, interval });
            self.fresh.push(name);
        }
    }

    /// Emits what is new in the plan. Only a window brings refusals: those of a target that had none now are
    /// still in force.
    pub fn emit(&self, observer: &Observer, actor: &mut Actor) {
        for target in &self.fresh {
            let refusals = self.plan.refusals.iter().filter(|refusal| refusal.target == *target);
            actor.journal.emit_refusals(target, &refusals.collect::<Vec<_>>());
            for watched in observer.roster.watched.iter().filter(|watched| watched.target.name == *target) {
                actor.journal.keep_sample(target, &databases(watched), &self.plan);
            }
        }
        actor.journal.emit_plan(&self.plan);
    }
}

//! What is known is planned with, and what is new in the plan is told.

use crate::act::Actor;
use crate::observe::{Observer, Watched, databases, remember, tell_lineages};
use sexton_inspect::facts::DatabaseDirectory;
use sexton_journal::clock;
use sexton_tuner::plan::{Budget, Plan, PlanInput, PlanTarget};
use std::path::Path;
use tracing::warn;

/// The last plan, and which of its targets it has new evidence of.
pub struct Planned {
    pub plan: Plan,
    pub fresh: Vec<String>,
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
        Planned { plan, fresh: Vec::new() }
    }

    /// Plans anew with what is known.
    pub fn renew(&mut self, observer: &mut Observer, actor: &mut Actor) {
        let now = clock::now();
        remember(&mut observer.roster, &mut actor.journal, &actor.ledger, now);
        let throttles = actor.known_throttles();
        for watched in &mut observer.roster.watched {
            let Watched { target, evidence, .. } = watched;
            for evidence in evidence {
                let path = Path::new(&evidence.database);
                let database = target.databases.iter().find(|database| database.path == path);
                let identity = database.map(DatabaseDirectory::identity);
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
        let take = |watched: &mut Watched| std::mem::take(&mut watched.is_fresh);
        let fresh =
            observer.roster.watched.iter_mut().filter_map(|it| take(it).then(|| it.target.name.clone()));
        self.fresh = fresh.collect();
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

//! Which refusals and plans are news: the same ones come with every window, and are emitted once.

use super::event::{EventKind, Subject};
use sexton_tuner::plan::{Plan, Refusal, Rule};
use sexton_tuner::policy::KeyDisplay;
use sexton_tuner::run::{ActionId, ActionKind};
use std::collections::{BTreeMap, BTreeSet};

/// What was emitted last.
#[derive(Debug, Default)]
pub struct Announced {
    /// Refusals in force, by target.
    refused: BTreeMap<String, BTreeSet<RefusalKey>>,
    /// Steps of the last plan that was emitted.
    steps: Vec<String>,
}

/// Ranges of one column family that one rule forbids are one refusal: their borders move with every window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RefusalKey {
    database: String,
    column_family: Option<String>,
    rule: Rule,
}

impl Announced {
    /// What is new among a target's refusals, the most painful ones first. Those that are not among them any
    /// more are news when they come back.
    pub fn refusals(&mut self, target: &str, refusals: &[&Refusal]) -> Vec<EventKind> {
        let mut groups: BTreeMap<RefusalKey, (usize, &Refusal)> = BTreeMap::new();
        for &refused in refusals {
            let key = RefusalKey {
                database: refused.database.clone(),
                column_family: refused.column_family.clone(),
                rule: refused.rule,
            };
            groups.entry(key).or_insert((0, refused)).0 += 1;
        }
        let before = self.refused.insert(target.to_owned(), groups.keys().cloned().collect());
        let before = before.unwrap_or_default();
        let new = groups.into_iter().filter(|(key, _)| !before.contains(key));
        new.map(|(key, (ranges, first))| EventKind::Refused {
            target: target.to_owned(),
            database: key.database,
            column_family: key.column_family,
            rule: key.rule.name().to_owned(),
            ranges,
            subject: first.subject.clone(),
            reason: first.reason.clone(),
        })
        .collect()
    }

    /// The event of a plan that has steps and differs from the last one emitted.
    pub fn plan(&mut self, plan: &Plan, keys: KeyDisplay) -> Option<EventKind> {
        let kinds = plan.actions.iter().cloned().map(ActionKind::from);
        let steps = kinds.map(|kind| Subject::of(ActionId::default(), &kind, keys).in_words()).collect();
        self.new_steps(plan, steps)
    }

    fn new_steps(&mut self, plan: &Plan, steps: Vec<String>) -> Option<EventKind> {
        let first = steps.first()?.clone();
        if steps == self.steps {
            return None;
        }
        let count = steps.len();
        self.steps = steps;
        Some(EventKind::PlanMade {
            steps: count,
            refusals: plan.refusals.len(),
            cost_bytes: plan.cost_bytes,
            budget_bytes: plan.budget_bytes,
            first,
        })
    }

    /// A step is being carried out: the next plan is news even if it looks the same.
    pub fn begin(&mut self) {
        self.steps.clear();
    }

    /// Forgets a target that has gone.
    pub fn forget(&mut self, target: &str) {
        self.refused.remove(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sexton_tuner::range::KeyRange;

    fn refused(rule: Rule, subject: &str) -> Refusal {
        Refusal {
            target: "java-1".into(),
            database: "/db".into(),
            column_family: Some("cf".into()),
            range: KeyRange::everything(),
            rule,
            since: None,
            subject: subject.into(),
            reason: "so".into(),
        }
    }

    #[test]
    fn a_refusal_is_emitted_once_until_it_has_been_gone() {
        let mut news = Announced::default();
        let all =
            [refused(Rule::Cooldown, "a"), refused(Rule::Cooldown, "b"), refused(Rule::OverBudget, "c")];
        let both: Vec<&Refusal> = all.iter().collect();
        let new = news.refusals("java-1", &both);
        assert_eq!(new.len(), 2);
        assert!(matches!(&new[..], [EventKind::Refused { ranges: 2, subject, .. }, _] if subject == "a"));
        assert!(news.refusals("java-1", &both).is_empty());
        // Borders move, the refusal stays.
        assert!(news.refusals("java-1", &[&refused(Rule::Cooldown, "d")]).is_empty());
        assert_eq!(news.refusals("java-1", &both).len(), 1, "the other one had gone");
        assert_eq!(news.refusals("java-2", &both).len(), 2);
        news.forget("java-1");
        assert_eq!(news.refusals("java-1", &both).len(), 2);
    }

    #[test]
    fn a_plan_is_emitted_when_its_steps_change_or_were_begun() {
        let plan = Plan {
            at: jiff::Timestamp::UNIX_EPOCH,
            budget_bytes: 2,
            cost_bytes: 1,
            actions: Vec::new(),
            refusals: Vec::new(),
            assessments: Vec::new(),
        };
        let mut news = Announced::default();
        assert_eq!(news.new_steps(&plan, Vec::new()), None);
        let steps = || vec!["one".to_owned(), "two".to_owned()];
        assert!(matches!(news.new_steps(&plan, steps()), Some(EventKind::PlanMade { steps: 2, .. })));
        assert_eq!(news.new_steps(&plan, steps()), None);
        // A cycle without a window has no plan; that is none either.
        assert_eq!(news.new_steps(&plan, Vec::new()), None);
        assert_eq!(news.new_steps(&plan, steps()), None);
        news.begin();
        assert!(news.new_steps(&plan, steps()).is_some());
    }
}

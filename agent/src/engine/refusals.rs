//! Which refusals and plans are news: the same ones come with every window, and are told once.

use crate::audit::What;
use sexton_tuner::plan::{Action, Plan, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// What was told last.
#[derive(Debug, Default)]
pub struct Told {
    /// Refusals in force, by target.
    refused: BTreeMap<String, BTreeSet<RefusalKey>>,
    /// Steps of the last plan that was told.
    steps: Vec<String>,
}

/// Ranges of one column family that one rule forbids are one refusal: their borders move with every window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RefusalKey {
    database: String,
    column_family: Option<String>,
    rule: String,
}

/// One refusal in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Database directory.
    pub database: String,
    /// Column family; `None` where no probe could tell.
    pub column_family: Option<String>,
    /// Name of the rule or guard.
    pub rule: String,
    /// Column family and range, keys shown as the policy allows.
    pub subject: String,
    /// Why, in words.
    pub reason: String,
}

impl From<&Refusal> for Refused {
    fn from(refusal: &Refusal) -> Refused {
        Refused {
            database: refusal.database.clone(),
            column_family: refusal.column_family.clone(),
            rule: refusal.rule.name().to_owned(),
            subject: refusal.subject.clone(),
            reason: refusal.reason.clone(),
        }
    }
}

impl Told {
    /// What is new among a target's refusals, the most painful ones first. Those that are not among them any more
    /// are news when they come back.
    pub fn refusals(&mut self, target: &str, refusals: &[Refused]) -> Vec<What> {
        let mut groups: BTreeMap<RefusalKey, (usize, &Refused)> = BTreeMap::new();
        for refused in refusals {
            let key = RefusalKey {
                database: refused.database.clone(),
                column_family: refused.column_family.clone(),
                rule: refused.rule.clone(),
            };
            groups.entry(key).or_insert((0, refused)).0 += 1;
        }
        let before = self.refused.insert(target.to_owned(), groups.keys().cloned().collect());
        let before = before.unwrap_or_default();
        let news = groups.into_iter().filter(|(key, _)| !before.contains(key));
        news.map(|(key, (ranges, first))| What::Refused {
            target: target.to_owned(),
            database: key.database,
            column_family: key.column_family,
            rule: key.rule,
            ranges,
            subject: first.subject.clone(),
            reason: first.reason.clone(),
        })
        .collect()
    }

    /// The event of a plan that has steps and differs from the last one told; `steps` are in words.
    pub fn plan(&mut self, plan: &Plan, steps: Vec<String>) -> Option<What> {
        let first = steps.first()?.clone();
        if steps == self.steps {
            return None;
        }
        let count = steps.len();
        self.steps = steps;
        Some(What::PlanMade {
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

/// A plan's step in words; keys by `range`.
pub fn step_in_words(action: &Action, range: impl Fn(&sexton_tuner::range::KeyRange) -> String) -> String {
    match action {
        Action::CompactRange(compact) => {
            let keys = range(&compact.range);
            format!("compact_range {} {} {} {keys}", compact.target, compact.database, compact.column_family)
        }
        Action::Flush(flush) => format!("flush {} {} {}", flush.target, flush.database, flush.column_family),
        Action::SetOptions(set) => {
            let (database, column_family) = (&set.database, &set.column_family);
            format!("set_options {} {database} {column_family} {}={}", set.target, set.name, set.value)
        }
        Action::SetThrottle(throttle) => {
            format!("set_throttle {} {} {}", throttle.target, throttle.name, throttle.value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rule: &str, subject: &str) -> Refused {
        Refused {
            database: "/db".into(),
            column_family: Some("cf".into()),
            rule: rule.into(),
            subject: subject.into(),
            reason: "so".into(),
        }
    }

    #[test]
    fn a_refusal_is_told_once_until_it_has_been_gone() {
        let mut told = Told::default();
        let both = [refused("cooldown", "a"), refused("cooldown", "b"), refused("over_budget", "c")];
        let news = told.refusals("java-1", &both);
        assert_eq!(news.len(), 2);
        assert!(matches!(&news[..], [What::Refused { ranges: 2, subject, .. }, _] if subject == "a"));
        assert!(told.refusals("java-1", &both).is_empty());
        // Borders move, the refusal stays.
        assert!(told.refusals("java-1", &[refused("cooldown", "d")]).is_empty());
        assert_eq!(told.refusals("java-1", &both).len(), 1, "the other one had gone");
        assert_eq!(told.refusals("java-2", &both).len(), 2);
        told.forget("java-1");
        assert_eq!(told.refusals("java-1", &both).len(), 2);
    }

    #[test]
    fn a_plan_is_told_when_its_steps_change_or_were_begun() {
        let plan = Plan {
            at: jiff::Timestamp::UNIX_EPOCH,
            budget_bytes: 2,
            cost_bytes: 1,
            actions: Vec::new(),
            refusals: Vec::new(),
            assessments: Vec::new(),
        };
        let mut told = Told::default();
        assert_eq!(told.plan(&plan, Vec::new()), None);
        let steps = || vec!["one".to_owned(), "two".to_owned()];
        assert!(matches!(told.plan(&plan, steps()), Some(What::PlanMade { steps: 2, .. })));
        assert_eq!(told.plan(&plan, steps()), None);
        // A cycle without a window has no plan; that is none either.
        assert_eq!(told.plan(&plan, Vec::new()), None);
        assert_eq!(told.plan(&plan, steps()), None);
        told.begin();
        assert!(told.plan(&plan, steps()).is_some());
    }
}

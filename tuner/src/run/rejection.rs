//! Why something is not done now, and until when.

use super::moment::Moment;
use crate::guard::{Guard, GuardRefusal};
use crate::plan::Rule;

/// Why something is not done now.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// Who forbids it.
    pub by: RejectedBy,
    /// Why, in words, with the numbers.
    pub reason: String,
    /// Until when; `None` where nobody can say.
    pub until: Option<Moment>,
}

/// Who forbids something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectedBy {
    /// A rule.
    Rule(Rule),
    /// A guard.
    Guard(Guard),
}

impl RejectedBy {
    /// Name of the rule or guard, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            RejectedBy::Rule(rule) => rule.name(),
            RejectedBy::Guard(guard) => guard.name(),
        }
    }
}

impl Rejection {
    /// By a rule.
    pub fn by_rule(rule: Rule, reason: impl Into<String>) -> Rejection {
        Rejection { by: RejectedBy::Rule(rule), reason: reason.into(), until: None }
    }

    /// The same, and known until when.
    #[must_use]
    pub fn until(self, moment: Moment) -> Rejection {
        Rejection { until: Some(moment), ..self }
    }
}

impl From<GuardRefusal> for Rejection {
    fn from(refusal: GuardRefusal) -> Rejection {
        Rejection { by: RejectedBy::Guard(refusal.guard), reason: refusal.reason, until: None }
    }
}

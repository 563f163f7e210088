//! Jobs that are not acted on, told once a rule and the ranges that hurt, and not job by job.

use crate::facts::range::KeyRange;
use crate::plan::queue::Wanted;
use crate::plan::{CompactRange, Refusal, Rule};
use crate::words;
use std::collections::BTreeMap;

/// Jobs by what hurt and the rule that left them out.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(BTreeMap<(String, String, String, KeyRange, Rule), Group>);

#[derive(Debug)]
struct Group {
    jobs: usize,
    cost_bytes: u64,
    relief: f64,
    /// The reason that was given for the cheapest, whose turn comes first.
    reason: String,
    cheapest_bytes: u64,
}

/// A refusal without its subject, and the relief that it is sorted by.
pub(crate) struct Left {
    pub(crate) refusal: Refusal,
    pub(crate) relief: f64,
}

impl LeftOut {
    pub(crate) fn add(&mut self, wanted: Wanted, rule: Rule, reason: String) {
        let reason = words::with_estimate(reason, wanted.is_estimated);
        let CompactRange { target, database, column_family, cost_bytes, .. } = wanted.compact;
        let place = (target, database, column_family, wanted.of, rule);
        let group = self.0.entry(place).or_insert_with(|| Group {
            jobs: 0,
            cost_bytes: 0,
            relief: 0.0,
            reason: reason.clone(),
            cheapest_bytes: u64::MAX,
        });
        group.jobs += 1;
        group.cost_bytes = group.cost_bytes.saturating_add(cost_bytes);
        group.relief += wanted.compact.relief_seconds_per_second;
        if cost_bytes < group.cheapest_bytes {
            (group.cheapest_bytes, group.reason) = (cost_bytes, reason);
        }
    }

    pub(crate) fn into_refusals(self) -> impl Iterator<Item = Left> {
        self.0.into_iter().map(|((target, database, column_family, range, rule), group)| {
            let reason = match group.jobs {
                1 => group.reason,
                jobs => {
                    format!("{jobs} jobs of {}, the first: {}", words::bytes(group.cost_bytes), group.reason)
                }
            };
            let column_family = Some(column_family);
            let subject = String::new();
            let refusal =
                Refusal { target, database, column_family, range, subject, rule, since: None, reason };
            Left { refusal, relief: group.relief }
        })
    }
}

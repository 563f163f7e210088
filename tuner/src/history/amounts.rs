//! What is counted in a cell: one number a metric.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Metric {
    /// Reader time lost, seconds.
    #[default]
    Pain,
    /// Operations that lost time.
    Operations,
    TombstonesSkipped,
    BlockMisses,
    /// Bytes that actions have rewritten.
    BytesCompacted,
    /// Actions that have ended.
    Actions,
}

impl Metric {
    pub const ALL: [Metric; 6] = [
        Metric::Pain,
        Metric::Operations,
        Metric::TombstonesSkipped,
        Metric::BlockMisses,
        Metric::BytesCompacted,
        Metric::Actions,
    ];

    /// Name, as in the API: `block_misses`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A number for each metric, finite and not below zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts([f64; Metric::ALL.len()]);

impl Amounts {
    /// The same with another number for one metric; what is no count is none.
    #[must_use]
    pub fn with(mut self, metric: Metric, value: f64) -> Amounts {
        if let Some(amount) = self.0.get_mut(metric as usize) {
            *amount = if value.is_finite() { value.max(0.0) } else { 0.0 };
        }
        self
    }

    pub fn get(&self, metric: Metric) -> f64 {
        self.0.get(metric as usize).copied().unwrap_or(0.0)
    }

    #[must_use]
    pub fn plus(self, other: Amounts) -> Amounts {
        self.combined(other, |one, two| (one + two).min(f64::MAX))
    }

    /// What is left without `other`, never below zero.
    pub(crate) fn minus(self, other: Amounts) -> Amounts {
        self.combined(other, |one, two| (one - two).max(0.0))
    }

    /// The greater of each two.
    pub(crate) fn at_least(self, other: Amounts) -> Amounts {
        self.combined(other, f64::max)
    }

    #[must_use]
    pub fn times(self, factor: f64) -> Amounts {
        Metric::ALL.into_iter().fold(self, |product, metric| product.with(metric, self.get(metric) * factor))
    }

    fn combined(mut self, other: Amounts, with: fn(f64, f64) -> f64) -> Amounts {
        self.0.iter_mut().zip(other.0).for_each(|(one, two)| *one = with(*one, two));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_its_own_number() {
        let mut amounts = Amounts::default();
        for (number, metric) in (1_u8..).zip(Metric::ALL) {
            amounts = amounts.with(metric, f64::from(number));
        }
        let sum: f64 = Metric::ALL.iter().map(|metric| amounts.get(*metric)).sum();
        assert_eq!(sum, 21.0);
        assert_eq!(amounts.with(Metric::Pain, f64::NAN).get(Metric::Pain), 0.0);
        assert_eq!(amounts.with(Metric::Pain, f64::INFINITY).get(Metric::Pain), 0.0);
        assert_eq!(amounts.times(-1.0), Amounts::default());
    }
}

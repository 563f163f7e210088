//! The median of paired ratios and how well it is known.

use serde_json::{Value, json};

/// Chance that the interval may miss the true median.
const MISS_CHANCE: f64 = 0.05;

/// A median with a 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    pub values: usize,
}

impl Median {
    /// The median of `values`; `None` where they are too few for an interval, that is fewer than six.
    ///
    /// The interval is that of the order statistics: the number of values below the true median is binomial
    /// with one half, whatever the values' distribution, so that no assumption about noise is made.
    pub fn of(values: &[f64]) -> Option<Median> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = lower_rank(sorted.len())?;
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let value = if sorted.len() % 2 == 1 { upper } else { (upper + sorted.get(middle - 1)?) / 2.0 };
        let low = *sorted.get(rank)?;
        let high = *sorted.get(sorted.len() - 1 - rank)?;
        Some(Median { value, low, high, values: sorted.len() })
    }

    /// How far the farther end of the interval is from the median.
    pub fn half_width(&self) -> f64 {
        (self.high - self.value).max(self.value - self.low)
    }

    pub fn interval(&self) -> Value {
        json!([rounded(self.low), rounded(self.high)])
    }
}

impl std::fmt::Display for Median {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:.4} [{:.4}, {:.4}] of {}", self.value, self.low, self.high, self.values)
    }
}

/// Four digits behind the point: more is noise.
pub fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// Index of the interval's lower end in `count` sorted values: the greatest for which fewer values than that
/// lie below the true median with at most half of [`MISS_CHANCE`].
fn lower_rank(count: usize) -> Option<usize> {
    // ln(C(count, below) / 2^count), for below = 0, 1, 2, ...: of thousands of values the first are too small
    // for a number of their own.
    let mut ln_chance = count as f64 * 0.5f64.ln();
    let mut cumulated = 0.0;
    let mut rank = None;
    for below in 0..count / 2 {
        cumulated += ln_chance.exp();
        if cumulated > MISS_CHANCE / 2.0 {
            break;
        }
        rank = Some(below);
        ln_chance += ((count - below) as f64 / (below + 1) as f64).ln();
    }
    rank
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Ranks as in any table of the sign test, counted from 0.
    #[test]
    fn the_ranks_are_those_of_the_tables() {
        let ranks = [(5, None), (6, Some(0)), (9, Some(1)), (10, Some(1)), (20, Some(5)), (25, Some(7))];
        for (count, rank) in ranks {
            assert_eq!(lower_rank(count), rank, "{count} values");
        }
        // By the normal approximation, half of 4,000 less 0.98 times its root.
        assert!(lower_rank(4_000).is_some_and(|rank| rank.abs_diff(1_938) <= 2));
    }

    #[test]
    fn the_median_and_its_interval() {
        let values: Vec<f64> = (0..20).rev().map(f64::from).collect();
        let median = Median::of(&values).unwrap();
        assert_eq!((median.value, median.low, median.high), (9.5, 5.0, 14.0));
        assert_eq!(median.half_width(), 4.5);
        assert_eq!(Median::of(&values[..5]), None);
        assert_eq!(Median::of(&[]), None);
    }
}

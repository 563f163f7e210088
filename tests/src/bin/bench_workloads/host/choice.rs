//! Which of many things is taken: by Zipf's law or evenly.

use sexton_tuner::simulation::random::Random;

/// Exponent of YCSB's Zipf distribution.
const EXPONENT: f64 = 0.99;
/// Steps into which chance is divided.
const STEPS: u64 = 1 << 53;

/// Weights of a fixed number of things.
#[derive(Debug)]
pub enum Choice {
    Even(u64),
    /// Cumulated shares, the most popular first.
    Zipf(Vec<f64>),
}

impl Choice {
    pub fn even(count: u64) -> Choice {
        Choice::Even(count.max(1))
    }

    pub fn zipf(count: u64) -> Choice {
        let weights: Vec<f64> = (1..=count.max(1)).map(|rank| (rank as f64).powf(-EXPONENT)).collect();
        let sum: f64 = weights.iter().sum();
        let mut cumulated = 0.0;
        let shares = weights.iter().map(|weight| {
            cumulated += weight / sum;
            cumulated
        });
        Choice::Zipf(shares.collect())
    }

    /// One of them, counted from zero.
    pub fn pick(&self, random: &mut Random) -> u64 {
        match self {
            Choice::Even(count) => random.between(0, *count),
            Choice::Zipf(shares) => {
                let chance = random.between(0, STEPS) as f64 / STEPS as f64;
                let rank = shares.partition_point(|share| *share < chance);
                rank.min(shares.len().saturating_sub(1)) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn counts(choice: &Choice, count: usize) -> Vec<u32> {
        let mut random = Random::of(1, 1);
        let mut counts = vec![0; count];
        for _ in 0..100_000 {
            counts[usize::try_from(choice.pick(&mut random)).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn the_second_is_taken_half_as_often_as_the_first() {
        let counts = counts(&Choice::zipf(1_000), 1_000);
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
        assert!(counts.iter().filter(|count| **count > 0).count() > 900);
    }

    #[test]
    fn an_even_choice_takes_all_alike() {
        assert!(counts(&Choice::even(10), 10).iter().all(|count| (9_000..11_000).contains(count)));
        assert_eq!(Choice::zipf(0).pick(&mut Random::of(1, 1)), 0);
    }
}

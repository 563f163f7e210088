//! What a host itself counted while it was observed, and how the agent's word is held against it.

use crate::agent::count;
use anyhow::{Result, ensure};
use serde_json::Value;
use sexton_tuner::evidence::Counters;
use std::ops::{Add, Sub};

/// Counters of `rocksdb::PerfContext`, of one thread or several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// `internal_delete_skipped_count`.
    pub tombstones_skipped: u64,
    /// `internal_key_skipped_count`.
    pub keys_skipped: u64,
    /// `block_read_count`.
    pub block_reads: u64,
    /// `block_read_byte`.
    pub block_read_bytes: u64,
    /// `block_cache_hit_count`.
    pub block_cache_hits: u64,
}

impl Truth {
    /// The counters under `name` in what `sexton observe --json` printed: `total`, `attributed`, ...
    pub fn observed(observed: &Value, name: &str) -> Result<Truth> {
        let counter = |counter: &str| count(observed, &format!("/{name}/{counter}"));
        Ok(Truth {
            tombstones_skipped: counter("tombstones_skipped")?,
            keys_skipped: counter("keys_skipped")?,
            block_reads: counter("block_reads")?,
            block_read_bytes: counter("block_read_bytes")?,
            block_cache_hits: counter("block_cache_hits")?,
        })
    }

    fn zip(self, other: Truth, operation: impl Fn(u64, u64) -> u64) -> Truth {
        Truth {
            tombstones_skipped: operation(self.tombstones_skipped, other.tombstones_skipped),
            keys_skipped: operation(self.keys_skipped, other.keys_skipped),
            block_reads: operation(self.block_reads, other.block_reads),
            block_read_bytes: operation(self.block_read_bytes, other.block_read_bytes),
            block_cache_hits: operation(self.block_cache_hits, other.block_cache_hits),
        }
    }

    /// Fails unless every counter that `sexton observe --json` printed is what the host counted in
    /// `positionings` calls of Seek and its like: the total, to the last unit; attributed and unattributed
    /// together, the same; and every tombstone attributed, for only iterators skip them.
    pub fn check(self, observed: &Value, positionings: u64) -> Result<()> {
        let differs = || format!("the host counted {self:?} in {positionings} positionings; {observed}");
        let total = Truth::observed(observed, "total")?;
        ensure!(total == self, "the totals differ: {total:?}; {}", differs());
        let (attributed, rest) =
            (Truth::observed(observed, "attributed")?, Truth::observed(observed, "unattributed")?);
        ensure!(attributed + rest == total, "attributed and unattributed are not the total; {}", differs());
        ensure!(
            attributed.tombstones_skipped == self.tombstones_skipped,
            "some tombstones were attributed to no operation; {}",
            differs()
        );
        let operations = count(observed, "/operations")?;
        ensure!(operations == positionings, "{operations} operations; {}", differs());
        for nothing in ["records_lost", "read_failures", "map_full"] {
            ensure!(count(observed, &format!("/{nothing}"))? == 0, "{nothing} is not 0; {}", differs());
        }
        Ok(())
    }
}

impl From<Counters> for Truth {
    fn from(counters: Counters) -> Truth {
        Truth {
            tombstones_skipped: counters.tombstones_skipped,
            keys_skipped: counters.keys_skipped,
            block_reads: counters.block_reads,
            block_read_bytes: counters.block_read_bytes,
            block_cache_hits: counters.block_cache_hits,
        }
    }
}

impl Add for Truth {
    type Output = Truth;

    fn add(self, other: Truth) -> Truth {
        self.zip(other, |one, two| one + two)
    }
}

impl Sub for Truth {
    type Output = Truth;

    /// What was counted since `earlier`; zero where a counter fell.
    fn sub(self, earlier: Truth) -> Truth {
        self.zip(earlier, u64::saturating_sub)
    }
}

/// The five counters and the number of positionings behind them, as the programs in `tests/java` and
/// `tests/python` print them: parted by spaces, in the order of [`Truth`].
pub fn parse(words: &str) -> Option<(Truth, u64)> {
    let numbers: Vec<u64> = words.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let &[tombstones_skipped, keys_skipped, block_reads, block_read_bytes, block_cache_hits, positionings] =
        numbers.as_slice()
    else {
        return None;
    };
    let truth = Truth { tombstones_skipped, keys_skipped, block_reads, block_read_bytes, block_cache_hits };
    Some((truth, positionings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_programs_print() {
        let truth = Truth {
            tombstones_skipped: 1,
            keys_skipped: 2,
            block_reads: 3,
            block_read_bytes: 4,
            block_cache_hits: 5,
        };
        assert_eq!(parse("1 2 3 4 5 6"), Some((truth, 6)));
        assert_eq!(parse("1 2 3 4 5"), None);
        assert_eq!(parse("1 2 3 4 5 x"), None);
    }
}

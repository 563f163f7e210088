//! What the operations of a column family waited for and stepped over, by powers of two.

use crate::facts::latency::LatencyHistogram;

/// Numbers by powers of two, and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    pub histogram: LatencyHistogram,
    pub sum: u64,
}

impl Spread {
    /// From the kernel's buckets; empty ones at the end are left out.
    pub fn new(buckets: &[u64], sum: u64) -> Spread {
        Spread { histogram: trimmed(buckets), sum }
    }

    /// Adds others; a sum that does not fit stays at its greatest.
    pub fn merge(&mut self, other: &Spread) {
        self.histogram.merge(&other.histogram);
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// What the operations of one column family waited for in windows: times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Positioning calls, from entry to return.
    pub seeks: Spread,
    /// Operations from their beginning to their end: the caller's own time between two calls is in it.
    pub lists: Spread,
    /// Block reads from files.
    pub block_reads: Spread,
    /// Tombstones that an operation stepped over, and what takes as long.
    pub tombstones: Spread,
}

impl Waits {
    /// Adds others.
    pub fn merge(&mut self, other: &Waits) {
        self.seeks.merge(&other.seeks);
        self.lists.merge(&other.lists);
        self.block_reads.merge(&other.block_reads);
        self.tombstones.merge(&other.tombstones);
    }
}

/// How long operations took in a stretch of time: what the history keeps of [`Waits`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub seeks: LatencyHistogram,
    pub lists: LatencyHistogram,
}

impl Times {
    /// From buckets as they are stored; empty ones at the end are left out.
    pub fn new(seeks: &[u64], lists: &[u64]) -> Times {
        Times { seeks: trimmed(seeks), lists: trimmed(lists) }
    }

    pub fn merge(&mut self, other: &Times) {
        self.seeks.merge(&other.seeks);
        self.lists.merge(&other.lists);
    }

    /// Whether no operation is in it.
    pub fn is_empty(&self) -> bool {
        self.seeks.count() == 0 && self.lists.count() == 0
    }
}

impl From<&Waits> for Times {
    fn from(waits: &Waits) -> Times {
        Times { seeks: waits.seeks.histogram.clone(), lists: waits.lists.histogram.clone() }
    }
}

fn trimmed(buckets: &[u64]) -> LatencyHistogram {
    let used = buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    LatencyHistogram::new(buckets.get(..used).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_merged_is_all_there() {
        let spread = |buckets: &[u64], sum| Spread::new(buckets, sum);
        let mut waits = Waits { lists: spread(&[0, 2, 0, 0], 5), ..Waits::default() };
        waits.merge(&Waits {
            lists: spread(&[0, 1, 4], 20),
            tombstones: spread(&[3], 2),
            ..Waits::default()
        });
        assert_eq!(waits.lists, Spread::new(&[0, 3, 4, 0, 0], 25));
        assert_eq!((waits.tombstones.sum, waits.seeks.sum), (2, 0));
        assert_eq!(Times::from(&waits), Times::new(&[], &[0, 3, 4]));
        assert!(!Times::from(&waits).is_empty() && Times::new(&[0, 0], &[]).is_empty());
    }

    #[test]
    fn a_sum_that_does_not_fit_stays_at_its_greatest() {
        let mut sum = Spread::new(&[1], u64::MAX);
        sum.merge(&Spread::new(&[1], 1));
        assert_eq!((sum.sum, sum.histogram.count()), (u64::MAX, 2));
    }
}

//! How small an operation may be to get a record of its own, so that records are neither too many nor too
//! few.
//!
//! Of operations below the size that the policy begins with, so many together get one record as make that
//! size. What records stand for is right at any size: a smaller one only makes it more exact, at the price of
//! more records. Choosing is the kernel's, counting and changing sizes the agent's.

/// Records of a window after which the size doubles for the rest of it: a window of any load has some
/// thousands, and taking one costs its thread about a microsecond.
pub const RECORDS_MANY: u64 = 4_096;

/// Fewer records of a window halve the size for the next one: with so many the tenth of the operations that
/// lie in one place are known to about a fifth.
pub const RECORDS_FEW: u64 = 256;

/// Times that the first size is halved at most: 1,000 tombstones to 16, and 64 block reads to one.
const HALVINGS_MAX: i32 = 6;

/// Times that it is doubled at most: more than there can be operations in a window.
const DOUBLINGS_MAX: i32 = 32;

/// The size for one target, as powers of two of what the policy says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    doublings: i32,
}

impl Sampling {
    /// The size now, from the policy's. 0 stays 0, by which every operation is recorded, and the greatest
    /// number stays what it is, by which none is.
    pub fn scaled(self, first: u64) -> u64 {
        if first == 0 || first == u64::MAX {
            return first;
        }
        let power = 1_u64 << self.doublings.unsigned_abs();
        if self.doublings < 0 { (first / power).max(1) } else { first.saturating_mul(power) }
    }

    /// A window has come to [`RECORDS_MANY`] records since the last change.
    pub fn raise(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
    }

    /// A window has closed, with so many records.
    pub fn note_window(&mut self, records: u64) {
        if records < RECORDS_FEW {
            self.doublings = (self.doublings - 1).max(-HALVINGS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of windows on a target whose operations would make `at_first` records at the policy's size.
    fn settle(at_first: f64) -> (Sampling, f64) {
        let mut sampling = Sampling::default();
        let mut records = 0.0;
        for _ in 0..40 {
            let rate = |sampling: Sampling| at_first / 2_f64.powi(sampling.doublings);
            let (mut left, mut open) = (0.0, 1.0);
            records = 0.0;
            while open > 0.0 {
                let until_raised = RECORDS_MANY as f64 / rate(sampling);
                let part = f64::min(open, until_raised);
                records += part * rate(sampling);
                left += part;
                open = 1.0 - left;
                if open > 0.0 {
                    sampling.raise();
                }
            }
            sampling.note_window(records as u64);
        }
        (sampling, records)
    }

    #[test]
    fn records_come_to_lie_between_few_and_many() {
        for at_first in [0.1, 10.0, 255.0, 256.0, 4_000.0, 5_000.0, 1e6, 1e9] {
            let (sampling, records) = settle(at_first);
            let is_at_end = sampling.doublings == -HALVINGS_MAX;
            assert!(records >= RECORDS_FEW as f64 || is_at_end, "{at_first}: {sampling:?} {records}");
            assert!(records <= RECORDS_MANY as f64 * 1.001, "{at_first}: {sampling:?} {records}");
        }
    }

    #[test]
    fn all_and_none_stay_all_and_none() {
        let mut sampling = Sampling::default();
        assert_eq!(sampling.scaled(1_000), 1_000);
        (0..40).for_each(|_| sampling.raise());
        assert_eq!((sampling.scaled(0), sampling.scaled(u64::MAX)), (0, u64::MAX));
        assert_eq!(sampling.scaled(u64::MAX / 2), u64::MAX);
        (0..99).for_each(|_| sampling.note_window(0));
        assert_eq!((sampling.scaled(1_000), sampling.scaled(64), sampling.scaled(7)), (15, 1, 1));
    }
}

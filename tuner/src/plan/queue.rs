//! Jobs that are wanted, best first: bounded, and without overlaps.

use crate::facts::range::KeyRange;
use crate::plan::CompactRange;

/// Jobs that one plan can hold back or spend on; more would be out of date before their turn came.
pub const QUEUE_CAPACITY: usize = 256;

/// A job that somebody should do.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What would be done.
    pub compact: CompactRange,
    /// The ranges that it is for, from the first key to the last.
    pub of: KeyRange,
    /// Rank: what it is worth per byte of its price, which is what is rewritten and what hard links keep.
    pub worth: f64,
    /// Whether the tombstones that it is for are an estimate.
    pub is_estimated: bool,
}

impl Wanted {
    /// The same, with what else speaks for it.
    pub fn because(mut self, why: Option<String>) -> Wanted {
        if let Some(why) = why {
            self.compact.reason = format!("{}; {why}", self.compact.reason);
        }
        self
    }

    fn overlaps(&self, other: &Wanted) -> bool {
        let (one, two) = (&self.compact, &other.compact);
        one.target == two.target
            && one.database == two.database
            && one.column_family == two.column_family
            && one.range.overlaps(&two.range)
    }

    /// Best first; a total order, so that the same things always stand in the same order.
    fn compare(&self, other: &Wanted) -> std::cmp::Ordering {
        let place = |item: &Wanted| {
            let CompactRange { target, database, column_family, range, .. } = item.compact.clone();
            (target, database, column_family, range)
        };
        other.worth.total_cmp(&self.worth).then_with(|| place(self).cmp(&place(other)))
    }
}

/// Something that is not in the queue after a push, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Displaced {
    /// What is out.
    pub wanted: Wanted,
    pub cause: DisplacedBy,
}

/// Why something is not in the queue after a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisplacedBy {
    /// One that is worth more per byte shares keys with it.
    Overlap,
    /// The queue is full of better ones.
    Capacity,
}

/// Wanted ranges, best first. No two of the same column family share a key.
#[derive(Clone, Debug)]
pub struct Queue {
    capacity: usize,
    items: Vec<Wanted>,
}

impl Queue {
    /// An empty queue for at most this many ranges.
    pub fn new(capacity: usize) -> Queue {
        Queue { capacity, items: Vec::new() }
    }

    /// Adds a range. Of ranges that overlap the better ones stay; the new one gives way to an equal. Returns
    /// what is not in the queue now.
    pub fn push(&mut self, wanted: Wanted) -> Vec<Displaced> {
        let better = |item: &Wanted| item.worth.total_cmp(&wanted.worth).is_ge();
        if self.items.iter().any(|item| item.overlaps(&wanted) && better(item)) {
            return vec![Displaced { wanted, cause: DisplacedBy::Overlap }];
        }
        let mut displaced: Vec<Displaced> = (self.items.extract_if(.., |item| item.overlaps(&wanted)))
            .map(|wanted| Displaced { wanted, cause: DisplacedBy::Overlap })
            .collect();
        let place = self.items.partition_point(|item| item.compare(&wanted).is_lt());
        self.items.insert(place, wanted);
        if self.items.len() > self.capacity {
            displaced
                .extend(self.items.pop().map(|wanted| Displaced { wanted, cause: DisplacedBy::Capacity }));
        }
        displaced
    }

    /// Takes the best range out.
    pub fn pop(&mut self) -> Option<Wanted> {
        if self.items.is_empty() { None } else { Some(self.items.remove(0)) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::key::Key;
    use proptest::prelude::*;

    /// The whole column family, assessed.
    fn before() -> serde_json::Value {
        serde_json::json!({
            "target": "t", "database": "/db", "column_family": "a", "range": KeyRange::everything(),
            "operations_per_second": 1.0, "tombstones_per_seek": 1.0, "memtable_tombstones_per_seek": 0.0,
            "misses_per_seek": 0.0, "size_bytes": 1, "entries": 1, "deletions": 1, "density": 1.0,
            "pain_seconds_per_second": 1.0, "relief_seconds_per_second": 1.0, "cost_bytes": 1,
            "relief_per_byte": 1.0, "reason": "",
        })
    }

    fn wanted(begin: u8, length: u8, rank: u8, family: &str) -> Wanted {
        let end = begin.checked_add(length).map(|end| Key::new([end]));
        let json = serde_json::json!({
            "target": "t", "database": "/db", "column_family": family,
            "range": KeyRange::new(Key::new([begin]), end).unwrap(), "before": before(),
            "cost_bytes": 1, "relief_seconds_per_second": 0.1, "deletions": 1, "reason": "",
        });
        Wanted {
            compact: serde_json::from_value(json).unwrap(),
            of: KeyRange::everything(),
            worth: f64::from(rank),
            is_estimated: false,
        }
    }

    #[test]
    fn the_better_of_two_that_overlap_stays() {
        let mut queue = Queue::new(8);
        assert!(queue.push(wanted(10, 10, 5, "a")).is_empty());
        let worse = queue.push(wanted(15, 10, 4, "a"));
        assert_eq!(
            worse.first().map(|out| (out.wanted.compact.range.begin.as_bytes(), out.cause)),
            Some((&[15u8][..], DisplacedBy::Overlap))
        );
        let better = queue.push(wanted(15, 10, 6, "a"));
        assert_eq!(better.first().map(|out| out.wanted.compact.range.begin.as_bytes()), Some(&[10u8][..]));
        assert!(queue.push(wanted(15, 10, 1, "b")).is_empty());
        assert_eq!(queue.items.len(), 2);
    }

    #[test]
    fn the_first_of_equals_stays_and_the_worst_falls_out() {
        let mut queue = Queue::new(2);
        queue.push(wanted(10, 1, 5, "a"));
        let equal = queue.push(wanted(10, 1, 5, "a"));
        assert_eq!(equal.first().map(|out| out.cause), Some(DisplacedBy::Overlap));
        queue.push(wanted(30, 1, 5, "a"));
        let out = queue.push(wanted(20, 1, 5, "a"));
        assert_eq!(
            out.first().map(|out| (out.wanted.compact.range.begin.as_bytes(), out.cause)),
            Some((&[30u8][..], DisplacedBy::Capacity))
        );
        let order: Vec<Wanted> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [wanted(10, 1, 5, "a"), wanted(20, 1, 5, "a")]);
    }

    fn family() -> impl Strategy<Value = &'static str> {
        prop_oneof![Just("a"), Just("b")]
    }

    proptest! {
        #[test]
        fn no_two_queued_ranges_overlap_and_the_order_holds(
            pushes in proptest::collection::vec((0u8..250, 1u8..40, 0u8..9, family()), 0..60),
            capacity in 0usize..20,
        ) {
            let mut queue = Queue::new(capacity);
            for (begin, length, rank, family) in pushes {
                queue.push(wanted(begin, length, rank, family));
                prop_assert!(queue.items.len() <= capacity);
                for (index, one) in queue.items.iter().enumerate() {
                    for two in queue.items.iter().skip(index + 1) {
                        prop_assert!(!one.overlaps(two));
                        prop_assert!(one.compare(two).is_lt());
                    }
                }
            }
        }
    }
}

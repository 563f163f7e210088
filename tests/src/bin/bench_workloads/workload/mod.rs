//! The workloads: what they are called and how large they are. What they do is the host's business.

mod shapes;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

pub use shapes::{Expiry, Filling, Order, Shape, Spread};

/// How much smaller a quick run's databases are.
const QUICK_DIVISOR: u64 = 20;

/// How large databases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    Full,
    /// To see that everything works.
    Quick,
}

impl Scale {
    pub fn of(self, count: u64) -> u64 {
        match self {
            Scale::Full => count,
            Scale::Quick => (count / QUICK_DIVISOR).max(1),
        }
    }
}

/// A workload, or a size or kind of one.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: &'static str,
    /// Workloads of one letter are variants of each other.
    pub letter: char,
    /// What it stands for, for the report.
    pub what: &'static str,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// Rows are appended and the oldest are deleted, in one queue or in many.
    Queues(Shape),
    Ycsb(Mix),
}

/// Operations of a YCSB workload, per cent; what is left are reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    pub updates: u64,
    pub inserts: u64,
    pub scans: u64,
    pub read_modify_writes: u64,
    /// Whether the newest rows are the most popular.
    pub reads_latest: bool,
}

impl Workload {
    pub fn is_ycsb(&self) -> bool {
        matches!(self.kind, Kind::Ycsb(_))
    }

    /// Whether compaction is the wrong answer to what is wrong there.
    pub fn is_for_something_else(&self) -> bool {
        ["hashed", "expired_by_filter"].contains(&self.name)
    }
}

/// All of them, in the order in which they run.
pub fn all() -> Vec<Workload> {
    let queues = |name, letter, what, shape| Workload { name, letter, what, kind: Kind::Queues(shape) };
    let queue = "a queue: 1,100 creates, 440 deletes, 55 lists a second";
    let mut all = vec![
        queues("queue_1e5", 'a', queue, Shape::queue(100_000)),
        queues("queue_1e6", 'a', queue, Shape::queue(1_000_000)),
        queues("queue_1e7", 'a', queue, Shape::queue(10_000_000)),
        queues("prefixes", 'b', "1,000 prefixes, Zipf readers and writers", Shape::prefixes()),
        queues("hashed", 'c', "hashed keys, 30 % deleted evenly", Shape::hashed()),
    ];
    let series = [
        ("expired_by_delete", "time series, expired by Delete", Expiry::Delete),
        ("expired_by_delete_range", "time series, expired by DeleteRange", Expiry::DeleteRange { rows: 100 }),
        ("expired_by_filter", "time series, expired by a compaction filter", Expiry::Filter),
    ];
    all.extend(series.map(|(name, what, expiry)| queues(name, 'd', what, Shape::series(expiry))));
    all.push(queues("stores", 'e', "50 databases in one process, one of them hurting", Shape::stores()));
    all.push(queues("index", 'f', "a secondary index, with long snapshots", Shape::index()));
    all.push(queues("families", 'g', "200 column families, ten of them hot", Shape::families()));
    let mix = Mix::default();
    let ycsb = [
        ("ycsb_a", "half updates", Mix { updates: 50, ..mix }),
        ("ycsb_b", "5 % updates", Mix { updates: 5, ..mix }),
        ("ycsb_c", "reads", mix),
        ("ycsb_d", "reads of the latest, 5 % inserts", Mix { inserts: 5, reads_latest: true, ..mix }),
        ("ycsb_e", "scans, 5 % inserts", Mix { inserts: 5, scans: 95, ..mix }),
        ("ycsb_f", "half read-modify-writes", Mix { read_modify_writes: 50, ..mix }),
    ];
    all.extend(ycsb.map(|(name, what, mix)| Workload { name, letter: 'h', what, kind: Kind::Ycsb(mix) }));
    all
}

/// The workloads of a letter, or the one of a name.
pub fn selected(wanted: &str) -> Result<Vec<Workload>> {
    let is_wanted = |workload: &Workload| workload.name == wanted || workload.letter.to_string() == wanted;
    let selected: Vec<Workload> = all().into_iter().filter(is_wanted).collect();
    if selected.is_empty() {
        let known: Vec<&str> = all().iter().map(|workload| workload.name).collect();
        bail!("there is no workload `{wanted}`: a letter from a to h, or one of {}", known.join(", "));
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn letters_and_names_select() {
        let names = |wanted| -> Vec<&str> {
            selected(wanted).unwrap().iter().map(|workload| workload.name).collect()
        };
        assert_eq!(names("a"), ["queue_1e5", "queue_1e6", "queue_1e7"]);
        assert_eq!(names("stores"), ["stores"]);
        assert_eq!(names("h").len(), 6);
        assert!(selected("z").unwrap_err().to_string().contains("queue_1e7"));
    }

    #[test]
    fn no_percentages_are_left_over() {
        for workload in all() {
            if let Kind::Ycsb(mix) = workload.kind {
                assert!(mix.updates + mix.inserts + mix.scans + mix.read_modify_writes <= 100);
            }
        }
    }
}

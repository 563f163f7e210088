//! What a target's operations waited for, by column family: since it is watched, and since the last cycle.

use crate::session::FamilyName;
use sexton_tuner::waits::{Times, Waits};
use std::collections::BTreeMap;

/// Column families that are told apart in one target, those that were seen first: Ozone's largest databases
/// have some forty.
const FAMILIES_MAX: usize = 64;

/// What all others are counted under.
const OTHERS: &str = "other";

#[derive(Default)]
pub struct WaitRecord {
    sums: BTreeMap<FamilyName, Waits>,
    news: BTreeMap<FamilyName, Times>,
}

impl WaitRecord {
    /// Takes in what a window has seen.
    pub fn take(&mut self, seen: BTreeMap<FamilyName, Waits>) {
        for (name, waits) in seen {
            let is_told = self.sums.contains_key(&name) || self.sums.len() < FAMILIES_MAX;
            let name = if is_told { name } else { others() };
            self.news.entry(name.clone()).or_default().merge(&Times::from(&waits));
            self.sums.entry(name).or_default().merge(&waits);
        }
    }

    /// All that was seen.
    pub fn sums(&self) -> &BTreeMap<FamilyName, Waits> {
        &self.sums
    }

    /// How long operations took that were seen since this was asked last.
    pub fn take_news(&mut self) -> BTreeMap<FamilyName, Times> {
        std::mem::take(&mut self.news)
    }
}

fn others() -> FamilyName {
    FamilyName { database: None, column_family: Some(OTHERS.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sexton_tuner::waits::Spread;

    fn seen(numbers: std::ops::Range<usize>) -> BTreeMap<FamilyName, Waits> {
        let name =
            |number| FamilyName { column_family: Some(format!("{number:04}")), ..FamilyName::default() };
        let waits = Waits { lists: Spread::new(&[0, 1], 2), ..Waits::default() };
        numbers.map(|number| (name(number), waits.clone())).collect()
    }

    #[test]
    fn column_families_are_bounded_and_nothing_is_lost() {
        let mut record = WaitRecord::default();
        record.take(seen(0..3));
        assert_eq!(record.take_news().len(), 3);
        record.take(seen(0..2 * FAMILIES_MAX));
        assert_eq!(record.sums().len(), FAMILIES_MAX + 1);
        let count = |name: &FamilyName| record.sums().get(name).map(|waits| waits.lists.histogram.count());
        assert_eq!(count(&others()), Some(FAMILIES_MAX as u64));
        let all: u64 = record.sums().values().map(|waits| waits.lists.sum).sum();
        assert_eq!(all, 2 * (3 + 2 * FAMILIES_MAX as u64));
        assert_eq!(record.take_news().len(), FAMILIES_MAX + 1);
        assert!(record.take_news().is_empty());
    }
}

//! Records and how they are named. What is written in one batch is written whole or not at all.

use serde::Serialize;

/// Kinds of records. Each has its own place in the key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Action,
    Event,
    /// What is known of throttles, by target and name.
    Throttle,
    /// Single values of the agent, by name.
    Agent,
    /// When a database was last sampled, and what was still wanted of it, by database.
    Sample,
    /// What windows have seen of the databases of a target, by its first database.
    Pain,
    /// Where the survey of a database stands, by database.
    Cursor,
    /// Settings that are changed in a target and are to be restored.
    Setting,
}

impl Kind {
    /// What the keys of its records begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Kind::Action => "action/",
            Kind::Event => "event/",
            Kind::Throttle => "throttle/",
            Kind::Agent => "agent/",
            // As the first release has named it.
            Kind::Sample => "survey/",
            Kind::Pain => "pain/",
            Kind::Cursor => "cursor/",
            // The first release kept options only.
            Kind::Setting => "option/",
        }
    }

    /// The whole key of a record.
    pub fn key(self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }
}

/// The name of a numbered record. Names are in the order of their numbers.
pub fn numbered(number: u64) -> String {
    format!("{number:020}")
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Keys with their new values; without one the record is deleted.
    pub(super) writes: Vec<(String, Option<Vec<u8>>)>,
}

impl Batch {
    /// Adds a record, or replaces it.
    ///
    /// What cannot be written as JSON is left out. None of the types that are kept here can fail to.
    pub fn put(&mut self, kind: Kind, name: &str, value: &impl Serialize) {
        if let Ok(bytes) = serde_json::to_vec(value) {
            self.writes.push((kind.key(name), Some(bytes)));
        }
    }

    pub fn delete(&mut self, kind: Kind, name: &str) {
        self.writes.push((kind.key(name), None));
    }

    /// Adds the writes of another batch.
    pub fn append(&mut self, mut other: Batch) {
        self.writes.append(&mut other.writes);
    }

    /// The batch that undoes this one where nothing was there before.
    pub(super) fn undone(&self) -> Batch {
        Batch { writes: self.writes.iter().map(|(key, _)| (key.clone(), None)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_are_in_the_order_of_their_numbers(one: u64, two: u64) {
            prop_assert_eq!(one.cmp(&two), numbered(one).cmp(&numbered(two)));
        }
    }
}

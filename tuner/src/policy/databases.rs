//! Which of a process's databases may be acted on.

use super::glob::glob_matches;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which of a process's databases may be acted on, by the paths of their directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DatabasesPolicy {
    /// Globs on the directory's whole path, as the process sees it: `*` is any text, slashes included, `?`
    /// one character. Only databases that match one are acted on, and these even where they are checkpoints
    /// of another one. Default: every database that is no checkpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Globs as above: what matches one is never acted on, whatever `include` says. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// What a policy says of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming<'a> {
    /// Nothing: it is judged by what is known of it.
    Unnamed,
    /// It is included.
    Included,
    /// Others are included, and it is not.
    NotIncluded,
    /// It is excluded, by this pattern.
    Excluded(&'a str),
}

impl DatabasesPolicy {
    /// What is said of the database in this directory.
    pub fn naming(&self, directory: &str) -> Naming<'_> {
        let matching =
            |patterns: &'_ [String]| patterns.iter().position(|pattern| glob_matches(pattern, directory));
        if let Some(pattern) = matching(&self.exclude).and_then(|place| self.exclude.get(place)) {
            return Naming::Excluded(pattern);
        }
        match matching(&self.include) {
            Some(_) => Naming::Included,
            None if self.include.is_empty() => Naming::Unnamed,
            None => Naming::NotIncluded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclude_goes_before_include_and_silence_is_neither() {
        let of = |include: &[&str], exclude: &[&str]| {
            let owned = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            DatabasesPolicy { include: owned(include), exclude: owned(exclude) }
        };
        let live = "/data/om.db";
        let snapshot = "/data/db.snapshots/checkpointState/om.db-0a1b";
        assert_eq!(of(&[], &[]).naming(live), Naming::Unnamed);
        let shipped = of(&["*/om.db"], &[]);
        assert_eq!((shipped.naming(live), shipped.naming(snapshot)), (Naming::Included, Naming::NotIncluded));
        let both = of(&["*/om.db*"], &["*/db.snapshots/*"]);
        assert_eq!(both.naming(live), Naming::Included);
        assert_eq!(both.naming(snapshot), Naming::Excluded("*/db.snapshots/*"));
        assert_eq!(of(&[], &["/other"]).naming(live), Naming::Unnamed);
    }
}

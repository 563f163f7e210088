//! Options that an agent has changed, with the values to put back when it is gone.
//!
//! RocksDB is not called here, and whether a database is still the one in which an option was changed is the
//! guard's to say: this keeps account.

use sexton_hook_protocol::{CHANGED_OPTIONS_MAX, ChangedOption, ColumnFamilyPointers};
use std::ffi::CString;

/// Tries to put an option back before it is given up: at one a second a minute, in which a full disk can be
/// made room on. More would not help where RocksDB does not take the value.
const TRIES_MAX: u32 = 60;

/// A change, in C's strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub name: CString,
    pub value: CString,
    /// The value that was in force; `None`: the new one is to stay.
    pub restore: Option<CString>,
}

/// A value to put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    pub column_family: ColumnFamilyPointers,
    pub name: CString,
    pub value: CString,
    tries: u32,
}

/// What came of putting one back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutBack {
    Done,
    /// Not now, for this reason.
    Failed(String),
    /// Its database or column family is gone.
    Gone,
}

/// All values to put back: the one before the first change of each option.
#[derive(Debug, Default)]
pub struct Changed {
    formers: Vec<Former>,
}

impl Former {
    fn is_of(&self, column_family: &ColumnFamilyPointers, name: &CString) -> bool {
        self.column_family.database == column_family.database
            && self.column_family.id == column_family.id
            && self.name == *name
    }
}

impl Changed {
    /// Whether there is nothing to put back.
    pub fn is_empty(&self) -> bool {
        self.formers.is_empty()
    }

    /// Whether so many more can be remembered.
    pub fn has_room(&self, more: usize) -> bool {
        self.formers.len().saturating_add(more) <= CHANGED_OPTIONS_MAX
    }

    /// Forgets databases that are not what they were.
    pub fn retain(&mut self, is_same: impl Fn(u64) -> bool) {
        self.formers.retain(|former| is_same(former.column_family.database));
    }

    /// Notes changes that were made.
    pub fn note(&mut self, column_family: &ColumnFamilyPointers, changes: &[Change]) {
        for change in changes {
            let known = self.formers.iter().position(|former| former.is_of(column_family, &change.name));
            match (known, &change.restore) {
                (Some(at), None) => drop(self.formers.remove(at)),
                (None, Some(restore)) if self.has_room(1) => self.formers.push(Former {
                    column_family: column_family.clone(),
                    name: change.name.clone(),
                    value: restore.clone(),
                    tries: 0,
                }),
                // The first value stays, and the newest pointers: the handle may be another one by now.
                (Some(at), Some(_)) => {
                    if let Some(former) = self.formers.get_mut(at) {
                        former.column_family = column_family.clone();
                    }
                }
                (None, _) => {}
            }
        }
    }

    /// Puts all of them back by `put_back`, the last change first. What fails stays for another try, but not
    /// for ever; gives what was said of those that failed.
    pub fn put_back(&mut self, mut put_back: impl FnMut(&Former) -> PutBack) -> Vec<String> {
        let mut failures = Vec::new();
        let mut left = Vec::new();
        for mut former in std::mem::take(&mut self.formers).into_iter().rev() {
            let PutBack::Failed(reason) = put_back(&former) else { continue };
            former.tries += 1;
            let name = former.name.to_string_lossy().into_owned();
            if former.tries < TRIES_MAX {
                failures.push(format!("{name} cannot be put back: {reason}"));
                left.push(former);
            } else {
                failures.push(format!("{name} was not put back, and is not tried again: {reason}"));
            }
        }
        left.reverse();
        self.formers = left;
        failures
    }

    pub fn list(&self) -> Vec<ChangedOption> {
        let shown = |former: &Former| ChangedOption {
            database: former.column_family.database,
            column_family_id: former.column_family.id,
            name: former.name.to_string_lossy().into_owned(),
        };
        self.formers.iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const DATABASE: u64 = 0x1000;

    fn family(database: u64, id: u32) -> ColumnFamilyPointers {
        ColumnFamilyPointers { database, handle: 8, name: format!("family{id}"), id }
    }

    fn change(name: &str, value: &str, restore: Option<&str>) -> Change {
        let text = |text: &str| CString::new(text).unwrap();
        Change { name: text(name), value: text(value), restore: restore.map(text) }
    }

    fn noted(changed: &mut Changed, id: u32, change: Change) {
        changed.note(&family(DATABASE, id), &[change]);
    }

    /// Puts all back; gives names and values in the order in which that was done.
    fn all_back(changed: &mut Changed) -> Vec<(String, String)> {
        let mut done = Vec::new();
        let text = |text: &CString| text.to_str().unwrap().to_owned();
        let failures = changed.put_back(|former| {
            done.push((text(&former.name), text(&former.value)));
            PutBack::Done
        });
        assert!(failures.is_empty() && changed.is_empty());
        done
    }

    #[test]
    fn the_value_before_the_first_change_comes_back() {
        let mut changed = Changed::default();
        noted(&mut changed, 0, change("trigger", "1000", Some("0")));
        noted(&mut changed, 0, change("trigger", "2000", Some("1000")));
        noted(&mut changed, 1, change("trigger", "1000", Some("7")));
        assert_eq!(changed.list().len(), 2);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(all_back(&mut changed), [pair("trigger", "7"), pair("trigger", "0")]);
    }

    #[test]
    fn what_is_to_stay_is_not_put_back() {
        let mut changed = Changed::default();
        noted(&mut changed, 0, change("trigger", "1000", Some("0")));
        noted(&mut changed, 0, change("trigger", "0", None));
        noted(&mut changed, 0, change("other", "1", None));
        assert!(changed.is_empty());
    }

    #[test]
    fn what_fails_is_tried_again_and_given_up_in_the_end() {
        let mut changed = Changed::default();
        noted(&mut changed, 0, change("trigger", "1000", Some("0")));
        noted(&mut changed, 1, change("trigger", "1000", Some("0")));
        let fails_in_0 = |former: &Former| match former.column_family.id {
            0 => PutBack::Failed("no room".to_owned()),
            _ => PutBack::Gone,
        };
        for _ in 1..TRIES_MAX {
            let failures = changed.put_back(fails_in_0);
            assert!(failures.iter().all(|words| words.contains("cannot be put back")), "{failures:?}");
            assert_eq!(changed.list().len(), 1);
        }
        assert!(changed.put_back(fails_in_0).iter().all(|words| words.contains("not tried again")));
        assert!(changed.is_empty());
    }

    #[test]
    fn a_database_that_is_another_one_by_now_is_forgotten() {
        let mut changed = Changed::default();
        noted(&mut changed, 0, change("trigger", "1000", Some("0")));
        changed.note(&family(8, 0), &[change("trigger", "1000", Some("0"))]);
        changed.retain(|database| database != 8);
        assert_eq!(changed.list().iter().map(|option| option.database).collect::<Vec<_>>(), [DATABASE]);
    }

    proptest! {
        /// A column family's options, as RocksDB would have them: whatever was changed, and however often,
        /// all are what they were at first once they have been put back.
        #[test]
        fn whatever_was_changed_comes_back(changes in proptest::collection::vec((0u32..3, 0u8..4, 0u8..9), 0..60)) {
            let mut changed = Changed::default();
            let mut options: BTreeMap<(u32, String), String> = BTreeMap::new();
            for (id, name, value) in changes {
                let (key, value) = ((id, format!("option{name}")), value.to_string());
                let former = options.get(&key).cloned().unwrap_or_else(|| "first".to_owned());
                noted(&mut changed, id, change(&key.1, &value, Some(&former)));
                options.insert(key, value);
            }
            changed.put_back(|former| {
                let name = former.name.to_str().unwrap().to_owned();
                options.insert((former.column_family.id, name), former.value.to_str().unwrap().to_owned());
                PutBack::Done
            });
            prop_assert!(options.values().all(|value| value == "first"), "{:?}", options);
        }

        #[test]
        fn no_more_is_remembered_than_fits(count in 0usize..600) {
            let mut changed = Changed::default();
            for number in 0..count {
                noted(&mut changed, 0, change(&format!("option{number}"), "1", Some("0")));
            }
            prop_assert_eq!(changed.list().len(), count.min(CHANGED_OPTIONS_MAX));
        }
    }
}

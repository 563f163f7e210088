//! Where keys are cut: the part of a key that names its table, bucket or directory.

use crate::facts::key::Key;

/// How a column family's keys begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefixRule {
    /// Up to and including the delimiter of this number, counted from one: `/vol/bucket/` of
    /// `/vol/bucket/key` with `/` and 3.
    Delimiter {
        /// The byte that ends a part.
        delimiter: u8,
        /// How many of them the prefix holds.
        count: usize,
    },
    /// The first so many bytes.
    Bytes(usize),
}

impl PrefixRule {
    /// The key's prefix; `None` where the key is too short to have one.
    pub fn prefix_of(&self, key: &Key) -> Option<Key> {
        let bytes = key.as_bytes();
        let length = match self {
            PrefixRule::Bytes(length) => *length,
            PrefixRule::Delimiter { delimiter, count } => {
                let mut places = bytes.iter().enumerate().filter(|(_, byte)| *byte == delimiter);
                places.nth(count.checked_sub(1)?)?.0 + 1
            }
        };
        if length == 0 {
            return None;
        }
        bytes.get(..length).map(Key::new)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn cut(rule: PrefixRule, key: &str) -> Option<String> {
        rule.prefix_of(&Key::new(key)).map(|prefix| prefix.escaped())
    }

    #[test]
    fn cuts_behind_the_delimiter() {
        let rule = PrefixRule::Delimiter { delimiter: b'/', count: 3 };
        assert_eq!(cut(rule, "/vol/bucket/key/x").as_deref(), Some("/vol/bucket/"));
        assert_eq!(cut(rule, "/vol/bucket/").as_deref(), Some("/vol/bucket/"));
        assert_eq!(cut(rule, "/vol/bucket"), None);
        assert_eq!(cut(PrefixRule::Delimiter { delimiter: b'/', count: 0 }, "/vol"), None);
    }

    #[test]
    fn cuts_by_length() {
        assert_eq!(cut(PrefixRule::Bytes(2), "abc").as_deref(), Some("ab"));
        assert_eq!(cut(PrefixRule::Bytes(4), "abc"), None);
        assert_eq!(cut(PrefixRule::Bytes(0), "abc"), None);
    }

    proptest! {
        #[test]
        fn a_key_begins_with_its_prefix(key: Vec<u8>, length in 1usize..6, delimiter: u8) {
            let key = Key::new(key);
            for rule in [PrefixRule::Bytes(length), PrefixRule::Delimiter { delimiter, count: length }] {
                if let Some(prefix) = rule.prefix_of(&key) {
                    prop_assert!(key.as_bytes().starts_with(prefix.as_bytes()));
                }
            }
        }
    }
}

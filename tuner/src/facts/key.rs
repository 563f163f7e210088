//! User keys of a column family, in bytewise order, and how they may be shown.
//!
//! A key is user data. [`Key`] therefore has no `Display`: whoever shows one says how, through
//! [`Key::redacted`], [`Key::hex`] or [`Key::escaped`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of a redacted key that stay readable; enough to tell tables apart, too few to tell users apart.
pub const REDACTED_BYTES_SHOWN: usize = 4;

/// A user key of RocksDB: any bytes, ordered bytewise.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Key {
        Key(bytes.into())
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the key has no bytes; as the begin of a range that means "from the start".
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest key that is greater than every key with this prefix; `None` where there is none
    /// (the prefix is empty or all `0xff`).
    pub fn prefix_end(&self) -> Option<Key> {
        let kept = self.0.iter().rposition(|byte| *byte != 0xff)?;
        let mut bytes = self.0.get(..=kept)?.to_vec();
        if let Some(last) = bytes.last_mut() {
            *last += 1;
        }
        Some(Key(bytes))
    }

    /// The smallest key greater than this one.
    pub fn successor(&self) -> Key {
        let mut bytes = self.0.clone();
        bytes.push(0);
        Key(bytes)
    }

    /// Whole key in lower-case hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes that `digits` spell; `None` if they are not pairs of hexadecimal digits.
    pub fn from_hex(digits: &str) -> Option<Key> {
        if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
            return None;
        }
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
            .collect::<Option<Vec<u8>>>()
            .map(Key)
    }

    /// Whole key as text: printable ASCII as it is, the rest as `\xNN`.
    pub fn escaped(&self) -> String {
        let mut text = String::new();
        for byte in &self.0 {
            match byte {
                b'\\' => text.push_str("\\\\"),
                0x20..=0x7e => text.push(char::from(*byte)),
                _ => text.push_str(&format!("\\x{byte:02x}")),
            }
        }
        text
    }

    /// First [`REDACTED_BYTES_SHOWN`] bytes in hexadecimal, then the length: safe for logs, metrics
    /// and the API.
    pub fn redacted(&self) -> String {
        let shown: String =
            self.0.iter().take(REDACTED_BYTES_SHOWN).map(|byte| format!("{byte:02x}")).collect();
        if self.0.len() <= REDACTED_BYTES_SHOWN {
            shown
        } else {
            format!("{shown}…({} bytes)", self.0.len())
        }
    }
}

/// How keys are shown in plans, logs and the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyDisplay {
    /// First bytes and the length.
    #[default]
    Redacted,
    /// Whole keys.
    Shown,
}

/// Debug output is redacted: it ends up in logs.
impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Key({})", self.redacted())
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let digits = String::deserialize(deserializer)?;
        Key::from_hex(&digits)
            .ok_or_else(|| serde::de::Error::custom("a key is written in pairs of hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn redaction_hides_what_is_behind_the_first_bytes() {
        assert_eq!(Key::new("/vol/secret").redacted(), "2f766f6c…(11 bytes)");
        assert_eq!(Key::new("ab").redacted(), "6162");
        assert_eq!(format!("{:?}", Key::new("/vol/secret")), "Key(2f766f6c…(11 bytes))");
    }

    #[test]
    fn escapes_what_does_not_print() {
        assert_eq!(Key::new(*b"a\\\x00\xff").escaped(), "a\\\\\\x00\\xff");
    }

    #[test]
    fn a_prefix_of_greatest_bytes_has_no_end() {
        assert_eq!(Key::new([0xff, 0xff]).prefix_end(), None);
        assert_eq!(Key::default().prefix_end(), None);
        assert_eq!(Key::new([1, 0xff]).prefix_end(), Some(Key::new([2])));
    }

    proptest! {
        #[test]
        fn hexadecimal_digits_read_back(bytes: Vec<u8>) {
            let key = Key::new(bytes);
            prop_assert_eq!(Key::from_hex(&key.hex()), Some(key));
        }

        #[test]
        fn any_text_is_a_key_or_none(text in "\\PC*") {
            if let Some(key) = Key::from_hex(&text) {
                prop_assert_eq!(key.hex(), text.to_ascii_lowercase());
            }
        }

        #[test]
        fn the_prefix_end_is_behind_every_key_with_the_prefix(
            prefix: Vec<u8>,
            rest: Vec<u8>,
            other: Vec<u8>,
        ) {
            let whole = Key::new([prefix.clone(), rest].concat());
            let (other, prefix) = (Key::new(other), Key::new(prefix));
            if let Some(end) = prefix.prefix_end() {
                prop_assert!(prefix <= whole && whole < end);
                let between = other >= prefix && other < end;
                prop_assert_eq!(between, other.as_bytes().starts_with(prefix.as_bytes()));
            }
        }

        #[test]
        fn nothing_lies_between_a_key_and_its_successor(key: Vec<u8>, other: Vec<u8>) {
            let (key, other) = (Key::new(key), Key::new(other));
            prop_assert!(key < key.successor());
            prop_assert!(other <= key || other >= key.successor());
        }
    }
}

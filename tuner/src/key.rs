//! User keys of a column family, in bytewise order, and how they may be shown.
//!
//! A key is user data. [`Key`] therefore has no `Display`: whoever shows one says how, through
//! [`Key::redacted`], [`Key::hex`] or [`Key::escaped`].

use serde::{Deserialize, Serialize};

/// Bytes of a redacted key that stay readable; enough to tell tables apart, too few to tell users apart.
pub const REDACTED_BYTES_SHOWN: usize = 4;

/// A user key of RocksDB: any bytes, ordered bytewise.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// A key of these bytes.
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
        if !digits.is_ascii() || digits.len() % 2 != 0 {
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

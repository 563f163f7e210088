//! Key bytes on the wire: pairs of hexadecimal digits.

use crate::KEY_BYTES_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A user key, at most [`KEY_BYTES_MAX`] bytes; `Debug` shows its length alone, keys are user data.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyBytes(Vec<u8>);

/// Why bytes or digits are not a [`KeyBytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Too long.
    #[error("a key of {bytes} bytes is longer than the {KEY_BYTES_MAX} bytes the hook takes")]
    TooLong {
        /// Length asked for.
        bytes: usize,
    },
    /// Not pairs of hexadecimal digits.
    #[error("a key is written in pairs of hexadecimal digits")]
    NotHexadecimal,
}

impl KeyBytes {
    /// A key of these bytes; refused above [`KEY_BYTES_MAX`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<KeyBytes, KeyError> {
        let bytes = bytes.into();
        if bytes.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: bytes.len() });
        }
        Ok(KeyBytes(bytes))
    }

    /// The greatest key of at most [`KEY_BYTES_MAX`] bytes that is not above `bytes`: the key itself or
    /// its first bytes. For an SST file's smallest key, where less is safe.
    pub fn floor(bytes: &[u8]) -> KeyBytes {
        KeyBytes(bytes.get(..KEY_BYTES_MAX).unwrap_or(bytes).to_vec())
    }

    /// A key of at most [`KEY_BYTES_MAX`] bytes that is not below `bytes`: the key itself, or its first
    /// bytes counted up by one. For an SST file's largest key, where more is safe. A longer key of
    /// nothing but `0xff` cannot be rounded up and is cut.
    pub fn ceiling(bytes: &[u8]) -> KeyBytes {
        let Some(cut) = bytes.get(..KEY_BYTES_MAX).filter(|cut| cut.len() < bytes.len()) else {
            return KeyBytes(bytes.to_vec());
        };
        let mut rounded = cut.to_vec();
        match rounded.iter().rposition(|byte| *byte != 0xff) {
            None => KeyBytes(rounded),
            Some(at) => {
                rounded.truncate(at + 1);
                if let Some(last) = rounded.last_mut() {
                    *last += 1;
                }
                KeyBytes(rounded)
            }
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lower-case hexadecimal digits.
    pub fn hex(&self) -> String {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        let mut text = String::with_capacity(self.0.len() * 2);
        for byte in &self.0 {
            text.extend(DIGITS.get(usize::from(byte >> 4)));
            text.extend(DIGITS.get(usize::from(byte & 0x0f)));
        }
        text
    }

    /// The key that `digits` spell.
    pub fn from_hex(digits: &str) -> Result<KeyBytes, KeyError> {
        let digits = digits.as_bytes();
        if digits.len() / 2 > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: digits.len() / 2 });
        }
        let mut bytes = Vec::with_capacity(digits.len() / 2);
        for pair in digits.chunks(2) {
            match pair {
                [high, low] => bytes.push(nibble(*high)? << 4 | nibble(*low)?),
                _ => return Err(KeyError::NotHexadecimal),
            }
        }
        Ok(KeyBytes(bytes))
    }
}

fn nibble(digit: u8) -> Result<u8, KeyError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(KeyError::NotHexadecimal),
    }
}

impl std::fmt::Debug for KeyBytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "KeyBytes({} bytes)", self.0.len())
    }
}

impl Serialize for KeyBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for KeyBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyBytes, D::Error> {
        KeyBytes::from_hex(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_and_digits() {
        assert_eq!(
            KeyBytes::new(vec![0; KEY_BYTES_MAX + 1]),
            Err(KeyError::TooLong { bytes: KEY_BYTES_MAX + 1 })
        );
        assert_eq!(KeyBytes::from_hex("0g"), Err(KeyError::NotHexadecimal));
        assert_eq!(KeyBytes::from_hex("abc"), Err(KeyError::NotHexadecimal));
        assert_eq!(KeyBytes::from_hex("00FfA0").unwrap().as_bytes(), [0, 0xff, 0xa0]);
        assert!(KeyBytes::from_hex(&"0".repeat(2 * KEY_BYTES_MAX + 2)).is_err());
    }

    #[test]
    fn long_keys_are_rounded_to_the_safe_side() {
        let mut long = vec![b'k'; KEY_BYTES_MAX + 7];
        long[KEY_BYTES_MAX - 1] = 0xff;
        let (floor, ceiling) = (KeyBytes::floor(&long), KeyBytes::ceiling(&long));
        assert!(floor.as_bytes() <= long.as_slice());
        assert!(ceiling.as_bytes() > long.as_slice());
        assert_eq!(ceiling.as_bytes().len(), KEY_BYTES_MAX - 1);
        assert_eq!(format!("{floor:?}"), format!("KeyBytes({KEY_BYTES_MAX} bytes)"));
    }

    proptest! {
        #[test]
        fn hex_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let key = KeyBytes::new(bytes.clone()).unwrap();
            prop_assert_eq!(KeyBytes::from_hex(&key.hex()).unwrap(), key.clone());
            prop_assert_eq!(KeyBytes::floor(&bytes), key.clone());
            prop_assert_eq!(KeyBytes::ceiling(&bytes), key);
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,64}") {
            let _ = KeyBytes::from_hex(&text);
        }
    }
}

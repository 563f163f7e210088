//! Which bytes a tree's keys have: each way keeps the order of the numbers.

use crate::facts::key::Key;
use crate::facts::range::KeyRange;

/// Longest name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 40;

/// Greatest number that has a name.
const NUMBER_MAX: u64 = 999_999_999_999;

/// Digits of the greatest number.
const DIGITS: usize = 12;

/// How a number becomes a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// `000000000042`.
    #[default]
    Decimal,
    /// `/table/000000000042`.
    Prefixed,
    /// Eight bytes, greatest first.
    BigEndian,
    /// Eight bytes, spread over all that there are, as hashes are.
    Spread,
    /// `/dir/000000/000042`: so many keys in each directory.
    Directories { keys: u64 },
}

/// A key's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl Name {
    fn new() -> Name {
        Name { bytes: [0; NAME_BYTES_MAX], length: 0 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&self.bytes)
    }

    fn text(mut self, text: &[u8]) -> Name {
        for (place, byte) in self.bytes.iter_mut().skip(self.length).zip(text) {
            *place = *byte;
        }
        self.length = (self.length + text.len()).min(NAME_BYTES_MAX);
        self
    }

    fn decimal(mut self, mut number: u64, digits: usize) -> Name {
        let end = (self.length + digits).min(NAME_BYTES_MAX);
        if let Some(places) = self.bytes.get_mut(self.length..end) {
            for place in places.iter_mut().rev() {
                *place = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        self.length = end;
        self
    }
}

impl Names {
    pub(crate) fn name(self, number: u64) -> Name {
        let number = number.min(NUMBER_MAX);
        let name = Name::new();
        match self {
            Names::Decimal => name.decimal(number, DIGITS),
            Names::Prefixed => name.text(b"/table/").decimal(number, DIGITS),
            Names::BigEndian => name.text(&number.to_be_bytes()),
            Names::Spread => name.text(&(number * (u64::MAX / (NUMBER_MAX + 1))).to_be_bytes()),
            Names::Directories { keys } => {
                let (directory, file) = (number / keys.max(1), number % keys.max(1));
                name.text(b"/dir/").decimal(directory, DIGITS).text(b"/").decimal(file, DIGITS)
            }
        }
    }

    pub fn key(self, number: u64) -> Key {
        Key::new(self.name(number).as_bytes())
    }

    /// The first number whose key is not less than this one.
    pub fn first_from(self, key: &Key) -> u64 {
        let (mut low, mut high) = (0, NUMBER_MAX + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.name(middle).as_bytes() < key.as_bytes() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The keys of a range by their numbers: the first, and the first behind it.
    pub fn numbers(self, range: &KeyRange) -> (u64, Option<u64>) {
        (self.first_from(&range.begin), range.end.as_ref().map(|end| self.first_from(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Names; 5] =
        [Names::Decimal, Names::Prefixed, Names::BigEndian, Names::Spread, Names::Directories { keys: 100 }];

    proptest! {
        #[test]
        fn names_keep_the_order_and_lead_back(one in 0u64..1_000_000, two in 0u64..1_000_000) {
            for names in ALL {
                prop_assert_eq!(one.cmp(&two), names.key(one).cmp(&names.key(two)));
                prop_assert_eq!(names.first_from(&names.key(one)), one);
                prop_assert_eq!(names.first_from(&names.key(one).successor()), one + 1);
            }
        }
    }
}

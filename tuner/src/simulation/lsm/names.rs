//! Which bytes a tree's keys have: each way keeps the order of the numbers.

use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use std::sync::Arc;

/// Longest name that is made of a number, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// Greatest number that has a name.
const NUMBER_MAX: u64 = 999_999_999_999;

/// Digits of the greatest number.
const DIGITS: usize = 12;

/// How a number becomes a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Keys that somebody has listed, each once and in order: the number is a place in the list, and what
    /// lies behind it is the last key.
    Listed(Arc<[Key]>),
}

/// A key's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name<'n> {
    Made(Made),
    Listed(&'n Key),
}

impl Name<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Name::Made(made) => made.as_bytes(),
            Name::Listed(key) => key.as_bytes(),
        }
    }
}

/// A name that is made of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl Made {
    fn new() -> Made {
        Made { bytes: [0; NAME_BYTES_MAX], length: 0 }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&self.bytes)
    }

    fn text(mut self, text: &[u8]) -> Made {
        for (place, byte) in self.bytes.iter_mut().skip(self.length).zip(text) {
            *place = *byte;
        }
        self.length = (self.length + text.len()).min(NAME_BYTES_MAX);
        self
    }

    fn decimal(mut self, mut number: u64, digits: usize) -> Made {
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
    pub(crate) fn name(&self, number: u64) -> Name<'_> {
        let made = Made::new();
        let at_most = number.min(NUMBER_MAX);
        Name::Made(match self {
            Names::Decimal => made.decimal(at_most, DIGITS),
            Names::Prefixed => made.text(b"/table/").decimal(at_most, DIGITS),
            Names::BigEndian => made.text(&at_most.to_be_bytes()),
            Names::Spread => made.text(&(at_most * (u64::MAX / (NUMBER_MAX + 1))).to_be_bytes()),
            Names::Directories { keys } => {
                let (directory, file) = (at_most / (*keys).max(1), at_most % (*keys).max(1));
                made.text(b"/dir/").decimal(directory, DIGITS).text(b"/").decimal(file, DIGITS)
            }
            Names::Listed(keys) => {
                let listed = usize::try_from(number).ok().and_then(|place| keys.get(place)).or(keys.last());
                return listed.map_or(Name::Made(made), Name::Listed);
            }
        })
    }

    /// The number behind all that have a name of their own.
    fn end(&self) -> u64 {
        match self {
            Names::Listed(keys) => keys.len() as u64,
            _ => NUMBER_MAX + 1,
        }
    }

    pub fn key(&self, number: u64) -> Key {
        Key::new(self.name(number).as_bytes())
    }

    /// The first number whose key is not less than this one.
    pub fn first_from(&self, key: &Key) -> u64 {
        let (mut low, mut high) = (0, self.end());
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
    pub fn numbers(&self, range: &KeyRange) -> (u64, Option<u64>) {
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

        #[test]
        fn listed_keys_are_numbered_by_their_places(
            bytes in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..60), 1..50),
            other in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let keys: Vec<Key> = bytes.iter().map(|bytes| Key::new(bytes.as_slice())).collect();
            let names = Names::Listed(keys.clone().into());
            for (place, key) in (0..).zip(&keys) {
                prop_assert_eq!(&names.key(place), key);
                prop_assert_eq!(names.first_from(key), place);
            }
            let other = Key::new(other);
            prop_assert_eq!(names.first_from(&other), keys.iter().filter(|key| **key < other).count() as u64);
            prop_assert_eq!(names.key(keys.len() as u64), keys.last().cloned().unwrap_or_default());
        }
    }
}

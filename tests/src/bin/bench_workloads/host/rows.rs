//! What a queue's rows look like: keys and values by number, and back.

use crate::workload::Order;

/// Odd, so that multiplying by it gives each number another one, and the golden ratio, so that numbers that
/// follow each other end up far apart.
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// Digits of a number in a key.
const DIGITS: usize = 16;

/// The number's place in the key space; [`number_at`] is its inverse.
pub fn place(number: u64, order: Order) -> u64 {
    match order {
        Order::Created => number,
        Order::Hashed => number.wrapping_mul(HASH),
    }
}

fn number_at(place: u64, order: Order) -> u64 {
    match order {
        Order::Created => place,
        Order::Hashed => place.wrapping_mul(inverse(HASH)),
    }
}

/// The number that `odd` has to be multiplied by for 1, by Newton's method: each step doubles the bits that
/// are right, and the first three are to begin with.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// What the keys of a queue begin with; `queue` counts within the column family.
pub fn prefix(queue: u64) -> String {
    format!("/vol1/bucket{queue:05}/")
}

pub fn key_at(prefix: &str, place: u64) -> Vec<u8> {
    format!("{prefix}{place:016x}").into_bytes()
}

pub fn key(prefix: &str, number: u64, order: Order) -> Vec<u8> {
    key_at(prefix, place(number, order))
}

/// The number of the row that a key is of.
pub fn number_of(key: &[u8], order: Order) -> Option<u64> {
    let digits = key.get(key.len().checked_sub(DIGITS)?..)?;
    let place = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some(number_at(place, order))
}

/// The queue, within its column family, that a key is in.
pub fn queue_of(key: &[u8]) -> Option<u64> {
    let name = std::str::from_utf8(key).ok()?.strip_prefix("/vol1/bucket")?;
    name.split_once('/')?.0.parse().ok()
}

/// Bytes that LZ4 cannot shorten: a xorshift generator seeded with what the row is.
pub fn value(queue: u64, number: u64, bytes: usize) -> Vec<u8> {
    let mut state = (number ^ (queue << 40)).wrapping_mul(HASH) | 1;
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value.extend(state.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_what_they_are_of() {
        for order in [Order::Created, Order::Hashed] {
            for number in [0, 1, 2, 12_345, 9_999_999, u64::from(u32::MAX)] {
                let key = key(&prefix(17), number, order);
                assert_eq!((queue_of(&key), number_of(&key, order)), (Some(17), Some(number)));
            }
        }
        assert_eq!(number_of(b"short", Order::Created), None);
        assert_eq!(queue_of(b"/vol2/bucket00001/"), None);
    }

    #[test]
    fn created_rows_lie_in_order_and_hashed_ones_do_not() {
        let keys = |order| -> Vec<Vec<u8>> { (0..100).map(|number| key("", number, order)).collect() };
        assert!(keys(Order::Created).is_sorted());
        assert!(!keys(Order::Hashed).is_sorted());
    }

    #[test]
    fn values_differ() {
        assert_ne!(value(0, 1, 120), value(0, 2, 120));
        assert_ne!(value(1, 1, 120), value(0, 1, 120));
        assert_eq!(value(3, 4, 61).len(), 61);
    }
}

//! Comparators whose order is known by their name.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// How a column family orders its user keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As the bytes compare, the default.
    Bytewise,
    /// The other way round.
    ReverseBytewise,
}

impl Order {
    /// Name of RocksDB's default comparator.
    pub const BYTEWISE_COMPARATOR: &str = "leveldb.BytewiseComparator";

    /// The order that the comparator of this name is known to have; `None` for any other name.
    pub fn of_comparator(name: &str) -> Option<Order> {
        match name {
            // The second is MyRocks' own.
            Order::BYTEWISE_COMPARATOR | "RocksDB_SE_v3.10" => Some(Order::Bytewise),
            "rocksdb.ReverseBytewiseComparator" | "rev:RocksDB_SE_v3.10" => Some(Order::ReverseBytewise),
            _ => None,
        }
    }

    /// Compares two user keys.
    pub fn compare(self, one: &[u8], two: &[u8]) -> Ordering {
        match self {
            Order::Bytewise => one.cmp(two),
            Order::ReverseBytewise => two.cmp(one),
        }
    }
}

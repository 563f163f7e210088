//! Reader time that tombstones and block-cache misses cost, and what one of each costs a target.

pub mod ledger;
pub(crate) mod read_time;
pub mod relief;
pub mod unplaced;

pub use read_time::Scale;

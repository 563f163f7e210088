//! Which processes come and go, and which of them have a RocksDB inside. What is done about them is not known
//! here.

mod follow;
mod in_turn;
mod looks;
mod scout;

pub use follow::Follower;
pub use in_turn::{discover, in_turn};
pub use scout::{Looked, Scout};

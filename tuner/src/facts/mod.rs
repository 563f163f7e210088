//! What is known: plain data, as it was observed or read. Nothing here decides.

pub mod comparator;
pub mod evidence;
pub mod exposition;
pub mod heat;
pub mod index_marks;
pub mod key;
pub mod latency;
pub mod lineage;
pub mod oldest_snapshot;
pub mod options;
pub(crate) mod prefix;
pub mod primitives;
pub mod range;
pub mod sighting;
pub mod waits;

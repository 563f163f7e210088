//! Names of what is acted on, and of the actions themselves.

use crate::range::KeyRange;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};
use std::path::PathBuf;

/// Number of an action. It counts up from 1 over all runs of the agent that share a state directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionId(pub u64);

impl Display for ActionId {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// The executor's number of a job. The hook's numbers outlive the agent, others do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// A block device, by its number until the node is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(pub u64);

/// Names a process for as long as it lives. A pid alone can be reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process id in the agent's own pid namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot, from `/proc/PID/stat`.
    pub start_time_ticks: u64,
}

/// Names a database for as long as its directory is there, whichever process has it open. The path alone
/// would take the databases of two containers for one, or a restored one for what it was before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DatabaseIdentity {
    /// Directory, as the target names it.
    pub path: PathBuf,
    /// The directory's inode; 0 where it could not be read. Its device is left out: numbers of devices change
    /// when a node is started again.
    pub inode: u64,
}

/// Keys of a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The database.
    pub database: DatabaseIdentity,
    /// Column family.
    pub column_family: String,
    /// Keys.
    pub range: KeyRange,
}

impl Place {
    /// Whether two places share keys.
    pub fn overlaps(&self, other: &Place) -> bool {
        self.database == other.database
            && self.column_family == other.column_family
            && self.range.overlaps(&other.range)
    }
}

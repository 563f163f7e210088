//! What a job is worth: by this number jobs compete, and by it they are left out. A ranker is a file here and
//! a line in each list of this one.

mod deletes_per_operation;
mod density;
mod margin;
mod versions_rate;

pub use margin::Margin;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A compaction is taken to cost at least this much: opening and writing files has a price of its own,
/// and a range whose tombstones are all in a memtable (0 bytes in files) still has to be flushed.
pub const COST_BYTES_MIN: u64 = 1 << 20;

/// What something is worth, per byte that is written for it.
pub(crate) fn worth(value: f64, written_bytes: u64) -> f64 {
    value / written_bytes.max(COST_BYTES_MIN) as f64
}

/// By what jobs are ranked.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RankerKind {
    /// Reader time that a job saves until the tombstones are back, less what it costs readers.
    #[default]
    Margin,
    /// Deletions per entry, whether anybody reads there or not, as Apache Ozone's range compaction does.
    Density,
    /// Tombstones that one operation steps over, as MongoRocks does.
    DeletesPerOperation,
    /// Entries that no reader needs any more, as TiKV's region compaction does.
    VersionsRate,
}

impl RankerKind {
    /// Name in a policy: `margin`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it goes by what readers lose. One that does not looks for jobs in all files.
    pub fn needs_readers(self) -> bool {
        let margin = Margin { benefit_cost_ratio_min: 0.0, horizon_seconds: 0.0 };
        self.ranker(margin, 0.0).needs_readers()
    }

    /// The ranker; `least_density` is from where on keys count as dense.
    pub(crate) fn ranker(self, margin: Margin, least_density: f64) -> Box<dyn Ranker> {
        match self {
            RankerKind::Margin => Box::new(margin),
            RankerKind::Density => Box::new(density::Density { least: least_density }),
            RankerKind::DeletesPerOperation => Box::new(deletes_per_operation::DeletesPerOperation),
            RankerKind::VersionsRate => Box::new(versions_rate::VersionsRate),
        }
    }
}

/// A job that somebody might do, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prospect {
    /// Pain that it relieves.
    pub relief_seconds_per_second: f64,
    /// Tombstones that one operation steps over in its keys.
    pub tombstones_per_operation: f64,
    /// Entries of SST files in its keys, deletions included.
    pub entries: u64,
    /// Deletions among them.
    pub deletions: u64,
    /// Bytes that it rewrites.
    pub cost_bytes: u64,
    /// How long it takes until as many tombstones are there again, by what followed earlier actions; `None`
    /// where nothing is known.
    pub regrowth_seconds: Option<f64>,
    pub readers: Readers,
}

/// What readers are likely to suffer from a job, per byte of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Readers {
    /// Bytes that the block device reads or writes in a second.
    pub device_bytes_per_second: f64,
    /// Threads that wait for a block at the same time, on average: the job takes the device from these.
    pub threads_reading: f64,
    /// Bytes of a block on the disk.
    pub block_bytes: f64,
    /// Share of the blocks that readers find in the cache, 0 to 1: those of the files that are replaced have
    /// to be read again.
    pub cache_hit_ratio: f64,
    /// Time of one block-cache miss.
    pub seconds_per_miss: f64,
}

/// A disk that is not the fastest: one that reads and writes faster makes jobs cheaper than they are taken
/// to be.
const DEVICE_BYTES_PER_SECOND_DEFAULT: f64 = 100.0 * 1024.0 * 1024.0;

/// RocksDB's default of `block_size`.
const BLOCK_BYTES_DEFAULT: f64 = 4096.0;

/// Most databases are given a cache that holds what is read often.
const CACHE_HIT_RATIO_DEFAULT: f64 = 0.9;

/// A read from a fast disk.
const SECONDS_PER_MISS_DEFAULT: f64 = 100e-6;

impl Default for Readers {
    fn default() -> Readers {
        Readers {
            device_bytes_per_second: DEVICE_BYTES_PER_SECOND_DEFAULT,
            threads_reading: 0.0,
            block_bytes: BLOCK_BYTES_DEFAULT,
            cache_hit_ratio: CACHE_HIT_RATIO_DEFAULT,
            seconds_per_miss: SECONDS_PER_MISS_DEFAULT,
        }
    }
}

/// Why a job is not worth it, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unworthy {
    /// It costs readers more than it saves them.
    DoesNotPay(String),
    /// There is too little in its keys.
    BelowThreshold(String),
    /// Too few of its entries would go.
    LowDensity(String),
}

/// A way to choose between jobs.
pub trait Ranker {
    /// Whether it goes by what readers lose. One that does not looks for jobs in all files.
    fn needs_readers(&self) -> bool {
        true
    }

    /// What the job is good for, in a unit of the ranker's own. Jobs are ordered by it per byte, and a job
    /// grows as long as what is added to it is good for about as much per byte.
    fn value(&self, job: &Prospect) -> f64;

    /// Whether the job is worth it at all; what it is worth, in words, where the value does not say it.
    ///
    /// # Errors
    /// Why not.
    fn judge(&self, job: &Prospect) -> Result<Option<String>, Unworthy>;
}

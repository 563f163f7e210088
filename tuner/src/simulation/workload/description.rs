//! The description of a workload, as it is written in YAML or JSON.

use crate::facts::options::ColumnFamilyOptions;
use crate::policy::TimeSpan;
use crate::simulation::lsm::Settings;
use crate::simulation::lsm::entry::Kind;
use crate::simulation::lsm::names::Names;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most keys that are written before the workload begins: more take longer than anybody waits for.
const LOADED_KEYS_MAX: u64 = 20_000_000;

/// Most operations a second, written or read.
const OPERATIONS_PER_SECOND_MAX: f64 = 1e6;

/// Longest time that is simulated.
const DURATION_SECONDS_MAX: u64 = 7 * 86_400;

/// Why a description cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    #[error("the workload cannot be read: {0}")]
    Syntax(String),
    #[error("{field} is {value}, and may be {allowed}")]
    OutOfRange { field: &'static str, value: String, allowed: &'static str },
}

/// Which keys are written, deleted and listed, and how often.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    /// What keys look like.
    #[serde(default, deserialize_with = "serde_yaml::with::singleton_map::deserialize")]
    pub keys: KeyForm,
    /// Bytes of a value.
    #[serde(default = "value_bytes")]
    pub value_bytes: u32,
    /// RocksDB's options, under the names that an OPTIONS file has.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// So many keys, from 0 on, are written and compacted before it begins.
    #[serde(default)]
    pub load: u64,
    pub duration: TimeSpan,
    #[serde(default)]
    pub writers: Vec<Writer>,
    #[serde(default)]
    pub readers: Vec<ReaderGroup>,
}

fn value_bytes() -> u32 {
    200
}

/// What keys look like.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyForm {
    /// Decimal digits, padded with zeros.
    #[default]
    Decimal,
    /// The same behind the name of a table.
    Prefixed,
    /// Eight bytes.
    BigEndian,
    /// Paths: so many files in each directory.
    Directories(u64),
}

/// What one group of writers does.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writer {
    #[serde(rename = "do")]
    pub operation: Write,
    #[serde(deserialize_with = "serde_yaml::with::singleton_map::deserialize")]
    pub at: Choice,
    pub per_second: f64,
    /// So many keys in a row each time.
    #[serde(default = "one")]
    pub run: u64,
}

fn one() -> u64 {
    1
}

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    Put,
    Delete,
    SingleDelete,
    Merge,
    /// All keys of the run with one range tombstone.
    DeleteRange,
}

impl Write {
    pub(super) fn kind(self) -> Kind {
        match self {
            Write::Put => Kind::Put,
            Write::Delete | Write::DeleteRange => Kind::Delete,
            Write::SingleDelete => Kind::SingleDelete,
            Write::Merge => Kind::Merge,
        }
    }
}

/// Which key comes next.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Choice {
    /// Any of the keys that were ever written.
    Any,
    /// The key behind the greatest that was ever written.
    Next,
    /// The least that is left, with at least so many keys behind it.
    Oldest { keep: u64 },
    /// The first key of all.
    First,
    /// The first key of any group of so many.
    GroupOf(u64),
    /// Any of these: `from`, and so many.
    Within { from: u64, count: u64 },
    /// Any key, the first ones far more often: the share of all that a tenth of the keys gets, 0 to 1.
    Skewed(f64),
}

/// What one group of readers does.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReaderGroup {
    #[serde(deserialize_with = "serde_yaml::with::singleton_map::deserialize")]
    pub at: Choice,
    pub per_second: f64,
    /// Keys that it lists.
    #[serde(default = "hundred")]
    pub list: u64,
    #[serde(default)]
    pub backwards: bool,
}

fn hundred() -> u64 {
    100
}

impl Workload {
    /// Reads a description, and checks that it can be played.
    pub fn parse(text: &str) -> Result<Workload, WorkloadError> {
        let workload: Workload =
            serde_yaml::from_str(text).map_err(|error| WorkloadError::Syntax(error.to_string()))?;
        workload.check()?;
        Ok(workload)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let out_of_range = |field, value: &dyn std::fmt::Display, allowed| {
            Err(WorkloadError::OutOfRange { field, value: value.to_string(), allowed })
        };
        if self.load > LOADED_KEYS_MAX {
            return out_of_range("load", &self.load, "at most 20,000,000");
        }
        let seconds = self.duration.duration().as_secs();
        if seconds == 0 || seconds > DURATION_SECONDS_MAX {
            return out_of_range("duration", &self.duration, "from 1s to 7 days");
        }
        let rates = self.writers.iter().map(|writer| writer.per_second);
        for rate in rates.chain(self.readers.iter().map(|reader| reader.per_second)) {
            if !(0.0..=OPERATIONS_PER_SECOND_MAX).contains(&rate) {
                return out_of_range("per_second", &rate, "from 0 to 1,000,000");
            }
        }
        if self.writers.iter().any(|writer| writer.run == 0 || writer.run > LOADED_KEYS_MAX) {
            return out_of_range("run", &0, "from 1 to 20,000,000");
        }
        Ok(())
    }

    /// What its tree is set to.
    pub(super) fn settings(&self) -> Settings {
        let names = match self.keys {
            KeyForm::Decimal => Names::Decimal,
            KeyForm::Prefixed => Names::Prefixed,
            KeyForm::BigEndian => Names::BigEndian,
            KeyForm::Directories(keys) => Names::Directories { keys },
        };
        settings(names, &self.options)
    }
}

/// What a tree is set to by RocksDB's options.
pub(super) fn settings(names: Names, stated: &BTreeMap<String, String>) -> Settings {
    // Sizes are those of entries: nothing is compressed.
    let compression = ("compression".to_owned(), "kNoCompression".to_owned());
    let stated: BTreeMap<String, String> = [compression].into_iter().chain(stated.clone()).collect();
    Settings { names, options: ColumnFamilyOptions::of_text(&stated), ..Settings::default() }
}

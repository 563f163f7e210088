//! What the child says to its parent: one JSON object a line, in this order: column families, files, end.

use super::database::ColumnFamily;
use serde::{Deserialize, Serialize};
use sexton_tuner::evidence::SstFile;

/// One line of the child's output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "line")]
pub enum Line {
    /// A column family of the database.
    ColumnFamily(ColumnFamily),
    /// A live SST file.
    File(SstFile),
    /// Nothing follows; without this line the output was cut off.
    End {
        /// Files written before it.
        files: u64,
    },
    /// Nothing could be read.
    Failed(Failure),
}

/// Why the child could not read the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Failure {
    /// The directory cannot be opened.
    Directory {
        /// What the system said.
        message: String,
    },
    /// The directory holds no `CURRENT` file.
    NotADatabase,
    /// The column family `default` has a comparator whose order is not known.
    UnknownComparator {
        /// Column family.
        column_family: String,
        /// The comparator's name.
        comparator: String,
    },
    /// RocksDB could not open the database or list its files.
    RocksDb {
        /// What RocksDB said.
        message: String,
    },
    /// More live files or column families than are read.
    TooMany {
        /// `SST files` or `column families`.
        what: String,
        /// How many there are.
        count: u64,
        /// How many are read.
        count_max: u64,
    },
    /// The child could not give up its rights, and so did not read.
    Confinement {
        /// What failed.
        message: String,
    },
    /// Writing to the parent failed.
    Output {
        /// What the system said.
        message: String,
    },
}

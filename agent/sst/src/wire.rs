//! What the child says to its parent: one JSON object a line, in this order: column families, files, end; or
//! what files say of themselves, and end.

use super::database::ColumnFamily;
use super::properties::TableProperties;
use serde::{Deserialize, Serialize};
use sexton_tuner::evidence::SstFile;
use sexton_tuner::index_marks::IndexMarks;
use sexton_tuner::oldest_snapshot::Sequences;

/// One line of the child's output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "line")]
pub enum Line {
    /// A column family of the database.
    ColumnFamily(ColumnFamily),
    File {
        file: SstFile,
        sequences: Sequences,
    },
    /// What the file of this number says of itself.
    Tail {
        number: u64,
        tail: Tail,
    },
    /// What the index of the file of this number says.
    Index {
        number: u64,
        index: Index,
    },
    /// Nothing follows; without this line the output was cut off.
    End {
        files: u64,
    },
    Failed(Failure),
}

/// What the end of an SST file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tail {
    Properties(TableProperties),
    /// It could not be read this time.
    Unreadable(String),
    /// It will never be read: damaged, or of another format.
    Unsupported(String),
}

/// What the index of an SST file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Index {
    Marks(IndexMarks),
    /// It could not be read this time.
    Unreadable(String),
    /// It will never be read: damaged, or of another form.
    Unsupported(String),
}

/// Why the child could not read the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Failure {
    /// The directory cannot be opened.
    Directory { message: String },
    /// The directory holds no `CURRENT` file.
    NotADatabase,
    /// The column family `default` has a comparator whose order is not known.
    UnknownComparator { column_family: String, comparator: String },
    /// RocksDB could not open the database or list its files.
    RocksDb { message: String },
    /// More live files or column families than are read.
    TooMany {
        /// `SST files` or `column families`.
        what: String,
        count: u64,
        count_max: u64,
    },
    /// The child could not give up its rights, and so did not read.
    Confinement { message: String },
    /// Writing to the parent failed.
    Output { message: String },
}

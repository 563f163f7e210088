//! Why an ELF file cannot be read.

use serde::{Deserialize, Serialize};
use std::io;

/// Bytes that are kept of each text that another process says.
const WORDS_BYTES_MAX: usize = 1024;

/// What is wrong with an ELF file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    #[error("it does not begin with the ELF magic number")]
    NotElf,
    #[error("it is not for x86-64: {what}")]
    OtherMachine {
        /// Class, byte order or machine number.
        what: String,
    },
    #[error("its {part} {reason}")]
    Malformed { part: String, reason: String },
    #[error("its {part} has {size}, more than the limit of {limit}")]
    TooLarge { part: String, size: u64, limit: u64 },
    #[error("examining it takes more {resource} than one file may take")]
    TooMuch { resource: Resource },
    #[error("reading it failed: {message}")]
    Io { message: String },
    #[error("the process that was to examine it {reason}")]
    NotExamined { reason: String },
}

/// What examining a file takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Resource {
    Memory,
    Time,
}

impl ElfError {
    /// An error of reading a part of the file.
    pub(super) fn from_io(error: io::Error) -> ElfError {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return malformed("part", "is not inside the file, which was cut");
        }
        ElfError::Io { message: error.to_string() }
    }

    /// A part that is not inside the file.
    pub(super) fn outside(offset: u64, size: u64) -> ElfError {
        malformed("part", format!("({size} bytes at {offset:#x}) is not inside the file"))
    }

    /// The same error with the beginning of what it says: parts have names that the file gives them.
    pub(super) fn cut(mut self) -> ElfError {
        match &mut self {
            ElfError::OtherMachine { what: words }
            | ElfError::TooLarge { part: words, .. }
            | ElfError::Io { message: words }
            | ElfError::NotExamined { reason: words } => cut(words),
            ElfError::Malformed { part, reason } => [part, reason].into_iter().for_each(cut),
            ElfError::NotElf | ElfError::TooMuch { .. } => {}
        }
        self
    }

    /// The same error with the name of the part.
    pub(super) fn of(self, name: &str) -> ElfError {
        match self {
            ElfError::Malformed { part, reason } if part == "part" => malformed(name, reason),
            other => other,
        }
    }
}

/// Leaves of a text its first bytes.
pub(super) fn cut(words: &mut String) {
    words.truncate(words.floor_char_boundary(WORDS_BYTES_MAX));
}

/// A part that is not as it should be.
pub(super) fn malformed(part: &str, reason: impl ToString) -> ElfError {
    ElfError::Malformed { part: part.to_string(), reason: reason.to_string() }
}

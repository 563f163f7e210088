//! What SST files say of themselves, read by the confined child: properties at their end, and indexes.

use super::index;
use super::properties::{self, PropertiesError, ReadAt};
use super::wire::{Index, Tail};
use sexton_sandbox::rooted;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Read at once from the end of a file: footer, metaindex and properties block mostly lie in it.
const TAIL_BYTES: u64 = 8 << 10;

/// Reads the properties of the file with this number.
pub fn read(directory: &OwnedFd, number: u64) -> Tail {
    let opened = TailedFile::open(directory, number);
    match opened.and_then(|file| properties::read(&file, file.size_bytes)) {
        Ok(properties) => Tail::Properties(properties),
        Err(error @ PropertiesError::Read { .. }) => Tail::Unreadable(error.to_string()),
        Err(error) => Tail::Unsupported(error.to_string()),
    }
}

/// Reads the index of the file with this number, and how many bytes that took.
pub fn read_index(directory: &OwnedFd, number: u64) -> (Index, u64) {
    let opened = TailedFile::open(directory, number);
    match opened.and_then(|file| index::read(&file, file.size_bytes)) {
        Ok(read) => (Index::Marks(read.marks), read.bytes),
        Err(error @ PropertiesError::Read { .. }) => (Index::Unreadable(error.to_string()), 0),
        Err(error) => (Index::Unsupported(error.to_string()), 0),
    }
}

/// RocksDB's file name: six digits at least.
pub fn file_name(number: u64) -> String {
    format!("{number:06}.sst")
}

fn read_file(file: &File, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// A file whose end has been read already.
struct TailedFile {
    file: File,
    size_bytes: u64,
    tail_offset: u64,
    tail: Vec<u8>,
}

impl TailedFile {
    fn open(directory: &OwnedFd, number: u64) -> Result<TailedFile, PropertiesError> {
        let opened = rooted::open_regular(directory, file_name(number))
            .and_then(|opened| Ok((opened.metadata()?.len(), opened)))
            .map_err(|source| PropertiesError::Read { offset: 0, length: 0, source })?;
        let (size_bytes, file) = opened;
        let tail_offset = size_bytes.saturating_sub(TAIL_BYTES);
        let length = size_bytes - tail_offset;
        let failed = |source| PropertiesError::Read { offset: tail_offset, length, source };
        let tail = read_file(&file, tail_offset, length as usize).map_err(failed)?;
        Ok(TailedFile { file, size_bytes, tail_offset, tail })
    }
}

impl ReadAt for TailedFile {
    fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        match offset.checked_sub(self.tail_offset) {
            Some(within) => self.tail.read_at(within, length),
            None => read_file(&self.file, offset, length),
        }
    }
}

//! What SST files say of themselves at their end, read by the confined child.

use super::properties::{self, PropertiesError, ReadAt, TableProperties};
use super::wire::Tail;
use sexton_sandbox::rooted;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Read at once from the end of a file: footer, metaindex and properties block mostly lie in it.
const TAIL_BYTES: u64 = 8 << 10;

/// Reads the properties of the file with this number.
pub fn read(directory: &OwnedFd, number: u64) -> Tail {
    match read_properties(directory, number) {
        Ok(properties) => Tail::Properties(properties),
        Err(error @ PropertiesError::Read { .. }) => Tail::Unreadable(error.to_string()),
        Err(error) => Tail::Unsupported(error.to_string()),
    }
}

/// RocksDB's file name: six digits at least.
pub fn file_name(number: u64) -> String {
    format!("{number:06}.sst")
}

fn read_properties(directory: &OwnedFd, number: u64) -> Result<TableProperties, PropertiesError> {
    let opened = rooted::open_regular(directory, file_name(number))
        .and_then(|opened| Ok((opened.metadata()?.len(), opened)))
        .map_err(|source| PropertiesError::Read { offset: 0, length: 0, source })?;
    let (size_bytes, opened) = opened;
    let tail_offset = size_bytes.saturating_sub(TAIL_BYTES);
    let length = size_bytes - tail_offset;
    let tail = read_file(&opened, tail_offset, length as usize).map_err(|source| PropertiesError::Read {
        offset: tail_offset,
        length,
        source,
    })?;
    properties::read(&TailedFile { file: opened, tail_offset, tail }, size_bytes)
}

fn read_file(file: &File, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// A file whose end has been read already.
struct TailedFile {
    file: File,
    tail_offset: u64,
    tail: Vec<u8>,
}

impl ReadAt for TailedFile {
    fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        match offset.checked_sub(self.tail_offset) {
            Some(within) => self.tail.read_at(within, length),
            None => read_file(&self.file, offset, length),
        }
    }
}

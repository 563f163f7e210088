//! A file that is examined, and what examining it may take.
//!
//! Anybody can map any file and so have it examined, and what a file says of its own tables can be anything.
//! So everything that a file makes its reader do is taken from one allowance before it is done: memory that
//! is kept, and work, which is bytes that are read, entries and hits that are looked at, and instructions
//! that are followed. Work and not time: a file is examined on a busy machine or not at all as it is on an
//! idle one.

use super::elf_error::{ElfError, Resource};
use object::{ReadCache, ReadRef};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Largest file that is looked into: browsers and databases with debug information reach 3 GB.
pub const FILE_BYTES_MAX: u64 = 8 << 30;

/// Memory that may be kept for one file. With what is not counted (buffers, the analysis of one function) the
/// process grows by less than 64 MiB.
pub const MEMORY_BYTES_MAX: u64 = 40 << 20;

/// Work that one file may make, in units of half a nanosecond or so: a quarter of a second of an idle
/// processor, and no more than a second of a busy one where everything is as slow as can be. A stripped
/// program of 23 MB takes two fifths of it, one with its symbols a twentieth.
pub const WORK_BYTES_MAX: u64 = 512 << 20;

/// Work of one read, however short, and of each byte of it: holes of a sparse file that nobody has read
/// before are the slowest.
const READ_WORK: u64 = 1024;
const BYTE_WORK: u64 = 2;

/// What examining one file may still take.
#[derive(Debug)]
pub struct Allowance {
    memory_bytes: Cell<u64>,
    work_bytes: Cell<u64>,
    /// What it was that did not suffice.
    lacking: Cell<Option<Resource>>,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance {
            memory_bytes: Cell::new(MEMORY_BYTES_MAX),
            work_bytes: Cell::new(WORK_BYTES_MAX),
            lacking: Cell::new(None),
        }
    }
}

impl Allowance {
    /// Takes memory that is going to be kept.
    /// Errors: [`ElfError::TooMuch`] where there is not so much left.
    pub fn take_memory(&self, bytes: u64) -> Result<(), ElfError> {
        self.take(&self.memory_bytes, bytes, Resource::Memory)
    }

    /// Takes work that is going to be done.
    /// Errors: [`ElfError::TooMuch`] where there is not so much left.
    pub fn take_work(&self, bytes: u64) -> Result<(), ElfError> {
        self.take(&self.work_bytes, bytes, Resource::Time)
    }

    /// Whether all that was asked for was granted.
    /// Errors: [`ElfError::TooMuch`] where something was not: what was found without it is not to be
    /// believed.
    pub fn check(&self) -> Result<(), ElfError> {
        self.lacking.get().map_or(Ok(()), |resource| Err(ElfError::TooMuch { resource }))
    }

    /// Once something was refused, nothing is granted any more.
    fn take(&self, left: &Cell<u64>, amount: u64, resource: Resource) -> Result<(), ElfError> {
        self.check()?;
        let rest = left.get().checked_sub(amount).ok_or(ElfError::TooMuch { resource });
        left.set(rest.clone().inspect_err(|_| self.lacking.set(Some(resource)))?);
        rest.map(drop)
    }

    /// What was taken so far: memory and work.
    #[cfg(test)]
    pub fn taken(&self) -> (u64, u64) {
        (MEMORY_BYTES_MAX - self.memory_bytes.get(), WORK_BYTES_MAX - self.work_bytes.get())
    }
}

#[derive(Debug)]
enum Bytes<'a> {
    /// Read piece by piece: a mapping of a file that shrinks kills the reader.
    File(&'a File, ReadCache<&'a File>),
    Memory(&'a [u8]),
}

/// A file that is examined.
#[derive(Debug)]
pub struct Source<'a> {
    bytes: Bytes<'a>,
    length: u64,
    allowance: &'a Allowance,
    /// Pieces that are kept already.
    kept: RefCell<HashSet<(u64, u64)>>,
}

impl<'a> Source<'a> {
    /// An open file.
    /// Errors: [`ElfError`] where its size cannot be read, or is over [`FILE_BYTES_MAX`].
    pub fn of_file(file: &'a File, allowance: &'a Allowance) -> Result<Source<'a>, ElfError> {
        // Not by its metadata, which the standard library has by a call that also looks files up by name.
        let status = rustix::fs::fstat(file).map_err(|error| ElfError::from_io(error.into()))?;
        let length = u64::try_from(status.st_size).unwrap_or_default();
        if length > FILE_BYTES_MAX {
            return Err(ElfError::TooLarge { part: "file".into(), size: length, limit: FILE_BYTES_MAX });
        }
        let bytes = Bytes::File(file, ReadCache::new(file));
        Ok(Source { bytes, length, allowance, kept: RefCell::default() })
    }

    /// A file that is in memory.
    pub fn of_bytes(bytes: &'a [u8], allowance: &'a Allowance) -> Source<'a> {
        Source {
            bytes: Bytes::Memory(bytes),
            length: bytes.len() as u64,
            allowance,
            kept: RefCell::default(),
        }
    }

    /// Bytes in the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What is left for examining it.
    pub fn allowance(&self) -> &'a Allowance {
        self.allowance
    }

    /// A piece of the file that is kept for as long as this is.
    /// Errors: [`ElfError`] when it is not inside the file, cannot be read, or is too much.
    pub fn bytes(&self, offset: u64, size: u64) -> Result<&[u8], ElfError> {
        self.check_inside(offset, size)?;
        let not_inside = |()| ElfError::outside(offset, size);
        match &self.bytes {
            Bytes::Memory(bytes) => bytes.read_bytes_at(offset, size).map_err(not_inside),
            Bytes::File(_, cache) => {
                let is_kept = self.kept.borrow().contains(&(offset, size));
                if !is_kept {
                    self.allowance.take_memory(size.saturating_add(KEPT_OVERHEAD_BYTES))?;
                    self.allowance.take_work(read_work(size))?;
                    self.kept.borrow_mut().insert((offset, size));
                }
                cache.read_bytes_at(offset, size).map_err(not_inside)
            }
        }
    }

    /// Fills a buffer with a piece of the file.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), ElfError> {
        let size = buffer.len() as u64;
        self.check_inside(offset, size)?;
        self.allowance.take_work(read_work(size))?;
        match &self.bytes {
            Bytes::File(file, _) => file.read_exact_at(buffer, offset).map_err(ElfError::from_io),
            Bytes::Memory(bytes) => {
                let piece =
                    bytes.read_bytes_at(offset, size).map_err(|()| ElfError::outside(offset, size))?;
                buffer.copy_from_slice(piece);
                Ok(())
            }
        }
    }

    fn check_inside(&self, offset: u64, size: u64) -> Result<(), ElfError> {
        let is_inside = offset.checked_add(size).is_some_and(|end| end <= self.length);
        is_inside.then_some(()).ok_or_else(|| ElfError::outside(offset, size))
    }
}

fn read_work(size: u64) -> u64 {
    size.saturating_mul(BYTE_WORK).saturating_add(READ_WORK)
}

/// Memory that keeping a piece takes beside its bytes: its entries in two tables.
const KEPT_OVERHEAD_BYTES: u64 = 128;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn nothing_is_granted_after_the_first_refusal() {
        let allowance = Allowance::default();
        allowance.take_work(WORK_BYTES_MAX - 1).unwrap();
        assert_eq!(allowance.take_work(2), Err(ElfError::TooMuch { resource: Resource::Time }));
        assert_eq!(allowance.take_memory(1), Err(ElfError::TooMuch { resource: Resource::Time }));
        assert_eq!(allowance.check(), Err(ElfError::TooMuch { resource: Resource::Time }));
    }

    #[test]
    fn a_piece_is_paid_for_once_and_before_it_is_read() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        let allowance = Allowance::default();
        let source = Source::of_file(&file, &allowance).unwrap();
        assert_eq!(source.bytes(5, 1000).unwrap(), [0; 1000]);
        let taken = allowance.taken();
        assert_eq!(source.bytes(5, 1000).unwrap().len(), 1000);
        assert_eq!(allowance.taken(), taken);
        assert!(matches!(source.bytes(1 << 30, 1), Err(ElfError::Malformed { .. })));
        assert!(matches!(source.bytes(u64::MAX, 2), Err(ElfError::Malformed { .. })));
        allowance.check().unwrap();
        assert_eq!(source.bytes(0, 1 << 30), Err(ElfError::TooMuch { resource: Resource::Memory }));
    }
}

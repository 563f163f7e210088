//! Where functions begin, by the table that a file has for unwinding its own stack (`.eh_frame_hdr`).
//!
//! C++ needs the table to throw, so it is left in every stripped file. It is what this very file says of its
//! own code: symbols that come from another file are held against it.

use super::elf::ElfHeaders;
use super::source::Source;

/// Bytes before the table: version, three encodings, the address of `.eh_frame`, the number of entries.
const HEADER_BYTES: u64 = 12;

/// Bytes of an entry: where a function begins, and where its rules are; both as distances from the header.
const ENTRY_BYTES: u64 = 8;

/// Version 1, and the encodings that every linker writes: 4 bytes from here, 4 bytes, 4 bytes from the
/// header.
const KNOWN_FORMAT: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// Whether a function begins at an address. `None`: the file has no table that can be read.
pub(super) fn begins_function(source: &Source<'_>, headers: &ElfHeaders, address: u64) -> Option<bool> {
    let (table, size) = headers.unwind_table?;
    let (offset, rest) = headers.file_offset_of(table)?;
    let mut header = [0; HEADER_BYTES as usize];
    source.read_exact_at(&mut header, offset).ok()?;
    let count = header.last_chunk().map(|count| u64::from(u32::from_le_bytes(*count)))?;
    let room = size.min(rest).checked_sub(HEADER_BYTES)? / ENTRY_BYTES;
    if !header.starts_with(&KNOWN_FORMAT) || count > room {
        return None;
    }
    let wanted = i32::try_from(address.wrapping_sub(table).cast_signed()).ok()?;
    let (mut first, mut behind) = (0, count);
    while first < behind {
        let middle = first + (behind - first) / 2;
        let mut entry = [0; ENTRY_BYTES as usize];
        source.read_exact_at(&mut entry, offset + HEADER_BYTES + middle * ENTRY_BYTES).ok()?;
        match entry.first_chunk().map(|begin| i32::from_le_bytes(*begin).cmp(&wanted))? {
            std::cmp::Ordering::Equal => return Some(true),
            std::cmp::Ordering::Less => first = middle + 1,
            std::cmp::Ordering::Greater => behind = middle,
        }
    }
    Some(false)
}

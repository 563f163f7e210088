//! What lies between a block in its file and its contents: the checksum and the compression.
//!
//! Verified are the two checksums that RocksDB has had as its default. Taken apart are the compressions that
//! its users have: Snappy, LZ4 and Zstandard. Whatever the bytes say, no more is written than the limit.

use xxhash_rust::xxh3::xxh3_64;

/// `ChecksumType` in the footer.
const CRC32C: u8 = 1;
const XXH3: u8 = 4;

/// `CompressionType` behind each block.
const NONE: u8 = 0;
const SNAPPY: u8 = 1;
const LZ4: u8 = 4;
const LZ4_HC: u8 = 5;
const ZSTD: u8 = 7;

/// The polynomial, lowest bit first.
const CASTAGNOLI: u32 = 0x82f6_3b78;
/// RocksDB masks a CRC: one of bytes that hold CRCs tells little.
const CRC_MASK_DELTA: u32 = 0xa282_ead8;
/// By which the last byte goes into an XXH3 checksum.
const LAST_BYTE_PRIME: u32 = 0x6b90_83d9;

/// Shortest copy in LZ4.
const LZ4_MATCH_MIN: usize = 4;

/// The checksum of a block with the byte that tells its compression; `None` for a type that is not verified.
pub(super) fn checksum(kind: u8, block: &[u8]) -> Option<u32> {
    let (last, contents) = block.split_last()?;
    match kind {
        CRC32C => Some(crc32c(block).rotate_right(15).wrapping_add(CRC_MASK_DELTA)),
        XXH3 => Some(xxh3_64(contents) as u32 ^ u32::from(*last).wrapping_mul(LAST_BYTE_PRIME)),
        _ => None,
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut value = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ CASTAGNOLI } else { value >> 1 };
                bit += 1;
            }
            table[byte] = value;
            byte += 1;
        }
        table
    };
    let step = |crc: u32, byte: &u8| {
        let index = usize::from((crc as u8) ^ byte);
        crc >> 8 ^ TABLE.get(index).copied().unwrap_or_default()
    };
    !bytes.iter().fold(!0, step)
}

/// Why a block's contents cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The compression of this number is not known here.
    Compression(u8),
    Damaged,
    /// Its contents are larger than the limit.
    TooLarge,
}

/// What a block of this compression holds, at most so many bytes.
pub(super) fn uncompressed(kind: u8, block: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, Unreadable> {
    if kind == NONE {
        return Ok(block);
    }
    if !matches!(kind, SNAPPY | LZ4 | LZ4_HC | ZSTD) {
        return Err(Unreadable::Compression(kind));
    }
    // All of them begin with the length: Snappy by itself, the others by RocksDB.
    let mut rest = block.as_slice();
    let length = super::properties::take_varint64(&mut rest).ok_or(Unreadable::Damaged)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes_max);
    let length = length.ok_or(Unreadable::TooLarge)?;
    let contents = match kind {
        SNAPPY => snappy(rest, length),
        ZSTD => zstandard(rest, length),
        _ => lz4(rest, length),
    };
    contents.filter(|contents| contents.len() == length).ok_or(Unreadable::Damaged)
}

fn zstandard(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut contents = vec![0; length];
    let written = zstd_safe::decompress(contents.as_mut_slice(), bytes).ok()?;
    contents.truncate(written);
    Some(contents)
}

/// Contents that grow up to a length.
struct Growing {
    contents: Vec<u8>,
    length: usize,
}

impl Growing {
    fn new(length: usize) -> Growing {
        // A few bytes can claim any length: memory is taken as there is something to put into it.
        Growing { contents: Vec::new(), length }
    }

    fn literal(&mut self, bytes: &[u8]) -> Option<()> {
        let fits = self.contents.len() + bytes.len() <= self.length;
        fits.then(|| self.contents.extend_from_slice(bytes))
    }

    /// So many bytes again that stand so far back; they may overlap with those that are written.
    fn copy(&mut self, back: usize, count: usize) -> Option<()> {
        let first = self.contents.len().checked_sub(back).filter(|_| back > 0)?;
        if self.contents.len().checked_add(count)? > self.length {
            return None;
        }
        for place in first..first + count {
            let byte = *self.contents.get(place)?;
            self.contents.push(byte);
        }
        Some(())
    }
}

fn take<'bytes>(rest: &mut &'bytes [u8], count: usize) -> Option<&'bytes [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

/// A number of so many bytes, lowest first.
fn take_number(rest: &mut &[u8], bytes: usize) -> Option<usize> {
    Some(take(rest, bytes)?.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

fn snappy(mut rest: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut growing = Growing::new(length);
    while let Some((tag, behind)) = rest.split_first() {
        rest = behind;
        let (kind, upper) = (tag & 3, usize::from(tag >> 2));
        match kind {
            0 => {
                // Lengths from 61 on stand in one to four bytes behind.
                let count = if upper < 60 { upper } else { take_number(&mut rest, upper - 59)? };
                growing.literal(take(&mut rest, count.checked_add(1)?)?)?;
            }
            1 => {
                let back = take_number(&mut rest, 1)? | (upper >> 3) << 8;
                growing.copy(back, (upper & 7) + 4)?;
            }
            two_or_three => {
                let back = take_number(&mut rest, if two_or_three == 2 { 2 } else { 4 })?;
                growing.copy(back, upper + 1)?;
            }
        }
    }
    Some(growing.contents)
}

fn lz4(mut rest: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut growing = Growing::new(length);
    loop {
        let token = usize::from(*take(&mut rest, 1)?.first()?);
        let literals = lz4_length(&mut rest, token >> 4)?;
        growing.literal(take(&mut rest, literals)?)?;
        // The last sequence has no copy.
        if rest.is_empty() {
            return Some(growing.contents);
        }
        let back = take_number(&mut rest, 2)?;
        let count = lz4_length(&mut rest, token & 15)?.checked_add(LZ4_MATCH_MIN)?;
        growing.copy(back, count)?;
    }
}

/// A length of which four bits are known: where all are set, bytes follow up to one that is not 255.
fn lz4_length(rest: &mut &[u8], nibble: usize) -> Option<usize> {
    let (mut length, mut more) = (nibble, if nibble < 15 { 0 } else { 255 });
    while more == 255 {
        more = usize::from(*take(rest, 1)?.first()?);
        length = length.checked_add(more)?;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_crc_is_castagnolis() {
        // From RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn no_more_is_written_than_was_said_or_is_allowed() {
        // "ab", then 64 bytes again from two back.
        let bytes = vec![66, 4, b'a', b'b', 63 << 2 | 2, 2, 0];
        let whole = uncompressed(SNAPPY, bytes.clone(), 66);
        assert_eq!(whole, Ok(b"ab".repeat(33)));
        assert_eq!(uncompressed(SNAPPY, bytes.clone(), 65), Err(Unreadable::TooLarge));
        let shorter = [&[65], &bytes[1..]].concat();
        assert_eq!(uncompressed(SNAPPY, shorter, 66), Err(Unreadable::Damaged));
        assert_eq!(uncompressed(2, bytes, 66), Err(Unreadable::Compression(2)));
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(kind in 0u8..9, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(contents) = uncompressed(kind, bytes.clone(), 10_000) {
                prop_assert!(contents.len() <= 10_000.max(bytes.len()));
            }
        }
    }
}

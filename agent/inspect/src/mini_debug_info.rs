//! The symbols that some distributions leave in a stripped file: a small ELF file, packed with xz, in its
//! section `.gnu_debugdata`.

use super::elf::{ElfError, ElfHeaders, Symbol};
use super::source::{Allowance, Source};
use lzma_rust2::XzReader;
use std::collections::BTreeMap;
use std::io::Read;

/// Bytes of the packed section that are read; ten megabytes of code have some hundred kilobytes of it.
const PACKED_BYTES_MAX: u64 = 2 << 20;

/// Bytes that are unpacked at most: a symbol table, with names, of sixty thousand functions. Longer ones
/// are left alone, whoever wrote them.
const UNPACKED_BYTES_MAX: u64 = 8 << 20;

/// Memory that unpacking may take, KiB: xz's largest preset has a dictionary of 64 MiB. Only as much of it is touched
/// as is unpacked.
const MEMORY_KIB_MAX: u32 = 80 << 10;

/// Work of unpacking, for each byte that is packed and for each that is unpacked.
const UNPACKING_WORK: u64 = 16;

/// The wanted symbols in a file's `.gnu_debugdata`; none where there is none or it cannot be understood.
///
/// # Errors
/// [`ElfError::TooMuch`].
pub(super) fn symbols(
    source: &Source<'_>,
    headers: &ElfHeaders,
    wanted: &[&'static str],
) -> Result<BTreeMap<&'static str, Symbol>, ElfError> {
    let section = headers.section_named(".gnu_debugdata").filter(|s| s.size <= PACKED_BYTES_MAX);
    let Some(section) = section else { return Ok(BTreeMap::new()) };
    let mut packed = vec![0; usize::try_from(section.size).unwrap_or_default()];
    source.read_exact_at(&mut packed, section.file_offset)?;
    let allowance = source.allowance();
    allowance.take_work(section.size * UNPACKING_WORK)?;
    let found = unpack(&packed, UNPACKED_BYTES_MAX).and_then(|bytes| {
        allowance.take_work(bytes.len() as u64 * UNPACKING_WORK).ok()?;
        symbols_in(&bytes, wanted, allowance)
    });
    allowance.check()?;
    Ok(found.unwrap_or_default())
}

fn symbols_in(
    bytes: &[u8],
    wanted: &[&'static str],
    allowance: &Allowance,
) -> Option<BTreeMap<&'static str, Symbol>> {
    let source = Source::of_bytes(bytes, allowance);
    ElfHeaders::read_without_code(&source).ok()?.symbols(&source, wanted).ok()
}

/// What is packed, if it is no more than `length_max` bytes.
fn unpack(packed: &[u8], length_max: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let reader = XzReader::new_mem_limit(packed, false, MEMORY_KIB_MAX);
    reader.take(length_max + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= length_max).then_some(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::super::symbols::SEEK;
    use super::*;
    use proptest::prelude::*;

    /// A program with the symbol [`SEEK`] at [`TINY_SEEK`], its code left out, packed by `xz -9`.
    #[rustfmt::skip]
    pub(in super::super) const TINY: [u8; 272] = [
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01,
        0x1c, 0x00, 0x00, 0x00, 0x10, 0xcf, 0x58, 0xcc, 0xe0, 0x02, 0xa7, 0x00, 0xce, 0x5d, 0x00, 0x3f,
        0x91, 0x45, 0x84, 0x68, 0x3d, 0x89, 0xa6, 0xda, 0x8a, 0xcc, 0x93, 0xe2, 0x4e, 0xd9, 0x06, 0x5c,
        0x0c, 0x18, 0xeb, 0xc8, 0xb3, 0x44, 0xec, 0x25, 0x63, 0x5a, 0xe6, 0x90, 0x71, 0x09, 0x2a, 0x89,
        0xa9, 0x33, 0xc8, 0xc9, 0x4e, 0x4d, 0xdd, 0xce, 0x4f, 0xd0, 0xd6, 0x77, 0x64, 0xb2, 0xc5, 0xe6,
        0x75, 0x49, 0xf4, 0xfe, 0xae, 0xa5, 0xab, 0x77, 0xeb, 0x49, 0x65, 0x34, 0x7d, 0x5e, 0xcc, 0x28,
        0xcf, 0xab, 0xe0, 0x6c, 0x06, 0x3d, 0x29, 0x7f, 0x5b, 0xc1, 0xb6, 0xfc, 0xe3, 0x91, 0x6d, 0x10,
        0xbf, 0xa5, 0xe0, 0x80, 0x5f, 0xa5, 0xaa, 0x72, 0x6d, 0x1e, 0xb0, 0x85, 0x53, 0x6e, 0xb2, 0x56,
        0x82, 0x73, 0x04, 0xad, 0x5a, 0x85, 0x90, 0x6f, 0x8f, 0x80, 0x79, 0xd2, 0x73, 0x68, 0xc1, 0xf7,
        0xa6, 0xe5, 0xe7, 0x38, 0x5b, 0x77, 0x4d, 0xfd, 0x3f, 0xc1, 0x5f, 0xfd, 0x50, 0x9d, 0xbf, 0xbe,
        0x66, 0x5a, 0x5d, 0x83, 0xe2, 0x68, 0xb1, 0x44, 0x9f, 0x7f, 0x7f, 0xc6, 0x41, 0x7d, 0xff, 0x60,
        0x7c, 0x1e, 0x70, 0x8a, 0xf5, 0xde, 0x24, 0xf1, 0x5f, 0x68, 0xfa, 0xf2, 0x62, 0xe8, 0x86, 0x9b,
        0x33, 0xc3, 0x30, 0x46, 0xb7, 0x90, 0x94, 0xec, 0xcd, 0x92, 0x15, 0x46, 0x81, 0xfd, 0x0c, 0x5e,
        0xfa, 0x3f, 0x5d, 0x2e, 0x95, 0x07, 0xa4, 0x36, 0x7d, 0xf2, 0x61, 0x38, 0x70, 0x05, 0x2a, 0x41,
        0x7d, 0x55, 0xa1, 0xf2, 0x66, 0xd8, 0x85, 0x2c, 0xfa, 0x0a, 0x26, 0xe6, 0xe0, 0x00, 0x00, 0x00,
        0xa3, 0x69, 0x2b, 0x1b, 0xb7, 0x72, 0x7e, 0x16, 0x00, 0x01, 0xea, 0x01, 0xa8, 0x05, 0x00, 0x00,
        0x88, 0x36, 0xfe, 0xc7, 0xb1, 0xc4, 0x67, 0xfb, 0x02, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
    ];
    pub(in super::super) const TINY_SEEK: u64 = 0x40_0079;

    #[test]
    fn what_was_packed_is_unpacked_up_to_a_limit() {
        let bytes = unpack(&TINY, 680).unwrap();
        assert_eq!(bytes.len(), 680);
        let symbols = symbols_in(&bytes, &[SEEK], &Allowance::default()).unwrap();
        assert_eq!(symbols.get(SEEK).unwrap().value, TINY_SEEK);
        assert_eq!(unpack(&TINY, 679), None);
        assert_eq!(unpack(TINY.get(..100).unwrap(), 680), None);
    }

    proptest! {
        #[test]
        fn changed_bytes_are_survived(changes in proptest::collection::vec((0..TINY.len(), any::<u8>()), 1..8)) {
            let mut packed = TINY;
            for (at, value) in changes {
                packed[at] = value;
            }
            let _ = unpack(&packed, 1 << 20);
        }
    }
}

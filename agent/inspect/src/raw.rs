//! ELF's headers as they stand in a file: bytes to numbers, and how many of them there may be.
//!
//! Each number that a file gives is compared with a limit before it is followed. What the headers are for is
//! the business of `elf`.

use super::elf::{LoadSegment, Section, Symbol, TlsSegment};
use super::elf_error::{ElfError, malformed};
use super::source::Source;
use object::elf;

/// Most sections and segments of a linked file: real ones have some dozens, some hundred with
/// sections kept apart.
const HEADERS_MAX: u64 = 4096;

/// Bytes of a section's name that are read; what is asked for has some twenty.
const SECTION_NAME_BYTES_MAX: usize = 64;

/// Bytes of the section that holds the sections' names.
const SECTION_NAMES_BYTES_MAX: u64 = 1 << 20;

/// Largest thread-local block of a module, and its largest alignment; threads' stacks have to hold them.
pub(super) const TLS_BYTES_MAX: u64 = 1 << 40;
pub(super) const TLS_ALIGNMENT_MAX: u64 = 1 << 30;

pub(super) const SYMBOL_BYTES: usize = 24;

pub(super) const PROGRAM_HEADER_BYTES: usize = 56;

pub(super) const SECTION_HEADER_BYTES: usize = 64;

const FILE_HEADER_BYTES: u64 = 64;

/// The file header of an ELF file for x86-64.
pub(super) fn read_file_header<'s>(source: &'s Source<'_>) -> Result<&'s [u8], ElfError> {
    let ident = source.bytes(0, 20).map_err(|_| ElfError::NotElf)?;
    if !ident.starts_with(&elf::ELFMAG) {
        return Err(ElfError::NotElf);
    }
    if ident.get(4) != Some(&2) || ident.get(5) != Some(&1) {
        return Err(ElfError::OtherMachine { what: "not 64-bit little-endian".into() });
    }
    let header = source.bytes(0, FILE_HEADER_BYTES).map_err(|error| error.of("file header"))?;
    if header.get(6) != Some(&elf::EV_CURRENT.0) {
        return Err(malformed("file header", "is of another version of the format"));
    }
    match u16_at(header, 18) {
        machine if machine == elf::EM_X86_64.0 => Ok(header),
        machine => Err(ElfError::OtherMachine { what: format!("machine {machine}") }),
    }
}

/// The first section header, which says how many there are where the file header cannot.
pub(super) fn first_section<'s>(
    source: &'s Source<'_>,
    header: &[u8],
) -> Result<Option<&'s [u8; SECTION_HEADER_BYTES]>, ElfError> {
    let offset = u64_at(header, 40);
    if offset == 0 {
        return Ok(None);
    }
    if usize::from(u16_at(header, 58)) != SECTION_HEADER_BYTES {
        return Err(malformed("section headers", "have another size than those of x86-64"));
    }
    let bytes = source.bytes(offset, SECTION_HEADER_BYTES as u64);
    Ok(bytes.map_err(|error| error.of("section headers"))?.first_chunk())
}

/// A table of headers, which has so many entries. Their number is compared before anything is read.
fn header_table<'s, const SIZE: usize>(
    source: &'s Source<'_>,
    part: &str,
    offset: u64,
    count: u64,
) -> Result<&'s [[u8; SIZE]], ElfError> {
    if offset == 0 || count == 0 {
        return Ok(&[]);
    }
    if count > HEADERS_MAX {
        return Err(ElfError::TooLarge { part: part.to_string(), size: count, limit: HEADERS_MAX });
    }
    let bytes = source.bytes(offset, count * SIZE as u64).map_err(|error| error.of(part))?;
    Ok(bytes.as_chunks().0)
}

/// The program headers.
/// Errors: [`ElfError`] where they are too many, or not in the file.
pub(super) fn program_headers<'s>(
    source: &'s Source<'_>,
    header: &[u8],
    first_section: Option<&[u8; SECTION_HEADER_BYTES]>,
) -> Result<&'s [[u8; PROGRAM_HEADER_BYTES]], ElfError> {
    let part = "program headers";
    let count = match (u16_at(header, 56), first_section) {
        (elf::PN_XNUM, Some(section)) => u64::from(u32_at(section, 44)),
        (elf::PN_XNUM, None) => return Err(malformed(part, "are counted in a section that is not there")),
        (count, _) => u64::from(count),
    };
    if count > 0 && usize::from(u16_at(header, 54)) != PROGRAM_HEADER_BYTES {
        return Err(malformed(part, "have another size than those of x86-64"));
    }
    header_table(source, part, u64_at(header, 32), count)
}

/// The sections; none in a file without section headers.
pub(super) fn sections(
    source: &Source<'_>,
    header: &[u8],
    first_section: Option<&[u8; SECTION_HEADER_BYTES]>,
) -> Result<Vec<Section>, ElfError> {
    let Some(first) = first_section else { return Ok(Vec::new()) };
    let count = match u16_at(header, 60) {
        0 => u64_at(first, 32),
        count => u64::from(count),
    };
    let table: &[[u8; SECTION_HEADER_BYTES]] =
        header_table(source, "section headers", u64_at(header, 40), count)?;
    let names = match u16_at(header, 62) {
        index if index == elf::SHN_XINDEX.0 => u32_at(first, 40),
        index => u32::from(index),
    };
    // Without their names sections are still known by their kinds.
    let names = usize::try_from(names).ok().and_then(|index| table.get(index)).and_then(|names| {
        source.bytes(u64_at(names, 24), u64_at(names, 32).min(SECTION_NAMES_BYTES_MAX)).ok()
    });
    Ok(table.iter().map(|section| read_section(section, names.unwrap_or_default())).collect())
}

/// A `PT_LOAD` program header.
pub(super) fn load_segment(program: &[u8; PROGRAM_HEADER_BYTES]) -> LoadSegment {
    LoadSegment {
        file_offset: u64_at(program, 8),
        file_size: u64_at(program, 32),
        address: u64_at(program, 16),
        executable: u32_at(program, 4) & elf::PF_X.0 != 0,
    }
}

/// A `PT_TLS` program header.
/// Errors: [`ElfError::Malformed`] where no linker would have written it.
pub(super) fn tls_segment(program: &[u8; PROGRAM_HEADER_BYTES]) -> Result<TlsSegment, ElfError> {
    let alignment = u64_at(program, 48).max(1);
    let memory_size = u64_at(program, 40);
    if !alignment.is_power_of_two() || alignment > TLS_ALIGNMENT_MAX || memory_size > TLS_BYTES_MAX {
        return Err(malformed("TLS segment", format!("has {memory_size} bytes, aligned to {alignment}")));
    }
    let image_size = u64_at(program, 32).min(memory_size);
    Ok(TlsSegment { address: u64_at(program, 16), image_size, memory_size, alignment })
}

fn read_section(section: &[u8; SECTION_HEADER_BYTES], names: &[u8]) -> Section {
    let name = usize::try_from(u32_at(section, 0)).ok().and_then(|at| names.get(at..)).unwrap_or_default();
    let name = name.get(..SECTION_NAME_BYTES_MAX).unwrap_or(name);
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Section {
        name: String::from_utf8_lossy(name).into_owned(),
        kind: u32_at(section, 4),
        file_offset: u64_at(section, 24),
        size: u64_at(section, 32),
        link: u32_at(section, 40),
    }
}

pub(super) fn read_symbol(symbol: &[u8; SYMBOL_BYTES], dynamic: bool) -> Symbol {
    Symbol {
        value: u64_at(symbol, 8),
        size: u64_at(symbol, 16),
        thread_local: symbol.get(4).is_some_and(|info| info & 0xf == elf::STT_TLS.0),
        dynamic,
    }
}

/// The number at an offset of a table's entry; zero where there is none.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The same of four bytes.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The same of two bytes.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

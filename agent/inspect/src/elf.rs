//! Reading an ELF file as far as it is needed: segments, symbols, thread-local storage, build id.
//!
//! Only the needed parts are read, each with a limit: executables with RocksDB inside reach gigabytes.
//! The file is untrusted (its owner may rewrite it at any time), so it is read, never mapped: a mapping of
//! a file that shrinks kills the reader. What the symbols are for is the business of `module` and `tls`.

pub use super::elf_error::ElfError;

use super::elf_error::malformed;
use super::raw::{
    PROGRAM_HEADER_BYTES, SYMBOL_BYTES, first_section, load_segment, program_headers, read_file_header,
    read_symbol, sections, tls_segment, u16_at, u32_at, u64_at,
};
use super::scan;
use super::source::Source;
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::NoteIterator;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most `PT_LOAD` segments of a file; real ones have four to ten.
pub const LOAD_SEGMENTS_MAX: usize = 64;

/// Bytes of `.dynamic`: entries have 16, and there are some dozens.
const DYNAMIC_BYTES_MAX: u64 = 1 << 20;

/// Sections with notes that are looked into, and bytes of each: real files have two to five, of some dozen
/// bytes.
const NOTES_MAX: usize = 16;
const NOTE_BYTES_MAX: u64 = 65_536;

/// Bytes of a build id: SHA-1 has 20; linkers make none that is longer than a SHA-512.
pub(super) const BUILD_ID_BYTES_MAX: usize = 64;

/// Bytes of code that are read at once: most functions lie in one or two such pages.
const CODE_PAGE_BYTES: u64 = 4096;

/// Bytes of code that are read behind a page, so that each instruction which begins in it is whole.
const CODE_PAGE_OVERLAP_BYTES: u64 = 16;

/// Most bytes of the name of a thread-local variable; a longer one is none that is asked for.
const NAME_BYTES_MAX: u64 = 512;

/// Places of one name in a string table that are believed; linkers write a name once.
const NAME_PLACES_MAX: usize = 64;

/// Bytes of a name that string tables are searched for: names that begin alike are found in one pass.
const NAME_STEM_BYTES: usize = 8;

/// Relocation sections that are read; real files have two.
const RELOCATION_TABLES_MAX: usize = 16;

/// Thread-local relocations that are read; a server with hundreds of thread-local variables has as many.
const TLS_RELOCATIONS_MAX: usize = 4096;

/// Work of a relocation whose target is of interest, beside reading it.
const RELOCATION_HIT_WORK: u64 = 64;

const RELOCATION_BYTES: usize = 24;
const DYNAMIC_ENTRY_BYTES: usize = 16;

/// One `PT_LOAD` segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadSegment {
    pub file_offset: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Address in the file's own address space.
    pub address: u64,
    /// Whether it is mapped for execution.
    pub executable: bool,
}

/// The `PT_TLS` segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSegment {
    /// Address of the initialisation image.
    pub address: u64,
    /// Its size; the rest of a block begins as zeros.
    pub image_size: u64,
    /// Size of a thread's block.
    pub memory_size: u64,
    /// Alignment of a thread's block; a power of two, at least 1.
    pub alignment: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name; empty where it cannot be read.
    pub name: String,
    /// `SHT_*`.
    pub kind: u32,
    pub file_offset: u64,
    /// Bytes.
    pub size: u64,
    /// `sh_link`: for a symbol table its string table, for relocations their symbol table.
    pub link: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbol {
    /// `st_value`: an address, or for thread-local ones an offset in the block.
    pub value: u64,
    /// `st_size`, 0 where unknown.
    pub size: u64,
    /// Whether it is `STT_TLS`.
    pub thread_local: bool,
    /// Whether it is in `.dynsym`.
    pub dynamic: bool,
}

/// What a thread-local relocation fills in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsRelocationKind {
    /// `R_X86_64_DTPMOD64`: the module's id.
    ModuleId,
    /// `R_X86_64_TPOFF64`: a distance from the thread pointer.
    ThreadOffset,
}

/// One relocation of thread-local storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsRelocation {
    pub kind: TlsRelocationKind,
    /// Address of the filled word, in the file's own address space.
    pub address: u64,
    /// Name of the symbol; `None` for symbol 0, which stands for the module itself.
    pub symbol: Option<String>,
    pub addend: i64,
}

/// Headers of one ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfHeaders {
    /// `ET_EXEC`: loaded where it says, without a bias.
    pub fixed_address: bool,
    /// `PT_LOAD` segments.
    pub load: Vec<LoadSegment>,
    /// `PT_TLS`.
    pub tls: Option<TlsSegment>,
    /// Sections; empty when the file has no section headers.
    pub sections: Vec<Section>,
    /// Address and size of the table for unwinding (`PT_GNU_EH_FRAME`).
    pub unwind_table: Option<(u64, u64)>,
    /// Addresses of code, `(first, size)`, in order and without overlaps.
    code: Vec<(u64, u64)>,
}

impl ElfHeaders {
    pub fn read(source: &Source<'_>) -> Result<ElfHeaders, ElfError> {
        let headers = ElfHeaders::read_without_code(source)?;
        let is_outside = |segment: &&LoadSegment| {
            let end = segment.file_offset.checked_add(segment.file_size);
            end.is_none_or(|end| end > source.length())
        };
        if let Some(segment) = headers.load.iter().find(is_outside) {
            let reason =
                format!("at {:#x} ends behind the end of the file, which was cut", segment.file_offset);
            return Err(malformed("load segment", reason));
        }
        Ok(headers)
    }

    /// Reads the headers of a file that has symbols only: its segments describe another file.
    pub fn read_without_code(source: &Source<'_>) -> Result<ElfHeaders, ElfError> {
        let header = read_file_header(source)?;
        let first_section = first_section(source, header)?;
        let programs = program_headers(source, header, first_section)?;
        let kind = |program: &[u8; PROGRAM_HEADER_BYTES]| u32_at(program, 0);
        let load: Vec<LoadSegment> =
            programs.iter().filter(|program| kind(program) == elf::PT_LOAD.0).map(load_segment).collect();
        if load.len() > LOAD_SEGMENTS_MAX {
            let (size, limit) = (load.len() as u64, LOAD_SEGMENTS_MAX as u64);
            return Err(ElfError::TooLarge { part: "list of load segments".into(), size, limit });
        }
        let tls = programs.iter().find(|program| kind(program) == elf::PT_TLS.0);
        let unwind = programs.iter().find(|program| kind(program) == elf::PT_GNU_EH_FRAME.0);
        let code = load.iter().filter(|segment| segment.executable);
        Ok(ElfHeaders {
            fixed_address: u16_at(header, 16) == elf::ET_EXEC.0,
            code: scan::merged(code.map(|segment| (segment.address, segment.file_size)).collect()),
            load,
            tls: tls.map(tls_segment).transpose()?,
            unwind_table: unwind.map(|program| (u64_at(program, 16), u64_at(program, 32))),
            sections: sections(source, header, first_section)?,
        })
    }

    /// Offset in the file of an address of its own address space, and how many bytes of the segment
    /// follow from there.
    pub fn file_offset_of(&self, address: u64) -> Option<(u64, u64)> {
        self.load.iter().find_map(|segment| {
            let into = address.checked_sub(segment.address).filter(|&into| into < segment.file_size)?;
            Some((segment.file_offset.checked_add(into)?, segment.file_size - into))
        })
    }

    /// Address in the file's own address space of an offset in the file.
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.load.iter().find_map(|segment| {
            let into =
                file_offset.checked_sub(segment.file_offset).filter(|&into| into < segment.file_size)?;
            segment.address.checked_add(into)
        })
    }

    /// Whether an address is in a segment that is mapped for execution.
    pub fn is_code(&self, address: u64) -> bool {
        let behind = self.code.partition_point(|(first, _)| *first <= address);
        let before = behind.checked_sub(1).and_then(|at| self.code.get(at));
        before.is_some_and(|(first, size)| address - first < *size)
    }

    /// Where read-only data is in the file, `(offset, size)`: the sections, or, in a file without section
    /// headers, all that is loaded. No byte is in two of them.
    pub fn read_only_data(&self) -> Vec<(u64, u64)> {
        let sections = self.sections.iter().filter(|section| section.name.starts_with(".rodata"));
        let found: Vec<_> = sections.map(|section| (section.file_offset, section.size)).collect();
        scan::merged(if found.is_empty() {
            self.load.iter().map(|s| (s.file_offset, s.file_size)).collect()
        } else {
            found
        })
    }

    /// Where pointers can be: `(file offset, address, size)`. In a file that is loaded where it says,
    /// constant pointers may share a segment with the code.
    pub fn data_segments(&self) -> Vec<(u64, u64, u64)> {
        let data = self.load.iter().filter(|segment| self.fixed_address || !segment.executable);
        data.map(|segment| (segment.file_offset, segment.address, segment.file_size)).collect()
    }

    /// The page of code that holds an address: the address of its first byte, and its bytes, with some behind
    /// it, so that an instruction which begins in it is whole.
    pub fn code_page<'s>(&self, source: &'s Source<'_>, address: u64) -> Option<(u64, &'s [u8])> {
        let segment = self.load.iter().find(|segment| {
            segment.executable
                && address.checked_sub(segment.address).is_some_and(|into| into < segment.file_size)
        })?;
        let page = (address - segment.address) & !(CODE_PAGE_BYTES - 1);
        let length = (CODE_PAGE_BYTES + CODE_PAGE_OVERLAP_BYTES).min(segment.file_size - page);
        let bytes = source.bytes(segment.file_offset.checked_add(page)?, length).ok()?;
        Some((segment.address + page, bytes))
    }

    /// The relocations that fill in pointers to the file's own data and code.
    pub fn word_relocations(&self, source: &Source<'_>) -> Result<WordRelocations, ElfError> {
        let dynamic = self.first_of(elf::SHT_DYNSYM);
        let mut symbols = Vec::new();
        if let Some(table) = dynamic {
            let count = table.size / SYMBOL_BYTES as u64;
            source.allowance().take_memory(count.saturating_mul(size_of::<Option<u64>>() as u64))?;
            scan::entries::<SYMBOL_BYTES>(source, table.file_offset, table.size, |symbol| {
                symbols.push((u16_at(symbol, 6) != elf::SHN_UNDEF.0).then(|| u64_at(symbol, 8)));
                Ok(true)
            })
            .map_err(|error| error.of(&table.name))?;
        }
        Ok(WordRelocations { tables: self.relocation_tables(), symbols })
    }

    /// Where the dynamic linker's relocations are, `(offset, size)`, no byte in two of them: those that refer
    /// to the dynamic symbols, or to none.
    fn relocation_tables(&self) -> Vec<(u64, u64)> {
        let is_dynamic = |section: &&Section| {
            section.kind == elf::SHT_RELA.0
                && (section.link == 0
                    || self.linked(section).is_some_and(|table| table.kind == elf::SHT_DYNSYM.0))
        };
        let mut tables: Vec<(u64, u64)> = Vec::new();
        for section in self.sections.iter().filter(is_dynamic).take(RELOCATION_TABLES_MAX) {
            let end = section.file_offset.saturating_add(section.size);
            let overlaps = |&(offset, size): &(u64, u64)| {
                section.file_offset < offset.saturating_add(size) && offset < end
            };
            if !tables.iter().any(overlaps) {
                tables.push((section.file_offset, section.size));
            }
        }
        tables
    }

    /// The bytes at an address, at most `length_max`, fewer at the end of a segment.
    pub fn bytes_at<'s>(&self, source: &'s Source<'_>, address: u64, length_max: u64) -> Option<&'s [u8]> {
        let (offset, rest) = self.file_offset_of(address)?;
        source.bytes(offset, rest.min(length_max)).ok()
    }

    /// Where the string tables of symbols are, `.dynstr` first: `(offset, size)`. A name that is in none
    /// of them is no symbol's name.
    pub fn symbol_string_tables(&self) -> Vec<(u64, u64)> {
        let tables = [elf::SHT_DYNSYM, elf::SHT_SYMTAB].into_iter().filter_map(|kind| self.first_of(kind));
        let strings = tables.filter_map(|table| self.linked(table));
        let mut found: Vec<_> = strings.map(|strings| (strings.file_offset, strings.size)).collect();
        found.dedup();
        found
    }

    /// The defined symbols among the wanted ones, from `.dynsym` and `.symtab`. A version behind `@` is
    /// no part of a name.
    ///
    /// The names are looked for in the string tables, and the symbol tables then for where they stand there:
    /// tables of hundreds of megabytes pass by a chunk at a time.
    /// Errors: [`ElfError`] when a table is not inside the file, or looking through it is too much.
    pub fn symbols<'name>(
        &self,
        source: &Source<'_>,
        wanted: &[&'name str],
    ) -> Result<BTreeMap<&'name str, Symbol>, ElfError> {
        let mut found = BTreeMap::new();
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            let Some(table) = self.first_of(kind) else { continue };
            let strings = self.strings_of(table)?;
            let names = places_of_names(source, strings, wanted).map_err(|error| error.of(&strings.name))?;
            if names.is_empty() {
                continue;
            }
            scan::entries::<SYMBOL_BYTES>(source, table.file_offset, table.size, |symbol| {
                if let Ok(at) = names.binary_search_by_key(&u32_at(symbol, 0), |(place, _)| *place)
                    && let Some((_, name)) = names.get(at)
                    && u16_at(symbol, 6) != elf::SHN_UNDEF.0
                {
                    found.entry(*name).or_insert_with(|| read_symbol(symbol, kind == elf::SHT_DYNSYM));
                }
                Ok(true)
            })
            .map_err(|error| error.of(&table.name))?;
        }
        Ok(found)
    }

    /// Relocations that the dynamic linker filled with thread-local storage's numbers.
    pub fn tls_relocations(&self, source: &Source<'_>) -> Result<Vec<TlsRelocation>, ElfError> {
        let mut entries = Vec::new();
        let Some(table) = self.first_of(elf::SHT_DYNSYM) else { return Ok(Vec::new()) };
        for (offset, size) in self.relocation_tables() {
            scan::entries::<RELOCATION_BYTES>(source, offset, size, |relocation| {
                if tls_relocation_kind(relocation).is_some() {
                    entries.push(*relocation);
                }
                Ok(entries.len() < TLS_RELOCATIONS_MAX)
            })
            .map_err(|error| error.of("relocation table"))?;
        }
        let strings = self.strings_of(table)?;
        let read = |relocation| tls_relocation(source, relocation, table, strings).transpose();
        entries.iter().filter_map(read).collect()
    }

    /// The GNU build id in hexadecimal.
    pub fn build_id(&self, source: &Source<'_>) -> Option<String> {
        let notes = self.sections.iter().filter(|section| section.kind == elf::SHT_NOTE.0);
        notes.filter(|section| section.size <= NOTE_BYTES_MAX).take(NOTES_MAX).find_map(|section| {
            let bytes = source.bytes(section.file_offset, section.size).ok()?;
            let mut notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, 4, bytes).ok()?;
            while let Ok(Some(note)) = notes.next() {
                let is_build_id =
                    note.name() == elf::ELF_NOTE_GNU && note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID;
                if is_build_id && note.desc().len() <= BUILD_ID_BYTES_MAX {
                    return Some(note.desc().iter().map(|byte| format!("{byte:02x}")).collect());
                }
            }
            None
        })
    }

    pub fn section_named(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Whether `.dynamic` says that it is a position-independent executable, not a library.
    pub fn says_pie(&self, source: &Source<'_>) -> bool {
        let Some(section) = self.first_of(elf::SHT_DYNAMIC) else { return false };
        let Ok(bytes) = source.bytes(section.file_offset, section.size.min(DYNAMIC_BYTES_MAX)) else {
            return false;
        };
        let (entries, _) = bytes.as_chunks::<DYNAMIC_ENTRY_BYTES>();
        entries.iter().any(|entry| {
            u64_at(entry, 0) == elf::DT_FLAGS_1.0.cast_unsigned() && u64_at(entry, 8) & elf::DF_1_PIE.0 != 0
        })
    }

    fn linked(&self, section: &Section) -> Option<&Section> {
        self.sections.get(usize::try_from(section.link).ok()?)
    }

    /// The first section of a kind of which linked files have one.
    fn first_of(&self, kind: elf::SectionType) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind.0)
    }

    fn strings_of(&self, table: &Section) -> Result<&Section, ElfError> {
        let strings = self.linked(table).filter(|strings| strings.kind == elf::SHT_STRTAB.0);
        strings.ok_or_else(|| malformed(&table.name, "has no string table"))
    }
}

/// Relocations that fill in pointers, read from the file as they are needed: there may be millions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordRelocations {
    /// Where they are in the file: offset and size.
    tables: Vec<(u64, u64)>,
    /// Addresses of the dynamic symbols, which they refer to; `None` for those of other files.
    symbols: Vec<Option<u64>>,
}

impl WordRelocations {
    /// Gives each filled word, as its address and the address that is filled in, until `visit` says no. Only
    /// words are given of which `is_wanted` says so.
    /// Errors: [`ElfError`] when a table is not inside the file, or looking through it is too much.
    pub fn each(
        &self,
        source: &Source<'_>,
        is_wanted: impl Fn(u64, u64) -> bool,
        mut visit: impl FnMut(u64, u64) -> bool,
    ) -> Result<(), ElfError> {
        let mut goes_on = true;
        for &(offset, size) in &self.tables {
            scan::entries::<RELOCATION_BYTES>(source, offset, size, |entry| {
                let place = u64_at(entry, 0);
                if let Some(value) = self.value(entry)
                    && is_wanted(place, value)
                {
                    source.allowance().take_work(RELOCATION_HIT_WORK)?;
                    goes_on &= visit(place, value);
                }
                Ok(goes_on)
            })
            .map_err(|error| error.of("relocation table"))?;
        }
        Ok(())
    }

    fn value(&self, entry: &[u8; RELOCATION_BYTES]) -> Option<u64> {
        let (symbol, kind) = relocation_info(entry);
        let addend = u64_at(entry, 16).cast_signed();
        match kind {
            kind if kind == elf::R_X86_64_RELATIVE.0 => Some(addend.cast_unsigned()),
            kind if kind == elf::R_X86_64_64.0 => {
                let symbol = self.symbols.get(usize::try_from(symbol).ok()?)?;
                symbol.map(|value| value.wrapping_add_signed(addend))
            }
            _ => None,
        }
    }
}

/// Where the wanted names stand in a string table, in order, with the name. A name ends with a NUL or a
/// version.
fn places_of_names<'name>(
    source: &Source<'_>,
    strings: &Section,
    wanted: &[&'name str],
) -> Result<Vec<(u32, &'name str)>, ElfError> {
    let stem = |name: &&'name str| name.as_bytes().get(..NAME_STEM_BYTES).unwrap_or(name.as_bytes());
    let mut by_stem: BTreeMap<&[u8], Vec<&'name str>> = BTreeMap::new();
    for name in wanted {
        by_stem.entry(stem(name)).or_default().push(name);
    }
    let longest = wanted.iter().map(|name| name.len()).max().unwrap_or_default();
    let mut places = BTreeMap::new();
    for (stem, names) in by_stem {
        scan::hits(source, strings.file_offset, strings.size, stem, longest + 1, |at, text| {
            let is_here = |name: &&&str| {
                text.strip_prefix(name.as_bytes()).is_some_and(|rest| matches!(rest.first(), Some(0 | b'@')))
            };
            if let Some(name) = names.iter().find(is_here)
                && let Ok(place) = u32::try_from(at - strings.file_offset)
            {
                places.insert(place, *name);
            }
            places.len() < NAME_PLACES_MAX * wanted.len()
        })?;
    }
    Ok(places.into_iter().collect())
}

/// The number of a relocation's symbol, and its kind.
fn relocation_info(relocation: &[u8; RELOCATION_BYTES]) -> (u32, u32) {
    (u32_at(relocation, 12), u32_at(relocation, 8))
}

fn tls_relocation_kind(relocation: &[u8; RELOCATION_BYTES]) -> Option<TlsRelocationKind> {
    match relocation_info(relocation).1 {
        kind if kind == elf::R_X86_64_DTPMOD64.0 => Some(TlsRelocationKind::ModuleId),
        kind if kind == elf::R_X86_64_TPOFF64.0 => Some(TlsRelocationKind::ThreadOffset),
        _ => None,
    }
}

/// A relocation with its symbol's name; `None` where that cannot be told.
fn tls_relocation(
    source: &Source<'_>,
    relocation: &[u8; RELOCATION_BYTES],
    table: &Section,
    strings: &Section,
) -> Result<Option<TlsRelocation>, ElfError> {
    let Some(kind) = tls_relocation_kind(relocation) else { return Ok(None) };
    let symbol = match relocation_info(relocation).0 {
        0 => None,
        index => match symbol_name(source, index, table, strings)? {
            // Local symbols stand for the module itself, too, but have no name to tell.
            None => return Ok(None),
            name => name,
        },
    };
    let addend = u64_at(relocation, 16).cast_signed();
    Ok(Some(TlsRelocation { kind, address: u64_at(relocation, 0), symbol, addend }))
}

/// The name of a dynamic symbol, without a version.
fn symbol_name(
    source: &Source<'_>,
    index: u32,
    table: &Section,
    strings: &Section,
) -> Result<Option<String>, ElfError> {
    let at = u64::from(index) * SYMBOL_BYTES as u64;
    if at.saturating_add(SYMBOL_BYTES as u64) > table.size {
        return Ok(None);
    }
    let mut symbol = [0; SYMBOL_BYTES];
    source.read_exact_at(&mut symbol, table.file_offset.saturating_add(at))?;
    let at = u64::from(u32_at(&symbol, 0));
    let Some(rest) = strings.size.checked_sub(at) else { return Ok(None) };
    let mut name = [0; NAME_BYTES_MAX as usize];
    let Some(name) = name.get_mut(..usize::try_from(rest.min(NAME_BYTES_MAX)).unwrap_or_default()) else {
        return Ok(None);
    };
    source.read_exact_at(name, strings.file_offset.saturating_add(at))?;
    let end = name.iter().position(|&byte| byte == 0 || byte == b'@');
    let name = end.and_then(|end| name.get(..end));
    Ok(name.map(|name| String::from_utf8_lossy(name).into_owned()))
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;

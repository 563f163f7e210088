//! Reading an ELF file as far as it is needed: segments, symbols, thread-local storage, build id.
//!
//! Only the needed parts are read, each with a limit: executables with RocksDB inside reach gigabytes.
//! The file is untrusted (its owner may rewrite it at any time), so it is read, never mapped: a mapping of
//! a file that shrinks kills the reader. What the symbols are for is the business of `module` and `tls`.

use super::scan;
use object::elf::{self, FileHeader64, ProgramHeader64, Rela64, SectionHeader64, Sym64};
use object::read::elf::{FileHeader as _, NoteIterator};
use object::{LittleEndian, ReadRef, pod};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// Largest file that is looked into: browsers and databases with debug information reach 3 GB.
pub const FILE_BYTES_MAX: u64 = 8 << 30;

/// Largest single part (a symbol table, a string table) that is read at once.
pub const PART_BYTES_MAX: u64 = 512 << 20;

/// Most sections and segments of a linked file: real ones have some dozens, some hundred with
/// sections kept apart.
pub const HEADERS_MAX: usize = 65_536;

/// Bytes of code that are read at once: most functions lie in one or two such pages.
const CODE_PAGE_BYTES: u64 = 4096;

/// Most bytes of a symbol's name that are compared.
const NAME_BYTES_MAX: usize = 4096;

const ENDIAN: LittleEndian = LittleEndian;

/// What is wrong with an ELF file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// It does not begin with the ELF magic number.
    #[error("it does not begin with the ELF magic number")]
    NotElf,
    /// It is an ELF file for another machine.
    #[error("it is not for x86-64: {what}")]
    OtherMachine {
        /// Class, byte order or machine number.
        what: String,
    },
    /// A table or a part of it is not inside the file, or makes no sense.
    #[error("its {part} {reason}")]
    Malformed {
        /// Which part.
        part: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A part is larger than a limit.
    #[error("its {part} has {size}, more than the limit of {limit}")]
    TooLarge {
        /// Which part.
        part: String,
        /// Bytes or entries.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The file could not be read.
    #[error("reading it failed: {message}")]
    Io {
        /// The system's message.
        message: String,
    },
}

impl ElfError {
    /// An error of reading a part of the file.
    pub(super) fn from_io(error: io::Error) -> ElfError {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return malformed("part", "is not inside the file, which was cut");
        }
        ElfError::Io { message: error.to_string() }
    }
}

fn malformed(part: &str, reason: impl ToString) -> ElfError {
    ElfError::Malformed { part: part.to_string(), reason: reason.to_string() }
}

fn unreadable(part: &str, error: object::read::Error) -> ElfError {
    malformed(part, format!("cannot be read ({error}): the file was cut or changed"))
}

/// One `PT_LOAD` segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSegment {
    /// Offset in the file.
    pub file_offset: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Address in the file's own address space.
    pub address: u64,
    /// Whether it is mapped for execution.
    pub executable: bool,
}

/// The `PT_TLS` segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsSegment {
    /// Address of the initialisation image.
    pub address: u64,
    /// Size of a thread's block.
    pub memory_size: u64,
    /// Alignment of a thread's block; a power of two, at least 1.
    pub alignment: u64,
}

/// One section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name; empty where it cannot be read.
    pub name: String,
    /// `SHT_*`.
    pub kind: u32,
    /// Offset in the file.
    pub file_offset: u64,
    /// Bytes.
    pub size: u64,
    /// `sh_link`: for a symbol table its string table, for relocations their symbol table.
    pub link: u32,
}

/// One defined symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsRelocationKind {
    /// `R_X86_64_DTPMOD64`: the module's id.
    ModuleId,
    /// `R_X86_64_TPOFF64`: a distance from the thread pointer.
    ThreadOffset,
}

/// One relocation of thread-local storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsRelocation {
    /// What is filled in.
    pub kind: TlsRelocationKind,
    /// Address of the filled word, in the file's own address space.
    pub address: u64,
    /// Name of the symbol; `None` for symbol 0, which stands for the module itself.
    pub symbol: Option<String>,
    /// Addend.
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
}

impl ElfHeaders {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`ElfError`].
    pub fn read<'data, R: ReadRef<'data>>(data: R) -> Result<ElfHeaders, ElfError> {
        let headers = ElfHeaders::read_without_code(data)?;
        let length = data.len().map_err(|()| ElfError::Io { message: "its size is unknown".into() })?;
        if let Some(segment) = headers.load.iter().find(|s| is_outside(s.file_offset, s.file_size, length)) {
            let reason =
                format!("at {:#x} ends behind the end of the file, which was cut", segment.file_offset);
            return Err(malformed("load segment", reason));
        }
        Ok(headers)
    }

    /// Reads the headers of a file that has symbols only: its segments describe another file.
    ///
    /// # Errors
    /// [`ElfError`].
    pub fn read_without_code<'data, R: ReadRef<'data>>(data: R) -> Result<ElfHeaders, ElfError> {
        let length = data.len().map_err(|()| ElfError::Io { message: "its size is unknown".into() })?;
        if length > FILE_BYTES_MAX {
            return Err(ElfError::TooLarge { part: "file".into(), size: length, limit: FILE_BYTES_MAX });
        }
        let header = read_file_header(data)?;
        let programs = header.program_headers(ENDIAN, data).map_err(|e| unreadable("program headers", e))?;
        let sections = header.sections(ENDIAN, data).map_err(|e| unreadable("section headers", e))?;
        for (part, count) in [("program headers", programs.len()), ("section headers", sections.len())] {
            if count > HEADERS_MAX {
                let (size, limit) = (count as u64, HEADERS_MAX as u64);
                return Err(ElfError::TooLarge { part: part.into(), size, limit });
            }
        }
        let tls = programs.iter().find(|p| p.p_type.get(ENDIAN) == elf::PT_TLS);
        Ok(ElfHeaders {
            fixed_address: header.e_type.get(ENDIAN) == elf::ET_EXEC,
            load: programs
                .iter()
                .filter(|p| p.p_type.get(ENDIAN) == elf::PT_LOAD)
                .map(load_segment)
                .collect(),
            tls: tls.map(tls_segment).transpose()?,
            sections: sections
                .iter()
                .map(|section| {
                    let name = sections.section_name(ENDIAN, section).unwrap_or_default();
                    read_section(section, name)
                })
                .collect(),
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
        self.load.iter().any(|segment| {
            segment.executable
                && address.checked_sub(segment.address).is_some_and(|into| into < segment.file_size)
        })
    }

    /// Where read-only data is in the file, `(offset, size)`: the sections, or, in a file without section
    /// headers, all that is loaded.
    pub fn read_only_data(&self) -> Vec<(u64, u64)> {
        let sections = self.sections.iter().filter(|section| section.name.starts_with(".rodata"));
        let found: Vec<_> = sections.map(|section| (section.file_offset, section.size)).collect();
        if found.is_empty() {
            self.load.iter().map(|s| (s.file_offset, s.file_size)).collect()
        } else {
            found
        }
    }

    /// Where pointers can be: `(file offset, address, size)`. In a file that is loaded where it says,
    /// constant pointers may share a segment with the code.
    pub fn data_segments(&self) -> Vec<(u64, u64, u64)> {
        let data = self.load.iter().filter(|segment| self.fixed_address || !segment.executable);
        data.map(|segment| (segment.file_offset, segment.address, segment.file_size)).collect()
    }

    /// The code at an address: at least `length_min` bytes where there are so many. Pages of the file are
    /// read, so that the instructions of a function share one read.
    pub fn code_at<'data, R: ReadRef<'data>>(
        &self,
        data: R,
        address: u64,
        length_min: u64,
    ) -> Option<&'data [u8]> {
        let segment = self.load.iter().find(|segment| {
            segment.executable
                && address.checked_sub(segment.address).is_some_and(|into| into < segment.file_size)
        })?;
        let into = address - segment.address;
        let page = into & !(CODE_PAGE_BYTES - 1);
        let length = (CODE_PAGE_BYTES + length_min).min(segment.file_size - page);
        let bytes = data.read_bytes_at(segment.file_offset.checked_add(page)?, length).ok()?;
        bytes.get(usize::try_from(into - page).ok()?..)
    }

    /// The relocations that fill in pointers to the file's own data and code.
    ///
    /// # Errors
    /// As [`ElfHeaders::symbols`].
    pub fn word_relocations<'data, R: ReadRef<'data>>(&self, data: R) -> Result<WordRelocations, ElfError> {
        let mut relocations = WordRelocations::default();
        for section in self.sections.iter().filter(|section| section.kind == elf::SHT_RELA.0) {
            let table = self.linked(section).filter(|table| table.kind == elf::SHT_DYNSYM.0);
            let symbols = match table {
                Some(table) => self.symbol_table(data, table)?.0.iter().map(defined_value).collect(),
                None => Vec::new(),
            };
            relocations.tables.push(RelocationTable {
                file_offset: section.file_offset,
                size: section.size,
                symbols,
            });
        }
        Ok(relocations)
    }

    /// The bytes at an address, at most `length_max`, fewer at the end of a segment.
    pub fn bytes_at<'data, R: ReadRef<'data>>(
        &self,
        data: R,
        address: u64,
        length_max: u64,
    ) -> Option<&'data [u8]> {
        let (offset, rest) = self.file_offset_of(address)?;
        data.read_bytes_at(offset, rest.min(length_max)).ok()
    }

    /// Where the string tables of symbols are, `.dynstr` first: `(offset, size)`. A name that is in none
    /// of them is no symbol's name.
    pub fn symbol_string_tables(&self) -> Vec<(u64, u64)> {
        let mut tables = Vec::new();
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            for section in self.sections.iter().filter(|section| section.kind == kind.0) {
                if let Some(strings) = self.linked(section) {
                    tables.push((strings.file_offset, strings.size));
                }
            }
        }
        tables
    }

    /// The defined symbols among the wanted ones, from `.dynsym` and `.symtab`. A version behind `@` is
    /// no part of a name.
    ///
    /// # Errors
    /// [`ElfError`] when a table is not inside the file or too large.
    pub fn symbols<'data, 'name, R: ReadRef<'data>>(
        &self,
        data: R,
        wanted: &[&'name str],
    ) -> Result<BTreeMap<&'name str, Symbol>, ElfError> {
        let mut found = BTreeMap::new();
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            for section in self.sections.iter().filter(|section| section.kind == kind.0) {
                let (symbols, strings) = self.symbol_table(data, section)?;
                for symbol in symbols.iter().filter(|s| s.st_shndx.get(ENDIAN) != elf::SHN_UNDEF) {
                    let Some(name) = name_in(strings, symbol.st_name.get(ENDIAN)) else { continue };
                    let Some(name) = wanted.iter().find(|wanted| wanted.as_bytes() == name) else { continue };
                    found.entry(*name).or_insert_with(|| read_symbol(symbol, kind == elf::SHT_DYNSYM));
                }
            }
        }
        Ok(found)
    }

    /// Relocations that the dynamic linker filled with thread-local storage's numbers.
    ///
    /// # Errors
    /// As [`ElfHeaders::symbols`].
    pub fn tls_relocations<'data, R: ReadRef<'data>>(&self, data: R) -> Result<Vec<TlsRelocation>, ElfError> {
        let mut found = Vec::new();
        for section in self.sections.iter().filter(|section| section.kind == elf::SHT_RELA.0) {
            let table = self.linked(section).filter(|table| table.kind == elf::SHT_DYNSYM.0);
            let Some(table) = table else { continue };
            let (symbols, strings) = self.symbol_table(data, table)?;
            let relocations: &[Rela64<LittleEndian>] = entries(&section.name, part(data, section)?)?;
            found.extend(relocations.iter().filter_map(|rela| tls_relocation(rela, symbols, strings)));
        }
        Ok(found)
    }

    /// The GNU build id in hexadecimal.
    pub fn build_id<'data, R: ReadRef<'data>>(&self, data: R) -> Option<String> {
        let notes = self.sections.iter().filter(|section| section.kind == elf::SHT_NOTE.0);
        notes.filter(|section| section.size <= 65_536).find_map(|section| {
            let bytes = part(data, section).ok()?;
            let mut notes = NoteIterator::<FileHeader64<LittleEndian>>::new(ENDIAN, 4, bytes).ok()?;
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(ENDIAN) == elf::NT_GNU_BUILD_ID {
                    return Some(note.desc().iter().map(|byte| format!("{byte:02x}")).collect());
                }
            }
            None
        })
    }

    /// The section of this name.
    pub fn section_named(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Whether `.dynamic` says that it is a position-independent executable, not a library.
    pub fn says_pie<'data, R: ReadRef<'data>>(&self, data: R) -> bool {
        let Some(section) = self.sections.iter().find(|section| section.kind == elf::SHT_DYNAMIC.0) else {
            return false;
        };
        let Ok(bytes) = part(data, section) else { return false };
        let Ok(entries) = entries::<elf::Dyn64<LittleEndian>>(".dynamic", bytes) else { return false };
        entries.iter().any(|entry| {
            entry.d_tag.get(ENDIAN) == elf::DT_FLAGS_1 && entry.d_val.get(ENDIAN) & elf::DF_1_PIE.0 != 0
        })
    }

    fn linked(&self, section: &Section) -> Option<&Section> {
        self.sections.get(usize::try_from(section.link).ok()?)
    }

    fn symbol_table<'data, R: ReadRef<'data>>(
        &self,
        data: R,
        section: &Section,
    ) -> Result<(&'data [Sym64<LittleEndian>], &'data [u8]), ElfError> {
        let strings = self
            .linked(section)
            .filter(|strings| strings.kind == elf::SHT_STRTAB.0)
            .ok_or_else(|| malformed(&section.name, "has no string table"))?;
        Ok((entries(&section.name, part(data, section)?)?, part(data, strings)?))
    }
}

/// Relocations that fill in pointers, read from the file as they are needed: there may be millions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordRelocations {
    tables: Vec<RelocationTable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RelocationTable {
    file_offset: u64,
    size: u64,
    /// Addresses of the symbols that it refers to; `None` for those of other files.
    symbols: Vec<Option<u64>>,
}

impl WordRelocations {
    /// Gives each filled word, as its address and the address that is filled in, until `visit` says no.
    ///
    /// # Errors
    /// [`ElfError`] when a table is not inside the file.
    pub fn each(&self, file: &File, mut visit: impl FnMut(u64, u64) -> bool) -> Result<(), ElfError> {
        let mut goes_on = true;
        for table in &self.tables {
            scan::chunks(file, table.file_offset, table.size, 0, |_, chunk| {
                let count = chunk.len() / size_of::<Rela64<LittleEndian>>();
                let Ok((entries, _)) = pod::slice_from_bytes::<Rela64<LittleEndian>>(chunk, count) else {
                    return false;
                };
                for entry in entries {
                    if let Some(value) = table.value(entry) {
                        goes_on &= visit(entry.r_offset.get(ENDIAN), value);
                    }
                    if !goes_on {
                        return false;
                    }
                }
                true
            })
            .map_err(ElfError::from_io)?;
        }
        Ok(())
    }
}

impl RelocationTable {
    fn value(&self, entry: &Rela64<LittleEndian>) -> Option<u64> {
        let addend = entry.r_addend.get(ENDIAN);
        match entry.r_type(ENDIAN, false) {
            elf::R_X86_64_RELATIVE => Some(addend.cast_unsigned()),
            elf::R_X86_64_64 => {
                let symbol = self.symbols.get(usize::try_from(entry.r_sym(ENDIAN, false)).ok()?)?;
                symbol.map(|value| value.wrapping_add_signed(addend))
            }
            _ => None,
        }
    }
}

/// Address of a symbol that the file defines itself.
fn defined_value(symbol: &Sym64<LittleEndian>) -> Option<u64> {
    (symbol.st_shndx.get(ENDIAN) != elf::SHN_UNDEF).then(|| symbol.st_value.get(ENDIAN))
}

fn read_file_header<'data, R: ReadRef<'data>>(
    data: R,
) -> Result<&'data FileHeader64<LittleEndian>, ElfError> {
    let ident = data.read_bytes_at(0, 20).map_err(|()| ElfError::NotElf)?;
    if !ident.starts_with(&elf::ELFMAG) {
        return Err(ElfError::NotElf);
    }
    if ident.get(4) != Some(&2) || ident.get(5) != Some(&1) {
        return Err(ElfError::OtherMachine { what: "not 64-bit little-endian".into() });
    }
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(|e| unreadable("file header", e))?;
    let machine = header.e_machine.get(ENDIAN);
    if machine != elf::EM_X86_64 {
        return Err(ElfError::OtherMachine { what: format!("machine {}", machine.0) });
    }
    Ok(header)
}

fn is_outside(offset: u64, size: u64, length: u64) -> bool {
    offset.checked_add(size).is_none_or(|end| end > length)
}

fn load_segment(program: &ProgramHeader64<LittleEndian>) -> LoadSegment {
    LoadSegment {
        file_offset: program.p_offset.get(ENDIAN),
        file_size: program.p_filesz.get(ENDIAN),
        address: program.p_vaddr.get(ENDIAN),
        executable: program.p_flags.get(ENDIAN).0 & elf::PF_X.0 != 0,
    }
}

fn tls_segment(program: &ProgramHeader64<LittleEndian>) -> Result<TlsSegment, ElfError> {
    let alignment = program.p_align.get(ENDIAN).max(1);
    let memory_size = program.p_memsz.get(ENDIAN);
    if !alignment.is_power_of_two() || alignment > 1 << 30 || memory_size > 1 << 40 {
        return Err(malformed("TLS segment", format!("has {memory_size} bytes, aligned to {alignment}")));
    }
    Ok(TlsSegment { address: program.p_vaddr.get(ENDIAN), memory_size, alignment })
}

fn read_section(section: &SectionHeader64<LittleEndian>, name: &[u8]) -> Section {
    Section {
        name: String::from_utf8_lossy(name).into_owned(),
        kind: section.sh_type.get(ENDIAN).0,
        file_offset: section.sh_offset.get(ENDIAN),
        size: section.sh_size.get(ENDIAN),
        link: section.sh_link.get(ENDIAN),
    }
}

fn read_symbol(symbol: &Sym64<LittleEndian>, dynamic: bool) -> Symbol {
    Symbol {
        value: symbol.st_value.get(ENDIAN),
        size: symbol.st_size.get(ENDIAN),
        thread_local: symbol.st_type() == elf::STT_TLS,
        dynamic,
    }
}

fn tls_relocation(
    rela: &Rela64<LittleEndian>,
    symbols: &[Sym64<LittleEndian>],
    strings: &[u8],
) -> Option<TlsRelocation> {
    let kind = match rela.r_type(ENDIAN, false) {
        kind if kind == elf::R_X86_64_DTPMOD64 => TlsRelocationKind::ModuleId,
        kind if kind == elf::R_X86_64_TPOFF64 => TlsRelocationKind::ThreadOffset,
        _ => return None,
    };
    let symbol = match rela.r_sym(ENDIAN, false) {
        0 => None,
        index => {
            let symbol = symbols.get(usize::try_from(index).ok()?)?;
            // Local symbols stand for the module itself, too, but have no name to tell.
            let name = name_in(strings, symbol.st_name.get(ENDIAN))?;
            Some(String::from_utf8_lossy(name).into_owned())
        }
    };
    let address = rela.r_offset.get(ENDIAN);
    Some(TlsRelocation { kind, address, symbol, addend: rela.r_addend.get(ENDIAN) })
}

/// The content of a section, within the limit.
fn part<'data, R: ReadRef<'data>>(data: R, section: &Section) -> Result<&'data [u8], ElfError> {
    if section.kind == elf::SHT_NOBITS.0 {
        return Ok(&[]);
    }
    if section.size > PART_BYTES_MAX {
        let part = section.name.clone();
        return Err(ElfError::TooLarge { part, size: section.size, limit: PART_BYTES_MAX });
    }
    data.read_bytes_at(section.file_offset, section.size).map_err(|()| {
        let reason = format!("({} bytes at {:#x}) is not inside the file", section.size, section.file_offset);
        malformed(&section.name, reason)
    })
}

/// A table's entries; bytes behind the last whole one are left out.
fn entries<'data, T: object::Pod>(name: &str, bytes: &'data [u8]) -> Result<&'data [T], ElfError> {
    let count = bytes.len() / size_of::<T>().max(1);
    pod::slice_from_bytes(bytes, count)
        .map(|(entries, _)| entries)
        .map_err(|()| malformed(name, "is not aligned"))
}

/// The name at an offset of a string table, without a version.
fn name_in(strings: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let rest = rest.get(..NAME_BYTES_MAX).unwrap_or(rest);
    let end = rest.iter().position(|&byte| byte == 0 || byte == b'@')?;
    rest.get(..end)
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;

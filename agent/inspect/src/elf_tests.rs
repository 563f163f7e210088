#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
use super::*;
use crate::source::Allowance;
use proptest::prelude::*;
use std::sync::OnceLock;

/// The test program itself: a real, unstripped executable with thread-local storage.
fn ourselves() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| std::fs::read("/proc/self/exe").unwrap())
}

/// A symbol that is surely in the test program.
#[unsafe(no_mangle)]
static SEXTON_ELF_TEST_MARK: u64 = 0x5e47;

/// Everything that is read of a module, as `module` does it.
fn read_everything(bytes: &[u8]) -> Result<usize, ElfError> {
    let allowance = Allowance::default();
    let source = &Source::of_bytes(bytes, &allowance);
    let headers = ElfHeaders::read(source)?;
    let symbols = headers.symbols(source, &["SEXTON_ELF_TEST_MARK", "main"])?;
    let relocations = headers.tls_relocations(source)?;
    let _ = (headers.build_id(source), headers.says_pie(source), headers.symbol_string_tables());
    for symbol in symbols.values() {
        let _ = headers.bytes_at(source, symbol.value, 40);
    }
    Ok(symbols.len() + relocations.len())
}

/// The headers of a file in memory.
fn headers_of(bytes: &[u8]) -> Result<ElfHeaders, ElfError> {
    let allowance = Allowance::default();
    ElfHeaders::read(&Source::of_bytes(bytes, &allowance))
}

#[test]
fn our_own_program_is_read() {
    assert_eq!(std::hint::black_box(SEXTON_ELF_TEST_MARK), 0x5e47);
    let bytes = ourselves();
    let allowance = Allowance::default();
    let source = &Source::of_bytes(bytes, &allowance);
    let headers = ElfHeaders::read(source).unwrap();
    assert!(headers.load.iter().any(|segment| segment.executable));
    assert!(headers.tls.is_some());
    let symbols = headers.symbols(source, &["SEXTON_ELF_TEST_MARK", "no_such_symbol"]).unwrap();
    let mark = symbols["SEXTON_ELF_TEST_MARK"];
    assert_eq!(symbols.len(), 1);
    assert!(!mark.thread_local);
    assert_eq!(headers.bytes_at(source, mark.value, 8).unwrap(), 0x5e47u64.to_le_bytes());
    assert!(headers.symbol_string_tables().iter().all(|&(offset, size)| offset + size <= bytes.len() as u64));
}

#[test]
fn what_is_no_elf_file_says_so() {
    for bytes in [&b""[..], b"\x7fEL", b"#!/bin/sh\nexec true, a script of some length", &[0u8; 4096]] {
        assert_eq!(headers_of(bytes), Err(ElfError::NotElf));
    }
}

#[test]
fn another_machine_is_not_a_broken_file() {
    let mut bytes = ourselves()[..4096].to_vec();
    bytes[4] = 1;
    assert!(matches!(headers_of(&bytes[..]), Err(ElfError::OtherMachine { .. })));
    let mut bytes = ourselves().to_vec();
    bytes[18] = 183; // EM_AARCH64
    assert!(matches!(headers_of(&bytes[..]), Err(ElfError::OtherMachine { .. })));
}

#[test]
fn a_file_that_was_cut_says_what_is_missing() {
    let bytes = ourselves();
    for length in [64, 4096, bytes.len() / 2, bytes.len() - 1] {
        let error = headers_of(&bytes[..length]).unwrap_err();
        assert!(matches!(error, ElfError::Malformed { .. }), "{length}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_behind_the_magic_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 64..2048)) {
        bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
        bytes[18..20].copy_from_slice(&62u16.to_le_bytes());
        let _ = read_everything(&bytes);
    }

    #[test]
    fn a_header_with_random_bytes_changed_is_survived(
        changes in proptest::collection::vec((0usize..1024, any::<u8>()), 1..8),
    ) {
        let mut bytes = ourselves().to_vec();
        for (at, value) in changes {
            bytes[at] = value;
        }
        let _ = read_everything(&bytes);
    }

    #[test]
    fn section_headers_with_random_bytes_changed_are_survived(
        changes in proptest::collection::vec((1usize..2048, any::<u8>()), 1..8), cut in 0usize..64,
    ) {
        let mut bytes = ourselves().to_vec();
        for (from_end, value) in changes {
            let at = bytes.len() - from_end;
            bytes[at] = value;
        }
        bytes.truncate(bytes.len() - cut);
        let _ = read_everything(&bytes);
    }

    #[test]
    fn tables_with_random_bytes_changed_are_survived(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..64),
    ) {
        let mut bytes = ourselves().to_vec();
        let headers = headers_of(&bytes[..]).unwrap();
        let tables = [".symtab", ".dynsym", ".rela.dyn", ".dynamic", ".note.gnu.build-id"];
        let tables: Vec<&Section> = tables.iter().filter_map(|name| headers.section_named(name)).collect();
        for (at, value) in changes {
            let table = tables[at.index(tables.len())];
            let at = table.file_offset as usize + at.index(table.size as usize);
            bytes[at] = value;
        }
        let _ = read_everything(&bytes);
    }
}

//! Whatever a process has mapped, and whatever its files hold, looking into it does no harm.
//!
//! The ELF files are built with gcc: one library with RocksDB's names, symbols, thread-local variables and a
//! vtable in a few kilobytes, whole and stripped. The code is this program's own, which has a RocksDB in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use super::debug_file::DebugSymbols;
use super::elf::ElfHeaders;
use super::examiner_child;
use super::finding::Finding;
use super::source::{Allowance, Source};
use super::trace::trace;
use super::{maps, prologue, unwind};
use rustix::fs::{MemfdFlags, memfd_create};
use sexton_fuzz::{Random, fuzz};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// A library that looks like RocksDB to whoever reads its tables.
const LIBRARY: &str = include_str!("../../../tests/c/like_rocksdb.c");

/// Bytes of code that are given to a decoder at once: a function of some size.
const CODE_BYTES: usize = 256;

fn run(command: &mut Command) {
    let status = command.status().expect("gcc and binutils are needed: run `make setup`");
    assert!(status.success(), "{command:?} ended with {status}");
}

/// The library as it comes from the linker, and without its symbol table; and one whose functions are in no
/// table at all.
fn libraries() -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("library.c"), LIBRARY).unwrap();
    let build = |hidden: &str, output: &Path| {
        let mut command = Command::new("gcc");
        command.args(["-shared", "-fPIC", "-O1", "-w", "-nostdlib", "-Wl,--build-id,-z,noseparate-code"]);
        run(command.arg(hidden).arg(path("library.c")).arg("-o").arg(output));
        std::fs::read(output).unwrap()
    };
    let whole = build("-fvisibility=default", &path("whole.so"));
    build("-fvisibility=hidden", &path("hidden.so"));
    run(Command::new("strip").arg(path("whole.so")).arg(path("hidden.so")));
    let read = |name: &str| std::fs::read(path(name)).unwrap();
    vec![whole, read("whole.so"), read("hidden.so")]
}

#[test]
fn elf_files() {
    fuzz("ELF reader", &libraries(), |bytes| {
        let allowance = Allowance::default();
        let source = Source::of_bytes(bytes, &allowance);
        let Ok(headers) = ElfHeaders::read(&source) else { return false };
        let symbols = headers.symbols(&source, &["_ZN7rocksdb6DBIter4SeekERKNS_5SliceE", "vtable"]);
        for symbol in symbols.iter().flat_map(|symbols| symbols.values()) {
            let _ = headers.bytes_at(&source, symbol.value, symbol.size);
            let _ = unwind::begins_function(&source, &headers, symbol.value);
        }
        let _ = (headers.tls_relocations(&source), headers.word_relocations(&source));
        let _ = (headers.build_id(&source), headers.says_pie(&source));
        let _ = (headers.read_only_data(), headers.data_segments());
        true
    });
}

#[test]
fn modules() {
    let file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).unwrap());
    fuzz("module reader", &libraries(), |bytes| {
        replace(&file, bytes);
        let finding = examiner_child::module(&file, Some(&DebugSymbols::new()));
        // What is found is believed, and comes over a socket as it is.
        let text = serde_json::to_vec(&finding).unwrap();
        let told: Finding = serde_json::from_slice(&text).unwrap();
        assert_eq!(told.believed(bytes.len() as u64).unwrap(), finding);
        matches!(finding, Finding::RocksDb(_))
    });
}

fn replace(file: &File, bytes: &[u8]) {
    file.set_len(bytes.len() as u64).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

#[test]
fn maps_of_processes() {
    let own = std::fs::read("/proc/self/maps").unwrap();
    let odd = b"7f0000000000-7f0000001000 r-xp 00000000 fe:00 1234     /tmp/librocksdbjni1.so (deleted)\n\
                7f0000002000-7f0000003000 r-xs ffffffffffffffff ffffffff:ffffffff 18446744073709551615 /\n\
                ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]\n";
    fuzz("maps parser", &[own, odd.to_vec()], |bytes| {
        let maps = maps::parse(bytes);
        for mapping in &maps.executable {
            assert!(mapping.start < mapping.end);
            let _ = (mapping.map_files_path(1), mapping.file_name(), mapping.contains_file_offset(u64::MAX));
        }
        maps.malformed_lines == 0
    });
}

/// Stretches of this program's code.
fn code() -> Vec<Vec<u8>> {
    let program = std::fs::read("/proc/self/exe").unwrap();
    let allowance = Allowance::default();
    let headers = ElfHeaders::read(&Source::of_bytes(&program, &allowance)).unwrap();
    let text = headers.section_named(".text").unwrap();
    let mut random = Random::new(1, 1);
    let stretch = |at: u64| program[at as usize..][..CODE_BYTES].to_vec();
    (0..4096)
        .map(|_| text.file_offset + random.below(text.size as usize - CODE_BYTES) as u64)
        // Functions begin at multiples of 16.
        .map(|at| stretch(at & !15))
        .collect()
}

#[test]
fn prologues_and_accessors() {
    fuzz("prologue and accessor decoders", &code(), |bytes| {
        let _ = (prologue::first_member_load(bytes), prologue::member_pair_load(bytes));
        let Ok(choice) = prologue::choose(bytes) else { return false };
        assert!(usize::from(choice.bytes_into_function) < bytes.len().min(prologue::PROLOGUE_BYTES));
        true
    });
}

#[test]
fn functions_that_are_followed() {
    fuzz("code tracer", &code(), |bytes| {
        // Shorter reads than asked for are what the end of a segment gives.
        let at = |address: u64| bytes.get(usize::try_from(address).ok()?..).filter(|rest| !rest.is_empty());
        !trace(0, at).calls.is_empty()
    });
}

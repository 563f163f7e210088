//! Whatever a process has mapped, and whatever its files hold, looking into it does no harm.
//!
//! The ELF files are built with gcc: one library with RocksDB's names, symbols, thread-local variables and a
//! vtable in a few kilobytes, whole and stripped. The code is this program's own, which has a RocksDB in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use super::elf::ElfHeaders;
use super::module::{ModuleCache, Verdict, View};
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
const LIBRARY: &str = r#"
__thread long _ZN7rocksdb12perf_contextE[64];
__thread char _ZN7rocksdb10perf_levelE = 2;
static const char git_tag[] __attribute__((used)) = "rocksdb_build_git_tag:v7.8.3";
static const char ticker[] __attribute__((used)) = "rocksdb.block.cache.miss";
#define METHOD(name) long name(long *self, long *key) { \
    long *held; __builtin_memcpy(&held, self + 5, 8); \
    _ZN7rocksdb12perf_contextE[3] += key[0]; return held[2] + _ZN7rocksdb10perf_levelE; }
METHOD(_ZN7rocksdb6DBIter4SeekERKNS_5SliceE)
METHOD(_ZN7rocksdb6DBIter11SeekForPrevERKNS_5SliceE)
METHOD(_ZN7rocksdb6DBIter11SeekToFirstEv)
METHOD(_ZN7rocksdb6DBIter10SeekToLastEv)
METHOD(_ZN7rocksdb18ArenaWrappedDBIterD0Ev)
METHOD(_ZN7rocksdb6DBImpl11NewIteratorERKNS_11ReadOptionsEPNS_18ColumnFamilyHandleE)
METHOD(_ZN7rocksdb12BlockFetcher17ReadBlockContentsEv)
METHOD(_ZNK7rocksdb18ArenaWrappedDBIter5ValidEv)
METHOD(_ZNK7rocksdb18ArenaWrappedDBIter3keyEv)
METHOD(_ZNK7rocksdb18ArenaWrappedDBIter5valueEv)
METHOD(_ZNK7rocksdb6DBIter3keyEv)
static const char name[] = "N7rocksdb6DBIterE";
static const char wrapper_name[] = "N7rocksdb18ArenaWrappedDBIterE";
static const void *const typeinfo[] = {0, name};
static const void *const wrapper_typeinfo[] = {0, wrapper_name};
#define SLOTS(first) _ZN7rocksdb18ArenaWrappedDBIterD0Ev, _ZN7rocksdb18ArenaWrappedDBIterD0Ev, first, \
    _ZN7rocksdb6DBIter11SeekToFirstEv, _ZN7rocksdb6DBIter10SeekToLastEv, \
    _ZN7rocksdb6DBIter4SeekERKNS_5SliceE, _ZN7rocksdb6DBIter11SeekForPrevERKNS_5SliceE, first, first, \
    _ZNK7rocksdb6DBIter3keyEv, first, first
const void *const vtable[] = {0, typeinfo, SLOTS(_ZNK7rocksdb18ArenaWrappedDBIter5ValidEv)};
const void *const wrapper_vtable[] = {0, wrapper_typeinfo, SLOTS(_ZNK7rocksdb18ArenaWrappedDBIter5valueEv)};
"#;

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
        let (_, verdict) =
            ModuleCache::default().examine(&file, &View::of_process(std::process::id())).unwrap();
        matches!(verdict, Verdict::RocksDb(_))
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

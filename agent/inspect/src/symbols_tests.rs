#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
use super::super::mini_debug_info::tests::{TINY, TINY_SEEK};
use super::super::module::ModuleFacts;
use super::super::source::{Allowance, MEMORY_BYTES_MAX, WORK_BYTES_MAX};
use super::super::tls;
use super::super::trace::TlsBase;
use super::super::verdicts::{Verdict, Verdicts, View};
use super::*;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Runs a program of binutils, which every machine that links Rust programs has.
fn run(program: &str, arguments: &[&std::ffi::OsStr]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// This test program, which has RocksDB inside. Its real path, since `/proc/self/exe` is another program's
/// in another process.
fn ourselves() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// The same without its symbols.
fn stripped(directory: &Path) -> PathBuf {
    let path = directory.join("stripped");
    run("strip", &["--strip-all".as_ref(), "-o".as_ref(), path.as_ref(), ourselves().as_ref()]);
    path
}

fn facts(path: &Path, root: &Path) -> Arc<ModuleFacts> {
    facts_by(&mut Verdicts::default(), path, root)
}

/// What a cache says of a file that a process with this root directory has mapped.
fn facts_by(cache: &mut Verdicts, path: &Path, root: &Path) -> Arc<ModuleFacts> {
    let view = View::below(root.to_path_buf(), "/proc/self/ns/mnt".into());
    match cache.examine(&File::open(path).unwrap(), &view).unwrap() {
        (_, Verdict::RocksDb(facts)) => facts,
        (_, other) => panic!("{other:?}"),
    }
}

/// Moves the functions of a name in a file's symbol tables; nothing else is changed.
fn move_symbol(path: &Path, name: &str, by: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    let allowance = Allowance::default();
    let headers = ElfHeaders::read_without_code(&Source::of_bytes(&bytes, &allowance)).unwrap();
    let mut moved = 0;
    for table in headers.sections.iter().filter(|section| [2, 11].contains(&section.kind)) {
        let strings = headers.sections[table.link as usize].file_offset as usize;
        for at in (table.file_offset as usize..).step_by(24).take(table.size as usize / 24) {
            let number = |at: usize, length: usize| {
                bytes[at..at + length].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
            };
            let (text, value) = (strings + number(at, 4) as usize, number(at + 8, 8));
            if bytes[text..].starts_with(&[name.as_bytes(), b"\0"].concat()) {
                bytes[at + 8..at + 16].copy_from_slice(&(value + by).to_le_bytes());
                moved += 1;
            }
        }
    }
    assert!(moved > 0);
    std::fs::write(path, bytes).unwrap();
}

/// Goal: what is found without symbols is what symbols say, on a real RocksDB (11.12, built without RTTI).
/// Method: examine this test program, and a stripped copy of it; compare.
#[test]
fn a_stripped_copy_tells_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let original = facts(&ourselves(), directory.path());
    let copy = facts(&stripped(directory.path()), directory.path());
    assert_eq!((original.found_by, copy.found_by), (FoundBy::SymbolTable, FoundBy::Code));
    let sites = |facts: &ModuleFacts| {
        let sites = facts.sites.clone();
        let moving = [sites.seek, sites.seek_for_prev, sites.seek_to_first, sites.seek_to_last];
        [&moving[..], &[sites.iterator_destructor, sites.new_iterator]]
            .concat()
            .into_iter()
            .map(|site| site.unwrap_or_else(|| panic!("{:?}", facts.gaps)).file_offset)
            .collect::<Vec<_>>()
    };
    assert_eq!(sites(&copy), sites(&original));
    assert!(original.keys_skipped_offset.is_some());
    assert_eq!(copy.keys_skipped_offset, original.keys_skipped_offset);
    assert!(original.skip_count_offset.is_some());
    assert_eq!(copy.skip_count_offset, original.skip_count_offset);
    assert_eq!(copy.db_iter_offset, original.db_iter_offset);
    assert_eq!(copy.current_key_offset, original.current_key_offset);
    // What is not virtual is gone.
    assert!(copy.sites.read_block_contents.is_none());
    assert!(copy.gaps.iter().any(|gap| gap.what.contains("ReadBlockContents")), "{:?}", copy.gaps);

    let code = copy.counting_code.clone().unwrap();
    assert_eq!(Some(&code), original.counting_code.as_ref());
    assert_eq!(code.internal_key_skipped_count, [280].into());
    assert!(copy.perf_context.is_none() && copy.perf_level.is_none());
    let block = tls::executable_offset(original.tls.as_ref().unwrap());
    let symbols = [original.perf_context.unwrap(), original.perf_level.unwrap()];
    for (symbol, place) in symbols.iter().zip([code.perf_context, code.perf_level.unwrap()]) {
        let TlsBase::ThreadOffset(distance) = place.base else { panic!("{place:?}") };
        assert_eq!(distance + place.offset - block, i64::try_from(symbol.value).unwrap());
    }
}

#[test]
fn a_debug_file_of_the_same_build_is_found_in_a_root() {
    let directory = tempfile::tempdir().unwrap();
    let original = facts(&ourselves(), directory.path());
    let build_id = original.build_id.clone().unwrap();
    let copy = stripped(directory.path());
    let place = |build_id: &str| {
        let path = format!("usr/lib/debug/.build-id/{}/{}.debug", &build_id[..2], &build_id[2..]);
        directory.path().join(path)
    };
    let debug_file = place(&build_id);
    std::fs::create_dir_all(debug_file.parent().unwrap()).unwrap();
    run("objcopy", &["--only-keep-debug".as_ref(), ourselves().as_ref(), debug_file.as_ref()]);
    let root = directory.path();
    let found = facts(&copy, root);
    assert_eq!(found.found_by, FoundBy::DebugFile);
    let read_block_contents = found.sites.read_block_contents.as_ref().unwrap();
    assert_eq!(read_block_contents.found_by, FoundBy::DebugFile);
    let expected = original.sites.read_block_contents.as_ref().unwrap();
    assert_eq!(read_block_contents.file_offset, expected.file_offset);
    assert_eq!(found.perf_context.unwrap().value, original.perf_context.unwrap().value);
    // What lies in one root directory says nothing to who has another.
    let mut cache = Verdicts::default();
    let elsewhere = tempfile::tempdir().unwrap();
    assert_eq!(facts_by(&mut cache, &copy, root).found_by, FoundBy::DebugFile);
    assert_eq!(facts_by(&mut cache, &copy, elsewhere.path()).found_by, FoundBy::Code);
    // A build id is quickly written: where its symbols are no functions of this file, they are not believed.
    move_symbol(&debug_file, SEEK, 3);
    let forged = facts(&copy, root);
    assert_eq!(forged.found_by, FoundBy::Code);
    assert_eq!(forged.sites.seek, facts(&copy, elsewhere.path()).sites.seek);
    // Another build's file in this one's place is not believed.
    run("objcopy", &["--remove-section=.note.gnu.build-id".as_ref(), debug_file.as_ref()]);
    assert_eq!(facts(&copy, root).found_by, FoundBy::Code);
}

#[test]
fn packed_symbols_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let copy = stripped(directory.path());
    let packed = directory.path().join("packed.xz");
    std::fs::write(&packed, TINY).unwrap();
    let section = format!(".gnu_debugdata={}", packed.display());
    run("objcopy", &["--add-section".as_ref(), section.as_ref(), copy.as_ref()]);
    let file = File::open(&copy).unwrap();
    let allowance = Allowance::default();
    let source = Source::of_file(&file, &allowance).unwrap();
    let headers = ElfHeaders::read(&source).unwrap();
    let Presence::Found(symbols) = Symbols::locate(&source, &headers, Some(&DebugSymbols::new())).unwrap()
    else {
        panic!("not found")
    };
    let seek = symbols.get(SEEK).unwrap();
    assert_eq!((seek.symbol.value, seek.by), (TINY_SEEK, FoundBy::MiniDebugInfo));
}

#[test]
fn a_program_without_rocksdb_has_none() {
    let file = File::open("/bin/sh").unwrap();
    let allowance = Allowance::default();
    let source = Source::of_file(&file, &allowance).unwrap();
    let headers = ElfHeaders::read(&source).unwrap();
    assert!(matches!(
        Symbols::locate(&source, &headers, Some(&DebugSymbols::new())).unwrap(),
        Presence::Absent
    ));
}

/// Goal: nobody says with a file of their own where probes go in somebody else's. Method: a copy with the
/// same build id, size, owner and device whose `DBIter::Seek` lies three bytes on is examined first.
#[test]
fn a_forged_build_id_says_nothing_of_another_file() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (genuine, forged) = (root.join("genuine"), root.join("forged"));
    std::fs::copy(ourselves(), &genuine).unwrap();
    std::fs::copy(ourselves(), &forged).unwrap();
    move_symbol(&forged, SEEK, 3);
    let mut cache = Verdicts::default();
    let forged = facts_by(&mut cache, &forged, root);
    let found = facts_by(&mut cache, &genuine, root);
    assert_eq!(found.build_id, forged.build_id);
    assert!(found.build_id.is_some());
    assert_ne!(found.sites.seek, forged.sites.seek);
    assert_eq!(found.sites.seek, facts(&ourselves(), root).sites.seek);
    // The same file is read once.
    assert!(Arc::ptr_eq(&found, &facts_by(&mut cache, &genuine, root)));
}

/// Goal: real files are far from the limits. Method: this program, which has RocksDB and Polars inside, with
/// its symbols and without any.
#[test]
fn real_files_take_a_part_of_their_allowance() {
    let directory = tempfile::tempdir().unwrap();
    for path in [ourselves(), stripped(directory.path())] {
        let file = File::open(&path).unwrap();
        let allowance = Allowance::default();
        let source = Source::of_file(&file, &allowance).unwrap();
        let headers = ElfHeaders::read(&source).unwrap();
        let begin = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        assert!(matches!(
            Symbols::locate(&source, &headers, Some(&DebugSymbols::new())).unwrap(),
            Presence::Found(_)
        ));
        let end = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let time_ms = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1_000_000;
        let (memory, work) = allowance.taken();
        println!(
            "{}: {} bytes of memory, {} of work, {} of the file, {time_ms} ms",
            path.display(),
            memory,
            work,
            source.length()
        );
        allowance.check().unwrap();
        assert!(memory < MEMORY_BYTES_MAX / 2 && work < WORK_BYTES_MAX / 4 * 3, "{memory} {work}");
    }
}

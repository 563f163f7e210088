#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
use super::super::mini_debug_info::tests::{TINY, TINY_SEEK};
use super::super::module::{ModuleCache, ModuleFacts, Verdict};
use super::super::tls;
use super::super::trace::TlsBase;
use super::*;
use std::path::Path;
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

fn facts(path: &Path, roots: &[PathBuf]) -> Arc<ModuleFacts> {
    match ModuleCache::default().examine(&File::open(path).unwrap(), roots).unwrap() {
        (_, Verdict::RocksDb(facts)) => facts,
        (_, other) => panic!("{other:?}"),
    }
}

/// Goal: what is found without symbols is what symbols say, on a real RocksDB (11.12, built without RTTI).
/// Method: examine this test program, and a stripped copy of it; compare.
#[test]
fn a_stripped_copy_tells_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let original = facts(&ourselves(), &[]);
    let copy = facts(&stripped(directory.path()), &[]);
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
    let original = facts(&ourselves(), &[]);
    let build_id = original.build_id.clone().unwrap();
    let copy = stripped(directory.path());
    let place = |build_id: &str| {
        let path = format!("usr/lib/debug/.build-id/{}/{}.debug", &build_id[..2], &build_id[2..]);
        directory.path().join(path)
    };
    let debug_file = place(&build_id);
    std::fs::create_dir_all(debug_file.parent().unwrap()).unwrap();
    run("objcopy", &["--only-keep-debug".as_ref(), ourselves().as_ref(), debug_file.as_ref()]);
    let roots = [directory.path().join("nowhere"), directory.path().to_path_buf()];
    let found = facts(&copy, &roots);
    assert_eq!(found.found_by, FoundBy::DebugFile);
    let read_block_contents = found.sites.read_block_contents.as_ref().unwrap();
    assert_eq!(read_block_contents.found_by, FoundBy::DebugFile);
    let expected = original.sites.read_block_contents.as_ref().unwrap();
    assert_eq!(read_block_contents.file_offset, expected.file_offset);
    assert_eq!(found.perf_context.unwrap().value, original.perf_context.unwrap().value);
    // Another build's file in this one's place is not believed.
    run("objcopy", &["--remove-section=.note.gnu.build-id".as_ref(), debug_file.as_ref()]);
    assert_eq!(facts(&copy, &roots).found_by, FoundBy::Code);
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
    let cache = object::ReadCache::new(&file);
    let headers = ElfHeaders::read(&cache).unwrap();
    let Presence::Found(symbols) = Symbols::locate(&file, &headers, &cache, &[]).unwrap() else {
        panic!("not found")
    };
    let seek = symbols.get(SEEK).unwrap();
    assert_eq!((seek.symbol.value, seek.by), (TINY_SEEK, FoundBy::MiniDebugInfo));
}

#[test]
fn a_program_without_rocksdb_has_none() {
    let file = File::open("/bin/sh").unwrap();
    let cache = object::ReadCache::new(&file);
    let headers = ElfHeaders::read(&cache).unwrap();
    assert!(matches!(Symbols::locate(&file, &headers, &cache, &[]).unwrap(), Presence::Absent));
}

#[test]
fn another_file_of_the_same_build_is_not_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (stripped(directory.path()), directory.path().join("second"));
    std::fs::copy(&first, &second).unwrap();
    let mut cache = ModuleCache::default();
    let mut facts = |path: &Path| match cache.examine(&File::open(path).unwrap(), &[]).unwrap() {
        (_, Verdict::RocksDb(facts)) => facts,
        (_, other) => panic!("{other:?}"),
    };
    let (one, other) = (facts(&first), facts(&second));
    assert!(Arc::ptr_eq(&one, &other));
    // Stripping keeps the build id, and is another file all the same.
    assert!(!Arc::ptr_eq(&one, &facts(&ourselves())));
}

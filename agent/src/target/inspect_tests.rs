#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
use super::*;
use std::ptr;

/// Maps a file for execution into our own process, as a loaded library would be, until it is dropped.
struct ExecutableMapping {
    address: *mut libc::c_void,
    length: usize,
}

impl ExecutableMapping {
    fn of(path: &Path) -> ExecutableMapping {
        let file = File::open(path).unwrap();
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
        // SAFETY: a new private mapping at an address of the kernel's choice; nothing reads or runs it.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, flags, std::os::fd::AsRawFd::as_raw_fd(&file), 0)
        };
        assert_ne!(address, libc::MAP_FAILED);
        ExecutableMapping { address, length }
    }
}

impl Drop for ExecutableMapping {
    fn drop(&mut self) {
        // SAFETY: just the mapping made in `of`, unmapped once.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

/// All tests that map files into this process, one after the other: each sees the others' mappings.
static MAPPINGS: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn search_ourselves(path: &Path) -> Search {
    let maps = maps::read(std::process::id()).unwrap();
    let mapping = maps.executable.iter().find(|mapping| mapping.path == path).unwrap();
    let mut search = Search::default();
    Inspector::new().examine(std::process::id(), &maps, mapping, &mut search).unwrap();
    search
}

#[test]
fn a_broken_library_named_rocksdb_is_reported_as_broken() {
    let _guard = MAPPINGS.lock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("librocksdbjni42.so");
    let whole = std::fs::read("/proc/self/exe").unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let _mapping = ExecutableMapping::of(&path);
    let search = search_ourselves(&path);
    let (broken, error) = search.broken.unwrap();
    assert_eq!(broken, path);
    assert!(matches!(error, ElfError::Malformed { .. }), "{error}");
}

#[test]
fn a_broken_library_of_another_name_is_only_a_hint() {
    let _guard = MAPPINGS.lock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("libother.so");
    let whole = std::fs::read("/proc/self/exe").unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let _mapping = ExecutableMapping::of(&path);
    let search = search_ourselves(&path);
    assert!(search.broken.is_none());
    assert!(search.hint.unwrap().contains("libother.so"));
}

#[test]
fn a_deleted_file_is_still_read_where_the_kernel_allows() {
    let _guard = MAPPINGS.lock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("librocksdb-gone.so");
    std::fs::write(&path, "no ELF file").unwrap();
    let _mapping = ExecutableMapping::of(&path);
    std::fs::remove_file(&path).unwrap();
    let search = search_ourselves(&path);
    // Without the capability for `map_files` there is no other way to a deleted file.
    match (search.broken, search.denied) {
        (Some((_, error)), None) => assert_eq!(error, ElfError::NotElf),
        (None, Some(denied)) => assert_eq!(denied, path),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_named_like_rocksdb_come_first_and_each_once() {
    let maps = maps::parse(
        b"1000-2000 r-xp 0 08:01 1 /usr/bin/java\n3000-4000 r-xp 0 08:01 2 /lib/libc.so.6\n\
          5000-6000 r-xp 0 08:01 3 /tmp/librocksdbjni1.so\n7000-8000 r-xp 2000 08:01 3 /tmp/librocksdbjni1.so\n",
    );
    let inodes: Vec<u64> = candidates(&maps).iter().map(|mapping| mapping.file.inode).collect();
    assert_eq!(inodes, [3, 1, 2]);
}

#[test]
fn a_pid_that_cannot_be_is_no_such_process() {
    assert!(matches!(Inspector::new().inspect(i32::MAX as u32), Err(InspectError::NoSuchProcess { .. })));
}

#[test]
fn our_own_pid_is_not_among_the_scanned() {
    assert!(!pids().contains(&std::process::id()));
    assert!(pids().contains(&1));
}

/// The thread pointer of the calling thread.
fn thread_pointer() -> u64 {
    let thread_pointer: u64;
    // SAFETY: glibc keeps the thread pointer itself in the first word that fs points to.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) thread_pointer) };
    thread_pointer
}

/// Goal: the whole way from a pid to a counter, on a real RocksDB, against RocksDB's own answer.
/// Method: this test program has RocksDB inside; open a database, walk over tombstones, inspect our own
/// process, follow the recipe by hand for this thread, and compare with RocksDB's C API.
#[test]
fn the_recipe_leads_to_rocksdbs_own_counters() {
    use rust_rocksdb::{DB, PerfContext, PerfMetric, PerfStatsLevel, perf::set_perf_stats};
    let _guard = MAPPINGS.lock().unwrap();
    // With one test thread, earlier tests have counted on this one.
    set_perf_stats(PerfStatsLevel::EnableCount);
    PerfContext::default().reset();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let db = DB::open_default(&path).unwrap();
    for number in 0..1000 {
        db.put(format!("key{number:04}"), b"value").unwrap();
    }
    db.flush().unwrap();
    for number in 0..777 {
        db.delete(format!("key{number:04}")).unwrap();
    }
    db.flush().unwrap();
    let mut iterator = db.raw_iterator();
    iterator.seek(b"key");
    assert_eq!(iterator.key(), Some(&b"key0777"[..]));

    let pid = std::process::id();
    let target = Inspector::new().inspect(pid).unwrap();
    assert!(target.databases.iter().any(|database| database.path == path), "{:?}", target.databases);
    let module = &target.module;
    assert_eq!((module.version.major, module.version.minor), (11, 12), "{:?}", module.version);
    assert_eq!(module.layout.size_bytes, Some(976));
    assert_eq!(module.db_iter_offset, Some(40));
    let TlsRecipe::Static { offset } = module.tls else { panic!("{:?}", module.tls) };
    let sites = &module.sites;
    for site in [&sites.seek, &sites.seek_for_prev, &sites.seek_to_first, &sites.seek_to_last] {
        assert!(site.is_some(), "{:?}", target.gaps);
    }
    assert!(sites.iterator_destructor.is_some() && sites.new_iterator.is_some(), "{:?}", target.gaps);

    let block = thread_pointer().wrapping_add_signed(offset);
    let counter =
        |at: u32| memory::read_u64(pid, block + module.perf_context_offset + u64::from(at)).unwrap();
    let level = memory::read(pid, block + module.perf_level_offset.unwrap(), 1).unwrap();
    assert_eq!(level, [PerfStatsLevel::EnableCount as u8]);
    let ours = sexton_tuner::evidence::Counters {
        tombstones_skipped: counter(module.layout.internal_delete_skipped_count),
        keys_skipped: counter(module.layout.internal_key_skipped_count),
        block_reads: counter(module.layout.block_read_count),
        block_read_bytes: counter(module.layout.block_read_byte),
        block_cache_hits: counter(module.layout.block_cache_hit_count),
    };
    layout::check_invariants(&[ours]).unwrap();
    let theirs = PerfContext::default();
    assert_eq!(ours.tombstones_skipped, 777);
    assert_eq!(ours.tombstones_skipped, theirs.metric(PerfMetric::InternalDeleteSkippedCount));
    assert_eq!(ours.keys_skipped, theirs.metric(PerfMetric::InternalKeySkippedCount));
    assert_eq!(ours.block_reads, theirs.metric(PerfMetric::BlockReadCount));
    assert_eq!(ours.block_read_bytes, theirs.metric(PerfMetric::BlockReadByte));
    assert_eq!(ours.block_cache_hits, theirs.metric(PerfMetric::BlockCacheHitCount));
    assert!(ours.block_reads > 0);
}

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
use super::super::facts::{FoundBy, TlsRecipe};
use super::super::memory;
use super::super::search::tests::MAPPINGS;
use super::*;

#[test]
fn a_pid_that_cannot_be_is_no_such_process() {
    assert!(matches!(Inspector::new().inspect(i32::MAX as u32), Err(InspectError::NoSuchProcess { .. })));
}

#[test]
fn our_own_pid_is_not_among_the_scanned() {
    assert!(!pids().contains(&std::process::id()));
    assert!(pids().contains(&1));
}

#[test]
fn a_glance_remembers_where_nothing_was_until_something_is_mapped() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    // A child that has only just become another program has nothing mapped yet, then more and more.
    while !is_asleep(pid) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut inspector = Inspector::new();
    for _ in 0..2 {
        assert!(matches!(inspector.glance(pid), Err(InspectError::NoRocksDb { hint: None, .. })));
    }
    let mut maps = read_maps(pid).unwrap();
    let fingerprint = maps.fingerprint();
    maps.executable.pop().unwrap();
    assert_ne!(maps.fingerprint(), fingerprint);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(inspector.glance(pid), Err(InspectError::NoSuchProcess { .. })));
    // This test program has RocksDB inside, and is left out as the agent itself would be.
    assert!(matches!(inspector.glance(std::process::id()), Err(InspectError::NoRocksDb { .. })));
}

/// Whether `sleep` does what it is for: then its program and its libraries are all mapped.
fn is_asleep(pid: u32) -> bool {
    let mapped =
        read_maps(pid).unwrap().executable.iter().any(|mapping| mapping.file_name().starts_with("libc"));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    mapped && stat.contains(") S ")
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
    let layout = module.layout.clone().unwrap();
    assert_eq!(layout.size_bytes, Some(976));
    assert_eq!(module.db_iter_offset, Some(40));
    let Some(TlsRecipe::Static { offset }) = module.tls else { panic!("{:?}", module.tls) };
    let sites = &module.sites;
    for site in [&sites.seek, &sites.seek_for_prev, &sites.seek_to_first, &sites.seek_to_last] {
        assert!(site.is_some(), "{:?}", target.gaps);
    }
    for site in [&sites.iterator_destructor, &sites.new_iterator, &sites.read_block_contents] {
        assert!(site.is_some(), "{:?}", target.gaps);
    }
    assert_eq!(module.found_by, FoundBy::SymbolTable);
    assert!(target.is_primary && target.id.process == target.process && target.id.module == module.file);

    let block = thread_pointer().wrapping_add_signed(offset);
    let counter =
        |at: u32| memory::read_u64(pid, block + module.perf_context_offset.unwrap() + u64::from(at)).unwrap();
    let level = memory::read(pid, block + module.perf_level_offset.unwrap(), 1).unwrap();
    assert_eq!(level, [PerfStatsLevel::EnableCount as u8]);
    let ours = sexton_tuner::evidence::Counters {
        tombstones_skipped: counter(layout.internal_delete_skipped_count),
        keys_skipped: counter(layout.internal_key_skipped_count),
        block_reads: counter(layout.block_read_count),
        block_read_bytes: counter(layout.block_read_byte),
        block_cache_hits: counter(layout.block_cache_hit_count),
        ..Default::default()
    };
    super::super::layout::check_invariants(&[ours]).unwrap();
    let theirs = PerfContext::default();
    assert_eq!(ours.tombstones_skipped, 777);
    assert_eq!(ours.tombstones_skipped, theirs.metric(PerfMetric::InternalDeleteSkippedCount));
    assert_eq!(ours.keys_skipped, theirs.metric(PerfMetric::InternalKeySkippedCount));
    assert_eq!(ours.block_reads, theirs.metric(PerfMetric::BlockReadCount));
    assert_eq!(ours.block_read_bytes, theirs.metric(PerfMetric::BlockReadByte));
    assert_eq!(ours.block_cache_hits, theirs.metric(PerfMetric::BlockCacheHitCount));
    assert!(ours.block_reads > 0);
}

//! Reads real databases while another handle has them open.
//!
//! The reading process is this test binary itself, started again: [`STAND_IN`] runs before the test
//! harness does and takes the hidden subcommand, as the agent's `main` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::*;
use rust_rocksdb::{BlockBasedOptions, ColumnFamilyDescriptor, DB, DBCompressionType, Options};
use sexton_tuner::key::Key;
use sexton_tuner::oldest_snapshot::Sequences;
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Subcommand of the stand-in only: tries to do harm after confinement and prints what worked.
const SUBCOMMAND_HARM: &str = "internal-try-harm";

type Constructor = unsafe extern "C" fn(std::ffi::c_int, *const *const u8, *const *const u8);

unsafe extern "C" {
    /// First of the constructors that the C runtime calls before `main`; the linker gives it this name.
    static __init_array_start: [Constructor; 0];
    /// Behind the last of them.
    static __init_array_end: [Constructor; 0];
}

#[used]
#[unsafe(link_section = ".init_array")]
static STAND_IN: Constructor = stand_in;

unsafe extern "C" fn stand_in(
    count: std::ffi::c_int,
    arguments: *const *const u8,
    environment: *const *const u8,
) {
    let given: Vec<_> = std::env::args_os().collect();
    let [_, subcommand, directory, ..] = given.as_slice() else { return };
    if subcommand != CHILD_SUBCOMMAND && subcommand != SUBCOMMAND_HARM {
        return;
    }
    // SAFETY: the two symbols bound one array of constructors, none of which is null. Those behind this one,
    // RocksDB's C++ statics among them, have not been called yet and never will be otherwise, since the
    // process exits below.
    unsafe {
        let (mut next, end) = ((&raw const __init_array_start).cast(), (&raw const __init_array_end).cast());
        let mut behind = false;
        while next < end {
            let constructor: Constructor = *next;
            if behind {
                constructor(count, arguments, environment);
            }
            behind |= std::ptr::fn_addr_eq(constructor, stand_in as Constructor);
            next = next.add(1);
        }
    }
    if subcommand == SUBCOMMAND_HARM {
        try_harm(Path::new(directory));
        std::process::exit(0);
    }
    let rest = given.iter().skip(1);
    let code = child::main(&<StandIn as clap::Parser>::parse_from(rest).arguments);
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

/// The hidden subcommand's arguments, as the agent takes them.
#[derive(clap::Parser)]
struct StandIn {
    #[command(flatten)]
    arguments: ChildArguments,
}

fn try_harm(directory: &Path) {
    let probe = std::fs::File::open(directory.join("probe")).unwrap();
    confine::to_directory(directory, None).unwrap();
    let file = directory.join("file");
    let parent = rustix::process::getppid().unwrap();
    let attempts: [(&str, std::io::Result<()>); 13] = [
        ("create", std::fs::write(directory.join("new"), "x")),
        ("write", std::fs::OpenOptions::new().append(true).open(&file).map(drop)),
        ("truncate", std::fs::OpenOptions::new().write(true).truncate(true).open(&file).map(drop)),
        ("unlink", std::fs::remove_file(&file)),
        ("rename", std::fs::rename(&file, directory.join("other"))),
        ("mkdir", std::fs::create_dir(directory.join("dir"))),
        ("read elsewhere", std::fs::read("/etc/passwd").map(drop)),
        ("write to /tmp", std::fs::write(std::env::temp_dir().join("sexton-confined"), "x")),
        ("connect", std::net::TcpStream::connect("127.0.0.1:9").map(drop)),
        ("a socket", std::os::unix::net::UnixDatagram::unbound().map(drop)),
        ("a signal", rustix::process::test_kill_process(parent).map_err(Into::into)),
        ("a program", std::process::Command::new("/bin/true").spawn().map(drop)),
        ("a link", symlink("file", directory.join("link"))),
    ];
    if rustix::process::geteuid().is_root() {
        println!("it is root still");
    }
    for (what, result) in attempts {
        let refused = result.as_ref().err().map(std::io::Error::kind);
        // A refused connection has reached the network; permission denied has not.
        let is_refused = match what {
            "mkdir" => refused == Some(std::io::ErrorKind::AlreadyExists),
            _ => refused == Some(std::io::ErrorKind::PermissionDenied),
        };
        if !is_refused {
            println!("{what}: {result:?}");
        }
    }
    drop(probe);
    println!("read: {}", std::fs::read_to_string(file).unwrap());
}

/// Name, size, modification time and inode of everything in the directory.
fn picture(directory: &Path) -> BTreeMap<String, (u64, i64, i64, u64)> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let pictures = entries.map(|entry| {
        let metadata = entry.metadata().unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, (metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino()))
    });
    let own = std::fs::metadata(directory).unwrap();
    pictures.chain([(".".to_owned(), (own.len(), own.mtime(), own.mtime_nsec(), own.ino()))]).collect()
}

/// The same once RocksDB has removed in the background what it does not need any more.
fn settled(directory: &Path) -> BTreeMap<String, (u64, i64, i64, u64)> {
    loop {
        let before = picture(directory);
        std::thread::sleep(Duration::from_millis(100));
        if picture(directory) == before {
            return before;
        }
    }
}

fn small_files() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_target_file_size_base(32 << 10);
    options.set_disable_auto_compactions(true);
    options.set_write_buffer_size(64 << 10);
    options
}

/// A database of three column families with more than 30 files, an unflushed WAL and deletions.
fn busy_database(directory: &Path) -> DB {
    let families =
        ["default", "keyTable", "fileTable"].map(|name| ColumnFamilyDescriptor::new(name, small_files()));
    let database = DB::open_cf_descriptors(&small_files(), directory, families).unwrap();
    for (at, name) in ["default", "keyTable", "fileTable"].into_iter().enumerate() {
        let family = database.cf_handle(name).unwrap();
        for number in 0..6000 * (at + 1) {
            let key = format!("/vol/bucket/{number:08}");
            database.put_cf(family, &key, "v".repeat(60)).unwrap();
        }
        database.flush_cf(family).unwrap();
        for number in 0..2000 * (at + 1) {
            database.delete_cf(family, format!("/vol/bucket/{number:08}")).unwrap();
        }
        database.flush_cf(family).unwrap();
        database.put_cf(family, "unflushed", "only in the WAL and the memtable").unwrap();
    }
    database.compact_range_cf(
        database.cf_handle("keyTable").unwrap(),
        None::<&[u8]>,
        Some("/vol/bucket/00004000"),
    );
    database
}

/// What the owning handle says, in the order and form of [`SstFile`].
fn owners_files(database: &DB) -> Vec<SstFile> {
    let files = database.live_files().unwrap().into_iter().map(|file| SstFile {
        number: number(&file.name),
        column_family: file.column_family_name,
        level: file.level as u32,
        size_bytes: file.size as u64,
        entries: file.num_entries,
        deletions: file.num_deletions,
        smallest: Key::new(file.start_key.unwrap()),
        largest: Key::new(file.end_key.unwrap()),
    });
    sorted(files.collect())
}

fn number(name: &str) -> u64 {
    name.trim_matches(|character: char| !character.is_ascii_digit()).parse().unwrap()
}

fn sorted(mut files: Vec<SstFile>) -> Vec<SstFile> {
    files.sort_by_key(|file| file.number);
    files
}

#[test]
fn reads_what_the_owner_sees_and_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let database = busy_database(directory.path());
    let expected = owners_files(&database);
    assert!(expected.len() > 30, "{} files", expected.len());
    let before = picture(directory.path());

    let mut files = sorted(read_directory(Place::of(directory.path())).unwrap());
    assert!(files.iter().any(|file| file.entries == 0), "RocksDB does not load the statistics itself");
    let completion = complete(
        &Reader::default(),
        &mut files,
        Place::of(directory.path()),
        &mut PropertiesCache::default(),
    );

    assert_eq!(picture(directory.path()), before, "nothing in the directory has changed");
    assert_eq!(completion.first_error, None);
    assert_eq!(files, expected);
    let sequences = read_database(Place::of(directory.path())).unwrap().sequences;
    for (file, number) in database.live_files().unwrap().iter().map(|file| (file, number(&file.name))) {
        let expected = Sequences { smallest: file.smallest_seqno, largest: file.largest_seqno };
        assert_eq!(sequences.get(&number), Some(&expected));
    }
    assert!(sequences.values().any(|file| file.smallest < file.largest));
    assert!(files.iter().any(|file| file.deletions > 0 && file.level == 0));
    assert!(files.iter().any(|file| file.level > 0));
    // The owner is not hindered: it still has its lock and writes.
    database.put("after", "value").unwrap();
    database.flush().unwrap();
    assert!(DB::open(&small_files(), directory.path()).is_err(), "the lock is still the owner's");
}

#[test]
fn reads_while_the_owner_writes_and_compacts() {
    let directory = tempfile::tempdir().unwrap();
    let database = busy_database(directory.path());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_u32;
            while !done.load(Ordering::Relaxed) {
                for number in 0..500 {
                    database.put(format!("{round:08}-{number:08}"), "v".repeat(100)).unwrap();
                }
                database.flush().unwrap();
                if round % 8 == 7 {
                    database.compact_range(None::<&[u8]>, None::<&[u8]>);
                }
                round += 1;
            }
        });
        for _ in 0..15 {
            let read = read_directory(Place::of(directory.path()));
            if read.is_err() {
                done.store(true, Ordering::Relaxed);
            }
            assert!(read.unwrap().len() > 30);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn reads_a_database_that_tracks_its_wals() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = small_files();
    options.set_track_and_verify_wals_in_manifest(true);
    let database = DB::open(&options, directory.path()).unwrap();
    for round in 0..4 {
        for number in 0..100 {
            database.put(format!("{round}-{number}"), "v").unwrap();
        }
        database.flush_wal(true).unwrap();
        database.flush().unwrap();
        database.put(format!("{round}-in the WAL"), "v").unwrap();
        database.flush_wal(true).unwrap();
    }
    let before = settled(directory.path());
    let mut files = sorted(read_directory(Place::of(directory.path())).unwrap());
    complete(&Reader::default(), &mut files, Place::of(directory.path()), &mut PropertiesCache::default());
    assert_eq!(picture(directory.path()), before);
    assert_eq!(files, owners_files(&database));
}

#[test]
fn a_wal_directory_elsewhere_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let wals = tempfile::tempdir().unwrap();
    let mut options = small_files();
    options.set_wal_dir(wals.path());
    let database = DB::open(&options, directory.path()).unwrap();
    database.put("key", "value").unwrap();
    database.flush().unwrap();
    // RocksDB removes such files from a WAL directory that it is given, even when it opens read-only.
    std::fs::write(wals.path().join("000001.log.trash"), "being removed slowly by its owner").unwrap();
    let before = picture(wals.path());
    assert_eq!(read_directory(Place::of(directory.path())).unwrap().len(), 1);
    assert_eq!(picture(wals.path()), before);
}

#[test]
fn many_levels_and_unusual_names() {
    let directory = tempfile::tempdir().unwrap();
    let mut deep = small_files();
    deep.set_num_levels(30);
    deep.set_compaction_style(rust_rocksdb::DBCompactionStyle::Universal);
    let name = "odd: #name \"with\" [brackets] \\ and Ümlaut";
    let families =
        [ColumnFamilyDescriptor::new("default", small_files()), ColumnFamilyDescriptor::new(name, deep)];
    let database = DB::open_cf_descriptors(&small_files(), directory.path(), families).unwrap();
    let family = database.cf_handle(name).unwrap();
    for round in 0..3 {
        database.put_cf(family, format!("key{round}"), "value").unwrap();
        database.flush_cf(family).unwrap();
    }
    database.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
    let files = read_directory(Place::of(directory.path())).unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!((files[0].column_family.as_str(), files[0].level), (name, 29));
}

/// Each column family used to bring a block cache, and 400 of them reached the limit of address space.
#[test]
fn hundreds_of_column_families_fit_into_the_limits() {
    const FAMILIES: usize = 400;
    let directory = tempfile::tempdir().unwrap();
    let names = (1..FAMILIES).map(|at| format!("family-{at}")).chain(["default".to_owned()]);
    let families: Vec<_> = names.map(|name| ColumnFamilyDescriptor::new(name, small_files())).collect();
    let database = DB::open_cf_descriptors(&small_files(), directory.path(), families).unwrap();
    database.put("key", "value").unwrap();
    database.flush().unwrap();
    let read = read_database(Place::of(directory.path())).unwrap();
    assert_eq!((read.column_families.len(), read.files.len()), (FAMILIES, 1));
}

#[test]
fn known_comparators_give_bytewise_bounds() {
    for (name, reverse) in [
        ("RocksDB_SE_v3.10", false),
        ("rev:RocksDB_SE_v3.10", true),
        ("rocksdb.ReverseBytewiseComparator", true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let order = if reverse { Order::ReverseBytewise } else { Order::Bytewise };
        let mut options = small_files();
        options.set_comparator(name, Box::new(move |one, two| order.compare(one, two)));
        let database = DB::open(&options, directory.path()).unwrap();
        for key in ["a", "b", "c"] {
            database.put(key, "value").unwrap();
        }
        database.flush().unwrap();
        let read = read_database(Place::of(directory.path())).unwrap();
        let [family] = read.column_families.as_slice() else { panic!("{:?}", read.column_families) };
        assert_eq!((family.name.as_str(), family.comparator.as_str()), ("default", name));
        assert_eq!(family.order, Some(order));
        assert_eq!(family.options.comparator, name, "the plan refuses it by its name");
        assert_eq!(
            (family.options.target_file_size_base, family.options.write_buffer_size),
            (32 << 10, 64 << 10)
        );
        assert_eq!(read.files.len(), 1);
        assert_eq!(
            (read.files[0].smallest.as_bytes(), read.files[0].largest.as_bytes()),
            (&b"a"[..], &b"c"[..])
        );
    }
}

#[test]
fn an_unknown_comparator_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut unknown = small_files();
    unknown.set_comparator("app.MyOrder", Box::new(|one, two| one.len().cmp(&two.len()).then(one.cmp(two))));
    let families = [
        ColumnFamilyDescriptor::new("default", small_files()),
        ColumnFamilyDescriptor::new("odd", unknown.clone()),
    ];
    let database = DB::open_cf_descriptors(&small_files(), directory.path(), families).unwrap();
    database.put("key", "value").unwrap();
    database.put_cf(database.cf_handle("odd").unwrap(), "key", "value").unwrap();
    database.flush().unwrap();
    database.flush_cf(database.cf_handle("odd").unwrap()).unwrap();

    let read = read_database(Place::of(directory.path())).unwrap();
    assert_eq!(read.files.len(), 1, "the column family that is known is read");
    assert_eq!(read.files[0].column_family, "default");
    let error = read_directory(Place::of(directory.path())).unwrap_err();
    assert!(error.to_string().contains("\"app.MyOrder\""), "{error}");

    let directory = tempfile::tempdir().unwrap();
    let database = DB::open(&unknown, directory.path()).unwrap();
    database.put("key", "value").unwrap();
    database.flush().unwrap();
    let error = read_database(Place::of(directory.path())).unwrap_err();
    assert!(matches!(error, SstError::UnknownComparator { .. }), "{error}");
}

#[test]
fn long_keys_are_cut_to_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let database = DB::open(&small_files(), directory.path()).unwrap();
    for letter in ["a", "b"] {
        database.put(letter.repeat(5000), "value").unwrap();
    }
    database.flush().unwrap();
    let files = read_directory(Place::of(directory.path())).unwrap();
    assert_eq!(files[0].smallest, Key::new("a".repeat(KEY_BYTES_MAX)));
    let largest = Key::new("b".repeat(KEY_BYTES_MAX)).prefix_end().unwrap();
    assert_eq!(files[0].largest, largest);
    assert!(largest > Key::new("b".repeat(5000)));
}

#[test]
fn what_is_no_database_is_said_so() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(read_directory(Place::of(directory.path())), Err(SstError::NotADatabase { .. })));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let missing = directory.path().join("missing");
    assert!(matches!(read_directory(Place::of(&missing)), Err(SstError::Directory { .. })));
    assert!(!missing.exists(), "RocksDB's wrapper would have made it");

    let current = directory.path().join("CURRENT");
    symlink("CURRENT", &current).unwrap();
    let error = read_directory(Place::of(directory.path())).unwrap_err();
    assert!(
        matches!(error, SstError::Directory { .. }),
        "not readable is not the same as not there: {error}"
    );
    std::fs::remove_file(&current).unwrap();

    std::fs::write(&current, "MANIFEST-000001\n").unwrap();
    std::fs::write(directory.path().join("MANIFEST-000001"), vec![0x5a; 100_000]).unwrap();
    let before = picture(directory.path());
    let error = read_directory(Place::of(directory.path())).unwrap_err();
    assert!(matches!(error, SstError::RocksDb { .. }), "{error}");
    assert_eq!(picture(directory.path()), before);
}

fn script(directory: &Path, text: &str) -> Reader {
    let executable = directory.join("reader.sh");
    std::fs::write(&executable, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&executable, std::fs::Permissions::from_mode(0o755)).unwrap();
    Reader { executable, time_limit: Duration::from_secs(5) }
}

#[test]
fn a_reading_process_that_hangs_dies_or_babbles_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut hangs = script(directory.path(), "exec sleep 600");
    hangs.time_limit = Duration::from_millis(300);
    let started = std::time::Instant::now();
    assert!(matches!(hangs.read(Place::of(directory.path())), Err(SstError::TimedOut { .. })));
    assert!(started.elapsed() < Duration::from_secs(5));

    let dies = script(directory.path(), "kill -SEGV $$").read(Place::of(directory.path())).unwrap_err();
    assert!(matches!(&dies, SstError::Cut { lines: 0, .. }), "{dies}");
    let short = script(directory.path(), r#"echo '{"line":"end","files":3}'"#)
        .read(Place::of(directory.path()))
        .unwrap_err();
    assert!(short.to_string().contains("it says 3 files but 0 came"), "{short}");
    let babbles = script(directory.path(), "yes").read(Place::of(directory.path())).unwrap_err();
    assert!(matches!(&babbles, SstError::Cut { lines: 1, .. }), "{babbles}");

    let gone = Reader { executable: "/nonexistent/sexton".into(), ..Reader::default() };
    assert!(matches!(gone.read(Place::of(directory.path())), Err(SstError::Spawn { .. })));
}

/// Needs Landlock, which the kernels of all supported distributions have; without it the file size limit
/// still holds, but not every attempt below is refused.
#[test]
fn the_reading_process_can_only_read() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "content").unwrap();
    std::fs::write(directory.path().join("probe"), "").unwrap();
    let output = std::process::Command::new("/proc/self/exe")
        .args([SUBCOMMAND_HARM.as_ref(), directory.path().as_os_str()])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "read: content\n", "{output:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn what_is_no_file_is_not_opened_as_one() {
    for name in ["MANIFEST-000005", "OPTIONS-000007", "000012.sst", "IDENTITY"] {
        let directory = tempfile::tempdir().unwrap();
        drop(DB::open(&small_files(), directory.path()).unwrap());
        let _ = std::fs::remove_file(directory.path().join(name));
        let made = std::process::Command::new("mkfifo").arg(directory.path().join(name)).status().unwrap();
        assert!(made.success());
        let started = std::time::Instant::now();
        let error = read_directory(Place::of(directory.path())).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{name}: {error}");
        assert!(started.elapsed() < Duration::from_secs(15), "{name}: it was waited for");
    }
}

#[test]
fn another_directory_in_its_place_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("db");
    drop(DB::open(&small_files(), &path).unwrap());
    let data = std::fs::metadata(&path).unwrap();
    let place = Place { path: &path, identity: Some((data.dev(), data.ino())) };
    assert!(read_directory(place).is_ok());
    std::fs::rename(&path, directory.path().join("other")).unwrap();
    drop(DB::open(&small_files(), &path).unwrap());
    assert!(matches!(read_directory(place), Err(SstError::Directory { .. })));
    std::fs::remove_dir_all(&path).unwrap();
    symlink(directory.path().join("other"), &path).unwrap();
    assert!(matches!(read_directory(place), Err(SstError::Directory { .. })));
    let mut files = [SstFile {
        number: 7,
        column_family: "default".to_owned(),
        level: 0,
        size_bytes: 1,
        entries: 0,
        deletions: 0,
        smallest: Key::default(),
        largest: Key::default(),
    }];
    let completion = complete(&Reader::default(), &mut files, place, &mut PropertiesCache::default());
    assert_eq!((completion.unreadable, completion.read), (1, 0));
}

#[test]
fn reads_a_database_that_db_bench_made() {
    let db_bench = Path::new("/usr/bin/db_bench");
    if !db_bench.exists() {
        // Debian's package rocksdb-tools has it; the databases above are always read.
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let status = std::process::Command::new(db_bench)
        .args(["--benchmarks=fillrandom,deleteseq", "--num=30000", "--target_file_size_base=65536"])
        .args(["--write_buffer_size=131072", "--compression_type=none", "--num_column_families=2"])
        .arg(format!("--db={}", directory.path().display()))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let before = picture(directory.path());
    let mut files = read_directory(Place::of(directory.path())).unwrap();
    let completion = complete(
        &Reader::default(),
        &mut files,
        Place::of(directory.path()),
        &mut PropertiesCache::default(),
    );
    assert_eq!(picture(directory.path()), before);
    assert_eq!(completion.first_error, None);
    assert!(files.len() > 10, "{} files", files.len());
    assert!(files.iter().all(|file| file.entries > 0 && file.smallest <= file.largest));
    assert!(files.iter().any(|file| file.deletions > 0));
}

/// Format versions that were read have their entry here too, not only in the parser's own test.
#[test]
fn entries_are_filled_for_every_format_version() {
    for format_version in [2, 4, 5, 6, 8] {
        let directory = tempfile::tempdir().unwrap();
        let mut table = BlockBasedOptions::default();
        table.set_format_version(format_version);
        let mut options = small_files();
        options.set_block_based_table_factory(&table);
        let database = DB::open(&options, directory.path()).unwrap();
        for number in 0..100 {
            database.put(format!("{number:04}"), "value").unwrap();
            database.delete(format!("{:04}", number + 1000)).unwrap();
        }
        database.flush().unwrap();
        let mut files = read_directory(Place::of(directory.path())).unwrap();
        complete(
            &Reader::default(),
            &mut files,
            Place::of(directory.path()),
            &mut PropertiesCache::default(),
        );
        assert_eq!((files[0].entries, files[0].deletions), (200, 100), "format version {format_version}");
    }
}

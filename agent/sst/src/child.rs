//! The short-lived process that opens a foreign database, read-only and confined, and prints its files.
//!
//! It opens the database as RocksDB's own read-only mode does, which makes no lock, no LOG and no other
//! file (`DBImplReadOnly`, `SanitizeOptions` and `DBImpl::Recover` of RocksDB 11.12), and with three
//! options that keep it from more reading than the MANIFEST:
//! - a WAL directory of ours that is empty: no WAL is replayed into memory, whatever its size. The
//!   target's own directory must never be named here, since RocksDB deletes `*.log.trash` files in a WAL
//!   directory that is not the database's, even in read-only mode;
//! - `skip_stats_update_on_db_open`, and room for so few open tables that at most two SST files are opened;
//! - no paranoid checks: an SST file that is gone or cannot be decoded does not fail the open.
//!
//! Why the number of entries is zero for nearly all files then, and who fills it in: `complete`.

use super::confine;
use super::database::{COLUMN_FAMILIES_MAX, ColumnFamily, FILES_MAX, KEY_BYTES_MAX};
use super::options::{self, DatabaseOptions};
use super::tails;
use super::wire::{Failure, Line};
use rust_rocksdb::{BlockBasedOptions, ColumnFamilyDescriptor, DB, LiveFile, Options};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use sexton_sandbox::rooted;
use sexton_tuner::comparator::Order;
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::{evidence::SstFile, key::Key, oldest_snapshot::Sequences};
use std::io::{BufWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Attempts at opening: the target may replace its MANIFEST, or make or drop a column family, between
/// two steps of one attempt.
const OPEN_ATTEMPTS_MAX: u32 = 4;
const OPEN_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Levels that are opened at least: RocksDB's default.
const LEVELS_MIN: i32 = 7;
/// Levels that are opened at most; universal compaction is run with hundreds, never thousands.
const LEVELS_MAX: i32 = 1024;
/// Smallest number of open files that RocksDB takes; a quarter of it less ten is opened at the start.
const OPEN_TABLES: i32 = 20;
/// Index blocks that are read at once: a second of a slow disk. The file that reaches it is the last.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Memtables stay empty here.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// Arguments of the hidden subcommand [`super::CHILD_SUBCOMMAND`].
#[derive(Clone, Debug, clap::Args)]
pub struct ChildArguments {
    /// Database directory, as the agent reaches it.
    pub directory: PathBuf,
    /// The device that it lies on.
    #[arg(long, requires = "inode")]
    device: Option<u64>,
    /// Its inode.
    #[arg(long, requires = "device")]
    inode: Option<u64>,
    /// Read only what the files say of themselves whose numbers come by standard input, one a line.
    #[arg(long)]
    tails: bool,
    /// The same for what their indexes say.
    #[arg(long, conflicts_with = "tails")]
    indexes: bool,
}

/// Entry point of the hidden subcommand: reads the database in the directory, or the ends of files in it, and
/// writes it to standard output. Must run before the process has started a thread.
pub fn main(arguments: &ChildArguments) -> ExitCode {
    let mut output = BufWriter::new(std::io::stdout().lock());
    let result = confine::to_directory(&arguments.directory, arguments.device.zip(arguments.inode));
    let result = result.and_then(|directory| match arguments.tails {
        _ if arguments.indexes => write_indexes(&mut output, &directory),
        true => write_tails(&mut output, &directory),
        false => read(&directory).and_then(|database| write_database(&mut output, &database)),
    });
    let written = match &result {
        Ok(()) => output.flush().map_err(|error| Failure::Output { message: error.to_string() }),
        Err(failure) => write_line(&mut output, &Line::Failed(failure.clone()))
            .and_then(|()| output.flush().map_err(|error| Failure::Output { message: error.to_string() })),
    };
    if result.is_ok() && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What was read, before it is written out.
struct Database {
    column_families: Vec<ColumnFamily>,
    files: Vec<(SstFile, Sequences)>,
}

fn write_database(output: &mut impl Write, database: &Database) -> Result<(), Failure> {
    for column_family in &database.column_families {
        write_line(output, &Line::ColumnFamily(column_family.clone()))?;
    }
    for (file, sequences) in &database.files {
        write_line(output, &Line::File { file: file.clone(), sequences: *sequences })?;
    }
    write_line(output, &Line::End { files: database.files.len() as u64 })
}

fn write_tails(output: &mut impl Write, directory: &OwnedFd) -> Result<(), Failure> {
    let mut files = 0;
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let Ok(number) = line.parse() else { continue };
        files += 1;
        write_line(output, &Line::Tail { number, tail: tails::read(directory, number) })?;
    }
    write_line(output, &Line::End { files })
}

/// Stops where it has read enough: whoever asked sees which files are missing.
fn write_indexes(output: &mut impl Write, directory: &OwnedFd) -> Result<(), Failure> {
    let (mut files, mut bytes) = (0, 0_u64);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let Ok(number) = line.parse() else { continue };
        if bytes > INDEX_BYTES_MAX {
            break;
        }
        files += 1;
        let (index, own_bytes) = tails::read_index(directory, number);
        bytes = bytes.saturating_add(own_bytes);
        write_line(output, &Line::Index { number, index })?;
    }
    write_line(output, &Line::End { files })
}

fn write_line(output: &mut impl Write, line: &Line) -> Result<(), Failure> {
    serde_json::to_writer(&mut *output, line)
        .map_err(std::io::Error::from)
        .and_then(|()| output.write_all(b"\n"))
        .map_err(|error| Failure::Output { message: error.to_string() })
}

fn read(directory: &OwnedFd) -> Result<Database, Failure> {
    // Through the descriptor: the path stays valid whatever happens to the directory's name.
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    match rustix::fs::statat(directory, "CURRENT", AtFlags::empty()) {
        Ok(_) => {}
        Err(rustix::io::Errno::NOENT) => return Err(Failure::NotADatabase),
        Err(error) => return Err(Failure::Directory { message: format!("CURRENT: {error}") }),
    }
    refuse_what_is_no_file(directory)?;
    let mut attempt = 1;
    loop {
        match read_once(directory, &path) {
            Err(Failure::RocksDb { .. }) if attempt < OPEN_ATTEMPTS_MAX => {
                attempt += 1;
                std::thread::sleep(OPEN_RETRY_DELAY);
            }
            result => return result,
        }
    }
}

/// RocksDB opens files by their names, whatever they are, and would wait for the other end of a pipe.
fn refuse_what_is_no_file(directory: &OwnedFd) -> Result<(), Failure> {
    let failed = |error: rustix::io::Errno| Failure::Directory { message: error.to_string() };
    for entry in list(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_regular = || match entry.file_type() {
            FileType::Unknown => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile),
            known => known == FileType::RegularFile,
        };
        let name = name.to_string_lossy();
        if is_opened_by_rocksdb(&name) && !is_regular() {
            return Err(Failure::Directory { message: format!("{name} in it is no regular file") });
        }
    }
    Ok(())
}

fn is_opened_by_rocksdb(name: &str) -> bool {
    let begins = ["MANIFEST-", "OPTIONS-"].iter().any(|beginning| name.starts_with(beginning));
    let ends = [".sst", ".ldb", ".blob"].iter().any(|end| name.ends_with(end));
    begins || ends || matches!(name, "CURRENT" | "IDENTITY")
}

fn list(directory: &OwnedFd) -> rustix::io::Result<rustix::fs::Dir> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    rustix::fs::Dir::read_from(rustix::fs::openat(directory, ".", flags, Mode::empty())?)
}

fn read_once(directory: &OwnedFd, path: &Path) -> Result<Database, Failure> {
    let names = DB::list_cf(&Options::default(), path).map_err(rocksdb_failed)?;
    refuse_too_many("column families", names.len(), COLUMN_FAMILIES_MAX)?;
    let stated = newest_options(directory);
    let column_families = names.iter().map(|name| column_family(name, &stated)).collect::<Vec<_>>();
    let common = common_options();
    let mut opened = Vec::new();
    for family in &column_families {
        match family.order {
            Some(order) => opened.push(descriptor(&common, family, order, &stated)),
            // RocksDB cannot open a database without this one.
            None if family.name == "default" => {
                return Err(Failure::UnknownComparator {
                    column_family: family.name.clone(),
                    comparator: family.comparator.clone(),
                });
            }
            None => {}
        }
    }
    let options = database_options(stated.tracks_wals_in_manifest);
    let database =
        DB::open_cf_descriptors_read_only(&options, path, opened, false).map_err(rocksdb_failed)?;
    let live = database.live_files().map_err(rocksdb_failed)?;
    refuse_too_many("SST files", live.len(), FILES_MAX)?;
    let files = live.into_iter().filter_map(|file| sst_file(file, &column_families)).collect();
    Ok(Database { column_families, files })
}

fn refuse_too_many(what: &str, count: usize, count_max: usize) -> Result<(), Failure> {
    if count <= count_max {
        return Ok(());
    }
    Err(Failure::TooMany { what: what.to_owned(), count: count as u64, count_max: count_max as u64 })
}

fn rocksdb_failed(error: rust_rocksdb::Error) -> Failure {
    Failure::RocksDb { message: error.into_string() }
}

/// What the newest OPTIONS file says; nothing where there is none or it cannot be read, in which case
/// RocksDB's defaults apply and RocksDB refuses to open what does not fit.
fn newest_options(directory: &OwnedFd) -> DatabaseOptions {
    read_newest_options(directory).map(|text| DatabaseOptions::parse(&text)).unwrap_or_default()
}

fn read_newest_options(directory: &OwnedFd) -> Option<String> {
    let newest = list(directory)
        .ok()?
        .filter_map(|entry| options::options_file_number(entry.ok()?.file_name().to_str().ok()?))
        .max()?;
    // RocksDB pads to six digits; longer numbers stand as they are.
    let name = format!("OPTIONS-{newest:06}");
    let file = rooted::open_regular(directory, name).ok()?;
    let mut bytes = Vec::new();
    file.take(options::OPTIONS_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn column_family(name: &str, stated: &DatabaseOptions) -> ColumnFamily {
    let comparator = stated.column_families.get(name).and_then(|family| family.comparator.clone());
    let comparator = comparator.unwrap_or_else(|| Order::BYTEWISE_COMPARATOR.to_owned());
    let order = Order::of_comparator(&comparator);
    let stated = stated.column_families.get(name).map(|family| ColumnFamilyOptions::of_text(&family.stated));
    let options = ColumnFamilyOptions { comparator: comparator.clone(), ..stated.unwrap_or_default() };
    ColumnFamily { name: name.to_owned(), comparator, order, options }
}

/// What all column families are opened with.
fn common_options() -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_force_consistency_checks(false);
    // Nothing is read through a block cache here, and with one each a thousand column families would take
    // 2 GiB of address space.
    let mut table = BlockBasedOptions::default();
    table.disable_cache();
    options.set_block_based_table_factory(&table);
    options
}

fn descriptor(
    common: &Options,
    family: &ColumnFamily,
    order: Order,
    stated: &DatabaseOptions,
) -> ColumnFamilyDescriptor {
    let mut options = common.clone();
    let levels = stated.column_families.get(&family.name).and_then(|stated| stated.levels);
    options.set_num_levels(levels.unwrap_or(LEVELS_MIN).clamp(LEVELS_MIN, LEVELS_MAX));
    if family.comparator != Order::BYTEWISE_COMPARATOR {
        options.set_comparator(family.comparator.as_str(), Box::new(move |one, two| order.compare(one, two)));
    }
    ColumnFamilyDescriptor::new(family.name.clone(), options)
}

fn database_options(tracks_wals_in_manifest: bool) -> Options {
    let mut options = Options::default();
    options.create_if_missing(false);
    options.set_paranoid_checks(false);
    options.set_skip_stats_update_on_db_open(true);
    options.set_max_open_files(OPEN_TABLES);
    options.set_max_file_opening_threads(1);
    options.set_wal_dir(confine::WAL_DIRECTORY);
    if tracks_wals_in_manifest {
        // With WALs in the MANIFEST a read-only open must track them too (RocksDB 11.12 follows a null
        // pointer otherwise), and then misses them in our empty WAL directory, unless it recovers by
        // best efforts. That looks into every SST file, which is why it is not the rule.
        options.set_track_and_verify_wals_in_manifest(true);
        options.set_best_efforts_recovery(true);
    }
    options
}

fn sst_file(file: LiveFile, column_families: &[ColumnFamily]) -> Option<(SstFile, Sequences)> {
    let sequences = Sequences { smallest: file.smallest_seqno, largest: file.largest_seqno };
    let number = file.name.trim_start_matches('/').strip_suffix(".sst")?.parse().ok()?;
    let family = column_families.iter().find(|family| family.name == file.column_family_name)?;
    let mut bounds = (file.start_key?, file.end_key?);
    if family.order == Some(Order::ReverseBytewise) {
        bounds = (bounds.1, bounds.0);
    }
    let file = SstFile {
        number,
        column_family: file.column_family_name,
        level: u32::try_from(file.level).ok()?,
        size_bytes: file.size as u64,
        entries: file.num_entries,
        deletions: file.num_deletions,
        smallest: lower_bound(bounds.0),
        largest: upper_bound(bounds.1),
    };
    Some((file, sequences))
}

/// The key, or a shorter one that is not greater.
fn lower_bound(mut key: Vec<u8>) -> Key {
    key.truncate(KEY_BYTES_MAX);
    Key::new(key)
}

/// The key, or a shorter one that is not smaller; where no shorter one exists (all `0xff`) the key.
fn upper_bound(key: Vec<u8>) -> Key {
    match key.get(..KEY_BYTES_MAX) {
        Some(prefix) if key.len() > KEY_BYTES_MAX => {
            Key::new(prefix).prefix_end().unwrap_or_else(|| Key::new(key))
        }
        _ => Key::new(key),
    }
}

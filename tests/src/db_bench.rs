//! Debian's `db_bench` (package `rocksdb-tools`), RocksDB's own benchmark, as a program to observe: it
//! prints what its `PerfContext` counted, the exact truth to compare with.

use crate::process::{self, Lines, Process};
use crate::truth::Truth;
use crate::{artifact, machine};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Keys that [`fill`] gives on a machine of usual speed.
const KEYS: u64 = 1_000_000;

/// Bytes of a key, `db_bench`'s default, said so that all calls agree.
const KEY_BYTES: u64 = 16;
/// Filling takes some seconds.
const FILL_LIMIT: Duration = Duration::from_secs(120);
/// The benchmark that goes before the seeks begins within a second.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);

fn command(database: &Path) -> Result<Command> {
    let mut command = Command::new(artifact::installed("db_bench", "rocksdb-tools")?);
    command.arg(format!("--db={}", database.display()));
    command.arg(format!("--key_size={KEY_BYTES}"));
    command.args(["--value_size=64", "--compression_type=none", "--disable_wal=1"]);
    // Compactions would drop the tombstones that the seeks are to meet, and read blocks of their own.
    command.arg("--disable_auto_compactions=1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

/// Keys that [`fill`] gives; the first half of them is deleted.
pub fn keys() -> Result<u64> {
    Ok(KEYS / machine::slowness()?)
}

/// Gives `database` [`keys`] keys, the first half of which is deleted. The first call on a machine writes
/// them; the later ones copy what it wrote, which lies beside the built programs.
pub fn fill(database: &Path) -> Result<()> {
    let programs = std::env::current_exe().context("reading the path of this executable")?;
    let programs = programs.parent().context("this executable lies in no directory")?;
    let filled = programs.join(format!("filled-db_bench-{:016x}", arguments_hash()?));
    if !filled.is_dir() {
        // Another kernel's virtual machine sees the built programs, and cannot write beside them.
        let Ok(unfinished) = tempfile::tempdir_in(programs) else { return write(database) };
        write(&unfinished.path().join("db"))?;
        // Another test may have been faster; its database is as good.
        if std::fs::rename(unfinished.path().join("db"), &filled).is_err() {
            ensure!(filled.is_dir(), "{} cannot be written", filled.display());
        }
    }
    copy(&filled, database)
}

/// Other arguments, another database.
fn arguments_hash() -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for command in commands(Path::new("db"))? {
        command.get_args().for_each(|argument| argument.hash(&mut hasher));
    }
    Ok(hasher.finish())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

fn write(database: &Path) -> Result<()> {
    commands(database)?.iter_mut().try_for_each(run)
}

/// Writes the keys in order, then deletes the first half of them.
fn commands(database: &Path) -> Result<[Command; 2]> {
    let keys = keys()?;
    let [mut put, mut delete] = [command(database)?, command(database)?];
    put.args(["--benchmarks=fillseq,flush".to_owned(), format!("--num={keys}")]);
    delete.args(["--benchmarks=deleteseq,flush".to_owned(), format!("--num={}", keys / 2)]);
    delete.arg("--use_existing_db=1");
    Ok([put, delete])
}

fn run(command: &mut Command) -> Result<()> {
    let mut owned = Command::new(command.get_program());
    owned.args(command.get_args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = Process::start(owned)?.wait(FILL_LIMIT)?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Starts a `db_bench` that seeks in a filled database for `seconds`, on two threads with this perf level.
pub fn seek_for(database: &Path, seconds: u64, perf_level: u8) -> Result<Process> {
    let mut command = command(database)?;
    command.args(["--benchmarks=seekrandom", "--use_existing_db=1", "--threads=2", "--seek_nexts=20"]);
    command.args([format!("--num={KEYS}"), format!("--duration={seconds}")]);
    command.arg(format!("--perf_level={perf_level}")).stdout(Stdio::null());
    Process::start(command)
}

/// Puts so many keys, deletes the first half of them and seeks, and has RocksDB trace each of the three: its
/// query traces, and what it counted while it sought.
pub fn record(directory: &Path, keys: u64, plan: SeekPlan) -> Result<(Vec<PathBuf>, Truth)> {
    let (half, all) = (format!("--deletes={}", keys / 2), format!("--num={keys}"));
    let (reads, nexts) = (format!("--reads={}", plan.reads), format!("--seek_nexts={}", plan.nexts));
    let seek = ["seekrandom", &reads, &nexts, "--perf_level=2", "--use_existing_db=1"];
    let (mut traces, mut counted) = (Vec::new(), None);
    for arguments in [&["fillseq"][..], &["deleteseq", &half, "--use_existing_db=1"], &seek] {
        let mut command = command(&directory.join("recorded"))?;
        let (benchmark, options) = arguments.split_first().context("a benchmark has a name")?;
        let trace = directory.join(format!("{benchmark}.trace"));
        command.args([format!("--benchmarks={benchmark}"), format!("--trace_file={}", trace.display())]);
        command.args([&all, "--threads=1", &format!("--seed={}", plan.seed)]).args(options);
        // What was written without a write-ahead log is in no file when the next one begins.
        command.arg("--disable_wal=0");
        let mut process = Process::start(command)?;
        let mut stdout = Lines::of("db_bench", process.take_stdout().context("no standard output")?);
        counted = stdout.rest(FILL_LIMIT)?.iter().find_map(|line| parse(line));
        let status = process.wait(FILL_LIMIT)?;
        ensure!(status.success(), "{benchmark} ended with {status}");
        traces.push(trace);
    }
    Ok((traces, counted.context("db_bench printed no counters")?))
}

/// Run by a shell in namespaces of its own: puts a copy of database `$1` and of library `$2` where nobody
/// else sees them, in `$0`, and becomes `db_bench` there.
const CONTAIN: &str = r#"
set -e
mount -t tmpfs none "$0"
cp -r "$1" "$0/db"
cp "$2" "$0/"
shift 2
LD_LIBRARY_PATH="$0" exec "$@"
"#;

/// The seeks that a run makes.
#[derive(Clone, Copy, Debug)]
pub struct SeekPlan {
    pub reads: u64,
    /// `Next` calls after each seek.
    pub nexts: u64,
    /// Where the seeks go; other seeds, other keys.
    pub seed: u64,
}

/// A `db_bench` that has its database open and is stopped just before its seeks.
#[derive(Debug)]
pub struct Seeks {
    process: Process,
    pid: u32,
    stdout: Lines,
}

impl Seeks {
    /// Starts `db_bench` on a filled database and stops it (SIGSTOP) while it computes hashes (a second
    /// and a half, if it were not stopped): the database is open by then, and no seek has been made.
    pub fn start_stopped(database: &Path, plan: SeekPlan) -> Result<Seeks> {
        Seeks::stopped(seek_command(database, plan)?, |process| Ok(process.pid()))
    }

    /// The same in a pid and a mount namespace of its own, like a container's: there it is process 1, and its
    /// database and RocksDB's library are copies in a file system that is mounted on the empty directory
    /// `private` for it alone.
    pub fn start_stopped_in_namespaces(database: &Path, private: &Path, plan: SeekPlan) -> Result<Seeks> {
        let inside = seek_command(&private.join("db"), plan)?;
        let mut command = Command::new(artifact::installed("unshare", "util-linux")?);
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", CONTAIN]);
        command.arg(private).arg(database).arg(artifact::debian_rocksdb()?);
        command.arg(inside.get_program()).args(inside.get_args());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Seeks::stopped(command, |process| process.only_child())
    }

    fn stopped(command: Command, pid: impl Fn(&Process) -> Result<u32>) -> Result<Seeks> {
        let mut process = Process::start(command)?;
        let stdout = Lines::of("db_bench", process.take_stdout().context("no standard output")?);
        let mut stderr = process.take_stderr().context("no standard error")?;
        wait_for_progress(&mut process, &mut stderr)?;
        let pid = pid(&process)?;
        process::signal(pid, Signal::STOP)?;
        // From here on nobody cares for the progress, but the pipe must not fill up.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Ok(Seeks { process, pid, stdout })
    }

    /// Process id of `db_bench`, in our own pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it go on to its end and returns what its `PerfContext` counted, all phases together.
    pub fn finish(mut self, limit: Duration) -> Result<Truth> {
        process::signal(self.pid, Signal::CONT)?;
        let lines = self.stdout.rest(limit)?;
        let status = self.process.wait(limit)?;
        ensure!(status.success(), "db_bench ended with {status}:\n{}", self.stdout.shown());
        let phases: Vec<Truth> = lines.iter().filter_map(|line| parse(line)).collect();
        ensure!(phases.len() == 2, "db_bench printed {} PERF_CONTEXTs, not 2: {lines:?}", phases.len());
        Ok(phases.into_iter().fold(Truth::default(), Add::add))
    }
}

fn seek_command(database: &Path, plan: SeekPlan) -> Result<Command> {
    let mut command = command(database)?;
    command.args(["--benchmarks=xxhash,seekrandom", "--use_existing_db=1", "--perf_level=2"]);
    command.args([
        format!("--num={}", keys()?),
        format!("--reads={}", plan.reads),
        format!("--seed={}", plan.seed),
    ]);
    command.args([format!("--seek_nexts={}", plan.nexts), "--threads=1".to_owned()]);
    // So small a cache that most seeks read blocks from the files.
    command.arg("--cache_size=1048576").stderr(Stdio::piped());
    Ok(command)
}

/// `db_bench` prints its progress to standard error with no line ends: the first bytes with `finished`
/// in them mean that its first benchmark runs.
fn wait_for_progress(process: &mut Process, stderr: &mut impl std::io::Read) -> Result<()> {
    let started = std::time::Instant::now();
    let mut seen = String::new();
    let mut buffer = [0; 256];
    while !seen.contains("finished") {
        let read = stderr.read(&mut buffer).context("reading db_bench's progress")?;
        ensure!(read > 0 && process.is_running()?, "db_bench ended before its first benchmark: {seen}");
        ensure!(started.elapsed() < PROGRESS_LIMIT, "db_bench shows no progress: {seen}");
        seen.push_str(&String::from_utf8_lossy(buffer.get(..read).unwrap_or_default()));
    }
    Ok(())
}

/// The counters of a line `user_key_comparison_count = 0, block_cache_hit_count = 0, ...`.
fn parse(line: &str) -> Option<Truth> {
    if !line.starts_with("user_key_comparison_count = ") {
        return None;
    }
    let value = |name: &str| -> Option<u64> {
        // The first of that name: the counts by level at the end repeat some.
        line.split(", ").find_map(|field| field.strip_prefix(name)?.strip_prefix(" = ")?.parse().ok())
    };
    Some(Truth {
        tombstones_skipped: value("internal_delete_skipped_count")?,
        keys_skipped: value("internal_key_skipped_count")?,
        block_reads: value("block_read_count")?,
        block_read_bytes: value("block_read_byte")?,
        block_cache_hits: value("block_cache_hit_count")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_counters_of_a_line_and_not_those_by_level() {
        let line = "user_key_comparison_count = 9, block_cache_hit_count = 1, block_read_count = 2, \
                    block_read_byte = 3, internal_key_skipped_count = 4, internal_delete_skipped_count = 5, \
                    block_cache_hit_count = 1@level0, block_cache_miss_count = 2@level0";
        let truth = Truth {
            tombstones_skipped: 5,
            keys_skipped: 4,
            block_reads: 2,
            block_read_bytes: 3,
            block_cache_hits: 1,
        };
        assert_eq!(parse(line), Some(truth));
        assert_eq!(parse("seekrandom : 56526.350 micros/op"), None);
    }
}

//! Whatever comes through the processes that deal with foreign bytes, who asked them lives, stays small, and
//! waits no longer than it said.
//!
//! Method: changed inputs go the whole way, to the real program behind its real fences and back through what
//! reads its answers: mapped files to who examines them, MANIFESTs and SST files to who reads databases, HTTP
//! to the listener of a running agent. Counted is what came of each. Ends with one line of JSON.
//!
//! `SEXTON_FUZZ_WORKER_RUNS` says how many inputs there are in all; `make fuzz` gives a million.

use anyhow::{Context, Result, ensure};
use rust_rocksdb::{DB, Options};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair, sockopt,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::{Value, json};
use sexton_fuzz::Random;
use sexton_inspect::examiner::Examiner;
use sexton_inspect::finding::Finding;
use sexton_sst::{IndexCache, Place, PropertiesCache, Reader, SstError, complete};
use sexton_tests::agent::{self, Agent};
use sexton_tests::artifact;
use sexton_tests::process::{Process, children_that_run, status_word};
use sexton_tuner::evidence::SstFile;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Inputs where nobody says: some seconds.
const RUNS: u64 = 800;
/// Of a thousand inputs so many go each way. A process for each mapped file takes milliseconds, and a
/// database that cannot be opened is tried four times; SST files are read by the dozen.
const PER_MILLE: [(&str, u64); 5] =
    [("elf", 50), ("manifest", 5), ("properties", 545), ("index", 200), ("http", 200)];
/// What asks may have at most.
const MEMORY_KIB_MAX: u64 = 64 << 10;
/// How long each of them is waited for at most, and what ending it takes.
const EXAMINER_LIMIT: Duration = Duration::from_secs(8);
const READER_LIMIT: Duration = Duration::from_secs(21);
const HTTP_LIMIT: Duration = Duration::from_secs(20);
/// How long an answer takes at most, where nothing is missing of the request.
const HTTP_PATIENCE: Duration = Duration::from_millis(20);
/// How long the agent may take to have another listener: its longest pause, and what starting takes.
const LISTENER_LIMIT: Duration = Duration::from_secs(80);
/// Listeners that are taken over: one, and in a long run as many as make the agent pause for a minute in all.
const LISTENERS: u64 = 1;
const LISTENERS_OF_LONG_RUN: u64 = 6;
const LONG_RUN: u64 = 100_000;
/// The hidden subcommand of the listener.
const LISTEN: &str = "internal-listen";
/// SST files that are read at once.
const PROPERTIES_BATCH: u64 = 512;
const INDEX_BATCH: u64 = 64;
/// Threads that wait for one kind of process, most of whose time nobody works.
const MANIFEST_THREADS: u64 = 4;

/// What came of inputs.
#[derive(Clone, Debug, Default)]
struct Tally {
    inputs: u64,
    accepted: u64,
    refused: u64,
    /// The process ended without an answer, or was ended; why, for the first.
    unanswered: u64,
    first_unanswered: Option<String>,
    longest_wait: Duration,
}

impl Tally {
    fn note(&mut self, inputs: u64, waited: Duration) {
        self.inputs += inputs;
        self.longest_wait = self.longest_wait.max(waited);
    }

    fn note_unanswered(&mut self, inputs: u64, why: &str) {
        self.unanswered += inputs;
        self.first_unanswered.get_or_insert_with(|| why.to_owned());
    }

    fn add(&mut self, other: Tally) {
        self.note(other.inputs, other.longest_wait);
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.first_unanswered = self.first_unanswered.take().or(other.first_unanswered);
    }

    fn json(&self) -> Value {
        json!({
            "inputs": self.inputs,
            "accepted": self.accepted,
            "refused": self.refused,
            "unanswered": self.unanswered,
            "first_unanswered": self.first_unanswered,
            "longest_wait_ms": self.longest_wait.as_millis() as u64,
        })
    }
}

/// A changed copy of one of these.
fn changed(seed: u64, number: u64, originals: &[Vec<u8>]) -> Vec<u8> {
    let mut random = Random::new(seed, number);
    let mut input = random.choose(originals).clone();
    random.change(&mut input);
    input
}

/// A directory in memory, where there is such a place.
fn quick_directory() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    Ok(if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? })
}

/// Libraries that look like RocksDB: with all symbols, with the dynamic ones, and stripped.
fn libraries(directory: &Path) -> Result<Vec<Vec<u8>>> {
    let run = |mut command: Command, arguments: &[&str]| -> Result<()> {
        command.args(arguments).current_dir(directory);
        ensure!(Process::start(command)?.wait(HTTP_LIMIT)?.success(), "{arguments:?} failed");
        Ok(())
    };
    let gcc = || -> Result<Command> { Ok(Command::new(artifact::installed("gcc", "gcc")?)) };
    let source = artifact::repository().join("tests/c/like_rocksdb.c");
    let source = source.to_str().context("a path")?;
    let flags =
        ["-shared", "-fPIC", "-O1", "-w", "-nostdlib", "-Wl,--build-id,-z,noseparate-code", source, "-o"];
    run(gcc()?, &[&flags[..], &["whole.so"]].concat())?;
    run(gcc()?, &[&flags[..], &["hidden.so", "-fvisibility=hidden"]].concat())?;
    std::fs::copy(directory.join("whole.so"), directory.join("stripped.so"))?;
    run(Command::new(artifact::installed("strip", "binutils")?), &["stripped.so", "hidden.so"])?;
    let names = ["whole.so", "stripped.so", "hidden.so"];
    names.iter().map(|name| Ok(std::fs::read(directory.join(name))?)).collect()
}

fn elf(runs: u64, seed: u64) -> Result<Tally> {
    let directory = tempfile::tempdir()?;
    let originals = libraries(directory.path())?;
    let mut examiner = Examiner::by(artifact::built("sexton")?);
    let mut tally = Tally::default();
    for number in 0..runs {
        let input = changed(seed, number, &originals);
        let file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC)?);
        file.write_all_at(&input, 0)?;
        let began = Instant::now();
        // That its debug file is not there was found out before, for some.
        let symbols = (number % 2 == 0).then(BTreeMap::new);
        let finding = examiner.module(&file, input.len() as u64, symbols.as_ref());
        tally.note(1, began.elapsed());
        match finding {
            Finding::RocksDb(_) => tally.accepted += 1,
            Finding::Unreadable(error @ sexton_inspect::elf::ElfError::NotExamined { .. }) => {
                tally.note_unanswered(1, &format!("input {number} of seed {seed}: {error}"));
            }
            _ => tally.refused += 1,
        }
    }
    Ok(tally)
}

/// A database with some files, as it lies there closed.
struct Original {
    directory: tempfile::TempDir,
    /// Its SST files' contents.
    tables: Vec<Vec<u8>>,
}

impl Original {
    fn make() -> Result<Original> {
        let directory = quick_directory()?;
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_disable_auto_compactions(true);
        let database = DB::open(&options, directory.path())?;
        for file in 0..4 {
            for key in 0..200 {
                database.put(format!("key{file}{key:04}"), format!("{key}").repeat(20))?;
                database.delete(format!("key{file}{:04}", key / 2))?;
            }
            database.flush()?;
        }
        drop(database);
        let mut tables = Vec::new();
        for name in names(directory.path())?.iter().filter(|name| name.ends_with(".sst")) {
            tables.push(std::fs::read(directory.path().join(name))?);
        }
        ensure!(tables.len() == 4, "{} SST files", tables.len());
        Ok(Original { directory, tables })
    }

    fn copy(&self) -> Result<tempfile::TempDir> {
        let copy = quick_directory()?;
        for name in names(self.directory.path())? {
            std::fs::copy(self.directory.path().join(&name), copy.path().join(&name))?;
        }
        Ok(copy)
    }
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    let mut names: Vec<String> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    Ok(names)
}

fn reader() -> Result<Reader> {
    Ok(Reader { executable: artifact::built("sexton")?, ..Reader::default() })
}

/// Databases of which one file was changed.
fn manifest(original: &Original, numbers: impl Iterator<Item = u64>, seed: u64) -> Result<Tally> {
    let (reader, copy) = (reader()?, original.copy()?);
    let read = names(copy.path())?;
    let read: Vec<&String> =
        read.iter().filter(|name| !name.ends_with(".log") && !name.starts_with("LO")).collect();
    let mut tally = Tally::default();
    for number in numbers {
        let mut random = Random::new(seed, number);
        // Every other time it is the MANIFEST.
        let is_manifest = |name: &&&String| name.starts_with("MANIFEST");
        let name = match number % 2 {
            0 => *read.iter().find(is_manifest).context("no MANIFEST")?,
            _ => *random.choose(&read),
        };
        let path = copy.path().join(name);
        let whole = std::fs::read(&path)?;
        let mut bytes = whole.clone();
        random.change(&mut bytes);
        std::fs::write(&path, bytes)?;
        let began = Instant::now();
        let outcome = reader.read(Place::of(copy.path()));
        tally.note(1, began.elapsed());
        match outcome {
            Ok(_) => tally.accepted += 1,
            Err(error @ (SstError::Cut { .. } | SstError::TimedOut { .. })) => {
                tally.note_unanswered(1, &format!("input {number} of seed {seed}: {error}"));
            }
            Err(_) => tally.refused += 1,
        }
        std::fs::write(&path, whole)?;
    }
    Ok(tally)
}

fn manifests(runs: u64, seed: u64) -> Result<Tally> {
    let original = Original::make()?;
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..MANIFEST_THREADS)
            .map(|first| {
                let (original, numbers) = (&original, (first..runs).step_by(MANIFEST_THREADS as usize));
                scope.spawn(move || manifest(original, numbers, seed))
            })
            .collect();
        for part in parts {
            tally.add(part.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))??);
        }
        Ok(tally)
    })
}

/// Writes changed SST files, and gives what a database would say of them.
fn tables(
    directory: &Path,
    originals: &[Vec<u8>],
    numbers: std::ops::Range<u64>,
    seed: u64,
) -> Result<Vec<SstFile>> {
    let first = numbers.start;
    let write = |number: u64| -> Result<SstFile> {
        let (input, own) = (changed(seed, number, originals), number - first + 1);
        std::fs::write(directory.join(format!("{own:06}.sst")), &input)?;
        Ok(SstFile { number: own, size_bytes: input.len() as u64, entries: 0, ..sst_file() })
    };
    numbers.map(write).collect()
}

fn sst_file() -> SstFile {
    SstFile {
        number: 0,
        column_family: "default".into(),
        level: 0,
        size_bytes: 0,
        entries: 0,
        deletions: 0,
        smallest: sexton_tuner::key::Key::new(""),
        largest: sexton_tuner::key::Key::new(""),
    }
}

fn properties(runs: u64, seed: u64) -> Result<Tally> {
    let (original, directory, reader) = (Original::make()?, quick_directory()?, reader()?);
    let mut tally = Tally::default();
    for first in (0..runs).step_by(PROPERTIES_BATCH as usize) {
        let numbers = first..runs.min(first + PROPERTIES_BATCH);
        let mut files = tables(directory.path(), &original.tables, numbers.clone(), seed)?;
        let began = Instant::now();
        let cache = &mut PropertiesCache::default();
        let done = complete(&reader, &mut files, Place::of(directory.path()), cache);
        tally.note(files.len() as u64, began.elapsed());
        tally.accepted += done.read as u64;
        tally.refused += done.unsupported as u64;
        if done.unreadable > 0 {
            let why = done.first_error.unwrap_or_default();
            tally.note_unanswered(
                done.unreadable as u64,
                &format!("inputs {numbers:?} of seed {seed}: {why}"),
            );
        }
    }
    Ok(tally)
}

fn indexes(runs: u64, seed: u64) -> Result<Tally> {
    let (original, directory, reader) = (Original::make()?, quick_directory()?, reader()?);
    let mut tally = Tally::default();
    for first in (0..runs).step_by(INDEX_BATCH as usize) {
        let numbers = first..runs.min(first + INDEX_BATCH);
        let files = tables(directory.path(), &original.tables, numbers.clone(), seed)?;
        let wanted: Vec<u64> = files.iter().map(|file| file.number).collect();
        let began = Instant::now();
        let done = IndexCache::default().complete(&reader, &files, &wanted, Place::of(directory.path()));
        tally.note(files.len() as u64, began.elapsed());
        tally.accepted += done.read as u64;
        tally.refused += done.unsupported as u64;
        let without = (done.unreadable + done.left) as u64;
        if without > 0 {
            let why = done.first_error.unwrap_or_default();
            tally.note_unanswered(without, &format!("inputs {numbers:?} of seed {seed}: {why}"));
        }
    }
    Ok(tally)
}

/// What clients say, as a real one would.
fn requests(address: SocketAddr) -> Vec<Vec<u8>> {
    let get = |path: &str, headers: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n").into_bytes()
    };
    let body =
        "POST /api/v1/policy/check HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 4\r\n";
    vec![
        get("/healthz", ""),
        get("/api/v1/targets", "Accept: application/json\r\nIf-None-Match: \"a\"\r\n"),
        get("/api/v1/ranges?sort=pain&limit=10&target=x", "Accept-Encoding: gzip\r\nX-Own: ~\r\n"),
        get("/api/v1/heatmap?since=1h", "Cookie: a=b\r\nOrigin: http://localhost\r\n"),
        format!("{body}Host: {address}\r\nConnection: close\r\n\r\nnull").into_bytes(),
    ]
}

/// The status of what the agent answers; `None`: it closes the connection.
fn ask(address: SocketAddr, input: &[u8]) -> std::io::Result<Option<u16>> {
    let mut stream = TcpStream::connect_timeout(&address, HTTP_LIMIT)?;
    stream.set_read_timeout(Some(HTTP_LIMIT))?;
    stream.set_write_timeout(Some(HTTP_LIMIT))?;
    // Whoever has heard enough closes, while the rest is still being said. What is cut short is ended here.
    let _ = stream.write_all(&[input, b"\r\n\r\n"].concat());
    let mut head = [0; 64];
    stream.set_read_timeout(Some(HTTP_PATIENCE))?;
    let mut read = stream.read(&mut head);
    if read.as_ref().is_err_and(is_late) {
        // It waits for more, of which there is none. Who ends by saying so gets no answer.
        stream.set_read_timeout(Some(HTTP_LIMIT))?;
        let _ = stream.shutdown(Shutdown::Write);
        read = stream.read(&mut head);
    }
    let head = match read {
        Err(error) if is_late(&error) => return Err(error),
        read => head.get(..read.unwrap_or_default()).unwrap_or_default(),
    };
    let head = String::from_utf8_lossy(head);
    Ok(head.split(' ').nth(1).and_then(|status| status.parse().ok()))
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn http(agent: &Agent, runs: u64, seed: u64) -> Result<Tally> {
    let originals = requests(agent.address);
    let mut tally = Tally::default();
    for number in 0..runs {
        // Every eighth is as a client says it: it is answered whatever came before.
        let input = match number % 8 {
            0 => originals.first().cloned().unwrap_or_default(),
            _ => changed(seed, number, &originals),
        };
        let began = Instant::now();
        let status = ask(agent.address, &input);
        tally.note(1, began.elapsed());
        match status {
            Ok(Some(200..400)) => tally.accepted += 1,
            Ok(_) => tally.refused += 1,
            Err(error) => tally.note_unanswered(1, &format!("input {number} of seed {seed}: {error}")),
        }
    }
    Ok(tally)
}

/// The listener's end of its pair with the agent, taken from it.
fn end_of_listener(agent: &Agent) -> Result<OwnedFd> {
    let deadline = Instant::now() + LISTENER_LIMIT;
    loop {
        ensure!(Instant::now() < deadline, "the agent has no listener:\n{}", agent.log_end());
        // One that answers has a whole pair.
        let answers = agent.get("/healthz").is_ok();
        if let (true, [pid]) = (answers, children_that_run(agent.process.pid(), LISTEN)?.as_slice()) {
            let process = i32::try_from(*pid).ok().and_then(Pid::from_raw).context("a process id")?;
            let process = pidfd_open(process, PidfdFlags::empty())?;
            return Ok(pidfd_getfd(process, 0, PidfdGetfdFlags::empty())?);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a listener that somebody has taken over might send. One message that is none ends it, and the agent
/// starts another one after a pause that doubles: there are as many changed messages as so many listeners
/// take.
fn frames(agent: &Agent, listeners: u64, seed: u64) -> Result<Tally> {
    let request = json!({ "Request": { "door": "Reading", "peer": null, "method": "GET", "target": "/healthz",
        "headers": [["host", agent.address.to_string()]] } });
    let originals = [serde_json::to_vec(&request)?];
    let mut tally = Tally::default();
    for _ in 0..listeners {
        let end = end_of_listener(agent)?;
        loop {
            let flags = SocketFlags::CLOEXEC;
            let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            let message = changed(seed, tally.inputs, &originals);
            let began = Instant::now();
            if send(&end, &message, theirs).is_err() {
                // The agent has had enough of it.
                break;
            }
            let is_answered = is_answered(&ours)?;
            tally.note(1, began.elapsed());
            tally.accepted += u64::from(is_answered);
            tally.refused += u64::from(!is_answered);
        }
    }
    end_of_listener(agent).map(|_| tally)
}

/// Sends a request with the end of a pair for its answer.
fn send(end: &OwnedFd, message: &[u8], with: OwnedFd) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [with.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(end, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Whether an answer begins; `false`: its end is closed without one.
fn is_answered(end: &OwnedFd) -> Result<bool> {
    sockopt::set_socket_timeout(end, sockopt::Timeout::Recv, Some(HTTP_LIMIT))?;
    let mut head = [0; 1];
    let (_, received) = recv(end, &mut head, RecvFlags::TRUNC).context("waiting for an answer")?;
    Ok(received > 0)
}

/// The most memory that a process has had.
fn memory_kib(pid: u32) -> Result<u64> {
    status_word(pid, "VmHWM").context("no VmHWM")?.parse().context("a number")
}

/// Checks what came of all inputs of a kind.
fn check(kind: &str, tally: &Tally, limit: Duration) -> Result<()> {
    ensure!(tally.longest_wait < limit, "{kind}: somebody was waited for for {:?}", tally.longest_wait);
    let sum = tally.accepted + tally.refused + tally.unanswered;
    ensure!(sum == tally.inputs, "{kind}: {} inputs, and {sum} verdicts", tally.inputs);
    ensure!(tally.accepted > 0 || tally.inputs < 100, "{kind}: no input was accepted");
    // RocksDB's own code may end by what a MANIFEST says; ours ends by nothing.
    ensure!(kind == "manifest" || tally.unanswered == 0, "{kind}: {:?}", tally.first_unanswered);
    Ok(())
}

/// A kind of input, what came of all of it, and how long one is waited for.
type Told = (&'static str, Tally, Duration);

/// All kinds, those that mostly wait beside each other.
fn all_kinds(agent: &Agent, runs: u64, seed: u64) -> Result<Vec<Told>> {
    let of = |kind: &str| {
        let share = PER_MILLE.iter().find(|(name, _)| *name == kind).map_or(0, |(_, share)| *share);
        (runs * share / 1000).max(1)
    };
    let (elf, manifests, others) = std::thread::scope(|scope| {
        let elf = scope.spawn(|| elf(of("elf"), seed));
        let manifests = scope.spawn(|| manifests(of("manifest"), seed));
        let others = || -> Result<[Tally; 3]> {
            let tables = [properties(of("properties"), seed)?, indexes(of("index"), seed)?];
            let [properties, indexes] = tables;
            Ok([properties, indexes, http(agent, of("http"), seed)?])
        };
        let others = others();
        (elf.join(), manifests.join(), others)
    });
    let panicked = |_| anyhow::anyhow!("a thread has panicked");
    let [properties, indexes, http] = others?;
    ensure!(!agent.log().contains("the listener has ended"), "the listener has ended:\n{}", agent.log());
    let listeners = if runs < LONG_RUN { LISTENERS } else { LISTENERS_OF_LONG_RUN };
    Ok(vec![
        ("elf", elf.map_err(panicked)??, EXAMINER_LIMIT),
        ("manifest", manifests.map_err(panicked)??, READER_LIMIT),
        ("properties", properties, READER_LIMIT),
        ("index", indexes, READER_LIMIT),
        ("http", http, HTTP_LIMIT),
        ("frames", frames(agent, listeners, seed)?, HTTP_LIMIT),
    ])
}

#[test]
fn no_input_harms_who_asks() -> Result<()> {
    let _turn = agent::beside_others()?;
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let runs = setting("SEXTON_FUZZ_WORKER_RUNS").unwrap_or(RUNS);
    let seed = setting("SEXTON_FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let directory = tempfile::tempdir()?;
    let policy = "mode: observe\ntargets: [{ name: none, match: { pid: 1 } }]\n";
    let agent = Agent::start(directory.path(), policy)?;
    let began = Instant::now();
    let all = all_kinds(&agent, runs, seed)?;
    let seconds = began.elapsed().as_secs();
    let (own, of_agent) = (memory_kib(std::process::id())?, memory_kib(agent.process.pid())?);
    let longest = all.iter().map(|(_, tally, _)| tally.longest_wait).max().unwrap_or_default();
    let workers: BTreeMap<&str, Value> = all.iter().map(|(kind, tally, _)| (*kind, tally.json())).collect();
    let line = json!({
        "inputs": all.iter().map(|(_, tally, _)| tally.inputs).sum::<u64>(),
        "seed": seed,
        "seconds": seconds,
        "parent_memory_kib": own,
        "agent_memory_kib": of_agent,
        "longest_wait_ms": longest.as_millis() as u64,
        "workers": workers,
    });
    // Whatever is checked of it.
    println!("{line}");
    for (kind, tally, limit) in &all {
        check(kind, tally, *limit)?;
    }
    ensure!(own <= MEMORY_KIB_MAX && of_agent <= MEMORY_KIB_MAX, "{own} and {of_agent} KiB of memory");
    agent.get("/healthz").context("the agent answers no more")?;
    agent.stop()
}

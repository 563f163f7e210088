//! Whatever comes over the hook's socket, its host lives, and the hook answers afterwards as before.
//!
//! Method: messages to the real listener in a real program with a database: requests with random fields, some
//! with the right addresses so that they are carried out, and at the end of each conversation one that is
//! cut, flipped, stretched or made up. The program's own check of its keys at its end is the truth.

use anyhow::{Context, Result, ensure};
use sexton_execute::{HookClient, HookOptions};
use sexton_hook_protocol::{
    BottommostLevelCompaction, ColumnFamilyPointers, CompactFiles, CompactRange, KeyBytes, OptionChange,
    PROTOCOL_VERSION, Request, SetOptions, encode,
};
use sexton_tests::inspected;
use sexton_tests::linked::Program;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Messages unless `SEXTON_FUZZ_RUNS` says otherwise: some seconds. `make fuzz` sends a million.
const MESSAGES: u64 = 100_000;
/// Messages in one conversation, the greeting left out; only the last one may break it.
const CONVERSATION: u64 = 8;
/// One in so many requests that act has the right pointers: compactions, and waiting for them, take
/// milliseconds.
const CARRIED_OUT_EVERY: u64 = 500;
/// A conversation takes less than a millisecond, unless it waits for a compaction to be cancelled.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn no_message_does_the_host_harm() -> Result<()> {
    let wanted =
        std::env::var("SEXTON_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(MESSAGES);
    let directory = tempfile::tempdir()?;
    let mut program = Program::in_c(directory.path())?;
    let socket = PathBuf::from(format!("/tmp/.sexton-hook-{}.sock", program.pid()));
    let mut hook = HookClient::connect(&inspected::target(program.pid())?, &HookOptions::default())?;
    let known = hook.databases()?;
    let family = known.first().context("the program has registered nothing")?.pointers.clone();
    drop(hook);

    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut messages, mut conversations, mut answers) = (0u64, 0u64, 0u64);
    while messages < wanted {
        let mut bytes = encode(&hello(&mut random))?;
        for _ in 1..CONVERSATION {
            bytes.extend(encode(&request(&mut random, &family))?);
        }
        bytes.extend(broken(&mut random, &family)?);
        answers += converse(&socket, &bytes).with_context(|| {
            format!("after {messages} messages; the program runs: {:?}", program.is_running())
        })?;
        messages += CONVERSATION;
        conversations += 1;
    }
    println!("hook socket: {messages} messages in {conversations} conversations, {answers} bytes of answers");

    ensure!(program.is_running()?, "the program has ended");
    let mut hook = HookClient::connect(&inspected::target(program.pid())?, &HookOptions::default())?;
    ensure!(hook.databases()?.iter().any(|known| known.pointers == family), "the hook has forgotten");
    let log = std::fs::read_to_string(directory.path().join("hook.log"))?;
    ensure!(!log.contains("bug:") && !log.contains("panicked"), "the hook has a bug: {log}");
    program.end()
}

/// Sends all of it, then reads until the hook closes; how many bytes it answered.
fn converse(socket: &PathBuf, bytes: &[u8]) -> Result<u64> {
    let mut stream = UnixStream::connect(socket).context("connecting")?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(bytes).context("sending")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answers = Vec::new();
    match stream.read_to_end(&mut answers) {
        // What comes behind a message that broke the conversation is not read, and the socket says so.
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error).context("reading"),
        _ => Ok(answers.len() as u64),
    }
}

fn hello(random: &mut Random) -> Request {
    let protocol_version = if random.below(64) == 0 { random.any() as u32 } else { PROTOCOL_VERSION };
    Request::Hello { protocol_version, agent_pid: random.any() as u32, agent_id: 1 }
}

/// A well-formed request, right or wrong.
fn request(random: &mut Random, family: &ColumnFamilyPointers) -> Request {
    if random.below(2) == 0 {
        return question(random, family);
    }
    let column_family = match random.below(CARRIED_OUT_EVERY) {
        0 => family.clone(),
        _ => wrong_pointers(random, family),
    };
    match random.below(5) {
        0 => Request::CompactRange(CompactRange {
            column_family,
            begin: key(random),
            end: (random.below(3) > 0).then(|| key(random)),
            bottommost: match random.below(4) {
                0 => BottommostLevelCompaction::Skip,
                1 => BottommostLevelCompaction::IfHaveCompactionFilter,
                2 => BottommostLevelCompaction::Force,
                _ => BottommostLevelCompaction::ForceOptimized,
            },
        }),
        1 => Request::Cancel { id: random.any() },
        2 => Request::SetOptions(options(random, column_family)),
        3 => Request::CompactFiles(CompactFiles {
            column_family,
            files: (0..random.below(300)).map(|_| random.below(40)).collect(),
            output_level: random.below(9) as u32,
            output_file_bytes: random.any(),
        }),
        _ => Request::Flush { column_family },
    }
}

/// A request that changes nothing, mostly with the right pointers.
fn question(random: &mut Random, family: &ColumnFamilyPointers) -> Request {
    let column_family = match random.below(2) {
        0 => family.clone(),
        _ => wrong_pointers(random, family),
    };
    match random.below(6) {
        4 => {
            Request::Loads { column_families: (0..random.below(40)).map(|_| column_family.clone()).collect() }
        }
        0 => Request::Databases {},
        1 => Request::SstFiles { column_family },
        2 => Request::ChangedOptions {},
        3 => Request::Property { column_family, name: text(random, "rocksdb.num-files-at-level0") },
        _ => Request::CompactionStatus { id: random.below(1_000) },
    }
}

/// Values to set and to put back, that the hook takes or does not, or RocksDB. Of one option most values
/// would end the program: Debian's RocksDB has its assertions compiled in.
fn options(random: &mut Random, column_family: ColumnFamilyPointers) -> SetOptions {
    let value = |random: &mut Random| match random.below(4) {
        0 => random.below(10).to_string(),
        3 => "33".to_owned(),
        1 => "\u{1}no".to_owned(),
        _ => text(random, "44"),
    };
    let options = (0..random.below(3)).map(|_| OptionChange {
        name: match random.below(2) {
            0 => text(random, "level0_slowdown_writes_trigger"),
            _ => text(random, "max_sequential_skip_in_iterations"),
        },
        value: value(random),
        restore: (random.below(2) == 0).then(|| value(random)),
    });
    SetOptions { column_family, options: options.collect() }
}

/// Pointers that differ from the right ones in one thing.
fn wrong_pointers(random: &mut Random, right: &ColumnFamilyPointers) -> ColumnFamilyPointers {
    let mut pointers = right.clone();
    let near = random.below(256) & !7;
    match random.below(7) {
        0 => pointers.database = random.any(),
        1 => pointers.handle = random.any(),
        2 => pointers.database = right.database.wrapping_add(near),
        3 => pointers.handle = right.handle.wrapping_sub(near),
        4 => std::mem::swap(&mut pointers.database, &mut pointers.handle),
        5 => pointers.name = text(random, "default"),
        _ => pointers.id = random.any() as u32,
    }
    pointers
}

fn text(random: &mut Random, likely: &str) -> String {
    match random.below(4) {
        0 => (0..random.below(40)).map(|_| char::from(random.any() as u8)).collect(),
        1 => likely.repeat(random.below(60) as usize),
        _ => likely.to_owned(),
    }
}

fn key(random: &mut Random) -> KeyBytes {
    let bytes: Vec<u8> = match random.below(3) {
        0 => format!("key{:09}", random.below(20_000)).into_bytes(),
        1 => (0..random.below(16)).map(|_| random.any() as u8).collect(),
        _ => Vec::new(),
    };
    KeyBytes::floor(&bytes)
}

/// The frame of a request with something wrong in it.
fn broken(random: &mut Random, family: &ColumnFamilyPointers) -> Result<Vec<u8>> {
    let mut bytes = encode(&request(random, family))?;
    let length = bytes.len() as u64;
    match random.below(6) {
        0 => {
            for _ in 0..=random.below(4) {
                if let Some(byte) = bytes.get_mut(random.below(length) as usize) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
        1 => bytes.truncate(random.below(length) as usize),
        2 => {
            let at = 4 + random.below(length - 4) as usize;
            bytes.splice(at..at, (0..random.below(64)).map(|_| random.any() as u8));
        }
        3 => bytes = (0..random.below(64)).map(|_| random.any() as u8).collect(),
        4 => bytes = framed(&b"[{\"command\":".repeat(1 + random.below(200) as usize)),
        _ => {
            let at = random.below(length - 4) as usize;
            bytes = framed(bytes.get(4..4 + at).unwrap_or_default());
        }
    }
    Ok(bytes)
}

fn framed(json: &[u8]) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap_or_default();
    [&length.to_le_bytes(), json].concat()
}

/// Xorshift: the same messages in every run.
struct Random(u64);

impl Random {
    fn any(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.any() % limit.max(1)
    }
}

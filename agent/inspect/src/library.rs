//! Asking a RocksDB library itself where its counters are, in a process of its own.
//!
//! A shared library with the C API has functions that read a counter by its number. Given a
//! `PerfContext` in which each word holds its own offset, they tell the layout. Loading a library runs its
//! code, so a short-lived, confined copy of the agent does it ([`super::library_child`]), never the agent.

use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Hidden subcommand of the agent's binary that runs [`super::library_child::main`] with the path that
/// follows.
pub const CHILD_SUBCOMMAND: &str = "internal-ask-library";

/// How long asking may take; loading RocksDB takes some 50 ms.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How often the process is asked whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Output that is taken in: one line. What does not fit into the pipe keeps the process from ending in time.
const OUTPUT_BYTES_MAX: u64 = 4096;

/// Words of `perf_context` that are filled in: no known version has fewer.
pub(super) const WORDS: usize = 66;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The offsets of the counters.
    Offsets(Offsets),
    /// Why there are none.
    Failed(String),
}

/// Byte offsets in `perf_context`, as the library itself reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets {
    /// `block_cache_hit_count`.
    pub block_cache_hit_count: u64,
    /// `block_read_count`.
    pub block_read_count: u64,
    /// `block_read_byte`.
    pub block_read_byte: u64,
    /// `internal_key_skipped_count`.
    pub internal_key_skipped_count: u64,
    /// `internal_delete_skipped_count`.
    pub internal_delete_skipped_count: u64,
}

impl Offsets {
    /// The offset of `internal_key_skipped_count`, if all five are where they can be: the first three have
    /// never moved, the last two are neighbours.
    pub fn skip_offset(&self) -> Option<u32> {
        let first_three = (self.block_cache_hit_count, self.block_read_count, self.block_read_byte);
        let offset = self.internal_key_skipped_count;
        let fits = first_three == (8, 16, 24)
            && offset.is_multiple_of(8)
            && offset < 8 * (WORDS as u64 - 1)
            && self.internal_delete_skipped_count == offset + 8;
        u32::try_from(offset).ok().filter(|_| fits)
    }
}

/// Asks the library in `path` for the offset of `internal_key_skipped_count`. `executable` is the agent's
/// own program, or a stand-in that understands [`CHILD_SUBCOMMAND`].
/// Errors: says why in words: the library cannot be loaded here, took too long, or answers nonsense.
pub fn ask(executable: &Path, path: &Path) -> Result<u32, String> {
    let mut child = sexton_sandbox::start(
        executable,
        [CHILD_SUBCOMMAND.as_ref(), path.as_os_str()],
        Stdio::null(),
        Stdio::piped(),
    )
    .map_err(|error| format!("the process that asks it cannot be started: {error}"))?;
    wait(&mut child)?;
    let mut output = String::new();
    let stdout = child.stdout.take().ok_or("the process that asked it had no output")?;
    stdout
        .take(OUTPUT_BYTES_MAX)
        .read_to_string(&mut output)
        .map_err(|error| format!("the process that asked it said nothing that can be read: {error}"))?;
    match serde_json::from_str(&output) {
        Ok(Answer::Offsets(offsets)) => {
            offsets.skip_offset().ok_or_else(|| "its answer makes no sense".to_owned())
        }
        Ok(Answer::Failed(reason)) => Err(reason),
        Err(_) => Err("the process that asked it ended without an answer".into()),
    }
}

/// Waits for the process to end; ends it when it takes too long.
fn wait(child: &mut Child) -> Result<(), String> {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            other => {
                // Fails only where the process has ended.
                let _ = child.kill();
                let _ = child.wait();
                return Err(match other {
                    Err(error) => format!("the process that asks it cannot be waited for: {error}"),
                    _ => format!("the process that asks it did not end within {TIME_LIMIT:?}"),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    fn offsets(key: u64, delete: u64) -> Offsets {
        Offsets {
            block_cache_hit_count: 8,
            block_read_count: 16,
            block_read_byte: 24,
            internal_key_skipped_count: key,
            internal_delete_skipped_count: delete,
        }
    }

    #[test]
    fn only_what_can_be_is_believed() {
        assert_eq!(offsets(224, 232).skip_offset(), Some(224));
        assert_eq!(offsets(224, 240).skip_offset(), None);
        assert_eq!(offsets(225, 233).skip_offset(), None);
        assert_eq!(offsets(u64::MAX - 7, 0).skip_offset(), None);
        assert_eq!(offsets(0, 8).skip_offset(), Some(0));
        assert_eq!(Offsets { block_read_count: 24, ..offsets(224, 232) }.skip_offset(), None);
    }

    #[test]
    fn a_program_that_answers_nothing_is_no_answer() {
        let error = ask(Path::new("/bin/true"), Path::new("/lib/none.so")).unwrap_err();
        assert!(error.contains("without an answer"), "{error}");
        let error = ask(Path::new("/nonexistent/program"), Path::new("/lib/none.so")).unwrap_err();
        assert!(error.contains("cannot be started"), "{error}");
    }
}

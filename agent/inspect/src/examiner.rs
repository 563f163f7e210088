//! Has files examined: each by a short-lived process that can do nothing else, whose answer is checked.
//!
//! The agent opens the file and never reads its tables. The process gets the open file as its standard input
//! and answers on a socket, with one JSON document.

use super::debug_file::DebugSymbols;
use super::elf::ElfError;
use super::finding::{Finding, believed_symbols};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Hidden subcommand of the agent's binary that runs [`super::examiner_child::main`].
pub const CHILD_SUBCOMMAND: &str = "internal-examine";

/// How long one examination may take. A large file takes a second of an idle processor, and up to four of a
/// busy one. Less than a look into a process may take.
const TIME_LIMIT: Duration = Duration::from_secs(7);

/// Bytes of an answer: the facts of a file are some kilobytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// How long a process that was ended may take to be gone: one that does not is waiting for a file system.
const END_LIMIT: Duration = Duration::from_millis(200);
const END_POLL: Duration = Duration::from_millis(1);

/// Processes that were ended and are not gone. Each waits for a file that does not answer, and there is
/// seldom more than one file system that does.
const LEFT_BEHIND_MAX: usize = 16;

/// How files are examined.
#[derive(Debug)]
pub struct Examiner {
    place: Place,
    time_limit: Duration,
    left_behind: Vec<Child>,
}

#[derive(Clone, Debug)]
enum Place {
    /// In a process of this program: the agent's own, or a stand-in that understands [`CHILD_SUBCOMMAND`].
    Process(PathBuf),
    /// In this process.
    #[cfg(test)]
    Here,
}

impl Default for Examiner {
    fn default() -> Examiner {
        #[cfg(not(test))]
        let place = Place::Process(sexton_sandbox::own_executable());
        // What runs then does not understand the subcommand.
        #[cfg(test)]
        let place = Place::Here;
        Examiner { place, time_limit: TIME_LIMIT, left_behind: Vec::new() }
    }
}

impl Examiner {
    /// One that has this program do it.
    pub fn by(executable: PathBuf) -> Examiner {
        Examiner { place: Place::Process(executable), ..Examiner::default() }
    }

    /// Has a file of so many bytes examined. `debug_symbols` are those of its debug file, none of them where
    /// it has none; `None`: it was not looked for yet.
    pub fn module(&mut self, file: &File, file_bytes: u64, debug_symbols: Option<&DebugSymbols>) -> Finding {
        let executable = match &self.place {
            Place::Process(executable) => executable.clone(),
            #[cfg(test)]
            Place::Here => return super::examiner_child::module(file, debug_symbols),
        };
        let options = debug_symbols.map(|symbols| serde_json::to_string(symbols).unwrap_or_default());
        let options = options.map(|symbols| format!("--debug-symbols={symbols}"));
        let answer = self.ask(&executable, file, options).and_then(|finding: Finding| {
            finding.believed(file_bytes).map_err(|what| format!("says of {what} what cannot be"))
        });
        answer.unwrap_or_else(|reason| Finding::Unreadable(ElfError::NotExamined { reason }))
    }

    /// Has a debug file read; no symbols where it is not that of this build, or cannot be understood.
    pub(super) fn debug_symbols(&mut self, file: &File, build_id: &str) -> DebugSymbols {
        let executable = match &self.place {
            Place::Process(executable) => executable.clone(),
            #[cfg(test)]
            Place::Here => return super::examiner_child::debug_symbols(file, build_id),
        };
        let answer = self.ask(&executable, file, Some(format!("--debug-file-of={build_id}")));
        answer.ok().and_then(|symbols| believed_symbols(symbols).ok()).unwrap_or_default()
    }

    /// What a process says of a file.
    /// Errors: what it did instead, in words.
    fn ask<Answer: DeserializeOwned>(
        &mut self,
        executable: &Path,
        file: &File,
        option: Option<String>,
    ) -> Result<Answer, String> {
        self.left_behind.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if self.left_behind.len() >= LEFT_BEHIND_MAX {
            return Err("was not started: too many others wait for files that do not answer".into());
        }
        let arguments = [CHILD_SUBCOMMAND.to_owned()].into_iter().chain(option);
        let (ours, child) =
            start(executable, arguments, file).map_err(|error| format!("cannot be started: {error}"))?;
        let answer = read(ours, self.time_limit);
        let how = self.end(child, answer.is_ok());
        serde_json::from_slice(&answer?)
            .map_err(|_| format!("ended without an answer that makes sense ({how})"))
    }

    /// Sees to it that a process ends, at once unless it `may` do so by itself; says how it ended.
    fn end(&mut self, mut child: Child, may: bool) -> String {
        let mut ended = if may { wait(&mut child) } else { None };
        if ended.is_none() {
            // Fails only where it has ended meanwhile.
            let _ = child.kill();
            ended = wait(&mut child);
        }
        let how = ended.map_or_else(|| "it does not end".to_owned(), |status| status.to_string());
        if ended.is_none() {
            self.left_behind.push(child);
        }
        how
    }
}

/// Starts a process that has the file as its standard input; gives the socket on which it answers.
fn start(
    executable: &Path,
    arguments: impl Iterator<Item = String>,
    file: &File,
) -> io::Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let (input, output) = (Stdio::from(file.try_clone()?), Stdio::from(OwnedFd::from(theirs)));
    Ok((ours, sexton_sandbox::start(executable, arguments, input, output)?))
}

/// All that comes until the other end is closed.
/// Errors: in words, where that takes too long, or is too much.
fn read(mut socket: UnixStream, time_limit: Duration) -> Result<Vec<u8>, String> {
    let deadline = Instant::now() + time_limit;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let late = || format!("did not answer within {time_limit:?}");
        if left.is_zero() {
            return Err(late());
        }
        let read = socket.set_read_timeout(Some(left)).and_then(|()| socket.read(&mut piece));
        match read {
            Ok(0) => return Ok(answer),
            Ok(length) => answer.extend_from_slice(piece.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(error) => return Err(format!("cannot be understood: {error}")),
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err("says more than there is to say of a file".into());
        }
    }
}

/// Waits a moment for a process that is about to end.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + END_LIMIT;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => std::thread::sleep(END_POLL),
            result => return result.ok().flatten(),
        }
    }
}

#[cfg(test)]
#[path = "examiner_tests.rs"]
pub(super) mod tests;

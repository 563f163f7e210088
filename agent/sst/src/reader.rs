//! Starts the reading process and takes in what it prints, within limits of time and size.

use super::database::DatabaseFiles;
use super::error::SstError;
use super::wire::{Failure, Index, Line, Tail};
use sexton_sandbox::rooted::Identity;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Hidden subcommand of the agent's binary that runs [`super::child::main`] with the directory that follows.
pub const CHILD_SUBCOMMAND: &str = "internal-read-sst";

/// How long reading may take; a MANIFEST of tens of megabytes takes about a second.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Output that is taken in: 65,536 files with keys of 200 bytes each, in hexadecimal, twice over.
const OUTPUT_BYTES_MAX: u64 = 128 << 20;

/// Bytes of a child's words that are kept.
const WORDS_BYTES_MAX: usize = 1024;

/// How to start the reading process.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The agent's own executable, or a stand-in that understands [`CHILD_SUBCOMMAND`].
    pub executable: PathBuf,
    /// How long one reading may take before the process is killed.
    pub time_limit: Duration,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader { executable: sexton_sandbox::own_executable(), time_limit: TIME_LIMIT }
    }
}

/// A directory that is read.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// As the agent reaches it: `/proc/PID/root/...`.
    pub path: &'a Path,
    /// Which directory has to be there; `None`: whichever is.
    pub identity: Option<Identity>,
}

impl<'a> Place<'a> {
    /// Whichever directory is there.
    pub fn of(path: &'a Path) -> Place<'a> {
        Place { path, identity: None }
    }
}

/// What the reading thread hands over when the output has ended.
struct Output {
    database: DatabaseFiles,
    tails: HashMap<u64, Tail>,
    indexes: HashMap<u64, Index>,
    lines: usize,
    end: Result<(), OutputError>,
}

enum OutputError {
    Failed(Failure),
    Cut(String),
}

impl Reader {
    /// Reads the database in `place`.
    pub fn read(&self, place: Place<'_>) -> Result<DatabaseFiles, SstError> {
        self.run(place, None, None).map(|output| output.database)
    }

    /// Reads what the files with these numbers say of themselves.
    pub(super) fn tails(&self, place: Place<'_>, numbers: &[u64]) -> Result<HashMap<u64, Tail>, SstError> {
        self.run(place, Some("--tails"), Some(lines(numbers))).map(|output| output.tails)
    }

    /// Reads the indexes of the files with these numbers, as many of them as may be read at once.
    pub(super) fn indexes(&self, place: Place<'_>, numbers: &[u64]) -> Result<HashMap<u64, Index>, SstError> {
        self.run(place, Some("--indexes"), Some(lines(numbers))).map(|output| output.indexes)
    }

    fn run(&self, place: Place<'_>, option: Option<&str>, input: Option<String>) -> Result<Output, SstError> {
        let path = place.path;
        let mut child = self.start(place, option, input)?;
        let (sender, receiver) = sync_channel(1);
        let stdout = child.stdout.take();
        let thread = std::thread::spawn(move || {
            // The receiver is gone only if it gave up waiting.
            let _ = sender.send(take_in(stdout));
        });
        let output = receiver.recv_timeout(self.time_limit);
        let status = stop(&mut child);
        // The process is gone and with it the other end of the pipe: the thread ends.
        let _ = thread.join();
        match output {
            Ok(output @ Output { end: Ok(()), .. }) => Ok(output),
            Ok(Output { end: Err(OutputError::Failed(failure)), .. }) => Err(failure.at(path)),
            Ok(Output { end: Err(OutputError::Cut(message)), lines, .. }) => {
                Err(SstError::Cut { path: path.to_owned(), status, lines, message })
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(SstError::TimedOut { path: path.to_owned(), limit: self.time_limit })
            }
            Err(RecvTimeoutError::Disconnected) => {
                let message = "the thread that read its output failed".to_owned();
                Err(SstError::Cut { path: path.to_owned(), status, lines: 0, message })
            }
        }
    }

    fn start(
        &self,
        place: Place<'_>,
        option: Option<&str>,
        input: Option<String>,
    ) -> Result<Child, SstError> {
        let mut arguments = vec![OsString::from(CHILD_SUBCOMMAND), place.path.into()];
        if let Some((device, inode)) = place.identity {
            arguments.extend([format!("--device={device}").into(), format!("--inode={inode}").into()]);
        }
        arguments.extend(option.map(OsString::from));
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let start = || {
            let mut child = sexton_sandbox::start(&self.executable, &arguments, stdin, Stdio::piped())?;
            // The numbers of all files that are read at once fit into the pipe. A child that has ended tells
            // by its output.
            if let (Some(mut stdin), Some(text)) = (child.stdin.take(), input) {
                let _ = stdin.write_all(text.as_bytes());
            }
            Ok(child)
        };
        start().map_err(|source| SstError::Spawn {
            executable: self.executable.clone(),
            path: place.path.to_owned(),
            source,
        })
    }
}

/// Numbers of files as the child takes them.
fn lines(numbers: &[u64]) -> String {
    numbers.iter().map(|number| format!("{number}\n")).collect()
}

/// Ends the process if it still runs and says how it ended.
fn stop(child: &mut Child) -> String {
    // After its last line the process only has to exit: that it is killed here does no harm. An error
    // means that it has ended by itself.
    let ended = child.try_wait().ok().flatten();
    if ended.is_none() {
        let _ = child.kill();
    }
    match child.wait() {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

fn take_in(stdout: Option<ChildStdout>) -> Output {
    let mut output = Output {
        database: DatabaseFiles::default(),
        tails: HashMap::new(),
        indexes: HashMap::new(),
        lines: 0,
        end: Ok(()),
    };
    output.end = match stdout {
        Some(stdout) => take_lines(BufReader::new(stdout.take(OUTPUT_BYTES_MAX)), &mut output),
        None => Err(OutputError::Cut("it had no standard output".to_owned())),
    };
    output
}

/// Takes lines until the one that ends the output; anything else at the end means it was cut.
fn take_lines(mut source: impl BufRead, output: &mut Output) -> Result<(), OutputError> {
    let mut text = String::new();
    loop {
        text.clear();
        match source.read_line(&mut text) {
            Ok(0) => return Err(OutputError::Cut("no end line".to_owned())),
            Ok(_) => {}
            Err(error) => return Err(OutputError::Cut(error.to_string())),
        }
        output.lines += 1;
        let line = serde_json::from_str(&text);
        match line.map_err(|error| OutputError::Cut(error.to_string()))? {
            Line::ColumnFamily(family) => output.database.column_families.push(family),
            Line::File { file, sequences } => {
                output.database.sequences.insert(file.number, sequences);
                output.database.files.push(file);
            }
            Line::Tail { number, tail } => drop(output.tails.insert(number, tail)),
            Line::Index { number, index } => drop(output.indexes.insert(number, index)),
            Line::Failed(failure) => return Err(OutputError::Failed(failure)),
            Line::End { files } => {
                let came = output.database.files.len() + output.tails.len() + output.indexes.len();
                if files == came as u64 {
                    return Ok(());
                }
                let message = format!("it says {files} files but {came} came");
                return Err(OutputError::Cut(message));
            }
        }
    }
}

/// The first bytes of what a child says: it repeats what stands in a foreign file, and is shown and kept.
fn cut(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(WORDS_BYTES_MAX));
    words
}

impl Failure {
    fn at(self, path: &Path) -> SstError {
        let path = path.to_owned();
        match self {
            Failure::Directory { message } => SstError::Directory { path, message: cut(message) },
            Failure::NotADatabase => SstError::NotADatabase { path },
            Failure::UnknownComparator { column_family, comparator } => {
                let (column_family, comparator) = (cut(column_family), cut(comparator));
                SstError::UnknownComparator { path, column_family, comparator }
            }
            Failure::RocksDb { message } => SstError::RocksDb { path, message: cut(message) },
            Failure::TooMany { what, count, count_max } => {
                SstError::TooMany { path, what: cut(what), count, count_max }
            }
            Failure::Confinement { message } => SstError::Confinement { path, message: cut(message) },
            Failure::Output { message } => {
                let message = cut(message);
                SstError::Cut { path, status: "no exit status".to_owned(), lines: 0, message }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_says_is_cut_between_characters() {
        let error = Failure::RocksDb { message: "é".repeat(1 << 20) }.at(Path::new("/db"));
        assert!(error.to_string().len() < 2 * WORDS_BYTES_MAX, "{} bytes", error.to_string().len());
        assert_eq!(cut("abc".into()), "abc");
    }
}

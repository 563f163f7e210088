//! Starts the reading process and takes in what it prints, within limits of time and size.

use super::database::DatabaseFiles;
use super::error::SstError;
use super::wire::{Failure, Line};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Hidden subcommand of the agent's binary that runs [`super::child::main`] with the directory that follows.
pub const CHILD_SUBCOMMAND: &str = "internal-read-sst";

/// How long reading may take; a MANIFEST of tens of megabytes takes about a second.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Output that is taken in: 65,536 files with keys of 200 bytes each, in hexadecimal, twice over.
const OUTPUT_BYTES_MAX: u64 = 128 << 20;

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

/// What the reading thread hands over when the output has ended.
struct Output {
    database: DatabaseFiles,
    lines: usize,
    end: Result<(), OutputError>,
}

enum OutputError {
    Failed(Failure),
    Cut(String),
}

impl Reader {
    /// Reads the database in `path`, as the agent reaches it.
    pub fn read(&self, path: &Path) -> Result<DatabaseFiles, SstError> {
        let mut child = self.start(path)?;
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
            Ok(Output { database, end: Ok(()), .. }) => Ok(database),
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

    fn start(&self, path: &Path) -> Result<Child, SstError> {
        sexton_sandbox::start(&self.executable, CHILD_SUBCOMMAND, path).map_err(|source| SstError::Spawn {
            executable: self.executable.clone(),
            path: path.to_owned(),
            source,
        })
    }
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
    let mut output = Output { database: DatabaseFiles::default(), lines: 0, end: Ok(()) };
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
            Line::File(file) => output.database.files.push(file),
            Line::Failed(failure) => return Err(OutputError::Failed(failure)),
            Line::End { files } if files == output.database.files.len() as u64 => return Ok(()),
            Line::End { files } => {
                let message = format!("it says {files} files but {} came", output.database.files.len());
                return Err(OutputError::Cut(message));
            }
        }
    }
}

impl Failure {
    fn at(self, path: &Path) -> SstError {
        let path = path.to_owned();
        match self {
            Failure::Directory { message } => SstError::Directory { path, message },
            Failure::NotADatabase => SstError::NotADatabase { path },
            Failure::UnknownComparator { column_family, comparator } => {
                SstError::UnknownComparator { path, column_family, comparator }
            }
            Failure::RocksDb { message } => SstError::RocksDb { path, message },
            Failure::TooMany { what, count, count_max } => SstError::TooMany { path, what, count, count_max },
            Failure::Confinement { message } => SstError::Confinement { path, message },
            Failure::Output { message } => {
                SstError::Cut { path, status: "no exit status".to_owned(), lines: 0, message }
            }
        }
    }
}

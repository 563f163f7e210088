//! The file that events are appended to, one JSON object a line, and its predecessors.
//!
//! What cannot be written waits in memory. A line is written with one call, so that a killed agent leaves
//! whole lines, or one torn line at the end, which the next run closes.

use super::event::Event;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Size at which a new file is begun: some 20,000 events.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Files kept, the one that is written included.
const FILES_MAX: usize = 4;
/// Lines that wait while the disk is full; beyond that the oldest are dropped here (the state has them
/// still).
const WAITING_MAX: usize = 10_000;
/// Bytes of the end of a file that are searched for the last event: many lines.
const TAIL_BYTES_MAX: u64 = 64 << 10;
/// Names of keys are in there only as the policy allows, but nobody else's business all the same.
const FILE_MODE: u32 = 0o600;

/// The file that events are appended to.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
    last_id: u64,
    waiting: VecDeque<Vec<u8>>,
    is_trouble_logged: bool,
}

impl EventFile {
    /// Events are appended to `path`, which need not be there.
    ///
    /// # Errors
    /// When it cannot be opened for writing, other than for want of room.
    pub fn open(path: &Path) -> io::Result<EventFile> {
        let mut log = EventFile {
            path: path.to_owned(),
            file: None,
            bytes: 0,
            last_id: 0,
            waiting: VecDeque::new(),
            is_trouble_logged: false,
        };
        match log.reopen() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(error) => return Err(error),
        }
        let earlier = std::iter::once(log.path.clone()).chain((1..FILES_MAX).map(|age| log.aged(age)));
        log.last_id = earlier.filter_map(|path| last_id(&path)).next().unwrap_or(0);
        Ok(log)
    }

    /// Id of the last event in it, 0 where there is none.
    pub fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Appends an event, after all that wait.
    pub fn append(&mut self, event: &Event) {
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            self.waiting.push_back(line);
        }
        while self.waiting.len() > WAITING_MAX {
            self.waiting.pop_front();
        }
        self.last_id = self.last_id.max(event.id);
        self.flush();
    }

    /// Writes what waits, as far as that is possible now.
    pub fn flush(&mut self) {
        while let Some(line) = self.waiting.front().cloned() {
            match self.write(&line) {
                Ok(()) => {
                    self.waiting.pop_front();
                    self.is_trouble_logged = false;
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_trouble_logged, true) {
                        tracing::warn!(path = %self.path.display(), %error, "events wait to be written");
                    }
                    return;
                }
            }
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen()?;
        }
        if self.bytes >= FILE_BYTES_MAX {
            self.rotate()?;
        }
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let written = file.write(line)?;
        if written < line.len() {
            // The rest had no room: the whole line comes again when there is.
            file.set_len(self.bytes)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes += written as u64;
        Ok(())
    }

    /// Opens the file, and closes a line that was torn.
    fn reopen(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(FILE_MODE);
        let mut file = options.open(&self.path)?;
        self.bytes = file.seek(SeekFrom::End(0))?;
        if self.bytes > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                self.bytes += 1;
            }
        }
        self.file = Some(file);
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for age in (1..FILES_MAX - 1).rev() {
            match std::fs::rename(self.aged(age), self.aged(age + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, self.aged(1))?;
        self.reopen()
    }

    /// The name of the file that was begun so many files ago.
    fn aged(&self, age: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{age}"));
        PathBuf::from(name)
    }
}

/// Id of the last whole event in a file.
fn last_id(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES_MAX))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    tail.lines().rev().find_map(|line| Some(serde_json::from_str::<Event>(line).ok()?.id))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::event::{EventKind, tests::every};
    use super::*;

    fn event(id: u64, kind: EventKind) -> Event {
        Event { id, at: "2026-11-20T10:00:00Z".into(), kind }
    }

    fn ids(path: &Path) -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter_map(|line| Some(serde_json::from_str::<Event>(line).ok()?.id)).collect()
    }

    #[test]
    fn events_are_appended_and_counting_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut log = EventFile::open(&path).unwrap();
        assert_eq!(log.last_id(), 0);
        for (id, kind) in (1..).zip(every()) {
            log.append(&event(id, kind));
        }
        let count = every().len() as u64;
        let log = EventFile::open(&path).unwrap();
        assert_eq!((log.last_id(), ids(&path)), (count, (1..=count).collect()));
    }

    #[test]
    fn a_torn_line_is_closed_and_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let kind = every().remove(0);
        EventFile::open(&path).unwrap().append(&event(5, kind.clone()));
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"id\":6,\"at").unwrap();
        let mut log = EventFile::open(&path).unwrap();
        assert_eq!(log.last_id(), 5);
        log.append(&event(6, kind));
        assert_eq!(ids(&path), [5, 6]);
    }

    #[test]
    fn files_are_bounded_in_size_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut log = EventFile::open(&path).unwrap();
        let reason = "x".repeat(TAIL_BYTES_MAX as usize / 2);
        for id in 1..=1_500 {
            log.append(&event(id, EventKind::StateFull { reason: reason.clone() }));
        }
        let sizes = std::fs::read_dir(folder.path()).unwrap().flatten();
        let sizes: Vec<u64> = sizes.map(|entry| entry.metadata().unwrap().len()).collect();
        assert_eq!(sizes.len(), FILES_MAX);
        assert!(sizes.iter().all(|bytes| *bytes < FILE_BYTES_MAX + (2 << 20)), "{sizes:?}");
        assert_eq!(ids(&path).last(), Some(&1_500));
        std::fs::remove_file(&path).unwrap();
        assert!(EventFile::open(&path).unwrap().last_id() > 0, "the one before tells where counting goes on");
    }
}

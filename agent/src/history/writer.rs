//! The thread that writes the history: a slow disk keeps nobody else waiting.

use super::file;
use sexton_tuner::history::History;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an agent that ends waits for the last of it.
const END_WAIT_MAX: Duration = Duration::from_secs(2);
const END_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Hands over what is to be written.
pub struct Writer {
    sender: Sender<History>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// `stored` is on disk already. `None` where there can be no thread: then nothing is written.
    pub fn start(directory: PathBuf, stored: History) -> Option<Writer> {
        let (sender, receiver) = channel();
        let body = move || write_all(&directory, stored, &receiver);
        let thread = std::thread::Builder::new().name("sexton-history".into()).spawn(body);
        let thread = thread.inspect_err(|error| tracing::warn!(%error, "the history is not written"));
        Some(Writer { sender, thread: thread.ok()? })
    }

    /// Has it written, in due time. Nothing is copied but pointers, and of what waits the last is written.
    pub fn write(&self, history: History) {
        // Without its thread nobody can be told.
        let _ = self.sender.send(history);
    }

    /// Waits for the last of it, not for ever.
    pub fn end(self) {
        drop(self.sender);
        let began = Instant::now();
        while !self.thread.is_finished() && began.elapsed() < END_WAIT_MAX {
            std::thread::sleep(END_POLL_INTERVAL);
        }
    }
}

fn write_all(directory: &Path, mut stored: History, receiver: &Receiver<History>) {
    let mut is_told = false;
    while let Ok(first) = receiver.recv() {
        let history = receiver.try_iter().last().unwrap_or(first);
        // The widest first: a finer layer lets go only of what a wider one has.
        let mut changed: Vec<usize> = history.changed_since(&stored).collect();
        changed.reverse();
        match changed.into_iter().try_for_each(|layer| file::store(directory, layer, &history)) {
            Ok(()) => (stored, is_told) = (history, false),
            Err(error) if !is_told => {
                is_told = true;
                let path = directory.display();
                tracing::warn!(%error, %path, "the history cannot be written; it is tried again");
            }
            Err(_) => {}
        }
    }
}

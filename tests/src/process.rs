//! Child processes that end with the test that started them, and their output line by line.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines waiting to be read; the writer waits when nobody reads.
const LINES_QUEUED_MAX: usize = 4096;
/// Lines kept for an error message: what a terminal shows.
const LINES_SHOWN_MAX: usize = 25;
/// How often a process is asked whether it has ended.
const EXIT_POLL: Duration = Duration::from_millis(10);

/// A child process; dropping it kills the child by its pid and waits for it.
///
/// The kernel kills the child too when the thread that started it ends, so that nothing stays behind
/// even after `kill -9` of the test.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts `command` in a process group of its own, so that Ctrl-C reaches only us and the child is
    /// ended in order.
    pub fn start(mut command: Command) -> Result<Process> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.process_group(0);
        // SAFETY: between fork and exec the closure makes one system call and touches no memory of the
        // parent: no allocation, no lock.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Process { child, name })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The pipe to its standard input, once.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The pipe from its standard output, once.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The pipe from its standard error, once.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Sends a signal; fails when the process has already been waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self::signal(self.pid(), signal).with_context(|| self.name.clone())
    }

    /// Process id of its child; fails unless it has exactly one.
    pub fn only_child(&self) -> Result<u32> {
        let path = format!("/proc/{pid}/task/{pid}/children", pid = self.pid());
        let children = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        children.trim().parse().with_context(|| format!("{} has these children: {children:?}", self.name))
    }

    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().with_context(|| format!("waiting for {}", self.name))?.is_none())
    }

    /// Waits until it has ended; fails after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) =
                self.child.try_wait().with_context(|| format!("waiting for {}", self.name))?
            {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("{} (pid {}) has not ended within {limit:?}", self.name, self.pid());
            }
            std::thread::sleep(EXIT_POLL);
        }
    }
}

/// Time that a process' threads have had on a processor, nanoseconds; of those that have ended it is gone.
pub fn processor_time_ns(pid: u32) -> Result<u64> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let mut sum_ns = 0;
    for task in std::fs::read_dir(&tasks).with_context(|| format!("reading {}", tasks.display()))? {
        let task = task?.path();
        let Ok(times) = std::fs::read_to_string(task.join("schedstat")) else { continue };
        let on_processor = times.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        sum_ns += on_processor.with_context(|| format!("{} has no times", task.display()))?;
    }
    Ok(sum_ns)
}

/// The value of a field of a process' `status`.
pub fn status_field(pid: u32, name: &str) -> Result<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("reading a status")?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("no {name} in {text}"))?.trim().to_owned())
}

/// The children of all threads of a process.
pub fn children(pid: u32) -> Result<Vec<u32>> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let mut found = Vec::new();
    for task in std::fs::read_dir(&tasks).with_context(|| format!("reading {}", tasks.display()))? {
        let Ok(text) = std::fs::read_to_string(task?.path().join("children")) else { continue };
        found.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(found)
}

/// The children of a process that run this subcommand.
pub fn children_that_run(pid: u32, subcommand: &str) -> Result<Vec<u32>> {
    let runs = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(subcommand))
    };
    Ok(children(pid)?.into_iter().filter(runs).collect())
}

/// The directories in `/proc` of a process' threads whose names begin so.
pub fn threads_named(pid: u32, name: &str) -> Result<Vec<PathBuf>> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).context("reading the threads")?;
    let is_it =
        |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|own| own.starts_with(name));
    Ok(threads.flatten().map(|thread| thread.path()).filter(is_it).collect())
}

/// The first word of a field of a process' `status`; `None`: the process is no more.
pub fn status_word(pid: u32, name: &str) -> Option<String> {
    let value = status_field(pid, name).ok()?;
    Some(value.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Sends a signal to a process that a test has started, itself or through another.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let raw = raw.with_context(|| format!("{pid} is no process id"))?;
    kill_process(raw, signal).with_context(|| format!("sending {signal:?} to process {pid}"))
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the child has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe, read by a thread of its own so that the writer never blocks for long.
#[derive(Debug)]
pub struct Lines {
    receiver: Receiver<String>,
    recent: Vec<String>,
    name: String,
}

impl Lines {
    /// Reads `pipe` until it ends; `name` is for error messages.
    pub fn of(name: &str, pipe: impl Read + Send + 'static) -> Lines {
        let (sender, receiver) = sync_channel(LINES_QUEUED_MAX);
        std::thread::spawn(move || forward(pipe, &sender));
        Lines { receiver, recent: Vec::new(), name: name.to_owned() }
    }

    /// The next line, `None` when the pipe has ended; fails after `limit`.
    pub fn next(&mut self, limit: Duration) -> Result<Option<String>> {
        match self.receiver.recv_timeout(limit) {
            Ok(line) => {
                if self.recent.len() == LINES_SHOWN_MAX {
                    self.recent.remove(0);
                }
                self.recent.push(line.clone());
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                bail!("{} printed nothing for {limit:?}; last lines:\n{}", self.name, self.shown())
            }
        }
    }

    /// The next line if one is waiting.
    pub fn waiting(&mut self) -> Option<String> {
        self.receiver.try_recv().ok()
    }

    /// Reads on until `wanted` is true for a line, and returns that line; fails after `limit` in all or
    /// when the pipe ends before.
    pub fn until(&mut self, limit: Duration, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.next(left)? {
                Some(line) if wanted(&line) => return Ok(line),
                Some(_) => {}
                None => bail!("{} ended too early; last lines:\n{}", self.name, self.shown()),
            }
        }
    }

    /// All lines until the pipe ends.
    pub fn rest(&mut self, limit: Duration) -> Result<Vec<String>> {
        let deadline = Instant::now() + limit;
        let mut lines = Vec::new();
        while let Some(line) = self.next(deadline.saturating_duration_since(Instant::now()))? {
            lines.push(line);
        }
        Ok(lines)
    }

    /// The last lines read, for an error message.
    pub fn shown(&self) -> String {
        self.recent.join("\n")
    }
}

fn forward(pipe: impl Read, sender: &SyncSender<String>) {
    let mut reader = BufReader::new(pipe);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match reader.read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        }
    }
}

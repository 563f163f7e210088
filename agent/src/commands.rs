//! Commands of the policy that nobody waits for: each runs on a thread of its own, and what came of it is an
//! event.
//!
//! They belong to no session, for what they restore may belong to a process that the policy does not match
//! any more. A command's program may lie on a file system that hangs: then its thread is given up at a
//! deadline and left behind, and their number is bounded.

use crate::inbox::{Event, Post};
use sexton_execute::{SettingTask, Task, ThrottleTask, run_throttle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Threads at the same time, with those that were left behind. A target has some ten throttles, and all of
/// some targets are restored at once when the agent ends.
const THREADS_MAX: usize = 64;

/// Commands that one task runs, each as long as the policy allows: one that reads, one that sets, one that
/// reads again.
const COMMANDS_MAX: u32 = 3;

/// What it may take beyond that to start them, and to stop one that takes too long.
const START_LIMIT: Duration = Duration::from_secs(15);

/// Tasks that run.
pub struct Commands {
    post: Post,
    last: u64,
    deadlines: BTreeMap<u64, Instant>,
    threads: Arc<AtomicUsize>,
}

impl Commands {
    /// Whose events go there.
    pub fn new(post: Post) -> Commands {
        Commands { post, last: 0, deadlines: BTreeMap::new(), threads: Arc::default() }
    }

    /// Begins to set a throttle; what came of it is sent as [`Event::Commanded`]. `None`: not now.
    pub fn start(&mut self, task: ThrottleTask) -> Option<u64> {
        if self.threads.load(Ordering::Relaxed) >= THREADS_MAX {
            return None;
        }
        let deadline = Instant::now() + task.time_limit.saturating_mul(COMMANDS_MAX) + START_LIMIT;
        let number = self.last + 1;
        let (post, counted) = (self.post.clone(), Counted::new(&self.threads));
        let body = move || {
            let result = run_throttle(&Task::Set(SettingTask::Throttle(task)));
            drop(counted);
            post.send(Event::Commanded { number, result });
        };
        std::thread::Builder::new().name("command".to_owned()).spawn(body).ok()?;
        self.last = number;
        self.deadlines.insert(number, deadline);
        Some(number)
    }

    /// A task has ended; `false`: it was given up before.
    pub fn end(&mut self, number: u64) -> bool {
        self.deadlines.remove(&number).is_some()
    }

    /// Gives up what has missed its deadline.
    pub fn expire(&mut self, now: Instant) -> Vec<u64> {
        self.deadlines.extract_if(.., |_, deadline| now >= *deadline).map(|(number, _)| number).collect()
    }

    /// When the next of them is given up.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.values().min().copied()
    }
}

/// A thread, as long as it lives.
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub fn new(threads: &Arc<AtomicUsize>) -> Counted {
        threads.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(threads))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::inbox::Inbox;
    use sexton_execute::{ExecuteError, JobOutcome};
    use sexton_inspect::facts::ProcessId;

    fn task(script: &str) -> ThrottleTask {
        ThrottleTask {
            process: ProcessId { pid: 1, start_time_ticks: 1 },
            value: "7".into(),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            get: None,
            only_from: None,
            user: None,
            time_limit: Duration::from_secs(60),
        }
    }

    fn ended(inbox: &mut Inbox) -> (u64, Result<JobOutcome, ExecuteError>) {
        loop {
            match inbox.take() {
                Some(Event::Commanded { number, result }) => return (number, result),
                Some(other) => panic!("{other:?}"),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    #[test]
    fn each_runs_by_itself_and_its_end_is_an_event() {
        let (mut inbox, post) = Inbox::new().unwrap();
        let mut commands = Commands::new(post);
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate");
        let waits = format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display());
        let slow = commands.start(task(&waits)).unwrap();
        let fast = commands.start(task("exit 3")).unwrap();
        let (number, result) = ended(&mut inbox);
        assert_eq!(number, fast);
        assert!(result.unwrap_err().to_string().contains("exit status: 3"));
        assert!(commands.end(fast) && !commands.end(fast));
        std::fs::write(&gate, "").unwrap();
        let (number, result) = ended(&mut inbox);
        assert_eq!(number, slow);
        assert!(result.is_ok() && commands.deadline().is_some());
    }

    #[test]
    fn what_takes_too_long_is_given_up_once() {
        let (mut inbox, post) = Inbox::new().unwrap();
        let mut commands = Commands::new(post);
        let number = commands.start(task("true")).unwrap();
        assert!(commands.expire(Instant::now()).is_empty());
        assert_eq!(commands.expire(commands.deadline().unwrap()), [number]);
        let (late, _) = ended(&mut inbox);
        assert!(late == number && !commands.end(late) && commands.deadline().is_none());
    }
}

//! Following the processes of the node: what the kernel tells of them, and whom to look into next.
//!
//! Where the kernel tells nothing, the sweep alone finds new targets.

use super::looks::{FIRST_LOOK_AFTER_EXEC, FIRST_LOOK_AFTER_FORK, Looks};
use sexton_inspect::facts::ProcessId;
use sexton_probe::{ProbeError, ProcessChange, ProcessEvents, wait_for};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use tracing::warn;

/// Events that come thick are taken together: a busy node wakes the agent twenty times a second, not at
/// each exec. No look is due before that, so nothing is late for it.
const EVENTS_PAUSE: Duration = Duration::from_millis(50);

/// What the events since the last time mean for the targets.
#[derive(Debug, Default)]
pub struct News {
    pub ended: Vec<ProcessId>,
    /// Processes that are another program now.
    pub replaced: Vec<ProcessId>,
}

/// The processes that are worth a look.
pub struct Follower {
    /// `None` where the kernel does not tell.
    events: Option<ProcessEvents>,
    looks: Looks,
    /// When events were taken last.
    taken: Instant,
    incomplete: bool,
}

impl Follower {
    /// Begins to listen. A kernel that does not tell is no error: it is said once, and the sweep remains.
    pub fn new() -> Follower {
        let events = ProcessEvents::load();
        if let Err(error) = &events {
            let help = error.remedy();
            warn!(%error, help, "processes that start or end are noticed by searching the node only");
        }
        Follower { events: events.ok(), looks: Looks::default(), taken: Instant::now(), incomplete: false }
    }

    /// Waits until something has happened, a look is due or `other` can be read, at most for `limit`.
    pub fn wait_beside(&mut self, other: BorrowedFd<'_>, limit: Duration) {
        let now = Instant::now();
        let until = self.looks.next_at().map_or(now + limit, |due| due.min(now + limit));
        let left = until.saturating_duration_since(now);
        let resting = (self.taken + EVENTS_PAUSE).saturating_duration_since(now);
        let waited = match &self.events {
            // Process events that come meanwhile are taken together.
            Some(events) if resting.is_zero() => wait_for(&[events.descriptor(), other], left),
            Some(_) => wait_for(&[other], left.min(resting)),
            None => wait_for(&[other], left),
        };
        if let Err(error) = waited {
            warn!(%error, "cannot wait for events");
            std::thread::sleep(left.min(EVENTS_PAUSE));
        }
    }

    /// What has happened since the last time to processes that are `wanted`.
    pub fn take(&mut self, wanted: impl Fn(u32) -> bool) -> News {
        let mut news = News::default();
        let Some(events) = &mut self.events else { return news };
        // What was lost was lost for want of room: then some are there.
        let taken = events.take().and_then(|taken| {
            let lost = if taken.is_empty() { 0 } else { events.take_lost()? };
            Ok((taken, lost))
        });
        let (taken, lost) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                self.give_up(&error);
                return news;
            }
        };
        let now = Instant::now();
        if !taken.is_empty() {
            self.taken = now;
        }
        self.incomplete |= lost > 0;
        for event in taken.into_iter().filter(|event| wanted(event.process.pid)) {
            let pid = event.process.pid;
            match event.change {
                ProcessChange::Exec => {
                    self.looks.begin(pid, now, FIRST_LOOK_AFTER_EXEC);
                    news.replaced.push(event.process);
                }
                ProcessChange::Fork => self.looks.begin(pid, now, FIRST_LOOK_AFTER_FORK),
                ProcessChange::Exit => {
                    self.looks.forget(pid);
                    news.ended.push(event.process);
                }
            }
        }
        news
    }

    /// Whether events were lost since the last time: only a search of the whole node tells what they were.
    pub fn take_incomplete(&mut self) -> bool {
        std::mem::take(&mut self.incomplete)
    }

    /// A process whose look is due.
    pub fn due(&mut self) -> Option<u32> {
        self.looks.take_due(Instant::now())
    }

    /// All is known of a process, or nothing will be.
    pub fn settled(&mut self, pid: u32) {
        self.looks.forget(pid);
    }

    /// A look that took so long found nothing.
    pub fn found_nothing(&mut self, took: Duration) {
        self.looks.pay(Instant::now(), took);
    }

    fn give_up(&mut self, error: &ProbeError) {
        warn!(%error, help = error.remedy(), "from now on processes are noticed by searching the node only");
        (self.events, self.incomplete) = (None, true);
    }
}

//! A target's probes are put in and taken away, and its totals are read, on a thread of their own: between
//! two requests of the session, however long these last.

use crate::inbox::{Event, Post};
use crate::worker::{Resident, Worker};
use sexton_inspect::facts::TargetId;
use sexton_probe::{Attached, Closed, ProbeError, Slot, Totals};
use std::sync::Arc;
use std::time::Duration;

/// Longest that putting probes in, taking them away or reading totals may take: some tens of milliseconds of
/// an idle processor.
pub const PROBES_LIMIT: Duration = Duration::from_secs(10);

/// A place in the kernel's tables, for as long as anybody may still use it.
pub type SlotLease = Arc<Slot>;

/// Owns nothing: each request brings what it needs.
pub struct Prober;

impl Resident for Prober {
    const WAKE_LIMIT: Duration = PROBES_LIMIT;

    fn wake_in(&self) -> Option<Duration> {
        None
    }

    fn wake(&mut self) {}
}

/// What has come of a request.
pub struct Probed {
    /// The target.
    pub target: TargetId,
    /// Of the thread.
    pub generation: u64,
    /// What was done.
    pub what: ProbeNews,
    /// Held until nothing of the request is left.
    pub lease: SlotLease,
}

/// What was done.
pub enum ProbeNews {
    /// The totals were read.
    Totals(Result<Totals, ProbeError>),
    /// All probes are in their places.
    Attached(Box<Result<InPlace, ProbeError>>),
    /// All probes were taken away.
    Closed(Result<Closed, ProbeError>),
}

/// A window that may open.
pub struct InPlace {
    /// From before the probes, where they were wanted.
    pub before: Option<Totals>,
    /// From after them.
    pub opening: Totals,
    pub attached: Attached,
}

impl std::fmt::Debug for Probed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Probed").field("target", &self.target).finish_non_exhaustive()
    }
}

/// Has something done to a target's probes; what comes of it is sent to `post`. `false`: not now.
pub fn ask(
    prober: &mut Worker<Prober>,
    (post, target, lease): (&Post, TargetId, &SlotLease),
    what: &'static str,
    work: impl FnOnce() -> ProbeNews + Send + 'static,
) -> bool {
    let (post, lease) = (post.clone(), Arc::clone(lease));
    let generation = prober.next_generation();
    prober.ask(what, PROBES_LIMIT, move |_| {
        let what = work();
        post.send(Event::Probed(Probed { target, generation, what, lease }));
    })
}

/// Lets go of what may have probes in a process, on a thread of its own: taking them away may block.
pub fn let_go(probes: impl Send + 'static) {
    // Each stands for a thread that was left behind and has come back, or for a process that has ended. Where
    // there can be no thread, nothing is left to be done but to wait.
    drop(std::thread::Builder::new().name("sexton-probes".to_owned()).spawn(move || drop(probes)));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::inbox::Inbox;
    use crate::worker::LeftBehind;
    use sexton_inspect::facts::{FileIdentity, ProcessId};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    #[test]
    fn a_place_is_held_until_nothing_of_a_request_is_left() {
        let (mut inbox, post) = Inbox::new().unwrap();
        let mut prober = Worker::new("test".to_owned(), LeftBehind::default(), |_| Prober);
        let module = FileIdentity { device_major: 0, device_minor: 0, inode: 1 };
        let target = TargetId { process: ProcessId { pid: 1, start_time_ticks: 1 }, module };
        let lease = SlotLease::new(7);
        let (release, held) = channel::<()>();
        let hangs = move || {
            held.recv().unwrap_or_default();
            ProbeNews::Closed(Err(ProbeError::NotWatched { slot: 7 }))
        };
        assert!(ask(&mut prober, (&post, target, &lease), "hanging", hangs));
        prober.abandon("it hangs");
        assert_eq!(Arc::strong_count(&lease), 2, "its thread may still use the place");
        drop(release);
        let deadline = Instant::now() + Duration::from_secs(60);
        let probed = loop {
            match inbox.take() {
                Some(Event::Probed(probed)) => break probed,
                _ => assert!(Instant::now() < deadline, "waited in vain"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(!prober.is_current(probed.generation), "it comes too late");
        drop(probed);
        while Arc::strong_count(&lease) > 1 {
            assert!(Instant::now() < deadline, "waited in vain");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

//! What the loop waits for: one queue that every worker sends to, and a descriptor that wakes whoever waits.

use crate::discovery::Looked;
use crate::session::{Answer, Probed};
use crate::signals::Sensed;
use sexton_execute::{ExecuteError, JobOutcome, Said};
use sexton_inspect::facts::TargetId;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// Something that has happened on another thread.
#[derive(Debug)]
pub enum Event {
    /// A process was looked into.
    Looked(Looked),
    /// The whole node was searched, and what that took.
    Swept(Duration),
    /// Something was done to a target's probes, or its totals were read.
    Probed(Probed),
    /// A target's worker has an answer.
    Answered {
        /// Whose.
        target: TargetId,
        /// Which of its threads.
        generation: u64,
        /// What.
        answer: Answer,
    },
    /// A target's signals were read.
    Sensed {
        /// Whose.
        target: TargetId,
        /// What.
        sensed: Sensed,
    },
    /// A command of the guards has said something.
    GuardSaid {
        /// Which.
        number: u64,
        /// What.
        said: Said,
    },
    /// Commands of the policy have ended.
    Commanded {
        /// Which.
        number: u64,
        /// How.
        result: Result<JobOutcome, ExecuteError>,
    },
}

/// Where events are sent to.
#[derive(Clone, Debug)]
pub struct Post {
    events: mpsc::Sender<Event>,
    bell: Arc<UnixStream>,
}

impl Post {
    /// Sends an event. Nobody waits for it where the loop has ended.
    pub fn send(&self, event: Event) {
        let _ = self.events.send(event);
        self.ring();
    }

    /// Wakes the loop: something waits for it elsewhere.
    pub fn ring(&self) {
        // A full pipe rings already.
        let _ = (&*self.bell).write(&[1]);
    }
}

/// Where events come in.
#[derive(Debug)]
pub struct Inbox {
    events: mpsc::Receiver<Event>,
    bell: UnixStream,
}

impl Inbox {
    /// Both ends.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn new() -> std::io::Result<(Inbox, Post)> {
        let (sender, events) = mpsc::channel();
        let (rings, bell) = UnixStream::pair()?;
        rings.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        Ok((Inbox { events, bell }, Post { events: sender, bell: Arc::new(rings) }))
    }

    /// Can be read as soon as there is an event.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The next event that is there.
    pub fn take(&mut self) -> Option<Event> {
        let event = self.events.try_recv().ok();
        if event.is_none() {
            // Silenced first, looked at again afterwards: nothing that came in between is missed.
            let mut rings = [0; 256];
            while matches!((&self.bell).read(&mut rings), Ok(count) if count > 0) {}
            return self.events.try_recv().ok();
        }
        event
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_event_arrives_and_the_bell_falls_silent() {
        let (mut inbox, post) = Inbox::new().unwrap();
        let is_ringing = |inbox: &Inbox| {
            let mut peeked = [0];
            rustix::net::recv(&inbox.bell, &mut peeked, rustix::net::RecvFlags::PEEK).is_ok()
        };
        assert!(inbox.take().is_none() && !is_ringing(&inbox));
        // More than the bell's buffer holds.
        let sent = 1_000_000u64;
        // A bell whose senders have all gone would ring for ever.
        let sending = post.clone();
        let sender = std::thread::spawn(move || {
            (0..sent).for_each(|ns| sending.send(Event::Swept(Duration::from_nanos(ns))))
        });
        sender.join().unwrap();
        assert!(is_ringing(&inbox));
        for expected in 0..sent {
            let Some(Event::Swept(took)) = inbox.take() else { unreachable!("event {expected} is missing") };
            assert_eq!(took, Duration::from_nanos(expected));
        }
        assert!(inbox.take().is_none() && !is_ringing(&inbox));
        drop(post);
    }
}

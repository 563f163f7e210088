//! Turns that come at a steady pace, for several threads to take.

use std::time::{Duration, Instant};

/// When the next turn is due: one for all threads that take turns.
#[derive(Debug)]
pub struct Turns {
    due: Instant,
    interval: Duration,
}

impl Turns {
    /// So many a second from `start` on; at least one.
    pub fn new(start: Instant, per_second: u64) -> Turns {
        Turns { due: start, interval: Duration::from_secs_f64(1.0 / per_second.max(1) as f64) }
    }

    /// Takes the next turn: when to start, and how many turns have passed with nobody free to take them.
    pub fn take(&mut self, now: Instant) -> (Instant, u64) {
        let mut missed = 0;
        while self.due + self.interval <= now {
            self.due += self.interval;
            missed += 1;
        }
        let turn = self.due;
        self.due += self.interval;
        (turn, missed)
    }
}

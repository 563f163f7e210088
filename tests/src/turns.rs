//! Turns that come at a steady pace, for several threads to take.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One schedule for all threads that take turns.
#[derive(Debug)]
pub struct Turns {
    /// When the next one is due.
    due: Mutex<Instant>,
    interval: Duration,
}

impl Turns {
    /// So many a second from `start` on; at least one.
    pub fn new(start: Instant, per_second: u64) -> Turns {
        Turns { due: Mutex::new(start), interval: Duration::from_secs_f64(1.0 / per_second.max(1) as f64) }
    }

    /// Takes the next turn and waits for it; gives how many turns have passed with nobody free to take them.
    pub fn wait(&self) -> u64 {
        let now = Instant::now();
        let (turn, missed) = self.take(now);
        std::thread::sleep(turn.saturating_duration_since(now));
        missed
    }

    fn take(&self, now: Instant) -> (Instant, u64) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missed = 0;
        while *due + self.interval <= now {
            *due += self.interval;
            missed += 1;
        }
        let turn = *due;
        *due += self.interval;
        (turn, missed)
    }
}

//! The wish to stop a compaction.

use std::time::{Duration, Instant};

/// How often a compaction that is to stop is cancelled anew: the first time the hook may have had no thread
/// for it.
const CANCEL_INTERVAL: Duration = Duration::from_secs(5);

/// A wish, and how far it has come.
pub struct Stop {
    pub reason: String,
    /// Since when its end is waited for.
    pub since: Instant,
    /// When the hook is asked the next time; `None`: it cannot.
    next_ask: Option<Instant>,
}

impl Stop {
    pub fn new(reason: String) -> Stop {
        let now = Instant::now();
        Stop { reason, since: now, next_ask: Some(now) }
    }

    /// Whether the hook is to be asked now; if so, the next time is later.
    pub fn is_to_be_asked(&mut self) -> bool {
        let is_due = self.next_ask.is_some_and(|next| next <= Instant::now());
        if is_due {
            self.next_ask = Some(Instant::now() + CANCEL_INTERVAL);
        }
        is_due
    }

    /// The hook cannot: it has until `deadline`, as it would have had anyway.
    pub fn cannot(&mut self, deadline: Instant) {
        (self.next_ask, self.since) = (None, self.since.max(deadline));
    }
}

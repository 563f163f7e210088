//! Ctrl-C as the wish to come to an end, for commands that run for a while and then print.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Notes SIGINT and SIGTERM, which no longer end the process from then on.
#[derive(Debug, Default)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to listen.
    pub fn listen() -> Result<Interrupt, Failure> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.raised)).map_err(|error| {
                let cause = format!("cannot listen for signals: {error}");
                Failure::new(cause, "see the system's message")
            })?;
        }
        Ok(interrupt)
    }

    /// Whether one of the signals has come.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }
}

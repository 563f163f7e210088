//! Ctrl-C as the wish to come to an end, for commands that run for a while and then print.

use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// Notes SIGINT and SIGTERM, which no longer end the process from then on.
#[derive(Debug)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system gives no thread or no descriptor for it.
    pub fn listen() -> Result<Interrupt, Failure> {
        let failure =
            |error| Failure::new(format!("cannot listen for signals: {error}"), "see the system's message");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failure)?;
        let (interrupt, terminate) = runtime
            .block_on(async { Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)) })
            .map_err(failure)?;
        let raised = Arc::new(AtomicBool::new(false));
        let note = Arc::clone(&raised);
        let body = move || {
            let (mut interrupt, mut terminate) = (interrupt, terminate);
            runtime.block_on(async {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            });
            note.store(true, Ordering::Relaxed);
        };
        std::thread::Builder::new().name("sexton-signals".into()).spawn(body).map_err(failure)?;
        Ok(Interrupt { raised })
    }

    /// Whether one of the signals has come.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }
}

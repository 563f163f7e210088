//! Ctrl-C: noted, so that the demo ends what it started before it ends itself.

use anyhow::{Result, ensure};
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP are only noted.
pub fn watch() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to an atomic and does nothing else, which is safe in a signal
        // handler; it has the signature that `signal` wants.
        let previous =
            unsafe { libc::signal(signal, note as extern "C" fn(libc::c_int) as libc::sighandler_t) };
        ensure!(previous != libc::SIG_ERR, "cannot handle signal {signal}");
    }
    Ok(())
}

/// Whether one of them has come.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Fails when one of them has come.
pub fn check() -> Result<()> {
    ensure!(!requested(), "interrupted");
    Ok(())
}

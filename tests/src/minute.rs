//! Periods of a schedule that are laid around the real time: they have whole minutes.

use anyhow::{Context, Result};
use std::time::{SystemTime, UNIX_EPOCH};

/// Minutes since the epoch of the first full minute that is at least so far away.
pub fn first_after(seconds: u64) -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
    Ok((now + seconds) / 60 + 1)
}

/// `HH:MM` in UTC of a minute since the epoch.
pub fn clock(minute: u64) -> String {
    format!("{:02}:{:02}", minute / 60 % 24, minute % 60)
}

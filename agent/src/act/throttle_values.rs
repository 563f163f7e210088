//! What is known of throttles' values, and what is being read.

use super::acting::StartedJob;
use sexton_journal::ThrottleKey;
use sexton_tuner::controller::Controller;
use sexton_tuner::throttle::{KnownThrottles, ThrottleSetting};
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Default)]
pub struct ThrottleValues {
    /// The values in force, as far as they are known.
    pub known: KnownThrottles,
    /// Of those that follow pressure, by target's name and their own.
    pub controllers: BTreeMap<(String, String), Controller>,
    /// When each of them was last set.
    pub set: BTreeMap<(String, String), Instant>,
    /// Those that are being read.
    pub reads: Vec<ThrottleRead>,
    /// Throttles that could not be read just now, and why.
    pub unread: BTreeMap<(String, String), String>,
}

/// A value that is being read.
pub struct ThrottleRead {
    pub job: StartedJob,
    pub asked: Instant,
    pub key: ThrottleKey,
    pub setting: ThrottleSetting,
}

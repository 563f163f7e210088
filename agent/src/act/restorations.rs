//! Settings that are being restored.

use crate::commands::Commands;
use crate::inbox::Post;
use sexton_tuner::run::ActionId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the agent's end may be put off by targets that do not answer: their hooks restore the options.
const OPTIONS_LIMIT: Duration = Duration::from_secs(10);

/// How long it may be put off by commands that restore throttles: a pod is given 30 seconds to end. What is
/// not restored by then is restored by the next agent.
const THROTTLES_LIMIT: Duration = Duration::from_secs(20);

pub struct Restorations {
    /// When the settings that are changed in targets were last looked after.
    pub tended: Option<Instant>,
    /// Actions whose options sessions are restoring, and since when.
    pub options: BTreeMap<ActionId, Instant>,
    /// Commands of the policy that run, and which action's throttle each restores.
    pub commands: Commands,
    pub throttles: BTreeMap<u64, ActionId>,
}

impl Restorations {
    /// Whose commands tell of their end there.
    pub fn new(post: Post) -> Restorations {
        Restorations {
            tended: None,
            options: BTreeMap::new(),
            commands: Commands::new(post),
            throttles: BTreeMap::new(),
        }
    }

    /// Whether any setting is being restored.
    pub fn are_any(&self) -> bool {
        !self.options.is_empty() || !self.throttles.is_empty()
    }

    /// Whether the agent's end, which has taken so long, is still put off.
    pub fn are_awaited(&self, since: Duration) -> bool {
        !self.options.is_empty() && since < OPTIONS_LIMIT
            || !self.throttles.is_empty() && since < THROTTLES_LIMIT
    }
}

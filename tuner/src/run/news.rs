//! What people are told of an action.

use crate::guard::GuardRefusal;

/// Something that people are told of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A guard has stopped it for now.
    Paused(GuardRefusal),
    /// It has ended.
    Ended,
    /// An earlier run of the agent was ended while it was under way, and nobody knows what came of it.
    Interrupted,
    /// Its process has ended meanwhile.
    TargetGone,
    /// What came of it was measured.
    Verified,
    /// It has not helped: its keys rest longer each time.
    BackedOff,
    /// A setting could not be changed, for the first time or for another reason than before.
    SettingFailed,
    /// A setting has another value now, and is restored some day.
    SettingChanged,
    /// A setting has not the agent's value any more.
    SettingRestored {
        /// Its value now, where that is known.
        value: Option<String>,
        /// Why, in words.
        reason: String,
    },
}

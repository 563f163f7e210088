//! An action and all that is known of it.

use super::claim::Claim;
use super::identity::{ActionId, DeviceId, Place, ProcessId};
use super::kind::ActionKind;
use super::moment::Moment;
use super::outcome::Outcome;
use super::state::{ActionState, SettingFailure};
use serde::{Deserialize, Serialize};

/// An action and all that is known of it. It is stored as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Its number.
    pub id: ActionId,
    /// What it does.
    pub kind: ActionKind,
    /// The process it is done to.
    pub process: ProcessId,
    /// The keys it is done to; `None` where these are none of a database.
    #[serde(default)]
    pub place: Option<Place>,
    /// The block device of the database.
    #[serde(default)]
    pub device: Option<DeviceId>,
    /// What it promises; `None` where nothing is measured afterwards.
    #[serde(default)]
    pub claim: Option<Claim>,
    /// When it began.
    pub started: Moment,
    /// Where it is in its life.
    pub state: ActionState,
    /// How often guards have stopped it.
    #[serde(default)]
    pub pauses: u32,
    /// Why a setting could not be changed, where it has not been since.
    #[serde(default)]
    pub failure: Option<SettingFailure>,
    /// Parts of it that have run through.
    #[serde(default)]
    pub parts_done: u32,
    /// Bytes of the SST files that its parts have replaced so far, as the executor counts them.
    #[serde(default)]
    pub bytes_replaced: u64,
    /// Bytes that its parts have written so far and that are in no file.
    #[serde(default)]
    pub bytes_transient: u64,
}

impl Action {
    /// An action of which nothing has happened yet, done to no keys and promising nothing.
    pub fn planned(id: ActionId, kind: ActionKind, process: ProcessId, now: Moment) -> Action {
        Action {
            id,
            kind,
            process,
            place: None,
            device: None,
            claim: None,
            started: now,
            state: ActionState::Planned,
            pauses: 0,
            failure: None,
            parts_done: 0,
            bytes_replaced: 0,
            bytes_transient: 0,
        }
    }

    /// How often in a row a setting could not be changed.
    pub fn failures(&self) -> u32 {
        self.failure.as_ref().map_or(0, |failure| failure.retry.failures_in_a_row)
    }

    /// Whether a measurement of what came of it is owed.
    pub fn awaits_verification(&self) -> bool {
        self.claim.is_some() && matches!(&self.state, ActionState::Done(end) if end.outcome == Outcome::Done)
    }

    /// Bytes that it may still write or has written and not paid for yet.
    pub fn reserved_bytes(&self) -> u64 {
        if self.state.is_open() { self.kind.cost_bytes().saturating_add(self.bytes_transient) } else { 0 }
    }
}

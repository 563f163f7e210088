//! An action that is wanted, and what it would be done to.

use super::claim::Claim;
use super::identity::{DeviceId, Place, ProcessId};
use super::kind::ActionKind;
use crate::policy::{Mode, RemedyKind};

/// An action that is wanted.
#[derive(Clone, Debug)]
pub struct Offer {
    /// What it does, at its price of now.
    pub kind: ActionKind,
    /// The process it is done to.
    pub process: ProcessId,
    /// What the policy allows there.
    pub mode: Mode,
    /// The keys it is done to.
    pub place: Option<Place>,
    /// The block device of the database.
    pub device: Option<DeviceId>,
    /// What it promises.
    pub claim: Option<Claim>,
}

/// What would be acted on.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The process.
    pub process: ProcessId,
    /// What the policy allows there.
    pub mode: Mode,
    /// The keys; `None` where these are none of a database.
    pub place: Option<&'a Place>,
    /// The block device of the database.
    pub device: Option<DeviceId>,
    /// In which way; `None` where it is no remedy.
    pub remedy: Option<RemedyKind>,
}

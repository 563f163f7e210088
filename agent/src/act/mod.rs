//! What is done to the targets: actions are begun, followed and ended, settings are restored.
//!
//! The actor owns the ledger, which decides, and the journal, to which it writes. It carries out the ledger's
//! effects in the targets' sessions, and what these answer goes back to the ledger as events. It knows the
//! targets by the observer, which each call is given; nothing here waits.

mod acting;
mod begin;
mod carry;
mod consents;
mod family_readings;
mod follow;
mod guards;
mod inquire;
mod inquiry;
mod job_end;
mod jobs;
mod place;
mod recovery;
mod restorations;
mod restoring;
mod settings;
mod tasks;
mod throttle_values;
mod throttles;
mod verify;

pub use follow::Cancelled;

use crate::inbox::Post;
use acting::Acting;
use consents::Consents;
use inquiry::Inquiry;
use restorations::Restorations;
use sexton_hook_protocol::limits::LEASE_RENEWAL_INTERVAL;
use sexton_inspect::process::is_alive;
use sexton_journal::{Journal, clock};
use sexton_tuner::policy::Policy;
use sexton_tuner::run::{self, ActionKind, Ledger};
use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use throttle_values::ThrottleValues;

/// How often what is under way is looked after: paused actions, and the time that passes for all.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

/// All actions, and what follows from them.
pub struct Actor {
    pub ledger: Ledger,
    pub journal: Journal,
    /// Where the policy came from, for what is shown.
    policy_path: Option<PathBuf>,
    throttles: ThrottleValues,
    restorations: Restorations,
    /// What is wanted and has not begun.
    queue: VecDeque<ActionKind>,
    /// What is asked before actions begin or go on.
    inquiries: Vec<Inquiry>,
    /// What the commands of the guards have said of what is wanted and under way.
    consents: Consents,
    /// Actions under way.
    acting: Vec<Acting>,
    /// When the ledger was last told that time has passed.
    ticked: Instant,
    /// Targets that nothing more is done to before the next plan.
    left_alone: HashSet<String>,
    /// The last number that was given to a job or an inquiry.
    last_number: u64,
    /// Whether what is shown of actions is another thing now.
    has_changed: bool,
    /// Whether an action has ended, and another one may begin.
    has_ended: bool,
}

impl Actor {
    /// An actor that knows of no action yet.
    pub fn new(journal: Journal, policy: &Policy, policy_path: Option<PathBuf>, post: Post) -> Actor {
        let (ledger, _) = Ledger::load(run::Stored::default(), policy, clock::now(), is_alive);
        Actor {
            ledger,
            journal,
            policy_path,
            throttles: ThrottleValues::default(),
            restorations: Restorations::new(post.clone()),
            queue: VecDeque::new(),
            inquiries: Vec::new(),
            consents: Consents::new(post),
            acting: Vec::new(),
            ticked: Instant::now(),
            left_alone: HashSet::new(),
            last_number: 0,
            has_changed: false,
            has_ended: false,
        }
    }

    /// Whether what is shown of actions has changed since the last time.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Whether something is under way that is looked after now and then.
    pub fn is_busy(&self) -> bool {
        !self.acting.is_empty()
            || !self.inquiries.is_empty()
            || self.restorations.are_any()
            || self.consents.are_any()
    }

    /// When something else is due.
    pub fn deadline(&self) -> Option<Instant> {
        let now = clock::now();
        let since_tick = self.ticked + FOLLOW_INTERVAL;
        let wake = self.ledger.next_wake(now).and_then(|wake| Instant::now().checked_add(now.until(&wake)));
        let wake = wake.map(|wake| wake.max(since_tick));
        let tended = self.restorations.tended.filter(|_| !self.ledger.settings().is_empty());
        let tended = tended.map(|tended| tended + LEASE_RENEWAL_INTERVAL);
        [self.restorations.commands.deadline(), wake, tended].into_iter().flatten().min()
    }
}

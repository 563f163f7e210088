//! What the agent would see of a workload's readers: windows that close when their budget is spent,
//! operations that are chosen for a record as the kernel chooses them, and the ledger that keeps the
//! records.

use super::description::Workload;
use super::operator::{TARGET, carry_out};
use super::play::{BEGINNING_UNIX_S, Player};
use super::turn::DATABASE;
use crate::facts::evidence::{Counters, EventCosts, Evidence, Observation, SentinelInterval, Window};
use crate::limits::attention::{Parted, Seen, wants_window};
use crate::limits::governor::{Allowance, Governor};
use crate::limits::sampling::{RECORDS_MANY, Sampling};
use crate::loss::ledger::PainLedger;
use crate::plan::CompactRange;
use crate::policy::{CoreShare, Policy, TimeSpan};
use crate::simulation::random::Random;
use jiff::Timestamp;

/// Most operations of a window that are walked, so that a description with absurd numbers ends.
const WALKS_MAX: u64 = 1_000_000;

/// What looking costs.
#[derive(Clone, Copy, Debug)]
pub struct Looking {
    pub budget: CoreShare,
    /// What a followed operation takes from its thread: the creation of its iterator, its positioning and its
    /// end.
    pub ns_per_operation: u64,
}

/// A workload that was played while nothing was done.
pub struct Watched<'w> {
    /// What the agent would know of the database.
    pub evidence: Evidence,
    player: Player<'w>,
}

/// Plays a workload, and looks at it.
pub fn watch<'w>(workload: &'w Workload, policy: &Policy, looking: Looking, seed: u64) -> Watched<'w> {
    let mut player = Player::new(workload, &policy.timing, seed);
    let interval = policy.timing.interval.max(TimeSpan::from_seconds(1));
    let interval_s = interval.duration().as_secs();
    let mut probes = Probes::new(looking);
    let mut evidence = Evidence::default();
    for turn in 1..=workload.duration.duration().as_secs() / interval_s {
        player.write(interval_s as f64, turn);
        // What readers of the interval have lost in truth is what the sentinel counts.
        let of_interval = player.read_as_evidence(interval_s as f64, turn);
        let at_s = turn * interval_s;
        probes.look(&mut player, policy, &of_interval.sentinel, (at_s, Random::of(!seed, turn)));
        evidence = Evidence { target: TARGET.to_owned(), database: DATABASE.to_owned(), ..of_interval };
    }
    evidence.window = probes.ledger.window();
    evidence.observations = probes.ledger.observations(DATABASE);
    player.tree.add_index_marks(&mut evidence);
    Watched { evidence, player }
}

impl Watched<'_> {
    /// What these compactions would come to, in truth: seconds a second that readers lose no more, and
    /// bytes read.
    pub fn relief_of<'c>(&self, compactions: impl IntoIterator<Item = &'c CompactRange>) -> (f64, u64) {
        let mut tree = self.player.tree.clone();
        let bytes = compactions.into_iter().map(|compact| carry_out(&mut tree, compact).read_bytes).sum();
        let (before, after) = (self.player.pain_of(&self.player.tree), self.player.pain_of(&tree));
        (before - after, bytes)
    }
}

/// The probes of the one target.
struct Probes {
    looking: Looking,
    governor: Governor,
    sampling: Sampling,
    ledger: PainLedger,
    last_window_s: Option<u64>,
}

impl Probes {
    fn new(looking: Looking) -> Probes {
        let governor = Governor::new(looking.budget, 0);
        let (sampling, ledger) = (Sampling::default(), PainLedger::default());
        Probes { looking, governor, sampling, ledger, last_window_s: None }
    }

    /// A window, where one is wanted and there is budget for it.
    fn look(
        &mut self,
        player: &mut Player<'_>,
        policy: &Policy,
        interval: &SentinelInterval,
        (at_s, mut random): (u64, Random),
    ) {
        self.governor.refill(at_s * 1_000_000_000);
        let since = self.last_window_s.map(|last_s| at_s.saturating_sub(last_s) * 1_000_000_000);
        let seen = Seen {
            interval,
            costs: EventCosts::default(),
            parted: Parted::default(),
            since_window_ns: since,
        };
        if !wants_window(seen, policy) {
            return;
        }
        let wanted_ns = policy.timing.window.nanoseconds();
        let Allowance::Window { length_ns, credit_ns } = self.governor.allowance(wanted_ns) else { return };
        let per_second: f64 = player.workload.readers.iter().map(|group| group.per_second).sum();
        if per_second <= 0.0 {
            return;
        }
        let in_time = (length_ns as f64 / 1e9 * per_second) as u64;
        let affordable = credit_ns.checked_div(self.looking.ns_per_operation).unwrap_or(u64::MAX);
        let operations = in_time.min(affordable).min(WALKS_MAX);
        let open_ns = (operations as f64 / per_second * 1e9) as u64;
        let cost_ns = operations * self.looking.ns_per_operation;
        self.governor.note_window(open_ns, cost_ns);
        self.governor.charge(cost_ns);
        self.last_window_s = Some(at_s);
        self.take_window(player, policy, (operations, open_ns), (at_s, &mut random));
    }

    /// Follows so many operations of the readers, each a random one of theirs.
    fn take_window(
        &mut self,
        player: &mut Player<'_>,
        policy: &Policy,
        (operations, open_ns): (u64, u64),
        (at_s, random): (u64, &mut Random),
    ) {
        let first = policy.thresholds.tombstones_per_operation;
        let mut window = Window { duration_ns: open_ns, operations, ..Window::default() };
        let mut records = Vec::new();
        let mut records_at_change = 0;
        for seen in player.operations(operations, random) {
            let total = seen.total();
            window.attributed = window.attributed.plus(total);
            let weight = self.sampling.scaled(first).checked_div(total.tombstones_skipped);
            // Without tombstones there is nothing to record.
            let Some(weight) = weight.map(|weight| weight.max(1)) else { continue };
            if random.between(0, weight) > 0 {
                continue;
            }
            records.push(Observation { weight, ..seen });
            if records.len() as u64 - records_at_change >= RECORDS_MANY {
                records_at_change = records.len() as u64;
                self.sampling.raise();
            }
        }
        self.sampling.note_window(records.len() as u64);
        window.operations_recorded = records.len() as u64;
        window.recorded = records.iter().map(Observation::weighted).fold(Counters::default(), Counters::plus);
        (window.followed, window.total) = (window.attributed, window.attributed);
        let now = BEGINNING_UNIX_S.saturating_add(i64::try_from(at_s).unwrap_or(i64::MAX));
        let now = Timestamp::from_second(now).unwrap_or(Timestamp::UNIX_EPOCH);
        self.ledger.take(&window, [(DATABASE, records.as_slice())], now);
    }
}

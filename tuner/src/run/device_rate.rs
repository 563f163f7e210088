//! How fast a block device works for compactions, learnt from those that it did.

use super::action::Action;
use super::identity::DeviceId;
use super::kind::ActionKind;
use super::ledger::Ledger;
use super::moment::Moment;
use super::outcome::Outcome;

/// Compactions that are looked at, newest first: devices do not change much, and their load does by the hour.
const COMPACTIONS_MAX: usize = 15;

/// Fewest of them. One can have waited for another compaction.
const COMPACTIONS_MIN: usize = 3;

/// Least bytes of one: with less it is the beginning and the end of a compaction that take the time.
const BYTES_MIN: u64 = 8 << 20;

/// Least seconds of one. What takes less was in the page cache, or its time is not known.
const SECONDS_MIN: f64 = 0.01;

impl Ledger {
    /// Bytes a second that a device reads and writes while one compaction is at work: the median of the last
    /// ones on it. `None` where there have been too few.
    pub fn device_bytes_per_second(&self, device: DeviceId, now: Moment) -> Option<f64> {
        // A device has its number until the node is started again.
        let on_device =
            self.actions().filter(|action| action.device == Some(device) && action.started.boot == now.boot);
        let mut rates: Vec<f64> = on_device.filter_map(rate).take(COMPACTIONS_MAX).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().filter(|_| rates.len() >= COMPACTIONS_MIN)
    }
}

/// Of one compaction that ran through without a pause.
fn rate(action: &Action) -> Option<f64> {
    let end = action.state.end().filter(|end| end.outcome == Outcome::Done && action.pauses == 0)?;
    let is_compaction = matches!(action.kind, ActionKind::Compact(_));
    let is_long = end.bytes_rewritten >= BYTES_MIN && end.duration_seconds >= SECONDS_MIN;
    // What is read is written again.
    (is_compaction && is_long).then(|| 2.0 * end.bytes_rewritten as f64 / end.duration_seconds)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::identity::{ActionId, ProcessId};
    use super::super::ledger::Stored;
    use super::super::state::ActionState;
    use super::*;
    use crate::cost::Bottommost;
    use crate::plan::CompactRange;
    use crate::plan::primitive::Primitive;
    use crate::policy::Policy;
    use crate::range::KeyRange;
    use crate::rank::RangeAssessment;

    const MIB: u64 = 1 << 20;

    fn moment(boot: u64) -> Moment {
        Moment { at: jiff::Timestamp::from_second(1_000).unwrap(), boot, since_boot_ns: 1 }
    }

    /// A compaction of so many MiB in so many seconds.
    fn compaction(id: u64, device: u64, mebibytes: u64, duration_seconds: f64) -> Action {
        let range = KeyRange::everything();
        let compact = CompactRange {
            target: "t".to_owned(),
            database: "/db".to_owned(),
            column_family: "default".to_owned(),
            before: Box::new(RangeAssessment::without_loss("t", "/db", "default", range.clone())),
            range,
            primitive: Primitive::CompactRange,
            bottommost: Bottommost::Default,
            cost_bytes: 0,
            largest_job_bytes: 0,
            linked_bytes: 0,
            relief_seconds_per_second: 0.0,
            deletions: 0,
            reason: String::new(),
        };
        let end = serde_json::json!({
            "at": moment(7),
            "outcome": "done",
            "message": "",
            "duration_seconds": duration_seconds,
            "bytes_rewritten": mebibytes * MIB,
        });
        Action {
            device: Some(DeviceId(device)),
            state: ActionState::Done(serde_json::from_value(end).unwrap()),
            ..Action::planned(ActionId(id), ActionKind::Compact(compact), ProcessId::default(), moment(7))
        }
    }

    fn learnt(actions: Vec<Action>, boot: u64) -> Option<f64> {
        let stored = Stored { actions, ..Stored::default() };
        let (ledger, _) = Ledger::load(stored, &Policy::default(), moment(7), |_| true);
        ledger.device_bytes_per_second(DeviceId(1), moment(boot)).map(|rate| rate / MIB as f64)
    }

    #[test]
    fn the_median_of_the_last_compactions_on_the_device() {
        let three = || vec![compaction(1, 1, 64, 1.0), compaction(2, 1, 64, 2.0), compaction(3, 1, 64, 64.0)];
        assert_eq!(learnt(three(), 7), Some(64.0));
        assert_eq!(learnt(three(), 8), None, "numbers of devices are those of another boot");
        let mut newer = three();
        newer.extend((4..20).map(|id| compaction(id, 1, 32, 1.0)));
        assert_eq!(learnt(newer, 7), Some(64.0));
        assert_eq!(learnt(three().split_off(1), 7), None, "too few");
    }

    #[test]
    fn small_stopped_and_other_ones_tell_nothing() {
        let known = |action: Action| {
            let others = (2..4).map(|id| compaction(id, 1, 64, 1.0));
            learnt(others.chain([action]).collect(), 7).is_some()
        };
        assert!(known(compaction(1, 1, 64, 1.0)));
        assert!(!known(compaction(1, 2, 64, 1.0)));
        assert!(!known(compaction(1, 1, 1, 1.0)));
        assert!(!known(compaction(1, 1, 64, 0.0)));
        assert!(!known(Action { pauses: 1, ..compaction(1, 1, 64, 1.0) }));
        let mut stopped = compaction(1, 1, 64, 1.0);
        if let ActionState::Done(end) = &mut stopped.state {
            end.outcome = Outcome::Cancelled;
        }
        assert!(!known(stopped));
    }
}

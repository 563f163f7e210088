//! A moment by two clocks.
//!
//! The wall clock is what people read, and what survives a restart of the node. It can be set. The time since
//! boot can not: between two moments of one boot it alone says how much time has passed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When something happened, or when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// By the wall clock.
    pub at: Timestamp,
    /// Which boot of the node; 0 is an unknown one.
    #[serde(default)]
    pub boot: u64,
    /// Nanoseconds since that boot, time asleep included (`CLOCK_BOOTTIME`).
    #[serde(default)]
    pub since_boot_ns: u64,
}

impl Moment {
    /// A moment of which only the wall clock is known, as older records have it.
    pub fn of_wall_clock(at: Timestamp) -> Moment {
        Moment { at, boot: 0, since_boot_ns: 0 }
    }

    /// Time that has passed since `earlier`. Zero where that lies ahead, as after a clock was set back.
    pub fn since(&self, earlier: &Moment) -> Duration {
        if self.is_same_boot(earlier) {
            return Duration::from_nanos(self.since_boot_ns.saturating_sub(earlier.since_boot_ns));
        }
        let passed_ns = self.at.as_nanosecond() - earlier.at.as_nanosecond();
        Duration::from_nanos(u64::try_from(passed_ns.max(0)).unwrap_or(u64::MAX))
    }

    /// The moment that lies so much later, by both clocks.
    #[must_use]
    pub fn plus(&self, duration: Duration) -> Moment {
        let added_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let wall = Timestamp::from_nanosecond(self.at.as_nanosecond().saturating_add(i128::from(added_ns)));
        Moment {
            at: wall.unwrap_or(Timestamp::MAX),
            boot: self.boot,
            since_boot_ns: self.since_boot_ns.saturating_add(added_ns),
        }
    }

    /// Time left until a deadline.
    pub fn until(&self, deadline: &Moment) -> Duration {
        deadline.since(self)
    }

    /// The moment, but not later than `now`: a record from a clock that ran ahead counts as of now.
    #[must_use]
    pub fn not_after(self, now: &Moment) -> Moment {
        let is_ahead =
            if self.is_same_boot(now) { self.since_boot_ns > now.since_boot_ns } else { self.at > now.at };
        if is_ahead { *now } else { self }
    }

    /// Whether the time since boot says how far two moments are apart.
    pub fn is_same_boot(&self, other: &Moment) -> bool {
        self.boot != 0 && self.boot == other.boot
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn moment(wall_s: i64, boot: u64, since_boot_s: u64) -> Moment {
        Moment {
            at: Timestamp::from_second(wall_s).unwrap(),
            boot,
            since_boot_ns: since_boot_s * 1_000_000_000,
        }
    }

    #[test]
    fn a_clock_that_is_set_changes_nothing_within_a_boot() {
        let (began, set_ahead) = (moment(1_000, 7, 100), moment(9_000, 7, 103));
        assert_eq!(set_ahead.since(&began), Duration::from_secs(3));
        let set_back = moment(10, 7, 104);
        assert_eq!(set_back.since(&began), Duration::from_secs(4));
        assert!(!set_ahead.until(&began.plus(Duration::from_secs(4))).is_zero());
        assert!(set_back.until(&began.plus(Duration::from_secs(4))).is_zero());
    }

    #[test]
    fn between_two_boots_the_wall_clock_counts() {
        let (earlier, later) = (moment(1_000, 7, 5_000), moment(1_060, 8, 3));
        assert_eq!(later.since(&earlier), Duration::from_secs(60));
        assert_eq!(earlier.since(&later), Duration::ZERO);
        assert_eq!(Moment::of_wall_clock(earlier.at).plus(Duration::from_secs(9)).at, moment(1_009, 0, 0).at);
    }

    #[test]
    fn what_lies_ahead_counts_as_of_now() {
        let now = moment(1_000, 7, 100);
        assert_eq!(moment(2_000, 6, 1).not_after(&now), now);
        assert_eq!(moment(2_000, 7, 99).not_after(&now), moment(2_000, 7, 99));
        assert_eq!(moment(999, 0, 0).not_after(&now), moment(999, 0, 0));
    }
}

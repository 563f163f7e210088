//! Bytes rewritten in the last 24 hours: a sum that forgets by the hour.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Hours that are remembered: the running one and 24 whole ones, so that nothing younger than a day is
/// forgotten.
const HOURS: usize = 25;

/// Hours that a clock may be behind an hour that it was in: one, where it was set back by less. What lies
/// farther ahead was noted by a clock that was wrong, and would count until that time comes.
const HOURS_AHEAD_MAX: i64 = 1;

/// Most bytes of one hour that are believed: 64 TiB, 18 GiB a second, are more than the disks of a node take.
const BYTES_PER_HOUR_MAX: u64 = 64 << 40;

/// Bytes by the hour in which they were rewritten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DailyBytes {
    /// Hour since the Unix epoch, and its bytes; the newest last.
    hours: Vec<(i64, u64)>,
}

impl DailyBytes {
    /// As much of it as can be believed: what an earlier agent has left may hold what it was told by a
    /// target, or hours of a clock that was wrong.
    pub fn believable(mut self, now: Timestamp) -> DailyBytes {
        self.hours.retain(|(_, bytes)| *bytes <= BYTES_PER_HOUR_MAX);
        self.forget(hour_of(now));
        self
    }

    /// Adds bytes that were rewritten now.
    pub fn add(&mut self, bytes: u64, now: Timestamp) {
        let hour = hour_of(now);
        self.forget(hour);
        match self.hours.iter_mut().find(|(known, _)| *known == hour) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => self.hours.push((hour, bytes)),
        }
    }

    /// Bytes rewritten in the last 24 hours, and in up to an hour more.
    pub fn sum(&self, now: Timestamp) -> u64 {
        let hour = hour_of(now);
        let young = self.hours.iter().filter(|(known, _)| is_young(*known, hour));
        young.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn forget(&mut self, now: i64) {
        self.hours.retain(|(hour, _)| is_young(*hour, now));
    }
}

fn hour_of(now: Timestamp) -> i64 {
    now.as_second().div_euclid(3600)
}

fn is_young(hour: i64, now: i64) -> bool {
    (-HOURS_AHEAD_MAX..HOURS as i64).contains(&now.saturating_sub(hour))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn bytes_are_forgotten_after_a_day() {
        let mut bytes = DailyBytes::default();
        bytes.add(5, at(0));
        bytes.add(7, at(86_399));
        assert_eq!(bytes.sum(at(86_400)), 12);
        assert_eq!(bytes.sum(at(86_400 + 3600)), 7);
        bytes.add(1, at(200_000));
        assert_eq!(bytes.sum(at(200_000)), 1);
    }

    /// What a target said once must not keep the node from acting, nor a clock that ran ahead.
    #[test]
    fn what_cannot_be_is_forgotten() {
        let mut bytes = DailyBytes::default();
        bytes.add(7, at(0));
        bytes.add(1 << 63, at(3600));
        let bytes = bytes.believable(at(3600));
        assert_eq!(bytes.sum(at(3600)), 7);

        let mut bytes = DailyBytes::default();
        bytes.add(5, at(90 * 86_400));
        bytes.add(7, at(3599));
        assert_eq!(bytes.sum(at(3599)), 7);
        // A clock that was set back by a little still counts what it has just written.
        bytes.add(3, at(3601));
        assert_eq!(bytes.sum(at(3599)), 10);
    }

    proptest! {
        #[test]
        fn nothing_of_the_last_day_is_missing(
            steps in proptest::collection::vec((0i64..20_000, 0u64..1000), 1..60),
        ) {
            let (mut bytes, mut now, mut all) = (DailyBytes::default(), 0, Vec::new());
            for (step, count) in steps {
                now += step;
                bytes.add(count, at(now));
                all.push((now, count));
                let within = |age: i64| -> u64 {
                    all.iter().filter(|(when, _)| now - when < age).map(|(_, count)| count).sum()
                };
                prop_assert!(bytes.sum(at(now)) >= within(86_400));
                prop_assert!(bytes.sum(at(now)) <= within(86_400 + 3600));
                prop_assert!(bytes.hours.len() <= HOURS);
            }
        }
    }
}

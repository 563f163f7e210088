//! Trying again what has failed: each pause is twice as long as the one before, up to a bound.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How long the pauses are, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// After the first failure.
    pub first_seconds: u32,
    /// And never longer than this.
    pub longest_seconds: u32,
}

impl BackOff {
    /// The pause after so many failures in a row, seconds.
    fn pause_seconds(self, failures_in_a_row: u32) -> u32 {
        let doublings = failures_in_a_row.saturating_sub(1);
        let factor = 1u32.checked_shl(doublings).filter(|_| failures_in_a_row > 0).unwrap_or(u32::MAX);
        self.first_seconds.saturating_mul(factor).min(self.longest_seconds)
    }
}

/// Failures in a row of one thing, and when it is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How often it has failed since it last succeeded.
    pub failures_in_a_row: u32,
    /// Not before this, seconds since the epoch.
    #[serde(default)]
    not_before_unix_s: Option<i64>,
}

impl Retry {
    /// Whether it may be tried now. A clock that was set back by more than the longest pause is believed and
    /// the pause is over: nobody waits for a day that has been before.
    pub fn may_try(&self, back_off: BackOff, now: Timestamp) -> bool {
        self.seconds_left(back_off, now) == 0
    }

    /// Until it may be tried, seconds.
    pub fn seconds_left(&self, back_off: BackOff, now: Timestamp) -> u32 {
        let Some(not_before) = self.not_before_unix_s else { return 0 };
        let left = u32::try_from(not_before.saturating_sub(now.as_second())).unwrap_or(0);
        if left > back_off.longest_seconds { 0 } else { left }
    }

    pub fn fail(&mut self, back_off: BackOff, now: Timestamp) {
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let pause = back_off.pause_seconds(self.failures_in_a_row);
        self.not_before_unix_s = Some(now.as_second().saturating_add(i64::from(pause)));
    }

    /// It has succeeded: what was before is forgotten.
    pub fn succeed(&mut self) {
        *self = Retry::default();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const BACK_OFF: BackOff = BackOff { first_seconds: 5, longest_seconds: 600 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_a_success_ends_them() {
        let mut retry = Retry::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            assert!(retry.may_try(BACK_OFF, at(now)));
            retry.fail(BACK_OFF, at(now));
            let pause = i64::from(retry.seconds_left(BACK_OFF, at(now)));
            assert!(!retry.may_try(BACK_OFF, at(now + pause - 1)));
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        retry.succeed();
        assert!(retry.may_try(BACK_OFF, at(0)));
        retry.fail(BACK_OFF, at(0));
        assert_eq!(retry.seconds_left(BACK_OFF, at(0)), 5);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_hold_it_up() {
        let mut retry = Retry::default();
        retry.fail(BACK_OFF, at(100_000));
        assert!(retry.may_try(BACK_OFF, at(0)));
        assert!(!retry.may_try(BACK_OFF, at(99_990)));
    }

    proptest! {
        /// A thing that always fails is tried no more often than once in the longest pause, but for the first
        /// few times.
        #[test]
        fn what_always_fails_is_tried_rarely(hours in 1i64..48, step in 1i64..30) {
            let mut retry = Retry::default();
            let mut tries = 0;
            for second in (0..hours * 3600).step_by(usize::try_from(step).unwrap()) {
                if retry.may_try(BACK_OFF, at(second)) {
                    tries += 1;
                    retry.fail(BACK_OFF, at(second));
                }
            }
            prop_assert!(tries <= 8 + hours * 6, "{} tries in {} hours", tries, hours);
        }
    }
}

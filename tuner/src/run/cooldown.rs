//! How long keys are left alone after an action on them: for the cooldown, longer where it did not help, and
//! until it is known what came of it.

use crate::evidence::PastAction;
use crate::plan::Rule;
use crate::policy::TimeSpan;
use crate::words;

/// After a compaction that did not help a range is left alone for twice the cooldown, taken as at least this
/// long, then four times, and so on.
const BACK_OFF_MIN: TimeSpan = TimeSpan::from_seconds(60);

/// But never longer than this: what pinned the tombstones goes away some day.
const BACK_OFF_MAX: TimeSpan = TimeSpan::from_seconds(7 * 86_400);

/// So long a range waits for what the last action on it came to. A window a minute has shown it by then;
/// where none could be opened, nothing will be known, and the range is acted on again as if it had helped.
const VERDICT_WAIT_MAX: TimeSpan = TimeSpan::from_seconds(15 * 60);

/// Why keys are left alone, and for how long still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resting {
    /// The cooldown, the back-off, or a verification that is owed.
    pub rule: Rule,
    /// In words, with the numbers.
    pub reason: String,
    /// Seconds that are left, at most.
    pub left_seconds: i64,
}

/// Whether enough time has passed since these earlier actions, and it is known what came of them. They are
/// those of the same remedy that share keys with what is to be acted on.
///
/// # Errors
/// Why not.
pub fn has_rested<'p>(
    past: impl Iterator<Item = &'p PastAction> + Clone,
    cooldown: TimeSpan,
    now_unix_s: i64,
) -> Result<(), Resting> {
    let rests = past.clone().map(|past| rest(past, cooldown, now_unix_s));
    let Some((left_seconds, ended_s_ago, failures)) = rests.filter(|rest| rest.0 > 0).max() else {
        return is_verified(past, now_unix_s);
    };
    let (ago, left) = (words::span(ended_s_ago), words::span(left_seconds));
    if ended_s_ago < seconds(cooldown) {
        let reason = format!("compacted {ago} ago, the cooldown of {cooldown} ends in {left}");
        return Err(Resting { rule: Rule::Cooldown, reason, left_seconds });
    }
    let times = if failures == 1 { "the last time".to_owned() } else { format!("{failures} times in a row") };
    let reason = format!("compacting it did not help {times} ({ago} ago), tried again in {left}");
    Err(Resting { rule: Rule::BackOff, reason, left_seconds })
}

/// Whether it is known what earlier actions came to: what is done before the verdict spoils the measurement,
/// and may be done for nothing once more.
fn is_verified<'p>(past: impl Iterator<Item = &'p PastAction>, now_unix_s: i64) -> Result<(), Resting> {
    let waiting = past.filter(|past| past.awaits_verdict).map(|past| ended_s_ago(past, now_unix_s));
    let wait_s = seconds(VERDICT_WAIT_MAX);
    match waiting.min().filter(|ago_s| *ago_s < wait_s) {
        None => Ok(()),
        Some(ago_s) => {
            let ago = words::span(ago_s);
            let reason = format!(
                "compacted {ago} ago, and what came of it is not measured yet: waits for that, at most \
                 {VERDICT_WAIT_MAX}"
            );
            Err(Resting { rule: Rule::Unverified, reason, left_seconds: wait_s - ago_s })
        }
    }
}

/// An end in the future is a clock that was set back: as if it had ended just now.
fn ended_s_ago(past: &PastAction, now_unix_s: i64) -> i64 {
    now_unix_s.saturating_sub(past.ended_unix_s).max(0)
}

/// Seconds that are left, seconds since the end of the action, and how often in a row it has not helped.
fn rest(past: &PastAction, cooldown: TimeSpan, now_unix_s: i64) -> (i64, i64, u32) {
    let ago_s = ended_s_ago(past, now_unix_s);
    let rest_s = match past.failures_in_a_row {
        0 => seconds(cooldown),
        failures => {
            let factor = 1i64.checked_shl(failures.min(32)).unwrap_or(i64::MAX);
            let longer = seconds(cooldown.max(BACK_OFF_MIN)).saturating_mul(factor);
            longer.min(seconds(BACK_OFF_MAX)).max(seconds(cooldown))
        }
    };
    (rest_s.saturating_sub(ago_s), ago_s, past.failures_in_a_row)
}

fn seconds(span: TimeSpan) -> i64 {
    i64::try_from(span.duration().as_secs()).unwrap_or(i64::MAX)
}

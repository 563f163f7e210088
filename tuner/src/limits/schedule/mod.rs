//! When the periods of a policy's schedule are open, and what holds then.

use crate::policy::{
    ByteRate, ByteSize, CalendarDate, GuardPolicy, IoBudget, Period, PeriodGuards, Policy, ThrottleSide,
};
use jiff::civil::{Date, Time};
use jiff::{Timestamp, ToSpan};

/// Most changes that [`changes`] lists: a year of a few periods a day.
const CHANGES_MAX: usize = 10_000;

/// Days without a change after which there is none any more: what opens once in eight years, on a leap day
/// around 2100, is not waited for, what opens in each leap year is.
const QUIET_DAYS_MAX: i32 = 4 * 366;

const SECONDS_OF_DAY: u64 = 86_400;

/// A period's opening and closing on one date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    opens: Timestamp,
    closes: Timestamp,
}

impl Period {
    /// Whether it is open on this node. Clock times are the time zone's: on the day the clocks change the
    /// period is an hour shorter or longer, and a time that does not exist that day is the one after the gap.
    pub fn is_open(&self, now: Timestamp, node: u64) -> bool {
        let today = now.to_zoned(self.time_zone.zone().clone()).date();
        let evenings = [today.yesterday().ok(), Some(today)];
        let spans = evenings.into_iter().flatten().filter_map(|date| self.span_of(date, node));
        spans.into_iter().any(|span| now >= span.opens && now < span.closes)
    }

    /// How long it is on a day on which the clocks do not change.
    pub(crate) fn length_seconds(&self) -> u64 {
        let second = |time: Time| u64::try_from(time.duration_since(Time::midnight()).as_secs()).unwrap_or(0);
        let (from, to) = (second(self.from.time()), second(self.to.time()));
        if to > from { to - from } else { to + SECONDS_OF_DAY - from }
    }

    /// When it opens or closes next, as far as that can be told.
    fn next_border(&self, now: Timestamp, node: u64) -> Option<Timestamp> {
        let yesterday = now.to_zoned(self.time_zone.zone().clone()).date().yesterday().ok()?;
        let dates = yesterday.series(1.day()).take(usize::try_from(QUIET_DAYS_MAX).unwrap_or(0));
        let mut spans = dates.filter_map(|date| self.span_of(date, node));
        spans.find_map(|span| [span.opens, span.closes].into_iter().find(|border| *border > now))
    }

    /// The span that begins on this date; `None` where none does.
    fn span_of(&self, date: Date, node: u64) -> Option<Span> {
        let is_of_week = match &self.days {
            Some(days) => days.iter().any(|day| day.weekday() == date.weekday()),
            None => self.dates.is_empty(),
        };
        let is_named = |dates: &[CalendarDate]| dates.iter().any(|named| named.date() == date);
        if !(is_of_week || is_named(&self.dates)) || is_named(&self.except) {
            return None;
        }
        let closing_date = if self.to > self.from { date } else { date.checked_add(1.day()).ok()? };
        let moment = |date: Date, time: Time| {
            date.to_datetime(time).to_zoned(self.time_zone.zone().clone()).ok().map(|zoned| zoned.timestamp())
        };
        let (opens, closes) = (moment(date, self.from.time())?, moment(closing_date, self.to.time())?);
        let delay = i64::try_from(self.delay_ns(date, node)).ok()?;
        let opens = opens.checked_add(jiff::SignedDuration::from_nanos(delay)).ok()?;
        (opens < closes).then_some(Span { opens, closes })
    }

    /// How much later than written it opens on a node on a date.
    fn delay_ns(&self, date: Date, node: u64) -> u64 {
        let day = i64::from(date.year()) * 400 + i64::from(date.day_of_year());
        let all = self.name.bytes().chain(node.to_le_bytes()).chain(day.to_le_bytes());
        // FNV-1a, and then the upper half, whose bits depend on all others.
        let hash = all.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let share = u128::from(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
        u64::try_from((u128::from(self.jitter.nanoseconds()) * share) >> 32).unwrap_or(0)
    }
}

impl Policy {
    /// The values that hold at `now` on this node.
    pub fn at(&self, now: Timestamp, node: u64) -> Policy {
        let open: Vec<&Period> = self.schedule.iter().filter(|period| period.is_open(now, node)).collect();
        let mut values = self.clone();
        values.open_periods = open.iter().map(|period| period.name.clone()).collect();
        if let Some(mode) = open.iter().find_map(|period| period.mode) {
            values.mode = mode;
            let own = values.targets.iter_mut().filter_map(|target| target.mode.as_mut());
            own.for_each(|own| *own = mode.min(*own));
        }
        if let Some(budget) = open.iter().find_map(|period| period.budget(&self.io_budget)) {
            values.io_budget = budget;
        }
        if let Some(pain) = open.iter().find_map(|period| period.pain) {
            values.thresholds.pain = pain;
        }
        if let Some(ranker) = open.iter().find_map(|period| period.ranker) {
            values.ranker = ranker;
        }
        // What is said first is to hold, so it is put in last.
        open.iter().rev().for_each(|period| period.guards.put_into(&mut values.guards));
        values
    }

    /// Which of their values throttles have, and why; of a policy as it holds at some time.
    pub fn throttle_side(&self) -> (ThrottleSide, String) {
        let is_open = |period: &&Period| self.open_periods.contains(&period.name);
        match self.schedule.iter().find(is_open) {
            None if self.schedule.is_empty() => (ThrottleSide::Outside, "there is no schedule".to_owned()),
            None => (ThrottleSide::Outside, "outside of the schedule's periods".to_owned()),
            Some(Period { name, from, to, time_zone, throttles, .. }) => {
                (*throttles, format!("in the period {name}, {from} to {to} {time_zone}"))
            }
        }
    }
}

impl Period {
    fn budget(&self, outside: &IoBudget) -> Option<IoBudget> {
        let times = |amount: u64, ratio: f64| ((amount as f64 * ratio) as u64).max(1);
        let multiple = |ratio: f64| IoBudget {
            rate: ByteRate::from_bytes_per_second(times(outside.rate.bytes_per_second(), ratio)),
            burst: ByteSize::from_bytes(times(outside.burst.bytes(), ratio)),
        };
        self.io_budget.clone().or_else(|| self.io_budget_ratio.map(multiple))
    }
}

impl PeriodGuards {
    fn put_into(&self, guards: &mut GuardPolicy) {
        fn put<T: Clone>(limit: &mut T, other: Option<&T>) {
            if let Some(other) = other {
                limit.clone_from(other);
            }
        }
        put(&mut guards.level0_slowdown_ratio_max, self.level0_slowdown_ratio_max.as_ref());
        put(&mut guards.pending_compaction_ratio_max, self.pending_compaction_ratio_max.as_ref());
        put(&mut guards.latency_ratio_max, self.latency_ratio_max.as_ref());
        put(&mut guards.latency_increase_min, self.latency_increase_min.as_ref());
        put(&mut guards.compactions_per_device_max, self.compactions_per_device_max.as_ref());
    }
}

/// From a moment on other values hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub at: Timestamp,
    /// Those values.
    pub policy: Policy,
}

/// The changes of the values after `from` and up to `until`, in order.
pub fn changes(policy: &Policy, from: Timestamp, until: Timestamp, node: u64) -> Vec<Change> {
    let mut found = Vec::new();
    let (mut now, mut holds) = (from, policy.at(from, node));
    while found.len() < CHANGES_MAX {
        let borders = policy.schedule.iter().filter_map(|period| period.next_border(now, node));
        let Some(border) = borders.min().filter(|border| *border <= until) else { break };
        let values = policy.at(border, node);
        if values != holds {
            found.push(Change { at: border, policy: values.clone() });
        }
        (now, holds) = (border, values);
    }
    found
}

#[cfg(test)]
mod tests;

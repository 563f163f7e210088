//! The part of a policy about days and hours in which other values hold. When a period is open, and what
//! holds then, is worked out in [`crate::limits::schedule`].

use super::clock::{CalendarDate, ClockTime, Day, TimeZoneName};
use super::{IoBudget, Mode, PainRate, RankerKind, TimeSpan, present};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Days and hours in which other values hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Period {
    /// Name, shown while it is open.
    pub name: String,
    /// Time zone of dates and clock times.
    pub time_zone: TimeZoneName,
    /// When it opens. Default: 00:00.
    #[serde(default = "midnight")]
    pub from: ClockTime,
    /// When it closes; not later than `from` means on the next day. Default: 00:00.
    #[serde(default = "midnight")]
    pub to: ClockTime,
    /// Days of the week on which it opens. Default: every day, unless there are `dates`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub days: Option<Vec<Day>>,
    /// Dates on which it opens, beside those days. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<CalendarDate>,
    /// Dates on which it does not open. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<CalendarDate>,
    /// It opens later by up to this time, on each node and day by another part of it, so that replicas do not
    /// begin together. Default: 0s.
    #[serde(default = "no_time", skip_serializing_if = "TimeSpan::is_zero")]
    pub jitter: TimeSpan,
    /// Mode while it is open, instead of the policy's; a target whose own mode does more has this
    /// one too. Default: no other mode.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Budget while it is open. Default: no other budget.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub io_budget: Option<IoBudget>,
    /// Budget while it is open, as a multiple of the policy's. Default: no other budget.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub io_budget_ratio: Option<f64>,
    /// Instead of the policy's `thresholds.pain`. Default: the policy's.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub pain: Option<PainRate>,
    /// By what jobs are ranked. Default: as the policy says.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub ranker: Option<RankerKind>,
    /// Guards that are other ones while it is open. Default: none.
    #[serde(default, skip_serializing_if = "PeriodGuards::is_empty")]
    pub guards: PeriodGuards,
    /// Which of their two values throttles have. Default: inside.
    #[serde(default)]
    pub throttles: ThrottleSide,
}

/// Guards of the policy that have other limits for some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PeriodGuards {
    /// Instead of the guard of this name.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub level0_slowdown_ratio_max: Option<f64>,
    /// Instead of the guard of this name.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub pending_compaction_ratio_max: Option<f64>,
    /// Instead of the guard of this name.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub latency_ratio_max: Option<f64>,
    /// Instead of the guard of this name.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub latency_increase_min: Option<TimeSpan>,
    /// Instead of the guard of this name.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub compactions_per_device_max: Option<u32>,
}

impl PeriodGuards {
    fn is_empty(&self) -> bool {
        *self == PeriodGuards::default()
    }
}

/// Which value a throttle has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleSide {
    /// The one inside of periods.
    #[default]
    Inside,
    /// The one outside of them.
    Outside,
}

fn no_time() -> TimeSpan {
    TimeSpan::from_seconds(0)
}

fn midnight() -> ClockTime {
    ClockTime::MIDNIGHT
}

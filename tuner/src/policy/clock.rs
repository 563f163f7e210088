//! Clock times, days and time zones, as they are written in a policy.
//!
//! Time zones come from the database that is compiled in: looking one up opens no file, so the same
//! policy means the same on every node.

use super::error::Complaint;
use super::written::{Written, shown, written};
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};

/// A time of day, written `"22:00"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockTime(Time);

impl ClockTime {
    /// 00:00.
    pub const MIDNIGHT: ClockTime = ClockTime(Time::midnight());

    /// As jiff's type.
    pub fn time(self) -> Time {
        self.0
    }
}

impl Written for ClockTime {
    const EXPECTED: &'static str = "a time of day such as \"22:00\" (00:00 to 23:59)";

    fn read(text: &str) -> Result<ClockTime, Complaint> {
        let complaint = || {
            Complaint::new(
                format!("{} is not a time of day", shown(text)),
                format!("write {}", Self::EXPECTED),
            )
        };
        let (hour, minute) = text.split_once(':').ok_or_else(complaint)?;
        let two_digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        if !two_digits(hour) || !two_digits(minute) {
            return Err(complaint());
        }
        let hour: i8 = hour.parse().map_err(|_| complaint())?;
        let minute: i8 = minute.parse().map_err(|_| complaint())?;
        Time::new(hour, minute, 0, 0).map(ClockTime).map_err(|_| complaint())
    }
}

impl std::fmt::Display for ClockTime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:02}:{:02}", self.0.hour(), self.0.minute())
    }
}

written!(ClockTime, "^([01][0-9]|2[0-3]):[0-5][0-9]$", "A time of day, 00:00 to 23:59.");

/// A date, written `2026-12-24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CalendarDate(Date);

impl CalendarDate {
    /// As jiff's type.
    pub fn date(self) -> Date {
        self.0
    }
}

impl Written for CalendarDate {
    const EXPECTED: &'static str = "a date such as 2026-12-24";

    fn read(text: &str) -> Result<CalendarDate, Complaint> {
        let complaint =
            || Complaint::new(format!("{} is not a date", shown(text)), format!("write {}", Self::EXPECTED));
        let is_plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let date = text.parse().ok().filter(|_| is_plain);
        date.map(CalendarDate).ok_or_else(complaint)
    }
}

impl std::fmt::Display for CalendarDate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

written!(CalendarDate, "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "A date, such as 2026-12-24.");

/// A time zone of the IANA database, written `Europe/Berlin`.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeZoneName {
    name: String,
    zone: TimeZone,
}

impl TimeZoneName {
    /// The zone's rules.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

impl Written for TimeZoneName {
    const EXPECTED: &'static str = "a time zone such as Europe/Berlin or UTC";

    fn read(text: &str) -> Result<TimeZoneName, Complaint> {
        let unknown = |_| {
            Complaint::new(
                format!("{} is not a time zone of the IANA database", shown(text)),
                format!("write {}", Self::EXPECTED),
            )
        };
        let zone = TimeZoneDatabase::bundled().get(text).map_err(unknown)?;
        Ok(TimeZoneName { name: text.to_owned(), zone })
    }
}

impl std::fmt::Display for TimeZoneName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.name)
    }
}

written!(TimeZoneName, "^[A-Za-z0-9_+/-]+$", "A time zone of the IANA database, such as Europe/Berlin.");

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

impl Day {
    /// As jiff's type.
    pub fn weekday(self) -> Weekday {
        match self {
            Day::Mon => Weekday::Monday,
            Day::Tue => Weekday::Tuesday,
            Day::Wed => Weekday::Wednesday,
            Day::Thu => Weekday::Thursday,
            Day::Fri => Weekday::Friday,
            Day::Sat => Weekday::Saturday,
            Day::Sun => Weekday::Sunday,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_times() {
        assert_eq!(ClockTime::read("22:05").map(|time| time.to_string()).ok().as_deref(), Some("22:05"));
        for wrong in ["24:00", "7:00", "22:60", "22", "", "22:00:00", "+1:00", "ab:cd"] {
            assert!(ClockTime::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(
            CalendarDate::read("2028-02-29").map(|date| date.to_string()).ok().as_deref(),
            Some("2028-02-29")
        );
        for wrong in ["2026-02-29", "2026-2-3", "20260203", "", "2026-12-24T00", "+026-12-24", "24.12.2026"] {
            assert!(CalendarDate::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn time_zones() {
        assert!(TimeZoneName::read("Europe/Berlin").is_ok());
        assert!(TimeZoneName::read("UTC").is_ok());
        for wrong in ["Europe/Berln", "", "../../etc/passwd", "\0"] {
            assert!(TimeZoneName::read(wrong).is_err(), "{wrong}");
        }
    }
}

//! Sizes, rates, spans of time, pain and shares of a core, as they are written in a policy: always with a unit.

use super::error::Complaint;
use super::written::{Written, number_and_unit, shown, written};
use std::time::Duration;

/// Units of size, greatest first. Only powers of two: "MB" means two different things to two people.
const SIZE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Units of time in nanoseconds, greatest first.
const TIME_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A size in bytes, written `64MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    /// This many bytes.
    pub const fn from_bytes(bytes: u64) -> ByteSize {
        ByteSize(bytes)
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Written for ByteSize {
    const EXPECTED: &'static str = "a size with its unit, such as 64MiB (B, KiB, MiB, GiB, TiB)";

    fn read(text: &str) -> Result<ByteSize, Complaint> {
        let (number, unit) = number_and_unit(text, Self::EXPECTED)?;
        scaled(text, number, unit, &SIZE_UNITS, Self::EXPECTED).map(ByteSize)
    }
}

impl std::fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_largest(formatter, self.0, &SIZE_UNITS, "")
    }
}

written!(ByteSize, "^[0-9]+(B|KiB|MiB|GiB|TiB)$", "A size with its unit: B, KiB, MiB, GiB or TiB.");

/// Bytes per second, written `16MiB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRate(u64);

impl ByteRate {
    /// This many bytes per second.
    pub const fn from_bytes_per_second(bytes: u64) -> ByteRate {
        ByteRate(bytes)
    }

    /// In bytes per second.
    pub const fn bytes_per_second(self) -> u64 {
        self.0
    }
}

impl Written for ByteRate {
    const EXPECTED: &'static str = "a rate with its unit, such as 16MiB/s (B/s, KiB/s, MiB/s, GiB/s, TiB/s)";

    fn read(text: &str) -> Result<ByteRate, Complaint> {
        let (number, unit) = number_and_unit(text, Self::EXPECTED)?;
        let unit = per_second(text, unit, Self::EXPECTED)?;
        scaled(text, number, unit, &SIZE_UNITS, Self::EXPECTED).map(ByteRate)
    }
}

impl std::fmt::Display for ByteRate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_largest(formatter, self.0, &SIZE_UNITS, "/s")
    }
}

written!(
    ByteRate,
    "^[0-9]+(B|KiB|MiB|GiB|TiB)/s$",
    "Bytes per second with the unit: B/s, KiB/s, MiB/s, GiB/s or TiB/s."
);

/// A span of time, written `10m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(u64);

impl TimeSpan {
    /// This many nanoseconds.
    pub const fn from_nanoseconds(nanoseconds: u64) -> TimeSpan {
        TimeSpan(nanoseconds)
    }

    /// This many seconds, at most some five hundred years.
    pub const fn from_seconds(seconds: u64) -> TimeSpan {
        TimeSpan(seconds.saturating_mul(1_000_000_000))
    }

    /// As the standard library's type.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// In nanoseconds.
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }
}

impl Written for TimeSpan {
    const EXPECTED: &'static str = "a span of time with its unit, such as 10m (ns, us, ms, s, m, h, d)";

    fn read(text: &str) -> Result<TimeSpan, Complaint> {
        let (number, unit) = number_and_unit(text, Self::EXPECTED)?;
        scaled(text, number, unit, &TIME_UNITS, Self::EXPECTED).map(TimeSpan)
    }
}

impl std::fmt::Display for TimeSpan {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_largest(formatter, self.0, &TIME_UNITS, "")
    }
}

written!(TimeSpan, "^[0-9]+(ns|us|ms|s|m|h|d)$", "A span of time with its unit: ns, us, ms, s, m, h or d.");

/// Reader time lost per second of wall clock, written `5ms/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PainRate(u64);

impl PainRate {
    /// This many nanoseconds lost per second.
    pub const fn from_nanoseconds_per_second(nanoseconds: u64) -> PainRate {
        PainRate(nanoseconds)
    }

    /// In seconds per second.
    pub fn seconds_per_second(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Written for PainRate {
    const EXPECTED: &'static str =
        "reader time lost per second with its unit, such as 5ms/s (ns/s, us/s, ms/s, s/s)";

    fn read(text: &str) -> Result<PainRate, Complaint> {
        let (number, unit) = number_and_unit(text, Self::EXPECTED)?;
        let unit = per_second(text, unit, Self::EXPECTED)?;
        let small = TIME_UNITS.get(3..).unwrap_or(&[]);
        scaled(text, number, unit, small, Self::EXPECTED).map(PainRate)
    }
}

impl std::fmt::Display for PainRate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_largest(formatter, self.0, TIME_UNITS.get(3..).unwrap_or(&[]), "/s")
    }
}

written!(PainRate, "^[0-9]+(ns|us|ms|s)/s$", "Reader time lost per second: ns/s, us/s, ms/s or s/s.");

/// A share of one processor core, written `1%` or `0.25%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoreShare(u32);

/// Parts per million of one percent.
const PARTS_PER_PERCENT: u32 = 10_000;

impl CoreShare {
    /// This many millionths of a core.
    pub const fn from_parts_per_million(parts: u32) -> CoreShare {
        CoreShare(parts)
    }

    /// In millionths of a core.
    pub const fn parts_per_million(self) -> u32 {
        self.0
    }

    /// As a ratio: 1 is a whole core.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl Written for CoreShare {
    const EXPECTED: &'static str = "a share of one processor core in percent, such as 1% or 0.25%";

    fn read(text: &str) -> Result<CoreShare, Complaint> {
        let complain = |message: &str| {
            Complaint::new(format!("{} {message}", shown(text)), format!("write {}", Self::EXPECTED))
        };
        let number = text.strip_suffix('%').ok_or_else(|| complain("has no percent sign"))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return Err(complain("is not a number of percent"));
        }
        // Four digits behind the point are millionths; `1.5` is read as `1.5000`.
        let millionths = format!("{fraction:0<4}");
        if millionths.len() > 4 {
            return Err(complain("has more than four digits behind the point"));
        }
        let parts = || {
            whole.parse::<u32>().ok()?.checked_mul(PARTS_PER_PERCENT)?.checked_add(millionths.parse().ok()?)
        };
        parts().map(CoreShare).ok_or_else(|| complain("is too large"))
    }
}

impl std::fmt::Display for CoreShare {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, millionths) = (self.0 / PARTS_PER_PERCENT, self.0 % PARTS_PER_PERCENT);
        if millionths == 0 {
            return write!(formatter, "{whole}%");
        }
        write!(formatter, "{whole}.{}%", format!("{millionths:04}").trim_end_matches('0'))
    }
}

written!(CoreShare, "^[0-9]+([.][0-9]{1,4})?%$", "A share of one processor core in percent.");

fn per_second<'t>(text: &str, unit: &'t str, expected: &str) -> Result<&'t str, Complaint> {
    unit.strip_suffix("/s").ok_or_else(|| {
        Complaint::new(format!("{} is not a rate: it lacks \"/s\"", shown(text)), format!("write {expected}"))
    })
}

fn scaled(
    text: &str,
    number: u64,
    unit: &str,
    units: &[(&str, u64)],
    expected: &str,
) -> Result<u64, Complaint> {
    let factor =
        units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(|| {
            // "64MB" and "64mib" get the unit that was most likely meant.
            let binary = unit.to_ascii_lowercase().replace('i', "");
            let meant = units.iter().find(|(name, _)| {
                let known = name.to_ascii_lowercase();
                known.replace('i', "") == binary
                    || (known.len() == 1 && !binary.is_empty() && unit.starts_with(name))
            });
            let help = match meant {
                Some((name, _)) if !unit.starts_with(' ') => {
                    let suffix = if text.ends_with("/s") { "/s" } else { "" };
                    format!("did you mean {number}{name}{suffix}? Write {expected}")
                }
                _ => format!("write {expected}"),
            };
            Complaint::new(format!("{} has an unknown unit, {}", shown(text), shown(unit)), help)
        })?;
    number
        .checked_mul(factor)
        .ok_or_else(|| Complaint::new(format!("{} is too large", shown(text)), format!("write {expected}")))
}

/// Writes `value` in the greatest unit that holds it without a fraction.
fn write_largest(
    formatter: &mut std::fmt::Formatter<'_>,
    value: u64,
    units: &[(&str, u64)],
    suffix: &str,
) -> std::fmt::Result {
    for (name, factor) in units {
        if value.is_multiple_of(*factor) && (value > 0 || *factor == 1) {
            return write!(formatter, "{}{name}{suffix}", value / factor);
        }
    }
    write!(formatter, "{value}{suffix}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn complaint<T: Written>(text: &str) -> String {
        T::read(text)
            .err()
            .map(|complaint| complaint.to_string().replace('\u{1f}', " | "))
            .unwrap_or_default()
    }

    #[test]
    fn reads_values_with_units() {
        assert_eq!(ByteSize::read("64MiB").ok().map(ByteSize::bytes), Some(64 << 20));
        assert_eq!(ByteRate::read("16MiB/s").ok().map(ByteRate::bytes_per_second), Some(16 << 20));
        assert_eq!(TimeSpan::read("10m").ok().map(TimeSpan::duration), Some(Duration::from_secs(600)));
        assert_eq!(PainRate::read("5ms/s").ok().map(PainRate::seconds_per_second), Some(0.005));
        let shares = [("1%", 10_000), ("0.25%", 2_500), ("0.0001%", 1), ("100%", 1_000_000), ("0%", 0)];
        for (text, parts) in shares {
            assert_eq!(CoreShare::read(text).ok().map(CoreShare::parts_per_million), Some(parts), "{text}");
        }
    }

    #[test]
    fn wrong_units_are_explained() {
        assert!(
            complaint::<ByteRate>("64MB/s").contains("did you mean 64MiB/s?"),
            "{}",
            complaint::<ByteRate>("64MB/s")
        );
        assert!(complaint::<ByteRate>("64MiB").contains("lacks"));
        assert!(complaint::<TimeSpan>("10 minuts").contains("unknown unit"));
        assert!(complaint::<TimeSpan>("10").contains("has no unit"));
        assert!(complaint::<TimeSpan>("-5s").contains("negative"));
        assert!(complaint::<TimeSpan>("").contains("whole number"));
        assert!(complaint::<PainRate>("0.005").contains("whole number"));
        assert!(complaint::<PainRate>("5m/s").contains("unknown unit"));
        assert!(complaint::<ByteSize>("99999999999TiB").contains("too large"));
        assert!(complaint::<ByteSize>("99999999999999999999999B").contains("too large"));
        assert!(complaint::<CoreShare>("1").contains("no percent sign"));
        assert!(complaint::<CoreShare>("1.%").contains("not a number"));
        assert!(complaint::<CoreShare>("-1%").contains("not a number"));
        assert!(complaint::<CoreShare>("1 %").contains("not a number"));
        assert!(complaint::<CoreShare>("0.00001%").contains("four digits"));
        assert!(complaint::<CoreShare>("99999999999%").contains("too large"));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value: u64) {
            prop_assert_eq!(ByteSize::read(&ByteSize(value).to_string()).ok(), Some(ByteSize(value)));
            prop_assert_eq!(ByteRate::read(&ByteRate(value).to_string()).ok(), Some(ByteRate(value)));
            prop_assert_eq!(TimeSpan::read(&TimeSpan(value).to_string()).ok(), Some(TimeSpan(value)));
            prop_assert_eq!(PainRate::read(&PainRate(value).to_string()).ok(), Some(PainRate(value)));
            let share = CoreShare(value as u32);
            prop_assert_eq!(CoreShare::read(&share.to_string()).ok(), Some(share));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = (ByteSize::read(&text).is_ok(), ByteRate::read(&text).is_ok());
            let _ = (TimeSpan::read(&text).is_ok(), PainRate::read(&text).is_ok());
            let _ = CoreShare::read(&text).is_ok();
        }
    }
}

//! Sizes, rates, spans of time, pain and shares of a core, as they are written in a policy: always with a
//! unit.
//!
//! Read here and not by a crate for sizes or durations: these take `64MB` for a thousand thousands, or for a
//! power of two, and either is wrong to somebody. Here it is an error that names the unit which was meant.

use super::error::Complaint;
use super::written::{Written, shown, written};
use serde::{Deserializer, de};
use std::time::Duration;

/// Names of units with how much each is, greatest first.
type Units = [(&'static str, u64)];

/// Only powers of two: "MB" means two different things to two people.
const SIZE_UNITS: &Units =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// In nanoseconds.
const TIME_UNITS: &Units = &[
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Of time that is lost in each second.
const LOST_TIME_UNITS: &Units = &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A type for a whole number of units, with `$suffix` behind the unit.
macro_rules! quantity {
    (
        $(#[$doc:meta])* $name:ident, $units:expr, $suffix:literal,
        $expected:literal, $pattern:literal, $description:literal
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(u64);

        impl Written for $name {
            const EXPECTED: &'static str = $expected;

            fn read(text: &str) -> Result<$name, Complaint> {
                read_quantity(text, $units, $suffix, Self::EXPECTED).map($name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write_largest(formatter, self.0, $units, $suffix)
            }
        }

        written!($name, $pattern, $description);
    };
}

quantity!(
    /// A size in bytes, written `64MiB`.
    ByteSize, SIZE_UNITS, "",
    "a size with its unit, such as 64MiB (B, KiB, MiB, GiB, TiB)",
    "^[0-9]+(B|KiB|MiB|GiB|TiB)$",
    "A size with its unit: B, KiB, MiB, GiB or TiB."
);

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

quantity!(
    /// Bytes per second, written `16MiB/s`.
    ByteRate, SIZE_UNITS, "/s",
    "a rate with its unit, such as 16MiB/s (B/s, KiB/s, MiB/s, GiB/s, TiB/s)",
    "^[0-9]+(B|KiB|MiB|GiB|TiB)/s$",
    "Bytes per second with the unit: B/s, KiB/s, MiB/s, GiB/s or TiB/s."
);

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

quantity!(
    /// A span of time, written `10m`.
    TimeSpan, TIME_UNITS, "",
    "a span of time with its unit, such as 10m (ns, us, ms, s, m, h, d)",
    "^[0-9]+(ns|us|ms|s|m|h|d)$",
    "A span of time with its unit: ns, us, ms, s, m, h or d."
);

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

    /// Whether it is no time at all.
    pub(super) const fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

quantity!(
    /// Reader time lost per second of wall clock, written `5ms/s`.
    PainRate, LOST_TIME_UNITS, "/s",
    "reader time lost per second with its unit, such as 5ms/s (ns/s, us/s, ms/s, s/s)",
    "^[0-9]+(ns|us|ms|s)/s$",
    "Reader time lost per second: ns/s, us/s, ms/s or s/s."
);

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

/// A number as it is, or a size in bytes with its unit: what a throttle sets is bytes, or milliseconds, or a
/// count, and Sexton does not know which.
pub(super) fn number_or_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    struct Number;

    impl de::Visitor<'_> for Number {
        type Value = f64;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("a number, or a size such as 2MiB (B, KiB, MiB, GiB, TiB)")
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<f64, E> {
            Ok(number)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<f64, E> {
            Ok(number as f64)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<f64, E> {
            Ok(number as f64)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<f64, E> {
            ByteSize::read(text).map(|size| size.bytes() as f64).map_err(E::custom)
        }
    }

    deserializer.deserialize_any(Number)
}

/// The schema of [`number_or_size`].
pub(super) fn number_or_size_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let (number, size) = (generator.subschema_for::<f64>(), generator.subschema_for::<ByteSize>());
    schemars::json_schema!({ "anyOf": [number, size] })
}

/// Reads `64MiB/s`: a whole number, a unit, and the suffix.
fn read_quantity(text: &str, units: &Units, suffix: &str, expected: &str) -> Result<u64, Complaint> {
    let complain = |message: String| Complaint::new(message, format!("write {expected}"));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(digits).unwrap_or(("", text));
    if number.is_empty() || rest.starts_with('.') {
        let what = if text.starts_with('-') { "is negative" } else { "does not begin with a whole number" };
        return Err(complain(format!("{} {what}", shown(text))));
    }
    let too_large = || complain(format!("{} is too large", shown(text)));
    let number: u64 = number.parse().map_err(|_| too_large())?;
    if rest.is_empty() {
        return Err(complain(format!("{} has no unit", shown(text))));
    }
    let lacking = || complain(format!("{} is not a rate: it lacks \"/s\"", shown(text)));
    let unit = rest.strip_suffix(suffix).ok_or_else(lacking)?;
    let factor =
        units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(|| {
            let help = match meant(unit, units) {
                Some(name) => format!("did you mean {number}{name}{suffix}? Write {expected}"),
                None => format!("write {expected}"),
            };
            Complaint::new(format!("{} has an unknown unit, {}", shown(text), shown(unit)), help)
        })?;
    number.checked_mul(factor).ok_or_else(too_large)
}

/// The unit that was most likely meant by `MB`, `mib` or `minutes`.
fn meant(unit: &str, units: &Units) -> Option<&'static str> {
    let binary = unit.to_ascii_lowercase().replace('i', "");
    let names = units.iter().map(|(name, _)| *name);
    names.filter(|_| !binary.is_empty() && !unit.starts_with(' ')).find(|name| {
        name.to_ascii_lowercase().replace('i', "") == binary || (name.len() == 1 && unit.starts_with(name))
    })
}

/// Writes `value` in the greatest unit that holds it without a fraction.
fn write_largest(
    formatter: &mut std::fmt::Formatter<'_>,
    value: u64,
    units: &Units,
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

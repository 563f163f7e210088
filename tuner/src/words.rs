//! Numbers, keys and ranges as people read them.

use crate::facts::key::{Key, KeyDisplay};
use crate::facts::range::KeyRange;

/// A reason that says so where the tombstones it goes by are an estimate.
pub(crate) fn with_estimate(reason: String, is_estimated: bool) -> String {
    if is_estimated { reason + "; its tombstones are an estimate" } else { reason }
}

/// `31.2 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, factor)| count >= *factor) {
        Some((unit, factor)) => format!("{:.1} {unit}", count as f64 / *factor as f64),
        None => format!("{count} B"),
    }
}

/// Seconds of reader time per second: `12.3 ms/s`.
pub fn pain(seconds_per_second: f64) -> String {
    format!("{}/s", seconds(seconds_per_second))
}

/// `12.3 ms`.
pub fn seconds(value: f64) -> String {
    let (number, unit) = match value.abs() {
        0.0 => return "0 s".to_owned(),
        size if size >= 1.0 => (value, "s"),
        size if size >= 1e-3 => (value * 1e3, "ms"),
        size if size >= 1e-6 => (value * 1e6, "µs"),
        _ => (value * 1e9, "ns"),
    };
    format!("{number:.1} {unit}")
}

/// A whole number with thousands separated: `49,999`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things per something: whole from ten on, else with one place.
pub fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 10.0 => count(value.round() as u64),
        value => format!("{value:.1}"),
    }
}

/// A share of one as `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A span of whole seconds: `2h 5m`, `45s`.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let mut shown: Vec<String> =
        parts.iter().filter(|(value, _)| *value > 0).map(|(value, unit)| format!("{value}{unit}")).collect();
    // Seconds beside hours are noise.
    shown.truncate(2);
    if shown.is_empty() { "0s".to_owned() } else { shown.join(" ") }
}

/// A key as the policy allows it to be shown.
pub fn key(key: &Key, display: KeyDisplay) -> String {
    match display {
        KeyDisplay::Redacted => key.redacted(),
        KeyDisplay::Shown => key.escaped(),
    }
}

/// A range as the policy allows it to be shown: `[begin .. end)`.
pub fn range(range: &KeyRange, display: KeyDisplay) -> String {
    let begin = if range.begin.is_empty() { "start".to_owned() } else { key(&range.begin, display) };
    let end = range.end.as_ref().map_or("end".to_owned(), |end| key(end, display));
    format!("[{begin} .. {end})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(33_000_000), "31.5 MiB");
        assert_eq!(pain(0.0123), "12.3 ms/s");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(number(2.25), "2.2");
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(span(7_505), "2h 5m");
        assert_eq!(span(-1), "0s");
    }

    #[test]
    fn keys_are_redacted_unless_the_policy_shows_them() {
        let secret = KeyRange::with_prefix(Key::new("/vol/secret/"));
        assert_eq!(range(&secret, KeyDisplay::Shown), "[/vol/secret/ .. /vol/secret0)");
        assert!(!range(&secret, KeyDisplay::Redacted).contains("secret"));
        assert_eq!(range(&KeyRange::everything(), KeyDisplay::Shown), "[start .. end)");
    }
}

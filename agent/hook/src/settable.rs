//! Which options may be set, and to what: whatever comes over the socket, no value does the host harm.
//!
//! RocksDB takes options that stop its writers, and some of its builds have assertions compiled in that end
//! the program for a value which does not fit another one. So the list is closed. They are
//! what Sexton has a use for.

use crate::changed::Change;
use sexton_hook_protocol::OptionChange;
use std::ffi::CString;

/// Longest number: digits before and behind a point, as OPTIONS files write them.
const NUMBER_BYTES_MAX: usize = 24;

/// An option that may be set.
struct Settable {
    name: &'static str,
    values: std::ops::RangeInclusive<f64>,
    /// Whether 0 is allowed as well, and switches it off.
    has_off: bool,
}

const SETTABLE: [Settable; 4] = [
    // Entries that a reader steps over before it seeks instead; every RocksDB has it.
    Settable { name: "max_sequential_skip_in_iterations", values: 1.0..=1e9, has_off: false },
    // With fewer than that nearly every scan would flush, and L0 files would stop the writers.
    Settable { name: "memtable_op_scan_flush_trigger", values: 100.0..=1e9, has_off: true },
    Settable { name: "min_tombstones_for_range_conversion", values: 2.0..=1e9, has_off: true },
    // Compactions per read; every read would bring about some with more.
    Settable { name: "read_triggered_compaction_threshold", values: 0.000_1..=0.1, has_off: true },
];

/// The change that is asked for, as RocksDB takes it, where its option may be set so and later be put back;
/// else why not.
pub fn change(asked: &OptionChange) -> Result<Change, String> {
    let Some(settable) = SETTABLE.iter().find(|known| known.name == asked.name) else {
        return Err(format!("{:?} is not among the options that the hook sets", asked.name));
    };
    Ok(Change {
        name: words(settable.name)?,
        value: settable.value(&asked.value)?,
        restore: asked.restore.as_ref().map(|restore| settable.value(restore)).transpose()?,
    })
}

fn words(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|error| format!("{text:?}: {error}"))
}

impl Settable {
    fn value(&self, value: &str) -> Result<CString, String> {
        if self.takes(value) {
            return words(value);
        }
        let (least, most) = (self.values.start(), self.values.end());
        Err(format!("{} is set to {least} to {most}, not to {value:?}", self.name))
    }

    /// Plain numbers only: RocksDB's own reading of others, with units and exponents, is nothing to rely on.
    fn takes(&self, value: &str) -> bool {
        let is_plain = (1..=NUMBER_BYTES_MAX).contains(&value.len())
            && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number = value.parse::<f64>().ok().filter(|_| is_plain);
        number.is_some_and(|number| self.values.contains(&number) || (self.has_off && number == 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str, restore: Option<&str>) -> Result<(), String> {
        let asked = OptionChange { name: name.into(), value: value.into(), restore: restore.map(Into::into) };
        change(&asked).map(|_| ())
    }

    /// With a trigger of 3 a RocksDB that has its assertions compiled in ended its program.
    #[test]
    fn options_that_can_stop_a_host_are_not_set() {
        for name in ["level0_slowdown_writes_trigger", "level0_stop_writes_trigger", "write_buffer_size", ""]
        {
            assert!(set(name, "33", None).is_err(), "{name}");
        }
        // An option of the database.
        assert!(set("max_background_jobs", "3", None).is_err());
    }

    #[test]
    fn values_are_plain_numbers_within_bounds() {
        let flush = "memtable_op_scan_flush_trigger";
        assert_eq!(set(flush, "1000", Some("0")), Ok(()));
        assert_eq!(set("read_triggered_compaction_threshold", "0.01", Some("0.000000")), Ok(()));
        for value in ["1", "99", "1e3", "1k", "-1", "", ".", "nan", "inf", "1000 ", "\u{661}000"] {
            assert!(set(flush, value, None).is_err(), "{value}");
            assert!(set(flush, "1000", Some(value)).is_err(), "{value}");
        }
        assert!(set("max_sequential_skip_in_iterations", "0", None).is_err());
    }
}

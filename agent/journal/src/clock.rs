//! The moment that it is now: the one place where the agent reads the clocks that its actions are timed by.

use rustix::time::{ClockId, clock_gettime};
use sexton_tuner::run::Moment;
use std::sync::OnceLock;

/// The moment that it is now.
pub fn now() -> Moment {
    static BOOT: OnceLock<u64> = OnceLock::new();
    let boot = *BOOT.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or(0, |id| boot_of(&id))
    });
    let passed = clock_gettime(ClockId::Boottime);
    let part = |part: i64| u64::try_from(part).unwrap_or_default();
    let since_boot_ns =
        part(passed.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(passed.tv_nsec));
    Moment { at: jiff::Timestamp::now(), boot, since_boot_ns }
}

/// A number for a boot: the first 64 bits of the kernel's random id of it. 0 is an unknown boot.
fn boot_of(id: &str) -> u64 {
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_within_one_boot() {
        let earlier = now();
        let later = now();
        assert!(earlier.boot == later.boot && earlier.since_boot_ns <= later.since_boot_ns);
        assert_eq!(boot_of("7f1c0000-0000-0000-0001-00000000000\n"), 0x7f1c_0000_0000_0000);
    }
}

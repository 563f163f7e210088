//! The kernel's files that say how busy a node is, as text and as numbers.

use std::collections::{BTreeMap, BTreeSet};

/// What a block device has done since it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Requests completed, reads and writes.
    pub requests: u64,
    /// Time that they took, added up, milliseconds.
    pub request_ms: u64,
    /// Time in which at least one was under way, milliseconds.
    pub busy_ms: u64,
}

/// What processors have done since the boot, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorCounters {
    pub busy: u64,
    pub all: u64,
}

/// Share of the last 10 seconds in which some task waited, of `/proc/pressure/*` and `*.pressure`.
pub fn pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = some.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    percent.parse::<f64>().ok().map(|percent| percent / 100.0)
}

/// The counters of a device in `/proc/diskstats`.
pub fn device(text: &str, (major, minor): (u32, u32)) -> Option<DeviceCounters> {
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let place = (number()?, number()?);
        if place != (u64::from(major), u64::from(minor)) {
            return None;
        }
        let fields: Vec<u64> = words.skip(1).map_while(|word| word.parse().ok()).collect();
        let field = |at: usize| fields.get(at).copied();
        Some(DeviceCounters {
            requests: field(0)?.saturating_add(field(4)?),
            request_ms: field(3)?.saturating_add(field(7)?),
            busy_ms: field(9)?,
        })
    };
    text.lines().find_map(of_line)
}

/// The counters of these processors in `/proc/stat`.
pub fn processors(text: &str, which: &BTreeSet<u32>) -> ProcessorCounters {
    let mut sum = ProcessorCounters::default();
    for line in text.lines() {
        let Some((name, counts)) = line.strip_prefix("cpu").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        if !name.parse().is_ok_and(|number: u32| which.contains(&number)) {
            continue;
        }
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
        let counts: Vec<u64> =
            counts.split_ascii_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let all = counts.iter().fold(0_u64, |all, count| all.saturating_add(*count));
        let idle = counts.iter().skip(3).take(2).fold(0_u64, |idle, count| idle.saturating_add(*count));
        sum.all = sum.all.saturating_add(all);
        sum.busy = sum.busy.saturating_add(all.saturating_sub(idle));
    }
    sum
}

/// The processors that a process may run on, of `/proc/PID/status`: `Cpus_allowed_list: 0-3,8`.
pub fn allowed_processors(text: &str) -> BTreeSet<u32> {
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.parse::<u32>().ok()?, last.parse::<u32>().ok()?))
    });
    /// No kernel has more processors.
    const PROCESSORS_MAX: u32 = 8192;
    ranges.flat_map(|(first, last)| first..=last.min(PROCESSORS_MAX)).collect()
}

/// What devices and processors have done by one moment.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub devices: BTreeMap<u64, DeviceCounters>,
    pub processors: ProcessorCounters,
}

impl Counted {
    /// Share of the time that the busiest device was busy.
    pub fn utilization(&self, before: &Counted, seconds: f64) -> Option<f64> {
        let busy = |(device, before): (&DeviceCounters, &DeviceCounters)| {
            (device.busy_ms.saturating_sub(before.busy_ms) as f64 / 1000.0 / seconds).clamp(0.0, 1.0)
        };
        self.both(before).map(busy).reduce(f64::max)
    }

    /// Mean time of a request to the slowest device, seconds; none where nobody has waited.
    pub fn latency_seconds(&self, before: &Counted) -> Option<f64> {
        let latency = |(device, before): (&DeviceCounters, &DeviceCounters)| {
            let requests = device.requests.saturating_sub(before.requests);
            let request_ms = device.request_ms.saturating_sub(before.request_ms);
            if requests == 0 { 0.0 } else { request_ms as f64 / 1000.0 / requests as f64 }
        };
        self.both(before).map(latency).reduce(f64::max)
    }

    /// Share of the time that processors were busy.
    pub fn processors_busy(&self, before: &Counted) -> Option<f64> {
        let all = self.processors.all.checked_sub(before.processors.all).filter(|all| *all > 0)?;
        let busy = self.processors.busy.saturating_sub(before.processors.busy);
        Some((busy as f64 / all as f64).clamp(0.0, 1.0))
    }

    fn both<'a>(
        &'a self,
        before: &'a Counted,
    ) -> impl Iterator<Item = (&'a DeviceCounters, &'a DeviceCounters)> {
        self.devices.iter().filter_map(|(device, counters)| Some((counters, before.devices.get(device)?)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_share_of_time_in_which_some_task_waited() {
        let text = "some avg10=12.50 avg60=1.00 avg300=0.10 total=99\nfull avg10=7.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(pressure(text), Some(0.125));
        assert_eq!(pressure("full avg10=7.00"), None);
    }

    #[test]
    fn a_device_is_busy_and_its_requests_take_time() {
        let text = |requests: u64| {
            format!(
                "   8       0 sda 9 9 9 9 9 9 9 9 9 9 9\n 259       1 nvme0n1p1 {} 0 80 {} {} 0 80 {} 0 {} 70 0 0 0 0\n",
                requests,
                requests * 2,
                requests,
                requests * 4,
                requests * 5
            )
        };
        let counted = |requests| {
            let device = device(&text(requests), (259, 1)).unwrap();
            Counted { devices: [(7, device)].into(), ..Counted::default() }
        };
        let (before, now) = (counted(100), counted(200));
        assert_eq!(now.utilization(&before, 1.0), Some(0.5));
        assert_eq!(now.utilization(&before, 0.1), Some(1.0));
        assert_eq!(now.latency_seconds(&before), Some(0.003));
        assert_eq!(before.latency_seconds(&before), Some(0.0));
        assert_eq!(device(&text(1), (259, 2)), None);
        assert_eq!(now.utilization(&Counted::default(), 1.0), None);
    }

    #[test]
    fn only_the_processors_count_that_a_process_may_run_on() {
        let text = |busy: u64| {
            format!(
                "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 {busy} 0 0 100 0 0 0 0 0 0\ncpu1 9 9 9 9 9 9 9 9 0 0\ncpu10 0 0 {busy} 50 50 0 0 0 7 7\nintr 1\n"
            )
        };
        let allowed = allowed_processors("Name:\tx\nCpus_allowed_list:\t0,8-11\n");
        assert_eq!(allowed.iter().copied().collect::<Vec<_>>(), [0, 8, 9, 10, 11]);
        let counted = |busy| Counted { processors: processors(&text(busy), &allowed), ..Counted::default() };
        let (before, now) = (counted(100), counted(200));
        assert_eq!(before.processors, ProcessorCounters { busy: 200, all: 400 });
        assert_eq!(now.processors_busy(&before), Some(1.0));
        assert_eq!(now.processors_busy(&now), None);
        assert!(allowed_processors("Cpus_allowed_list:\tx-y,3-1\n").is_empty());
    }
}

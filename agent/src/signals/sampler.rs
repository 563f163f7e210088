//! One reading of a target's signals.

use super::counters::{Counted, allowed_processors, device, pressure, processors};
use super::endpoint::Endpoints;
use sexton_tuner::policy::{SignalKind, SignalPolicy};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

/// Values by the signals' names; `Err`: why one cannot be read.
pub type SignalReadings = BTreeMap<String, Result<f64, String>>;

/// Bytes of a file that are read: `/proc/stat` and `/proc/diskstats` of a large machine have some hundred
/// KiB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where the unified hierarchy of control groups is.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What is read, and of whom.
pub struct Site {
    pub pid: u32,
    /// Path of its control group.
    pub cgroup: String,
    /// Devices of its databases, as `stat` numbers them.
    pub devices: Vec<u64>,
    pub signals: Vec<SignalPolicy>,
}

/// What the next reading goes on with.
#[derive(Default)]
pub struct Sampler {
    before: Option<(Instant, Counted)>,
    endpoints: Endpoints,
}

impl Sampler {
    /// Reads all signals. It may take as long as the endpoints do.
    pub fn read(&mut self, site: &Site) -> SignalReadings {
        self.endpoints.forget();
        let now = Instant::now();
        let counted = counted(site);
        let values = site.signals.iter().map(|signal| {
            let value = match signal.kind {
                SignalKind::NodeCpuPressure => node_pressure("cpu"),
                SignalKind::NodeIoPressure => node_pressure("io"),
                SignalKind::NodeMemoryPressure => node_pressure("memory"),
                SignalKind::CgroupCpuPressure => cgroup_pressure(&site.cgroup, "cpu"),
                SignalKind::CgroupIoPressure => cgroup_pressure(&site.cgroup, "io"),
                SignalKind::CgroupMemoryPressure => cgroup_pressure(&site.cgroup, "memory"),
                SignalKind::DeviceUtilization | SignalKind::DeviceLatency | SignalKind::CoreUtilization => {
                    self.share(signal.kind, &counted, now)
                }
                SignalKind::Metric => {
                    let endpoint = signal.endpoint.as_deref().unwrap_or_default();
                    self.endpoints.value(endpoint, signal.metric.as_deref().unwrap_or_default())
                }
                // Windows have seen them.
                SignalKind::SeekLatency | SignalKind::BlockReadLatency => Err(String::new()),
            };
            (signal.name.clone(), value)
        });
        let values = values.collect();
        self.before = counted.ok().map(|counted| (now, counted));
        values
    }

    /// Of the time since the last reading.
    fn share(
        &self,
        kind: SignalKind,
        counted: &Result<Counted, String>,
        now: Instant,
    ) -> Result<f64, String> {
        let counted = counted.as_ref().map_err(Clone::clone)?;
        let Some((at, before)) = &self.before else { return Err("it was read once only".to_owned()) };
        let seconds = now.saturating_duration_since(*at).as_secs_f64();
        let (value, why_not) = match kind {
            SignalKind::DeviceUtilization => (counted.utilization(before, seconds), NO_DEVICE),
            SignalKind::DeviceLatency => (counted.latency_seconds(before), NO_DEVICE),
            _ => (counted.processors_busy(before), "no time has passed on the processors that it may run on"),
        };
        value.ok_or_else(|| why_not.to_owned())
    }
}

/// Where a database's file system has no device of its own in `/proc/diskstats`: overlay, network, btrfs.
const NO_DEVICE: &str = "its databases lie on no block device that the kernel counts requests of";

/// What devices and processors have done by now, as far as the signals need it.
fn counted(site: &Site) -> Result<Counted, String> {
    let needs = |kinds: &[SignalKind]| site.signals.iter().any(|signal| kinds.contains(&signal.kind));
    let mut counted = Counted::default();
    if needs(&[SignalKind::DeviceUtilization, SignalKind::DeviceLatency]) {
        let text = read("/proc/diskstats")?;
        let numbers = |device: u64| (rustix::fs::major(device), rustix::fs::minor(device));
        let found = site.devices.iter().filter_map(|it| Some((*it, device(&text, numbers(*it))?)));
        counted.devices = found.collect();
    }
    if needs(&[SignalKind::CoreUtilization]) {
        let allowed = allowed_processors(&read(format!("/proc/{}/status", site.pid))?);
        counted.processors = processors(&read("/proc/stat")?, &allowed);
    }
    Ok(counted)
}

fn node_pressure(resource: &str) -> Result<f64, String> {
    pressure_in(Path::new("/proc/pressure").join(resource))
}

fn cgroup_pressure(cgroup: &str, resource: &str) -> Result<f64, String> {
    let path = Path::new(cgroup.trim_start_matches('/'));
    // A group above the agent's own root is shown as `/../..`.
    let is_below = path.components().all(|component| matches!(component, Component::Normal(_)));
    if cgroup.is_empty() || !is_below {
        return Err(format!("its control group cannot be seen from here: {cgroup:?}"));
    }
    pressure_in(Path::new(CGROUPS).join(path).join(format!("{resource}.pressure")))
}

fn pressure_in(path: PathBuf) -> Result<f64, String> {
    let text = read(&path)?;
    pressure(&text).ok_or_else(|| format!("{} says nothing of the last 10 seconds", path.display()))
}

fn read(path: impl AsRef<Path>) -> Result<String, String> {
    let path = path.as_ref();
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map(|_| text).map_err(|error| format!("{}: {error}", path.display()))
}

/// What a thread has read, and what the next one goes on with.
pub struct Sensed {
    pub sampler: Sampler,
    pub values: SignalReadings,
}

impl std::fmt::Debug for Sensed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.values.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    fn signals(kinds: &[&str]) -> Vec<SignalPolicy> {
        let signal = |kind: &&str| {
            let level = if kind.ends_with("latency") { ("1ms", "2ms") } else { ("1%", "2%") };
            let json = serde_json::json!({"name": kind, "kind": kind, "low": level.0, "high": level.1});
            serde_json::from_value(json).unwrap()
        };
        kinds.iter().map(signal).collect()
    }

    #[test]
    fn this_process_and_its_node_are_read() {
        let kinds = [
            "node_cpu_pressure",
            "node_io_pressure",
            "node_memory_pressure",
            "core_utilization",
            "cgroup_io_pressure",
        ];
        let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let cgroup = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned();
        let site = Site {
            pid: std::process::id(),
            cgroup: cgroup.clone(),
            devices: Vec::new(),
            signals: signals(&kinds),
        };
        let mut sampler = Sampler::default();
        assert!(sampler.read(&site)["core_utilization"].is_err(), "a share of no time");
        let began = Instant::now();
        let values = loop {
            let values = sampler.read(&site);
            // A tick of the processors' clocks has to pass.
            if values["core_utilization"].is_ok() || began.elapsed() > Duration::from_secs(60) {
                break values;
            }
        };
        for kind in &kinds[..4] {
            // Kernels without PSI have no such files.
            let is_there = !kind.starts_with("node") || Path::new("/proc/pressure/io").exists();
            let value = &values[*kind];
            assert_eq!(
                value.as_ref().is_ok_and(|value| (0.0..=1.0).contains(value)),
                is_there,
                "{kind}: {value:?}"
            );
        }
        let file = format!("/sys/fs/cgroup{cgroup}/io.pressure");
        let is_there = !cgroup.is_empty() && Path::new(&file).exists();
        assert_eq!(values["cgroup_io_pressure"].is_ok(), is_there, "{file}: {values:?}");
    }

    #[test]
    fn a_device_is_read_where_the_kernel_counts_its_requests() {
        let device = std::fs::metadata("/").unwrap().dev();
        let kinds = ["device_utilization", "device_latency"];
        let site = Site { pid: 1, cgroup: String::new(), devices: vec![device], signals: signals(&kinds) };
        let mut sampler = Sampler::default();
        sampler.read(&site);
        std::thread::sleep(Duration::from_millis(2));
        let values = sampler.read(&site);
        let place = format!("{:>4} {:>7} ", rustix::fs::major(device), rustix::fs::minor(device));
        let is_there =
            std::fs::read_to_string("/proc/diskstats").unwrap().lines().any(|line| line.starts_with(&place));
        for kind in kinds {
            let value = &values[kind];
            assert_eq!(value.as_ref().is_ok_and(|value| *value >= 0.0), is_there, "{kind}: {value:?}");
        }
        let none = Site { devices: Vec::new(), ..site };
        assert!(sampler.read(&none)["device_latency"].as_ref().unwrap_err().contains("no block device"));
    }

    #[test]
    fn a_group_above_the_agents_own_is_not_looked_for() {
        for cgroup in ["", "/../x", "/a/../../../proc"] {
            assert!(cgroup_pressure(cgroup, "io").unwrap_err().contains("cannot be seen"), "{cgroup}");
        }
    }
}

//! Memory and processor time of a process and its children, from `/proc`.

use anyhow::{Context, Result};
use sexton_tests::machine;
use sexton_tests::process::{children, processor_time_ns};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Nanoseconds of a clock tick in `/proc/PID/stat`: `USER_HZ` is 100 on x86-64.
const TICK_NS: u64 = 10_000_000;

/// A process and its children at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// What they share with each other or somebody else is divided by how many share it.
    pub resident_bytes: u64,
    /// Of that the children's.
    pub children_bytes: u64,
    /// Time on a processor, ended children included, nanoseconds.
    cpu_ns: u64,
    /// How often their threads gave up the processor by themselves: each is woken again.
    wakeups: u64,
}

impl Reading {
    /// Reads `/proc/PID`, and the same of its children.
    pub fn of(pid: u32) -> Result<Reading> {
        let mut reading = Reading::of_one(pid)?;
        for child in children(pid)? {
            // One that has ended meanwhile was short-lived: its time is in the agent's.
            let Ok(child) = Reading::of_one(child) else { continue };
            reading.resident_bytes += child.resident_bytes;
            reading.children_bytes += child.resident_bytes;
            reading.cpu_ns += child.cpu_ns;
            reading.wakeups += child.wakeups;
        }
        Ok(reading)
    }

    fn of_one(pid: u32) -> Result<Reading> {
        let process = Path::new("/proc").join(pid.to_string());
        let share = field(&read(&process.join("smaps_rollup"))?, "Pss:")?;
        let cpu_ns = children_ns(&read(&process.join("stat"))?)? + processor_time_ns(pid)?;
        let mut wakeups = 0;
        for task in std::fs::read_dir(process.join("task")).context("reading the agent's threads")? {
            // A thread that has ended meanwhile has taken its count along: the agent's threads do not end.
            let Ok(status) = read(&task?.path().join("status")) else { continue };
            wakeups += field(&status, "voluntary_ctxt_switches:")?;
        }
        Ok(Reading { resident_bytes: share * 1024, children_bytes: 0, cpu_ns, wakeups })
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The number behind `name` in a `status` file.
fn field(status: &str, name: &str) -> Result<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    value.and_then(|number| number.parse().ok()).with_context(|| format!("no {name} in {status}"))
}

/// Processor time of ended children in a `stat` file.
fn children_ns(stat: &str) -> Result<u64> {
    // The name in parentheses can hold anything; behind it, the first field is the third of all.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).context("no stat file")?;
    let fields: Vec<u64> = fields.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    let (user, system) = (fields.get(13), fields.get(14));
    Ok((user.context("no cutime")? + system.context("no cstime")?) * TICK_NS)
}

/// What was measured over a time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub resident_bytes: u64,
    pub children_bytes: u64,
    pub cpu_ratio: f64,
    wakeups_per_second: f64,
}

impl Sample {
    pub fn between(before: &Reading, after: &Reading, elapsed: Duration, resident_bytes: u64) -> Sample {
        let seconds = elapsed.as_secs_f64();
        Sample {
            resident_bytes,
            children_bytes: after.children_bytes,
            cpu_ratio: after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e9 / seconds,
            wakeups_per_second: after.wakeups.saturating_sub(before.wakeups) as f64 / seconds,
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:.1} MiB resident ({:.1} of them the listener's), {:.3} % of a core, {:.1} wakeups a second",
            self.resident_bytes as f64 / f64::from(1 << 20),
            self.children_bytes as f64 / f64::from(1 << 20),
            self.cpu_ratio * 100.0,
            self.wakeups_per_second
        )
    }
}

/// The machine, in one line.
pub fn node() -> Result<String> {
    let memory =
        field(&std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?, "MemTotal:")?;
    Ok(format!(
        "{} x {}, {:.0} GiB, Linux {}",
        std::thread::available_parallelism().map_or(0, usize::from),
        machine::processor(),
        memory as f64 / f64::from(1 << 20),
        machine::kernel_release()
    ))
}

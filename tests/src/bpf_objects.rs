//! The agent's BPF objects as the kernel lists them, through `bpftool`.

use crate::artifact;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What the names of the agent's programs begin with.
const NAME_PREFIX: &str = "sexton_";

/// Ids of the agent's programs, of the links to them and of the maps they use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BpfObjects {
    /// Programs whose name begins with `sexton_`.
    pub programs: BTreeSet<u64>,
    pub links: BTreeSet<u64>,
    /// Maps that these programs use.
    pub maps: BTreeSet<u64>,
}

impl BpfObjects {
    /// What there is now of agents that this process has started, and of agents that are gone: what a process
    /// that somebody else has started holds open is left out.
    pub fn now() -> Result<BpfObjects> {
        Ok(BpfObjects::of_all_agents()?.since(&BpfObjects::held_by_others()?))
    }

    fn of_all_agents() -> Result<BpfObjects> {
        let mut objects = BpfObjects::default();
        for program in list("prog")? {
            let named = program.get("name").and_then(Value::as_str).unwrap_or_default();
            if !named.starts_with(NAME_PREFIX) {
                continue;
            }
            objects.programs.extend(program.get("id").and_then(Value::as_u64));
            let maps = program.get("map_ids").and_then(Value::as_array);
            objects.maps.extend(maps.into_iter().flatten().filter_map(Value::as_u64));
        }
        for link in list("link")? {
            let program = link.get("prog_id").and_then(Value::as_u64);
            if program.is_some_and(|id| objects.programs.contains(&id)) {
                objects.links.extend(link.get("id").and_then(Value::as_u64));
            }
        }
        Ok(objects)
    }

    /// What descriptors of processes say that are not this one's descendants.
    fn held_by_others() -> Result<BpfObjects> {
        let mut objects = BpfObjects::default();
        for process in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if !is_descendant(pid) {
                objects.add_held_by(&process.path());
            }
        }
        Ok(objects)
    }

    /// A process, or a descriptor of it, that has gone meanwhile holds nothing.
    fn add_held_by(&mut self, process: &Path) {
        for descriptor in std::fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten() {
            let target = std::fs::read_link(process.join("fd").join(descriptor.file_name()));
            if !target.is_ok_and(|target| target.to_string_lossy().contains("bpf")) {
                continue;
            }
            let text = std::fs::read_to_string(descriptor.path()).unwrap_or_default();
            for (name, id) in text.lines().filter_map(|line| line.split_once(':')) {
                let Ok(id) = id.trim().parse() else { continue };
                match name {
                    "prog_id" => self.programs.insert(id),
                    "link_id" => self.links.insert(id),
                    "map_id" => self.maps.insert(id),
                    _ => false,
                };
            }
        }
    }

    /// What is in `self` and was not in `before`.
    pub fn since(&self, before: &BpfObjects) -> BpfObjects {
        BpfObjects {
            programs: &self.programs - &before.programs,
            links: &self.links - &before.links,
            maps: &self.maps - &before.maps,
        }
    }

    /// Waits until the kernel lists none of these any more; fails after `limit`. The kernel frees
    /// programs a grace period after the last descriptor is closed.
    pub fn wait_gone(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let left = BpfObjects {
                programs: &self.programs & &ids("prog")?,
                links: &self.links & &ids("link")?,
                maps: &self.maps & &ids("map")?,
            };
            if left == BpfObjects::default() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("still in the kernel after {limit:?}: {left:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn is_descendant(mut pid: u32) -> bool {
    let own = std::process::id();
    while pid > 1 && pid != own {
        pid = parent(pid).unwrap_or_default();
    }
    pid == own
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn ids(kind: &str) -> Result<BTreeSet<u64>> {
    Ok(list(kind)?.iter().filter_map(|object| object.get("id").and_then(Value::as_u64)).collect())
}

fn list(kind: &str) -> Result<Vec<Value>> {
    let bpftool = artifact::installed("bpftool", "bpftool")?;
    // bpftool walks the ids one by one and fails when an object vanishes under it.
    for _ in 0..3 {
        let output = Command::new(&bpftool).args(["--json", kind, "show"]).output();
        let output = output.context("starting bpftool")?;
        if output.status.success() {
            return parse(kind, &output.stdout);
        }
        ensure!(rustix::process::geteuid().is_root(), "these tests load BPF programs: run them as root");
    }
    bail!("`bpftool --json {kind} show` failed three times")
}

fn parse(kind: &str, output: &[u8]) -> Result<Vec<Value>> {
    let text = String::from_utf8_lossy(output);
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&text).with_context(|| format!("`bpftool {kind} show` printed no JSON list: {text}"))
}

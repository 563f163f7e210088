//! What we may do, and what keeps us from it.

use super::finding::Finding;
use rustix::process::Resource;
use rustix::thread::CapabilitySet;
use sexton_probe::{KernelFeatures, Mechanism};
use std::path::Path;

/// Inode of the first user namespace, fixed in the kernel (`PROC_USER_INIT_INO`).
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;
/// Inode of the first pid namespace (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// Locked memory that is enough for all maps on a kernel that counts them.
const LOCKED_BYTES_ENOUGH: u64 = 512 << 20;
/// Where kernels say how far they are locked down.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// What is known of our own process. `None` where it could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub capabilities: Option<CapabilitySet>,
    /// Whether we are in the machine's first user namespace: elsewhere capabilities mean nothing to BPF.
    pub is_in_first_user_namespace: Option<bool>,
    /// Whether we are in the machine's first pid namespace: elsewhere we see only our own processes.
    pub is_in_first_pid_namespace: Option<bool>,
    /// `none`, `integrity` or `confidentiality`; `none` on kernels without it.
    pub lockdown: Option<String>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i64>,
    /// `Seccomp` of `/proc/self/status`: 0 none, 1 strict, 2 a filter.
    pub seccomp: Option<u8>,
    /// The kernel's version of Landlock.
    pub landlock: Option<u32>,
    /// Memory that may be locked, bytes; `u64::MAX` where there is no limit.
    pub locked_bytes_max: u64,
}

impl Facts {
    pub fn of_ourselves() -> Facts {
        Facts {
            capabilities: rustix::thread::capabilities(None).ok().map(|sets| sets.effective),
            is_in_first_user_namespace: namespace("user").map(|inode| inode == FIRST_USER_NAMESPACE),
            is_in_first_pid_namespace: namespace("pid").map(|inode| inode == FIRST_PID_NAMESPACE),
            lockdown: lockdown(),
            perf_event_paranoid: read("/proc/sys/kernel/perf_event_paranoid")
                .and_then(|text| text.trim().parse().ok()),
            seccomp: read("/proc/self/status").and_then(|status| seccomp(&status)),
            landlock: sexton_sandbox::landlock_version(),
            locked_bytes_max: rustix::process::getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX),
        }
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn namespace(kind: &str) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/self/ns/{kind}")).ok().map(|data| data.ino())
}

fn lockdown() -> Option<String> {
    if Path::new("/sys/kernel/security").is_dir() && !Path::new(LOCKDOWN).exists() {
        return Some("none".to_owned());
    }
    chosen(&read(LOCKDOWN)?)
}

/// The word in brackets of `[none] integrity confidentiality`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn seccomp(status: &str) -> Option<u8> {
    status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?.trim().parse().ok()
}

/// What follows from them on a kernel with these features.
pub fn findings(facts: &Facts, features: &KernelFeatures) -> Vec<Finding> {
    let mut findings = capabilities(facts, features);
    findings.push(user_namespace(facts));
    findings.push(pid_namespace(facts));
    findings.push(lockdown_finding(facts));
    findings.push(perf_event_paranoid(facts, features));
    findings.push(seccomp_finding(facts));
    findings.push(landlock_finding(facts));
    findings.push(locked_memory(facts, features));
    findings
}

fn capabilities(facts: &Facts, features: &KernelFeatures) -> Vec<Finding> {
    let all = [
        (CapabilitySet::BPF, "CAP_BPF", "loads programs and maps", true),
        (CapabilitySet::PERFMON, "CAP_PERFMON", "programs read memory; probes are attached", true),
        (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE", "looks into other users' processes", true),
        (
            CapabilitySet::CHECKPOINT_RESTORE,
            "CAP_CHECKPOINT_RESTORE",
            "opens the very file that is mapped, deleted or not",
            false,
        ),
        (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "reads other users' database files", false),
        (
            CapabilitySet::SYS_ADMIN,
            "CAP_SYS_ADMIN",
            "only for perf uprobes, on kernels without uprobe-multi",
            needs_sys_admin(features),
        ),
    ];
    all.into_iter()
        // A right that is not needed is not missed.
        .filter(|(_, name, _, essential)| *name != "CAP_SYS_ADMIN" || *essential)
        .map(|(capability, name, note, essential)| {
            let finding = capability_finding(facts, capability, name, note);
            if essential { finding.essential() } else { finding }
        })
        .collect()
}

/// Only the older ways to place a probe need it.
fn needs_sys_admin(features: &KernelFeatures) -> bool {
    matches!(Mechanism::choose(features), Ok(Mechanism::PerfCookie | Mechanism::Perf))
}

fn capability_finding(facts: &Facts, capability: CapabilitySet, name: &str, note: &str) -> Finding {
    // The kernel takes CAP_SYS_ADMIN for these, as before they were split off from it.
    let split_off = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::CHECKPOINT_RESTORE;
    let remedy = format!("run sexton as root, or give it {name} (AmbientCapabilities= of a systemd unit)");
    match facts.capabilities {
        None => Finding::unknown(name, note, "our own capabilities cannot be read", remedy),
        Some(had) if had.contains(capability) => Finding::yes(name, note),
        Some(had) if split_off.contains(capability) && had.contains(CapabilitySet::SYS_ADMIN) => {
            Finding::yes(name, format!("{note} (by CAP_SYS_ADMIN)"))
        }
        Some(_) => Finding::no(name, note, "the process does not have it", remedy),
    }
}

fn user_namespace(facts: &Facts) -> Finding {
    let (name, note) = ("first user namespace", "capabilities hold for the whole machine");
    let remedy = "run sexton outside of user namespaces (rootless containers are in one)";
    match facts.is_in_first_user_namespace {
        Some(true) => Finding::yes(name, note),
        Some(false) => Finding::no(name, note, "we are in a user namespace of our own", remedy).essential(),
        None => Finding::unknown(name, note, "/proc/self/ns/user cannot be looked at", remedy),
    }
}

fn pid_namespace(facts: &Facts) -> Finding {
    let (name, note) = ("first pid namespace", "all processes of the machine are seen");
    let remedy = "start the container with the host's pid namespace (--pid=host, hostPID: true)";
    match facts.is_in_first_pid_namespace {
        Some(true) => Finding::yes(name, note),
        Some(false) => Finding::no(name, note, "only processes of our own pid namespace are seen", remedy),
        None => Finding::unknown(name, note, "/proc/self/ns/pid cannot be looked at", remedy),
    }
}

fn lockdown_finding(facts: &Facts) -> Finding {
    let (name, note) = ("no lockdown", "programs may read memory");
    let remedy = "boot without lockdown=confidentiality";
    match facts.lockdown.as_deref() {
        Some("none") => Finding::yes(name, note),
        // Integrity forbids writing only, and nothing of ours writes from the kernel.
        Some("integrity") => Finding::yes(name, format!("{note} (integrity only)")),
        Some(other) => {
            Finding::no(name, note, format!("the kernel is locked down: {other}"), remedy).essential()
        }
        None => Finding::unknown(name, note, format!("{LOCKDOWN} cannot be read"), remedy),
    }
}

fn perf_event_paranoid(facts: &Facts, features: &KernelFeatures) -> Finding {
    let (name, note) = ("perf events", "perf uprobes are opened");
    let has = |capability| facts.capabilities.is_some_and(|had| had.contains(capability));
    let remedy = "give sexton CAP_PERFMON, or CAP_SYS_ADMIN on kernels before 5.8";
    let level = facts.perf_event_paranoid.map_or_else(|| "?".to_owned(), |level| level.to_string());
    if has(CapabilitySet::PERFMON) || has(CapabilitySet::SYS_ADMIN) {
        return Finding::yes(name, format!("{note} (kernel.perf_event_paranoid={level} is passed over)"));
    }
    let finding = Finding::no(
        name,
        note,
        format!("kernel.perf_event_paranoid is {level} and we have no capability to pass over it"),
        remedy,
    );
    if needs_sys_admin(features) { finding.essential() } else { finding }
}

fn seccomp_finding(facts: &Facts) -> Finding {
    let (name, note) = ("no seccomp filter", "bpf() and perf_event_open() are let through");
    let remedy =
        "if programs cannot be loaded: allow bpf and perf_event_open in the container's seccomp profile";
    match facts.seccomp {
        Some(0) => Finding::yes(name, note),
        Some(_) => {
            Finding::unknown(name, note, "a filter is in force; what it lets pass shows above", remedy)
        }
        None => Finding::unknown(name, note, "/proc/self/status cannot be read", remedy),
    }
}

fn landlock_finding(facts: &Facts) -> Finding {
    let (name, note) = ("Landlock", "the process that reads databases can open nothing else");
    match facts.landlock {
        Some(_) => Finding::yes(name, note),
        None => Finding::no(
            name,
            note,
            "this kernel has no Landlock, or was booted without: a fault in RocksDB's code, met by a hostile file, \
             could read every file of the node",
            "boot with `lsm=landlock,...` (Linux 5.13 or newer)",
        ),
    }
}

fn locked_memory(facts: &Facts, features: &KernelFeatures) -> Finding {
    let (name, note) = ("locked memory", "room for maps");
    if !counts_locked_memory(&features.release) {
        return Finding::yes(name, format!("{note} (this kernel does not count maps as locked memory)"));
    }
    match facts.locked_bytes_max {
        u64::MAX => Finding::yes(name, format!("{note}, without a limit")),
        bytes if bytes >= LOCKED_BYTES_ENOUGH => Finding::yes(name, note),
        bytes => Finding::no(
            name,
            note,
            format!("before Linux 5.11 maps count as locked memory, and the limit is {bytes} bytes"),
            "raise it: LimitMEMLOCK=infinity, ulimit -l unlimited, or CAP_SYS_RESOURCE",
        ),
    }
}

/// Maps are charged to the memory control group since 5.11. A release that cannot be read is taken for a
/// newer one: the loading itself tells then.
fn counts_locked_memory(release: &str) -> bool {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut next = || numbers.next()?.parse::<u32>().ok();
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) < (5, 11))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::doctor::Answer;

    fn root() -> Facts {
        Facts {
            capabilities: Some(CapabilitySet::all()),
            is_in_first_user_namespace: Some(true),
            is_in_first_pid_namespace: Some(true),
            lockdown: Some("none".into()),
            perf_event_paranoid: Some(3),
            seccomp: Some(0),
            landlock: Some(6),
            locked_bytes_max: 64 << 10,
        }
    }

    fn features(release: &str) -> KernelFeatures {
        KernelFeatures { release: release.into(), ..KernelFeatures::probe() }
    }

    fn find<'a>(findings: &'a [Finding], name: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn root_on_a_new_kernel_lacks_nothing() {
        let findings = findings(&root(), &features("6.18.44"));
        assert!(findings.iter().all(|finding| finding.answer == Answer::Yes), "{findings:?}");
    }

    #[test]
    fn nobody_lacks_everything_and_is_told_what_to_do() {
        let nobody = Facts { capabilities: Some(CapabilitySet::empty()), ..root() };
        let findings = findings(&nobody, &features("6.18.44"));
        for name in ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"] {
            let finding = find(&findings, name);
            assert!(finding.is_obstacle() && finding.remedy.as_ref().unwrap().contains(name));
        }
        assert!(!find(&findings, "CAP_DAC_READ_SEARCH").is_obstacle());
        assert_eq!(find(&findings, "CAP_DAC_READ_SEARCH").answer, Answer::No);
    }

    #[test]
    fn cap_sys_admin_stands_for_what_was_split_off_from_it() {
        let admin = Facts { capabilities: Some(CapabilitySet::SYS_ADMIN), ..root() };
        let findings = findings(&admin, &features("6.18.44"));
        assert_eq!(find(&findings, "CAP_BPF").answer, Answer::Yes);
        assert_eq!(find(&findings, "CAP_SYS_PTRACE").answer, Answer::No);
    }

    #[test]
    fn old_kernels_count_maps_as_locked_memory() {
        let locked = |release| find(&findings(&root(), &features(release)), "locked memory").answer;
        assert_eq!(locked("5.10.0-35-cloud-amd64"), Answer::No);
        assert_eq!(locked("5.11.0"), Answer::Yes);
        assert_eq!(locked("linux"), Answer::Yes);
    }

    #[test]
    fn containers_and_locked_kernels_are_seen() {
        let inside = Facts {
            is_in_first_user_namespace: Some(false),
            is_in_first_pid_namespace: Some(false),
            lockdown: Some("confidentiality".into()),
            seccomp: Some(2),
            landlock: None,
            ..root()
        };
        let findings = findings(&inside, &features("6.18.44"));
        assert!(find(&findings, "first user namespace").is_obstacle());
        assert!(!find(&findings, "first pid namespace").is_obstacle());
        assert!(find(&findings, "no lockdown").is_obstacle());
        assert_eq!(find(&findings, "no seccomp filter").answer, Answer::Unknown);
        assert_eq!(find(&findings, "Landlock").answer, Answer::No);
        assert!(!find(&findings, "Landlock").is_obstacle());
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(chosen("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(chosen("nonsense"), None);
        assert_eq!(seccomp("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"), Some(2));
        assert!(Facts::of_ourselves().capabilities.is_some());
    }
}

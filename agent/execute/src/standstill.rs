//! Whether a process runs at all. One that is stopped, traced or frozen answers nothing, keeps whoever asks
//! it waiting, and does what it was asked for when nobody wants it any more: a JVM that gets its SIGQUIT then
//! prints a thread dump.

use std::path::Path;

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Why a process in an uninterruptible sleep does not answer.
const WAITS_FOR_DEVICE: &str = "its main thread waits for a device";

/// Bytes of a file in `/proc` or of a control group that are read: a few lines.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// What keeps the process from answering, in words; `None`: nothing, or that could not be read.
pub fn of(pid: u32) -> Option<&'static str> {
    held(pid).or_else(|| of_state(&read(Path::new(&format!("/proc/{pid}/stat")))?))
}

/// Who holds the whole process, in words; one that waits for a device goes on by itself.
pub fn held(pid: u32) -> Option<&'static str> {
    let stat = read(Path::new(&format!("/proc/{pid}/stat")))?;
    if let Some(why) = of_state(&stat).filter(|why| *why != WAITS_FOR_DEVICE) {
        return Some(why);
    }
    let cgroups = read(Path::new(&format!("/proc/{pid}/cgroup")))?;
    is_frozen(&cgroups, |path| read(&Path::new(CGROUPS).join(path))).then_some("its control group is frozen")
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// From `/proc/PID/stat`: the state stands behind the name, which may hold anything.
fn of_state(stat: &str) -> Option<&'static str> {
    let (_, rest) = stat.rsplit_once(')')?;
    match rest.trim_start().chars().next()? {
        'T' => Some("a signal has stopped it"),
        't' => Some("a debugger has stopped it"),
        'D' => Some(WAITS_FOR_DEVICE),
        _ => None,
    }
}

/// From `/proc/PID/cgroup`, with the files of control groups by their path below the mount: version 2 says it
/// in `cgroup.events`, for the groups above as well; the freezer of version 1 in `freezer.state`.
fn is_frozen(cgroups: &str, file: impl Fn(&str) -> Option<String>) -> bool {
    cgroups.lines().any(|line| {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            return false;
        };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            let says = |events: String| events.lines().any(|line| line == "frozen 1");
            // Where version 1 is mounted, too, version 2 has a directory below.
            let places = [format!("{path}/cgroup.events"), format!("unified/{path}/cgroup.events")];
            return places.iter().filter_map(|place| file(place)).any(says);
        }
        let is_freezer = controllers.split(',').any(|controller| controller == "freezer");
        let state = || file(&format!("freezer/{path}/freezer.state"));
        is_freezer && state().is_some_and(|state| state.trim() != "THAWED")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};

    #[test]
    fn a_process_that_is_stopped_stands_still_until_it_goes_on() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let wait_for = |wanted: Option<&str>| {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while of(child.id()) != wanted {
                assert!(std::time::Instant::now() < deadline, "it is {:?}", of(child.id()));
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        wait_for(None);
        kill_process(pid, Signal::STOP).unwrap();
        wait_for(Some("a signal has stopped it"));
        kill_process(pid, Signal::CONT).unwrap();
        wait_for(None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_state_stands_behind_the_name_whatever_that_is() {
        assert_eq!(of_state("12 (a) T (b) S 1 12"), None);
        assert_eq!(of_state("12 (java) t 1 12"), Some("a debugger has stopped it"));
        assert_eq!(of_state("12 (java) D 1 12"), Some("its main thread waits for a device"));
        assert_eq!(of_state(""), None);
    }

    #[test]
    fn a_frozen_control_group_is_known_in_both_versions() {
        let none = |_: &str| None;
        let frozen = |wanted: &'static str, content: &'static str| {
            move |path: &str| (path == wanted).then(|| content.to_owned())
        };
        let two = "0::/system.slice/om.service\n";
        let events = "system.slice/om.service/cgroup.events";
        assert!(is_frozen(two, frozen(events, "populated 1\nfrozen 1\n")));
        assert!(!is_frozen(two, frozen(events, "populated 1\nfrozen 0\n")));
        assert!(!is_frozen(two, none));
        let one = "5:cpu,cpuacct:/a\n4:freezer:/docker/x:y\n0::/\n";
        assert!(is_frozen(one, frozen("freezer/docker/x:y/freezer.state", "FROZEN\n")));
        assert!(is_frozen(one, frozen("freezer/docker/x:y/freezer.state", "FREEZING\n")));
        assert!(!is_frozen(one, frozen("freezer/docker/x:y/freezer.state", "THAWED\n")));
        assert!(is_frozen("0::/x\n", frozen("unified/x/cgroup.events", "frozen 1\n")));
        assert!(!is_frozen("nonsense\n:\n", none));
    }
}

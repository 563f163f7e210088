//! Running a command with limits: time, output, an end to all it started, and no capability.

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// First bytes that are kept of what a command prints, standard output and standard error each; the
/// rest is read and thrown away, so that the command never waits for us.
pub const OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// How often a running command is looked after.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Between asking a command to end (SIGTERM) and ending it (SIGKILL).
const TERMINATION_GRACE: Duration = Duration::from_secs(5);

/// How long to wait for the output after the command has ended: a child of its own that outlives it may
/// hold the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Ended(ExitStatus),
    /// Stopped because it was asked for.
    Cancelled,
    /// Stopped because its time was over.
    TimedOut,
}

/// What came of a command.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub ending: Ending,
    /// How long it ran.
    pub duration: Duration,
    /// What it printed, standard output first, cut.
    pub output: String,
}

/// What the service manager or root gave the agent is not for the policy's commands: whatever they are tricked into, they
/// may do what their user may do and no more. An `execve` by user 0 gives a process all of its bounding set, but never more
/// than it had where it may gain nothing; and it has nothing.
fn drop_capabilities() -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_no_new_privs(true)?;
    // Needs CAP_SETPCAP, which not every agent has; what stays in the bounding set cannot be gained.
    for capability in CapabilitySet::all().iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Runs `program` with `arguments`, without a shell and without input.
///
/// # Errors
/// When it cannot be started or watched.
pub fn run(
    program: &str,
    arguments: &[String],
    time_limit: Duration,
    cancelled: &AtomicBool,
) -> io::Result<Run> {
    let started = Instant::now();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    // SAFETY: between fork and exec the closure makes system calls about its own process; it allocates nothing and takes
    // no lock.
    unsafe { command.pre_exec(drop_capabilities) };
    let mut child = command.spawn()?;
    let outputs = [child.stdout.take().map(collect), child.stderr.take().map(collect)];
    let ending = watch(&mut child, started + time_limit, cancelled)?;
    let duration = started.elapsed();
    let wait_until = Instant::now() + OUTPUT_GRACE;
    let mut output = String::new();
    for bytes in outputs.into_iter().flatten() {
        let left = wait_until.saturating_duration_since(Instant::now());
        if let Ok(bytes) = bytes.recv_timeout(left) {
            output.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    Ok(Run { ending, duration, output })
}

fn watch(child: &mut Child, deadline: Instant, cancelled: &AtomicBool) -> io::Result<Ending> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ending::Ended(status));
        }
        if cancelled.load(Ordering::Relaxed) {
            stop(child)?;
            return Ok(Ending::Cancelled);
        }
        if Instant::now() >= deadline {
            stop(child)?;
            return Ok(Ending::TimedOut);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Ends the command and what it started. Its id is ours until `try_wait` has seen it end, so that no
/// other process group can be met.
fn stop(child: &mut Child) -> io::Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    signal(Signal::TERM);
    let deadline = Instant::now() + TERMINATION_GRACE;
    while Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
        if child.try_wait()?.is_some() {
            return Ok(());
        }
    }
    signal(Signal::KILL);
    child.wait().map(drop)
}

/// Reads a pipe to its end in a thread of its own; sends the first bytes.
fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let spawned = std::thread::Builder::new().name("sexton-output".to_owned()).spawn(move || {
        let mut kept = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count) = pipe.read(&mut buffer) {
            let room = OUTPUT_BYTES_MAX.saturating_sub(kept.len());
            kept.extend(buffer.iter().take(count.min(room)));
            if count == 0 {
                break;
            }
        }
        let _ = sender.send(kept);
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "the output of a command cannot be read");
    }
    receiver
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    const PLENTY: Duration = Duration::from_secs(60);

    fn shell(script: &str, time_limit: Duration, cancelled: bool) -> Run {
        run("/bin/sh", &["-c".into(), script.into()], time_limit, &AtomicBool::new(cancelled)).unwrap()
    }

    #[test]
    fn exit_code_and_both_outputs_are_kept() {
        let run = shell("echo out; echo err >&2; exit 3", PLENTY, false);
        assert!(matches!(run.ending, Ending::Ended(status) if status.code() == Some(3)));
        assert_eq!(run.output, "out\nerr\n");
    }

    /// As root this is what `execve` would give back if the command could gain anything.
    #[test]
    fn a_command_has_no_capability() {
        let sets = shell("grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status", PLENTY, false).output;
        let values: Vec<&str> = sets.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        let none = "0000000000000000";
        assert_eq!(values, [none, none, none, none, "1"], "{sets}");
    }

    #[test]
    fn a_flood_is_cut_and_never_blocks_the_command() {
        let run = shell("head -c 3000000 /dev/zero | tr '\\0' x; exit 0", PLENTY, false);
        assert!(matches!(run.ending, Ending::Ended(status) if status.success()));
        assert_eq!(run.output.len(), OUTPUT_BYTES_MAX);
    }

    #[test]
    fn the_time_limit_ends_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grandchild");
        let script = format!("sleep 300 & echo $! > {}; wait", file.display());
        let run = shell(&script, Duration::from_millis(300), false);
        assert_eq!(run.ending, Ending::TimedOut);
        assert!(run.duration < Duration::from_secs(30));
        let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let gone = || match procfs::process::Process::new(pid).and_then(|process| process.stat()) {
            Ok(stat) => stat.state == 'Z',
            Err(_) => true,
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        while !gone() {
            assert!(Instant::now() < deadline, "the grandchild lives on");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn cancelling_stops_it() {
        let run = shell("sleep 300", PLENTY, true);
        assert_eq!(run.ending, Ending::Cancelled);
    }

    #[test]
    fn a_child_that_outlives_the_command_is_not_waited_for() {
        let started = Instant::now();
        let run = shell("sleep 4 & echo done", PLENTY, false);
        assert!(matches!(run.ending, Ending::Ended(status) if status.success()));
        assert!(started.elapsed() < Duration::from_secs(3));
    }
}

//! HotSpot's attach protocol: asking a running JVM to load the hook library.
//!
//! A file `.attach_pidN` in the JVM's `/tmp` and a SIGQUIT make it open a socket `.java_pidN` there; one
//! request on it loads a library and calls its `Agent_OnAttach`. A SIGQUIT kills any program that does
//! not handle it, so it is sent only to a process that has `libjvm.so` mapped *and* a handler installed.

use super::error::ExecuteError;
use super::process::{Directory, TargetProcess, peer_pid};
use rustix::process::Signal;
use sexton_inspect::facts::ProcessId;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the JVM may take to open its socket: it does at its next safepoint, 70-270 ms as a rule,
/// seconds when it is busy collecting garbage.
const SOCKET_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long loading the library may take.
const LOAD_WAIT_MAX: Duration = Duration::from_secs(15);

/// How often the socket is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes of one argument of a request, a limit of HotSpot's.
const ARGUMENT_BYTES_MAX: usize = 1024;

/// Bytes of a reply that are read; ours is below a hundred, an error some lines.
const REPLY_BYTES_MAX: u64 = 64 * 1024;

/// Bytes of a reply that are shown.
const REPLY_BYTES_SHOWN: usize = 512;

/// Bytes of `/proc/PID/maps` and `cmdline` that are looked through.
const PROC_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Has the JVM load `library` (a path as the JVM sees it) and call `Agent_OnAttach` with `options`.
///
/// # Errors
/// [`ExecuteError::NotAttachable`] before anything is done, [`ExecuteError::Attach`] afterwards.
pub fn load(process: &TargetProcess, library: &Path, options: &str) -> Result<(), ExecuteError> {
    let fail = |reason: String| ExecuteError::Attach { pid: process.pid, reason };
    let library = library.to_str().ok_or_else(|| fail("the hook library's path is not UTF-8".to_owned()))?;
    for argument in [library, options] {
        if argument.len() > ARGUMENT_BYTES_MAX || argument.contains('\0') {
            return Err(fail(format!("an argument is longer than {ARGUMENT_BYTES_MAX} bytes")));
        }
    }
    check_attachable(process)?;
    let stream = connect(process)?;
    let reply = converse(&stream, library, options)
        .map_err(|error| fail(format!("the JVM did not answer the request: {error}")))?;
    check_reply(&reply).map_err(fail)
}

/// Whether a JVM would let itself be attached to, as far as that shows without trying.
///
/// # Errors
/// [`ExecuteError::NotAttachable`] with the reason, [`ExecuteError::Process`] without the rights to look.
pub fn check(process: &ProcessId) -> Result<(), ExecuteError> {
    check_attachable(&TargetProcess::open(process)?)
}

/// Refuses processes that would take harm or could never work.
pub(super) fn check_attachable(process: &TargetProcess) -> Result<(), ExecuteError> {
    let refuse = |reason| Err(ExecuteError::NotAttachable { pid: process.pid, reason });
    let read = |name: &str| {
        let mut bytes = Vec::new();
        std::fs::File::open(format!("/proc/{}/{name}", process.pid))
            .and_then(|file| file.take(PROC_BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|source| ExecuteError::Process { pid: process.pid, what: "look into /proc", source })?;
        Ok::<_, ExecuteError>(bytes)
    };
    if !maps_a_jvm(&read("maps")?) {
        return refuse("it is no JVM (libjvm.so is not mapped); a SIGQUIT would kill it");
    }
    let quit_bit = 1u64 << (Signal::QUIT.as_raw() - 1);
    if process.signals_caught & quit_bit == 0 {
        return refuse(
            "it does not handle SIGQUIT (started with -Xrs, or still starting); it would be killed",
        );
    }
    let switches = switches(&read("environ")?, &read("cmdline")?);
    if last_switch(&switches, "DisableAttachMechanism") == Some(true) {
        return refuse("it was started with -XX:+DisableAttachMechanism");
    }
    if last_switch(&switches, "EnableDynamicAgentLoading") == Some(false) {
        return refuse("it was started with -XX:-EnableDynamicAgentLoading");
    }
    Ok(())
}

fn maps_a_jvm(maps: &[u8]) -> bool {
    let is_jvm = |line: &[u8]| {
        let line = line.strip_suffix(b" (deleted)").unwrap_or(line);
        line.ends_with(b"/libjvm.so")
    };
    maps.split(|byte| *byte == b'\n').any(is_jvm)
}

/// The JVM's `-XX:` switches in the order in which it takes them: those of its environment, those of its
/// command line, and again some of its environment.
fn switches(environment: &[u8], command_line: &[u8]) -> Vec<String> {
    let variable = |name: &str| {
        let variables = environment.split(|byte| *byte == 0);
        let mut values = variables.filter_map(|variable| variable.strip_prefix(name.as_bytes()));
        values.next().map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    };
    let [before, of_launcher, after] =
        ["JAVA_TOOL_OPTIONS=", "JDK_JAVA_OPTIONS=", "_JAVA_OPTIONS="].map(variable);
    let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let arguments = command_line.split(|byte| *byte == 0);
    let arguments = arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect();
    let all = [words(&before), words(&of_launcher), arguments, words(&after)].concat();
    all.into_iter().filter_map(|word| word.strip_prefix("-XX:").map(str::to_owned)).collect()
}

/// Whether a switch is on or off; the last one that is given counts, `None` where none is.
fn last_switch(switches: &[String], name: &str) -> Option<bool> {
    switches.iter().rev().find_map(|switch| match switch.split_at_checked(1) {
        Some(("+", rest)) if rest == name => Some(true),
        Some(("-", rest)) if rest == name => Some(false),
        _ => None,
    })
}

/// Connects to the JVM's socket, having it opened first where it is not.
fn connect(process: &TargetProcess) -> Result<UnixStream, ExecuteError> {
    let directory = process.temporary_directory()?;
    let name = format!(".java_pid{}", process.namespaced_pid);
    let stream = match directory.connect(&name, process.user_id) {
        Ok(stream) => stream,
        Err(error) if is_not_there(&error) => wake_and_connect(process, directory, &name)?,
        Err(error) => {
            return Err(ExecuteError::Attach {
                pid: process.pid,
                reason: format!("the JVM's socket cannot be used: {error}"),
            });
        }
    };
    match peer_pid(&stream) {
        Ok(peer) if peer == process.pid => Ok(stream),
        Ok(peer) => Err(ExecuteError::Attach {
            pid: process.pid,
            reason: format!("process {peer} holds the JVM's socket {name}"),
        }),
        Err(error) => Err(ExecuteError::Attach { pid: process.pid, reason: error.to_string() }),
    }
}

fn is_not_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Asks the JVM to open its socket and waits for it.
fn wake_and_connect(
    process: &TargetProcess,
    directory: Directory,
    socket: &str,
) -> Result<UnixStream, ExecuteError> {
    let fail = |reason: String| ExecuteError::Attach { pid: process.pid, reason };
    let request = AttachFile::create(process, directory)
        .map_err(|error| fail(format!("cannot create .attach_pid{}: {error}", process.namespaced_pid)))?;
    process.signal(Signal::QUIT)?;
    let deadline = Instant::now() + SOCKET_WAIT_MAX;
    loop {
        match request.directory.connect(socket, process.user_id) {
            Ok(stream) => return Ok(stream),
            Err(error) if is_not_there(&error) => {}
            Err(error) => return Err(fail(format!("the JVM's socket cannot be used: {error}"))),
        }
        if !process.is_alive() {
            return Err(ExecuteError::ProcessGone { pid: process.pid });
        }
        if Instant::now() >= deadline {
            return Err(fail(format!(
                "it did not open its attach socket within {} s (attaching disabled, or too busy)",
                SOCKET_WAIT_MAX.as_secs()
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The file that tells a JVM that a SIGQUIT means attaching; removed when dropped.
struct AttachFile {
    directory: Directory,
    name: String,
}

impl AttachFile {
    fn create(process: &TargetProcess, directory: Directory) -> io::Result<AttachFile> {
        let name = format!(".attach_pid{}", process.namespaced_pid);
        if let Some(stale) = directory.stat(&name)? {
            // Left behind by a tool that was killed. A stranger's is not ours to remove, and the JVM
            // ignores it.
            if stale.st_uid != process.user_id && stale.st_uid != 0 {
                return Err(io::Error::other(format!("user {} holds that name", stale.st_uid)));
            }
            directory.remove(&name)?;
        }
        let file = directory.create_new(&name, 0o600)?;
        let created = AttachFile { directory, name };
        let (user, group) = (process.user_id, process.group_id);
        let owner = Some(rustix::fs::Uid::from_raw(user));
        rustix::fs::fchown(&file, owner, Some(rustix::fs::Gid::from_raw(group)))?;
        Ok(created)
    }
}

impl Drop for AttachFile {
    fn drop(&mut self) {
        // The JVM may have removed it itself.
        let _ = self.directory.remove(&self.name);
    }
}

fn converse(stream: &UnixStream, library: &str, options: &str) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + LOAD_WAIT_MAX;
    stream.set_write_timeout(Some(LOAD_WAIT_MAX))?;
    let mut stream = stream;
    stream.write_all(format!("1\0load\0{library}\0true\0{options}\0").as_bytes())?;
    let mut reply = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(reply),
            Ok(count) => reply.extend(buffer.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if reply.len() as u64 > REPLY_BYTES_MAX {
            return Err(io::Error::other("the answer is too long"));
        }
    }
}

/// The reply's first line is the JVM's code; `Agent_OnAttach`'s own follows, `return code: 0` from JDK
/// 9 on and `0` before.
fn check_reply(reply: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(reply);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let rest = rest.trim();
    let code = rest.strip_prefix("return code: ").unwrap_or(rest);
    match (first.trim(), code.parse::<i32>()) {
        ("0", Ok(0)) => Ok(()),
        ("0", Ok(1)) => Err("the hook did not understand its options".to_owned()),
        ("0", Ok(2)) => Err("the hook could not open its socket or start its thread".to_owned()),
        ("0", Ok(code)) => Err(format!("the hook ended with code {code}")),
        _ => {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let shown: String = words.chars().take(REPLY_BYTES_SHOWN).collect();
            Err(format!("the JVM answered: {shown}"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_of_all_jdks() {
        assert_eq!(check_reply(b"0\nreturn code: 0\n"), Ok(()));
        assert_eq!(check_reply(b"0\n0\n"), Ok(()));
        assert!(check_reply(b"0\nreturn code: 2\n").unwrap_err().contains("socket"));
        let dynamic = b"0\nDynamic agent loading is not enabled. Use -XX:+EnableDynamicAgentLoading\n";
        assert!(check_reply(dynamic).unwrap_err().contains("EnableDynamicAgentLoading"));
        let noexec = b"0\n/tmp/x.so was not loaded.\n/tmp/x.so: failed to map segment from shared object\n";
        assert!(check_reply(noexec).unwrap_err().contains("failed to map segment"));
        assert!(check_reply(b"101\n").is_err() && check_reply(b"").is_err());
    }

    #[test]
    fn the_last_switch_counts() {
        let disabled = |environment: &str, command_line: &str| {
            let switches = switches(environment.as_bytes(), command_line.as_bytes());
            last_switch(&switches, "DisableAttachMechanism")
        };
        let (on, off) = ("-XX:+DisableAttachMechanism", "-XX:-DisableAttachMechanism");
        assert_eq!(disabled("", "java\0-Xmx1g\0Main\0"), None);
        assert_eq!(disabled("", &format!("java\0{on}\0Main\0")), Some(true));
        assert_eq!(disabled("", &format!("java\0{on}\0{off}\0Main\0")), Some(false));
        assert_eq!(disabled(&format!("A=b\0JAVA_TOOL_OPTIONS=-Xmx1g {on}\0"), "java\0Main\0"), Some(true));
        assert_eq!(disabled(&format!("JAVA_TOOL_OPTIONS={on}\0"), &format!("java\0{off}\0")), Some(false));
        assert_eq!(disabled(&format!("_JAVA_OPTIONS={on}\0"), &format!("java\0{off}\0")), Some(true));
    }

    #[test]
    fn a_jvm_is_known_by_its_library() {
        assert!(maps_a_jvm(b"7f00-7f01 r-xp 0 fe:01 12   /usr/lib/jvm/x/lib/server/libjvm.so\n"));
        assert!(maps_a_jvm(b"7f00-7f01 r-xp 0 fe:01 12   /opt/libjvm.so (deleted)"));
        assert!(!maps_a_jvm(b"7f00-7f01 r-xp 0 fe:01 12   /usr/lib/notlibjvm.so.txt\n"));
    }

    #[test]
    fn a_process_that_is_no_jvm_gets_no_signal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let stat = procfs::process::Process::new(i32::try_from(pid).unwrap()).unwrap().stat().unwrap();
        let process = TargetProcess::open(&ProcessId { pid, start_time_ticks: stat.starttime }).unwrap();
        let error = load(&process, Path::new("/tmp/hook.so"), "").unwrap_err();
        assert!(matches!(error, ExecuteError::NotAttachable { .. }), "{error}");
        std::thread::sleep(Duration::from_millis(100));
        assert!(process.is_alive() && child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    proptest! {
        #[test]
        fn arbitrary_replies_are_errors_or_success(reply in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check_reply(&reply);
            let _ = last_switch(&switches(&reply, &reply), "DisableAttachMechanism");
            prop_assert!(!maps_a_jvm(&reply));
        }
    }
}

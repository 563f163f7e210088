//! Running a command with limits: time, output, an end to all it started, no capability, and the user that
//! the policy names.

use super::template::ExpandedCommand;
use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;
use sexton_inspect::users::Account;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// First bytes that are kept of what a command prints, standard output and standard error each; the
/// rest is read and thrown away, so that the command never waits for us.
pub const OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// How often a command is looked after by those that wait for it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Between asking a command to end (SIGTERM) and ending it (SIGKILL).
const TERMINATION_GRACE: Duration = Duration::from_secs(5);

/// How long to wait for the output after the command has ended: a child of its own that outlives it may
/// hold the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Ended(ExitStatus),
    /// Stopped because it was asked for.
    Cancelled,
    /// Stopped because its time was over.
    TimedOut,
}

/// What came of a command.
#[derive(Debug)]
pub struct Run {
    pub ending: Ending,
    pub duration: Duration,
    /// What it printed, standard output first, cut.
    pub output: String,
}

/// A command that runs, or has just ended. Nobody waits for it: it is polled.
#[derive(Debug)]
pub struct RunningCommand {
    child: Child,
    started: Instant,
    time_limit: Duration,
    /// Why it is being stopped, and since when.
    stopping: Option<(Ending, Instant)>,
    is_killed: bool,
    /// How it ended, and when that was seen.
    ended: Option<(Ending, Instant)>,
    /// Standard output and standard error, until all of it has come.
    outputs: Vec<Output>,
}

/// What a command prints, as a thread of its own reads it.
#[derive(Clone, Debug, Default)]
struct Output(Arc<Mutex<Printed>>);

#[derive(Debug, Default)]
struct Printed {
    /// The first bytes.
    bytes: Vec<u8>,
    /// Whether no more of it will come.
    is_complete: bool,
}

impl Output {
    fn look(&self) -> MutexGuard<'_, Printed> {
        // It is whole at every moment, whatever has happened to the thread that reads.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a command outlives whoever has started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bond {
    /// It ends by itself, and nothing comes in.
    Loose,
    /// Its input ends with us, and it gets SIGKILL when the thread ends that has started it, however that
    /// ends.
    Tied,
}

impl RunningCommand {
    /// Starts a command as `user`, or as the agent's own one, without a shell and without input.
    ///
    /// # Errors
    /// When it cannot be started; of the kind `InvalidInput` where it cannot be as that user.
    pub fn start(
        asked: &ExpandedCommand,
        user: Option<&str>,
        time_limit: Duration,
    ) -> io::Result<RunningCommand> {
        RunningCommand::begin(asked, user, time_limit, Bond::Loose)
    }

    /// The same with an input that is open until it is to end, and without a time limit. It ends with the
    /// calling thread, which has to live on.
    ///
    /// # Errors
    /// As [`RunningCommand::start`].
    pub fn start_tied(asked: &ExpandedCommand, user: Option<&str>) -> io::Result<RunningCommand> {
        RunningCommand::begin(asked, user, Duration::MAX, Bond::Tied)
    }

    fn begin(
        asked: &ExpandedCommand,
        user: Option<&str>,
        time_limit: Duration,
        bond: Bond,
    ) -> io::Result<RunningCommand> {
        let account = user.map(account).transpose()?;
        let mut command = Command::new(&asked.program);
        if let Some(account) = &account {
            let Account { name, home, .. } = account;
            command.envs([("USER", name), ("LOGNAME", name), ("HOME", home)]);
        }
        command
            .args(&asked.arguments)
            .envs(asked.environment.iter().map(|(name, value)| (name, value)))
            .stdin(if bond == Bond::Tied { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let tied_to = (bond == Bond::Tied).then(rustix::process::getpid);
        // What the service manager or root gave the agent is not for the policy's commands: whatever they are
        // tricked into, they may do what their user may do and no more. SAFETY: between fork and exec the
        // closure makes system calls about its own process; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || become_the_policys(account.as_ref(), tied_to)) };
        let mut child = command.spawn()?;
        let outputs = child.stdout.take().map(collect).into_iter();
        let outputs = outputs.chain(child.stderr.take().map(collect)).collect();
        Ok(RunningCommand {
            child,
            started: Instant::now(),
            time_limit,
            stopping: None,
            is_killed: false,
            ended: None,
            outputs,
        })
    }

    /// Has it end before its time. Its process group is told at the next poll.
    pub fn cancel(&mut self) {
        if self.stopping.is_none() && self.ended.is_none() {
            self.stop(Ending::Cancelled);
        }
    }

    /// Looks after it; gives what came of it once it has ended.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub fn poll(&mut self) -> io::Result<Option<Run>> {
        if self.ended.is_none() {
            self.ended = self.look()?.map(|ending| (ending, Instant::now()));
        }
        let Some((ending, at)) = self.ended else { return Ok(None) };
        let is_complete = self.outputs.iter().all(|output| output.look().is_complete);
        if !is_complete && at.elapsed() < OUTPUT_GRACE {
            return Ok(None);
        }
        let output = self.printed();
        Ok(Some(Run { ending, duration: at.saturating_duration_since(self.started), output }))
    }

    /// What it has printed so far, standard output first, cut.
    fn printed(&self) -> String {
        let bytes: Vec<u8> = self.outputs.iter().flat_map(|output| output.look().bytes.clone()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether a whole line stands on its standard output.
    pub fn has_printed_line(&self) -> bool {
        self.outputs.first().is_some_and(|output| output.look().bytes.contains(&b'\n'))
    }

    /// How it has ended, if it has; ends it where its time is over.
    fn look(&mut self) -> io::Result<Option<Ending>> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(self.stopping.map_or(Ending::Ended(status), |(ending, _)| ending)));
        }
        match self.stopping {
            None if self.started.elapsed() >= self.time_limit => self.stop(Ending::TimedOut),
            Some((_, since)) if since.elapsed() >= TERMINATION_GRACE && !self.is_killed => {
                self.is_killed = true;
                self.signal(Signal::KILL);
            }
            // What even SIGKILL does not end hangs in the kernel, and does nothing any more.
            Some((ending, since)) if since.elapsed() >= 2 * TERMINATION_GRACE => return Ok(Some(ending)),
            _ => {}
        }
        Ok(None)
    }

    fn stop(&mut self, why: Ending) {
        self.stopping = Some((why, Instant::now()));
        drop(self.child.stdin.take());
        self.signal(Signal::TERM);
    }

    /// To the command and what it started. Its id is ours until `try_wait` has seen it end, so that no other
    /// process group can be met.
    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Waits for its end, for those that have nothing else to do.
    pub fn wait(mut self) -> io::Result<Run> {
        loop {
            if let Some(run) = self.poll()? {
                return Ok(run);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for RunningCommand {
    /// A command that nobody looks after any more is ended: nothing would be known of it.
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.signal(Signal::KILL);
            let _ = self.child.try_wait();
        }
    }
}

/// The user that the policy names, where the agent may become it.
fn account(name: &str) -> io::Result<Account> {
    let refused = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
    if !sexton_sandbox::may_change_user() {
        let reason = "the agent may not change its user (CAP_SETUID and CAP_SETGID)";
        return Err(refused(format!("cannot run as {name}: {reason}")));
    }
    Account::named(name)?.ok_or_else(|| refused(format!("there is no user {name} in /etc/passwd")))
}

/// Makes system calls about the calling process and nothing else. `tied_to`: the parent that it ends with.
fn become_the_policys(account: Option<&Account>, tied_to: Option<Pid>) -> io::Result<()> {
    if let Some(account) = account {
        sexton_sandbox::become_user(account.user_id, account.group_id, &account.further_groups)?;
    }
    sexton_sandbox::give_up_privileges(CapabilitySet::empty())?;
    if tied_to.is_some() {
        // A change of the user takes it back, so it comes last.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before.
        if getppid() != tied_to {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(())
}

/// Reads a pipe to its end in a thread of its own, and keeps the first bytes.
fn collect(mut pipe: impl Read + Send + 'static) -> Output {
    let output = Output::default();
    let kept = output.clone();
    let spawned = std::thread::Builder::new().name("sexton-output".to_owned()).spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count) = pipe.read(&mut buffer) {
            let mut printed = kept.look();
            let room = OUTPUT_BYTES_MAX.saturating_sub(printed.bytes.len());
            printed.bytes.extend(buffer.iter().take(count.min(room)));
            if count == 0 {
                break;
            }
        }
        kept.look().is_complete = true;
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "the output of a command cannot be read");
        output.look().is_complete = true;
    }
    output
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    const PLENTY: Duration = Duration::from_secs(60);

    fn shell(script: &str, time_limit: Duration) -> Run {
        start(script, time_limit).wait().unwrap()
    }

    fn start(script: &str, time_limit: Duration) -> RunningCommand {
        start_as(None, script, time_limit).unwrap()
    }

    fn start_as(user: Option<&str>, script: &str, time_limit: Duration) -> io::Result<RunningCommand> {
        let (program, arguments) = ("/bin/sh".into(), vec!["-c".into(), script.into()]);
        let environment = vec![("SEXTON_BEGIN_HEX".into(), "00ff".into())];
        RunningCommand::start(&ExpandedCommand { program, arguments, environment }, user, time_limit)
    }

    #[test]
    fn exit_code_and_both_outputs_are_kept() {
        let run = shell("echo out; echo err >&2; exit 3", PLENTY);
        assert!(matches!(run.ending, Ending::Ended(status) if status.code() == Some(3)));
        assert_eq!(run.output, "out\nerr\n");
    }

    /// As root this is what `execve` would give back if the command could gain anything.
    #[test]
    fn a_command_has_no_capability() {
        let sets = shell("grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status", PLENTY).output;
        let values: Vec<&str> = sets.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        let none = "0000000000000000";
        assert_eq!(values, [none, none, none, none, "1"], "{sets}");
    }

    /// Only root becomes another user.
    #[test]
    fn a_command_is_the_users_that_is_named_and_has_no_capability() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let nobody = Account::named("nobody").unwrap().unwrap();
        let script = "id -u; id -g; id -G; echo $USER $HOME $SEXTON_BEGIN_HEX; grep CapPrm /proc/self/status; \
                      cat /etc/shadow 2>&1 | grep -c denied";
        let said = start_as(Some("nobody"), script, PLENTY).unwrap().wait().unwrap().output;
        let (user, group) = (nobody.user_id, nobody.group_id);
        let expected =
            format!("{user}\n{group}\n{group}\nnobody {} 00ff\nCapPrm:\t0000000000000000\n1\n", nobody.home);
        assert_eq!(said, expected);
        let error = start_as(Some("no-such-user"), script, PLENTY).unwrap_err();
        assert!(error.kind() == io::ErrorKind::InvalidInput && error.to_string().contains("no-such-user"));
    }

    #[test]
    fn a_flood_is_cut_and_never_blocks_the_command() {
        let run = shell("head -c 3000000 /dev/zero | tr '\\0' x; exit 0", PLENTY);
        assert!(matches!(run.ending, Ending::Ended(status) if status.success()));
        assert_eq!(run.output.len(), OUTPUT_BYTES_MAX);
    }

    #[test]
    fn the_time_limit_ends_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grandchild");
        let script = format!("sleep 300 & echo $! > {}; wait", file.display());
        let run = shell(&script, Duration::from_millis(300));
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
        let mut command = start("sleep 300", PLENTY);
        assert!(command.poll().unwrap().is_none());
        command.cancel();
        assert_eq!(command.wait().unwrap().ending, Ending::Cancelled);
    }

    fn state_of(pid: i32) -> Option<char> {
        procfs::process::Process::new(pid).and_then(|process| process.stat()).ok().map(|stat| stat.state)
    }

    fn wait_for(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !what() {
            assert!(Instant::now() < deadline, "in vain");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn tied(script: &str) -> RunningCommand {
        let (program, arguments) = ("/bin/sh".into(), vec!["-c".into(), script.into()]);
        let asked = ExpandedCommand { program, arguments, environment: Vec::new() };
        RunningCommand::start_tied(&asked, None).unwrap()
    }

    #[test]
    fn a_tied_command_has_an_input_that_ends_with_it() {
        let mut command = tied("trap '' TERM; printf half; read x; printf ' a line\\n'; cat; echo the end");
        std::thread::sleep(Duration::from_millis(200));
        assert!(!command.has_printed_line() && command.poll().unwrap().is_none());
        command.cancel();
        let run = command.wait().unwrap();
        assert_eq!((run.ending, run.output.as_str()), (Ending::Cancelled, "half a line\nthe end\n"));
    }

    /// Not even one that ignores SIGTERM lives on.
    #[test]
    fn a_tied_command_ends_with_the_thread_that_has_started_it() {
        let started = std::thread::spawn(|| {
            let command = tied("trap '' TERM; echo held; while :; do sleep 1; done");
            wait_for(|| command.has_printed_line());
            let pid = i32::try_from(command.child.id()).unwrap();
            // As when the agent is killed: nobody looks after it.
            std::mem::forget(command);
            assert_ne!(state_of(pid), Some('Z'));
            pid
        });
        let pid = started.join().unwrap();
        wait_for(|| matches!(state_of(pid), None | Some('Z')));
    }

    #[test]
    fn a_child_that_outlives_the_command_is_not_waited_for() {
        let started = Instant::now();
        let run = shell("sleep 4 & echo done", PLENTY);
        assert!(matches!(run.ending, Ending::Ended(status) if status.success()));
        assert!(started.elapsed() < Duration::from_secs(3));
    }
}

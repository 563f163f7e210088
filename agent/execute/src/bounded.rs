//! Running a command with limits: time, output, an end to all it started, no capability, and the user that
//! the policy names.

use super::template::ExpandedCommand;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::CapabilitySet;
use sexton_inspect::users::Account;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
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

#[derive(Debug)]
struct Output {
    pipe: Receiver<Vec<u8>>,
    bytes: Option<Vec<u8>>,
}

impl Output {
    fn new(pipe: impl Read + Send + 'static) -> Output {
        Output { pipe: collect(pipe), bytes: None }
    }

    /// Whether no more of it will come.
    fn is_complete(&mut self) -> bool {
        if self.bytes.is_none() {
            self.bytes = match self.pipe.try_recv() {
                Ok(bytes) => Some(bytes),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => Some(Vec::new()),
            };
        }
        true
    }
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
        let account = user.map(account).transpose()?;
        let mut command = Command::new(&asked.program);
        if let Some(account) = &account {
            let Account { name, home, .. } = account;
            command.envs([("USER", name), ("LOGNAME", name), ("HOME", home)]);
        }
        command
            .args(&asked.arguments)
            .envs(asked.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // What the service manager or root gave the agent is not for the policy's commands: whatever they are
        // tricked into, they may do what their user may do and no more. SAFETY: between fork and exec the
        // closure makes system calls about its own process; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || become_the_policys(account.as_ref())) };
        let mut child = command.spawn()?;
        let outputs = child.stdout.take().map(Output::new).into_iter();
        let outputs = outputs.chain(child.stderr.take().map(Output::new)).collect();
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
        let mut is_complete = true;
        for output in &mut self.outputs {
            is_complete &= output.is_complete();
        }
        if !is_complete && at.elapsed() < OUTPUT_GRACE {
            return Ok(None);
        }
        let bytes: Vec<u8> =
            self.outputs.iter_mut().filter_map(|output| output.bytes.take()).flatten().collect();
        let output = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Some(Run { ending, duration: at.saturating_duration_since(self.started), output }))
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

/// Makes system calls about the calling process and nothing else.
fn become_the_policys(account: Option<&Account>) -> io::Result<()> {
    if let Some(account) = account {
        sexton_sandbox::become_user(account.user_id, account.group_id, &account.further_groups)?;
    }
    sexton_sandbox::give_up_privileges(CapabilitySet::empty())
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

    #[test]
    fn a_child_that_outlives_the_command_is_not_waited_for() {
        let started = Instant::now();
        let run = shell("sleep 4 & echo done", PLENTY);
        assert!(matches!(run.ending, Ending::Ended(status) if status.success()));
        assert!(started.elapsed() < Duration::from_secs(3));
    }
}

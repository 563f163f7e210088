//! Commands of the guards: one that holds a lock as long as it runs, and one that is asked and says yes or
//! no.
//!
//! What follows from their answers is decided in the tuner.

use super::bounded::{Ending, Run, RunningCommand};
use super::error::ExecuteError;
use super::template::{CommandTemplate, ExpandedCommand};
use super::words::one_line;
use std::time::Duration;

/// What a command is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// To hold a lock: held from its first line on, until it ends.
    Hold,
    /// Whether an action may begin: by its exit code, within this time.
    MayBegin { limit: Duration },
}

/// A command to ask, and of what.
#[derive(Clone, Debug)]
pub struct GuardCommand {
    pub question: Question,
    /// Program and arguments, with `{entry}`, `{path}` and `{pid}` in them.
    pub run: Vec<String>,
    /// The policy's entry.
    pub entry: String,
    /// The database's directory.
    pub path: String,
    pub pid: u32,
    /// Whose the command is; `None`: the agent's user's.
    pub user: Option<String>,
}

impl GuardCommand {
    /// Whether nothing more is heard of it after its answer.
    pub fn is_answered_once(&self) -> bool {
        self.question != Question::Hold
    }
}

/// What a command has said that it had not said before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The lock is held; yes.
    Given,
    /// Why not, in words. It has ended.
    Refused(String),
    /// It has ended, after it was told to, or after a yes.
    Ended,
}

/// A command that was asked.
#[derive(Debug)]
pub struct AskedCommand {
    question: Question,
    program: String,
    running: RunningCommand,
    has_given: bool,
}

impl AskedCommand {
    /// Starts a command. It ends with the calling thread, which has to live on.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(asked: &GuardCommand) -> Result<AskedCommand, ExecuteError> {
        let command = expand(asked)?;
        let user = asked.user.as_deref();
        let running = match asked.question {
            Question::Hold => RunningCommand::start_tied(&command, user),
            Question::MayBegin { limit } => RunningCommand::start(&command, user, limit),
        };
        let program = command.program;
        let running = running.map_err(|source| ExecuteError::Spawn { program: program.clone(), source })?;
        Ok(AskedCommand { question: asked.question, program, running, has_given: false })
    }

    /// Has it end: what it holds is not wanted any more.
    pub fn end(&mut self) {
        self.running.cancel();
    }

    /// What is new.
    pub fn poll(&mut self) -> Option<Said> {
        let run = match self.running.poll() {
            Ok(run) => run,
            Err(error) => return Some(Said::Refused(format!("{} cannot be watched: {error}", self.program))),
        };
        // One that has ended holds nothing, whatever it has printed.
        if let Some(run) = run {
            return Some(self.ended(&run));
        }
        let is_new = self.question == Question::Hold && !self.has_given && self.running.has_printed_line();
        self.has_given |= is_new;
        is_new.then_some(Said::Given)
    }

    fn ended(&mut self, run: &Run) -> Said {
        let program = &self.program;
        let output = match one_line(&run.output) {
            output if output.is_empty() => String::new(),
            output => format!(": {output}"),
        };
        match (run.ending, self.question) {
            (Ending::Cancelled, _) => Said::Ended,
            (Ending::TimedOut, _) => {
                let seconds = run.duration.as_secs_f64();
                Said::Refused(format!("{program} had not answered after {seconds:.0} s{output}"))
            }
            (Ending::Ended(status), Question::MayBegin { .. }) if status.success() => Said::Given,
            (Ending::Ended(status), Question::MayBegin { .. }) => {
                Said::Refused(format!("{program} ended with {status}{output}"))
            }
            (Ending::Ended(status), Question::Hold) => {
                let what = if self.has_given { "the lock is lost" } else { "the lock was not had" };
                Said::Refused(format!("{what}: {program} ended with {status}{output}"))
            }
        }
    }
}

fn expand(asked: &GuardCommand) -> Result<ExpandedCommand, ExecuteError> {
    let pid = asked.pid.to_string();
    let values = [("entry", asked.entry.as_str()), ("path", asked.path.as_str()), ("pid", pid.as_str())];
    CommandTemplate::new(&asked.run)?.expand(&values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::time::Instant;

    fn ask(question: Question, script: &str) -> AskedCommand {
        let run = ["sh", "-c", script, "sh", "{entry}", "{path}"].map(str::to_owned).to_vec();
        let (entry, path) = ("om".to_owned(), "/data/om.db".to_owned());
        AskedCommand::start(&GuardCommand { question, run, entry, path, pid: 7, user: None }).unwrap()
    }

    fn next(command: &mut AskedCommand) -> Said {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(said) = command.poll() {
                return said;
            }
            assert!(Instant::now() < deadline, "it says nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_lock_is_held_from_the_first_line_on_until_the_command_ends() {
        let mut command = ask(Question::Hold, "echo \"$1 $2 $SEXTON_PID\"; cat; exit 0");
        assert_eq!(next(&mut command), Said::Given);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(command.poll(), None);
        command.end();
        assert_eq!(next(&mut command), Said::Ended);
        let mut lost = ask(Question::Hold, "echo held; sleep 0.2; echo session expired >&2; exit 1");
        assert_eq!(next(&mut lost), Said::Given);
        let Said::Refused(reason) = next(&mut lost) else { panic!("it is held") };
        assert_eq!(reason, "the lock is lost: sh ended with exit status: 1: held session expired");
    }

    #[test]
    fn a_command_that_ends_without_a_word_has_had_no_lock() {
        let Said::Refused(reason) = next(&mut ask(Question::Hold, "printf half; exit 0")) else {
            panic!("half a line counts")
        };
        assert_eq!(reason, "the lock was not had: sh ended with exit status: 0: half");
    }

    #[test]
    fn a_question_is_answered_by_the_exit_code_in_time() {
        let limit = Duration::from_secs(60);
        assert_eq!(next(&mut ask(Question::MayBegin { limit }, "test $1 = om")), Said::Given);
        let no = next(&mut ask(Question::MayBegin { limit }, "echo a peer is down; exit 3"));
        assert_eq!(no, Said::Refused("sh ended with exit status: 3: a peer is down".to_owned()));
        let limit = Duration::from_millis(100);
        let Said::Refused(reason) = next(&mut ask(Question::MayBegin { limit }, "sleep 60")) else {
            panic!("it had time")
        };
        assert!(reason.contains("had not answered after"), "{reason}");
    }
}

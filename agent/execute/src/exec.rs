//! The executor of commands: what the policy says for targets that have their own way of compacting, and for
//! throttles.

use super::bounded::{Ending, Run, RunningCommand};
use super::error::ExecuteError;
use super::executor::{Executor, Job, Jobs, POLL_INTERVAL};
use super::task::{
    CommandEnd, JobEnd, JobId, JobOutcome, JobStatus, Progress, SettingTask, Task, ThrottleTask,
};
use super::template::{CommandTemplate, ExpandedCommand};
use super::words::one_line;
use sexton_tuner::policy::ExecPolicy;
use sexton_tuner::throttle::is_same_value;
use std::time::Duration;

/// Bytes of a throttle's value that are looked at: numbers and times have some ten.
const VALUE_BYTES_MAX: usize = 256;

/// Runs a command per task.
#[derive(Default)]
pub struct CommandExecutor {
    compact: Option<CommandTemplate>,
    time_limit: Duration,
    /// Whose the command is; `None`: the agent's user's.
    user: Option<String>,
    shows_keys: bool,
    jobs: Jobs,
}

impl CommandExecutor {
    /// With the command that compacts, if there is one, and whose it is; those of throttles come with their
    /// tasks. `shows_keys`: whether [`Executor::describe`] may show whole keys.
    pub fn new(
        compact: Option<&ExecPolicy>,
        user: Option<&str>,
        shows_keys: bool,
    ) -> Result<CommandExecutor, ExecuteError> {
        let time_limit = compact.map(|exec| exec.timeout.duration()).unwrap_or_default();
        let compact = compact.map(|exec| CommandTemplate::new(&exec.compact)).transpose()?;
        let user = user.map(str::to_owned);
        Ok(CommandExecutor { compact, time_limit, user, shows_keys, jobs: Jobs::default() })
    }
}

/// Runs the commands of a throttle to their end, on the calling thread. They have time limits.
///
/// # Errors
/// As they fail.
pub fn run_throttle(task: &Task) -> Result<JobOutcome, ExecuteError> {
    let mut executor = CommandExecutor::default();
    let job = executor.start(task)?;
    loop {
        match executor.poll(job) {
            JobStatus::Ended(result) => return result,
            JobStatus::Running(progress) => std::thread::sleep(progress.poll_again_in),
        }
    }
}

impl Executor for CommandExecutor {
    fn start(&mut self, asked: &Task) -> Result<JobId, ExecuteError> {
        let unsupported = |what| Err(ExecuteError::Unsupported { executor: "exec", what });
        match asked {
            Task::Compact(task) => match &self.compact {
                Some(template) => {
                    let command = template.expand_for(task)?;
                    let command = Commanded::start(command, self.user.clone(), self.time_limit)?;
                    Ok(self.jobs.add(Compaction(command)))
                }
                None => unsupported("compact: no command is given"),
            },
            Task::Set(SettingTask::Throttle(task)) | Task::Read(SettingTask::Throttle(task)) => {
                let is_read = matches!(asked, Task::Read(_));
                let stage = match &task.only_from {
                    _ if is_read => Stage::Reading(None),
                    Some(value) => Stage::Checking(value.clone()),
                    None => Stage::Setting,
                };
                let first = if let Stage::Setting = stage { Some(&task.command) } else { task.get.as_ref() };
                let Some(first) = first else {
                    return unsupported("read it: the policy gives no command for that");
                };
                let command = Commanded::start(expand(task, first)?, task.user.clone(), task.time_limit)?;
                Ok(self.jobs.add(Throttle { task: task.clone(), command, stage }))
            }
            _ => unsupported("do that: it takes the hook, or the keeper"),
        }
    }

    fn jobs(&mut self) -> &mut Jobs {
        &mut self.jobs
    }

    fn describe(&self, task: &Task) -> Vec<String> {
        let expanded = match (task, &self.compact) {
            (Task::Compact(task), Some(template)) if self.shows_keys => template.expand_for(task),
            (Task::Compact(task), Some(template)) => template.expand_redacted(task),
            (Task::Set(SettingTask::Throttle(task)), _) => expand(task, &task.command),
            _ => return Vec::new(),
        };
        vec![expanded.map_or_else(|error| format!("# {error}"), |command| command.shell_line())]
    }
}

fn expand(task: &ThrottleTask, command: &[String]) -> Result<ExpandedCommand, ExecuteError> {
    let pid = task.process.pid.to_string();
    CommandTemplate::new(command)?.expand(&[("value", task.value.as_str()), ("pid", pid.as_str())])
}

fn running() -> JobStatus {
    JobStatus::Running(Progress { poll_again_in: POLL_INTERVAL, ..Progress::default() })
}

/// A command of the policy that runs.
struct Commanded {
    program: String,
    time_limit: Duration,
    running: RunningCommand,
}

impl Commanded {
    fn start(
        command: ExpandedCommand,
        user: Option<String>,
        time_limit: Duration,
    ) -> Result<Commanded, ExecuteError> {
        let running = RunningCommand::start(&command, user.as_deref(), time_limit);
        let program = command.program;
        let running = running.map_err(|source| ExecuteError::Spawn { program: program.clone(), source })?;
        Ok(Commanded { program, time_limit, running })
    }

    /// What came of it once it has ended. A command that fails, or takes too long, is an error.
    fn poll(&mut self) -> Result<Option<JobOutcome>, ExecuteError> {
        let program = || self.program.clone();
        let run = self.running.poll().map_err(|source| ExecuteError::Spawn { program: program(), source })?;
        let Some(Run { ending, duration, output }) = run else { return Ok(None) };
        let (end, exit_code) = match ending {
            Ending::Ended(status) if status.success() => (JobEnd::Done, status.code()),
            Ending::Cancelled => (JobEnd::Cancelled { reason: "it was asked for".to_owned() }, None),
            Ending::Ended(status) => return Err(self.failed(format!("ended with {status}"), &output)),
            Ending::TimedOut => {
                let ending = format!("was stopped after its time limit of {:?}", self.time_limit);
                return Err(self.failed(ending, &output));
            }
        };
        let command = Some(CommandEnd { exit_code, output });
        Ok(Some(JobOutcome { end, duration, command, ..JobOutcome::default() }))
    }

    fn failed(&self, ending: String, output: &str) -> ExecuteError {
        ExecuteError::Command { program: self.program.clone(), ending, output: one_line(output) }
    }

    /// The value that it has printed: the first line.
    fn value(&self, outcome: JobOutcome) -> Result<(String, JobOutcome), ExecuteError> {
        let output = outcome.command.as_ref().map_or("", |command| &command.output);
        let value = output.lines().next().map(str::trim).unwrap_or_default();
        if value.is_empty() || value.len() > VALUE_BYTES_MAX {
            return Err(self.failed("printed no value in its first line".to_owned(), output));
        }
        Ok((value.to_owned(), outcome))
    }
}

struct Compaction(Commanded);

impl Job for Compaction {
    fn poll(&mut self) -> JobStatus {
        self.0.poll().transpose().map_or_else(running, JobStatus::Ended)
    }

    fn cancel(&mut self) {
        self.0.running.cancel();
    }
}

/// A throttle: the command that sets it, then the one that reads what is in force.
struct Throttle {
    task: ThrottleTask,
    command: Commanded,
    stage: Stage,
}

/// Which of a throttle's commands runs.
enum Stage {
    /// The one that reads it: it is set where this value is in force.
    Checking(String),
    /// The one that sets it.
    Setting,
    /// The one that reads it, after it was set with this outcome.
    Reading(Option<JobOutcome>),
}

impl Throttle {
    fn step(&mut self) -> Result<Option<JobOutcome>, ExecuteError> {
        match &self.stage {
            Stage::Checking(expected) => {
                let expected = expected.clone();
                match self.read()? {
                    Some((value, _)) if is_same_value(&value, &expected) => {
                        self.go_on(Stage::Setting, &self.task.command.clone())
                    }
                    read => {
                        Ok(read.map(|(value, read)| JobOutcome { value: Some(value), command: None, ..read }))
                    }
                }
            }
            Stage::Setting => match (self.command.poll()?, self.task.get.clone()) {
                (Some(set), Some(get)) if set.end == JobEnd::Done => {
                    self.go_on(Stage::Reading(Some(set)), &get)
                }
                (outcome, _) => Ok(outcome),
            },
            Stage::Reading(None) => {
                let read = self.read()?;
                Ok(read.map(|(value, read)| JobOutcome { value: Some(value), ..read }))
            }
            Stage::Reading(Some(set)) => {
                let set = set.clone();
                let words = || set.command.as_ref().map(CommandEnd::in_words).unwrap_or_default();
                match self.read() {
                    Ok(Some((value, _))) if !is_same_value(&value, &self.task.value) => {
                        Err(ExecuteError::NotInForce { value, words: words() })
                    }
                    Ok(read) => Ok(read.map(|(value, read)| {
                        let duration = set.duration.saturating_add(read.duration);
                        JobOutcome { value: Some(value), duration, ..set }
                    })),
                    Err(error) => Err(ExecuteError::NotRead { words: words(), error: Box::new(error) }),
                }
            }
        }
    }

    /// The value in force and what came of reading it, once it is read.
    fn read(&mut self) -> Result<Option<(String, JobOutcome)>, ExecuteError> {
        self.command.poll()?.map(|outcome| self.command.value(outcome)).transpose()
    }

    /// Runs the next command.
    fn go_on(&mut self, stage: Stage, command: &[String]) -> Result<Option<JobOutcome>, ExecuteError> {
        let Throttle { task, .. } = self;
        self.command = Commanded::start(expand(task, command)?, task.user.clone(), task.time_limit)?;
        self.stage = stage;
        Ok(None)
    }
}

impl Job for Throttle {
    fn poll(&mut self) -> JobStatus {
        self.step().transpose().map_or_else(running, JobStatus::Ended)
    }

    fn cancel(&mut self) {
        self.command.running.cancel();
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::super::executor::tests::{run, run_until};
    use super::super::task::CompactTask;
    use super::*;
    use sexton_inspect::facts::ProcessId;
    use sexton_tuner::{cost::Bottommost, key::Key, policy::TimeSpan, range::KeyRange};
    use std::path::PathBuf;

    pub fn request(begin: &[u8], end: Option<&[u8]>) -> CompactTask {
        CompactTask {
            process: ProcessId { pid: 4711, start_time_ticks: 1 },
            target: "java-4711".into(),
            database: PathBuf::from("/data/om.db"),
            column_family: "keyTable".into(),
            handles: None,
            others: Vec::new(),
            range: KeyRange { begin: Key::new(begin), end: end.map(Key::new) },
            cost_bytes: 1 << 20,
            bottommost: Bottommost::ForceOptimized,
            files: None,
        }
    }

    fn executor(words: &[&str], time_limit: Duration) -> CommandExecutor {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let timeout = TimeSpan::from_nanoseconds(u64::try_from(time_limit.as_nanos()).unwrap());
        CommandExecutor::new(Some(&ExecPolicy { compact: words, timeout }), None, true).unwrap()
    }

    #[test]
    fn a_real_command_gets_the_range() {
        let words = ["echo", "{column_family}", "{path}", "{begin_hex}", "..{end_hex}", "{pid}"];
        let mut exec = executor(&words, Duration::from_secs(10));
        let task = Task::Compact(request(b"/v/a", Some(b"/v/b")));
        let outcome = run(&mut exec, &task).unwrap();
        let output = "keyTable /data/om.db 2f762f61 ..2f762f62 4711\n".to_owned();
        assert_eq!(outcome.command, Some(CommandEnd { exit_code: Some(0), output }));
        assert_eq!(outcome.end, JobEnd::Done);
        assert_eq!(exec.describe(&task), ["echo keyTable /data/om.db 2f762f61 ..2f762f62 4711"]);
    }

    #[test]
    fn keys_are_redacted_unless_shown() {
        let mut exec = executor(&["ctl", "{begin_hex}"], Duration::from_secs(10));
        exec.shows_keys = false;
        let commands = exec.describe(&Task::Compact(request(b"customer-4711", None)));
        assert!(!commands[0].contains(&Key::new(*b"customer-4711").hex()), "{commands:?}");
    }

    #[test]
    fn failures_keep_exit_code_and_output() {
        let task = Task::Compact(request(b"", None));
        let mut exec = executor(&["sh", "-c", "echo no such range; exit 4"], Duration::from_secs(10));
        let error = run(&mut exec, &task).unwrap_err().to_string();
        assert!(error.contains("exit status: 4") && error.contains("no such range"), "{error}");
        let mut exec = executor(&["sleep", "60"], Duration::from_millis(100));
        let error = run(&mut exec, &task).unwrap_err().to_string();
        assert!(error.contains("time limit"), "{error}");
        let mut exec = executor(&["/nowhere/ctl"], Duration::from_secs(10));
        let error = exec.start(&task).unwrap_err();
        assert!(matches!(error, ExecuteError::Spawn { .. }) && !error.remedy().is_empty());
        assert!(CommandExecutor::default().start(&task).is_err());
    }

    #[test]
    fn nobody_waits_for_a_command_and_cancelling_is_an_outcome() {
        let mut exec = executor(&["sleep", "60"], Duration::from_secs(60));
        let outcome = run_until(&mut exec, &Task::Compact(request(b"", None)), || true).unwrap();
        assert!(
            matches!(outcome.end, JobEnd::Cancelled { .. }) && outcome.duration < Duration::from_secs(60)
        );
    }

    fn throttle(value: &str, set: &str, get: Option<&str>) -> SettingTask {
        let shell = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
        SettingTask::Throttle(ThrottleTask {
            process: ProcessId { pid: 1, start_time_ticks: 1 },
            value: value.into(),
            command: shell(set),
            get: get.map(shell),
            only_from: None,
            user: None,
            time_limit: Duration::from_secs(10),
        })
    }

    #[test]
    fn the_value_in_force_is_the_first_line_that_is_printed() {
        let get = |script: &str| {
            run(&mut CommandExecutor::default(), &Task::Read(throttle("2000", "exit 9", Some(script))))
        };
        assert_eq!(get("echo ' 50000 '; echo more; echo warning >&2").unwrap().value.unwrap(), "50000");
        assert!(get("true").unwrap_err().to_string().contains("printed no value"));
        assert!(get("head -c 300 /dev/zero | tr '\\0' 9").is_err());
        assert!(get("echo 50000; exit 22").unwrap_err().to_string().contains("exit status: 22"));
    }

    #[test]
    fn what_somebody_else_has_set_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("value");
        std::fs::write(&file, "2000").unwrap();
        let (set, get) = (format!("echo $0 > {}", file.display()), format!("cat {}", file.display()));
        let SettingTask::Throttle(mut task) = throttle("7", &set, Some(&get)) else { panic!("no throttle") };
        task.command.push("{value}".into());
        let mut exec = CommandExecutor::default();
        let mut set_from = |value: &str| {
            let only_from = Some(value.to_owned());
            let task = ThrottleTask { only_from, ..task.clone() };
            run(&mut exec, &Task::Set(SettingTask::Throttle(task))).unwrap()
        };
        let left = set_from("3000");
        assert_eq!((left.value.as_deref(), left.command), (Some("2000"), None));
        let restored = set_from("2000");
        assert_eq!((restored.value.as_deref(), restored.command.is_some()), (Some("7"), true));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "7\n");
    }

    #[test]
    fn a_throttle_is_set_by_its_own_command_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("set");
        let (set, get) =
            (format!("echo {{value}} > {}; echo so", file.display()), format!("cat {}", file.display()));
        let mut exec = CommandExecutor::default();
        let set_to = |get| Task::Set(throttle("2000", &set, get));
        let outcome = run(&mut exec, &set_to(None)).unwrap();
        assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), outcome.value), ("2000\n", None));
        let outcome = run(&mut exec, &set_to(Some(&get))).unwrap();
        assert_eq!(outcome.value.unwrap(), "2000");
        assert_eq!(outcome.command.unwrap().output, "so\n");
        let error = run(&mut exec, &set_to(Some("echo 7"))).unwrap_err().to_string();
        assert!(error.starts_with("the value in force is 7 all the same; the command ended"), "{error}");
        let error = run(&mut exec, &set_to(Some("exit 3"))).unwrap_err().to_string();
        assert!(error.starts_with("whether it is in force cannot be read: sh ended"), "{error}");
    }
}

//! The actuator `exec`: commands of the policy, for targets that have their own way of compacting.

use super::Actuator;
use super::bounded::{Ending, Run, run};
use super::error::ActuatorError;
use super::request::{
    CommandEnd, CompactEnd, CompactOutcome, CompactRequest, ThrottleOutcome, ThrottleRequest, one_line,
};
use super::template::{CommandTemplate, ExpandedCommand};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Runs a command per action.
#[derive(Clone, Debug)]
pub struct ExecActuator {
    compact: Option<CommandTemplate>,
    time_limit: Duration,
    show_keys: bool,
}

impl ExecActuator {
    /// With the command that compacts, if there is one, and how long it may run. Setting throttles
    /// needs none: their commands come with the request. `show_keys`: whether
    /// [`Actuator::commands_for`] may show whole keys.
    pub fn new(compact: Option<CommandTemplate>, time_limit: Duration, show_keys: bool) -> ExecActuator {
        ExecActuator { compact, time_limit, show_keys }
    }
}

/// Bytes of a throttle's value that are looked at: numbers and times have some ten.
const VALUE_BYTES_MAX: usize = 256;

impl ExecActuator {
    /// The value of a throttle that is in force, as the request's command prints it: the first line of its output.
    ///
    /// # Errors
    /// When the command cannot be run, fails, or prints no value.
    pub fn get_throttle(&self, request: &ThrottleRequest) -> Result<String, ActuatorError> {
        let command = expand(request)?;
        let run = run_to_end(&command, request.time_limit, &AtomicBool::new(false))?;
        let value = run.output.lines().next().map(str::trim).unwrap_or_default();
        if value.is_empty() || value.len() > VALUE_BYTES_MAX {
            let ending = "printed no value in its first line".to_owned();
            return Err(ActuatorError::Command {
                program: command.program,
                ending,
                output: one_line(&run.output),
            });
        }
        Ok(value.to_owned())
    }
}

fn expand(request: &ThrottleRequest) -> Result<ExpandedCommand, ActuatorError> {
    let pid = request.process.pid.to_string();
    CommandTemplate::new(&request.command)?
        .expand(&[("value", request.value.as_str()), ("pid", pid.as_str())])
}

fn run_to_end(
    command: &ExpandedCommand,
    time_limit: Duration,
    cancelled: &AtomicBool,
) -> Result<Run, ActuatorError> {
    let program = command.program.clone();
    let run = run(&program, &command.arguments, time_limit, cancelled)
        .map_err(|source| ActuatorError::Spawn { program: program.clone(), source })?;
    let ending = match run.ending {
        Ending::Ended(status) if !status.success() => format!("ended with {status}"),
        Ending::TimedOut => format!("was stopped after its time limit of {time_limit:?}"),
        Ending::Ended(_) | Ending::Cancelled => return Ok(run),
    };
    Err(ActuatorError::Command { program, ending, output: one_line(&run.output) })
}

/// How a run that was no failure ended.
fn command_end(run: Run) -> CommandEnd {
    let exit_code = match run.ending {
        Ending::Ended(status) => status.code(),
        Ending::Cancelled | Ending::TimedOut => None,
    };
    CommandEnd { exit_code, output: run.output }
}

impl Actuator for ExecActuator {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn compact_range(
        &mut self,
        request: &CompactRequest,
        cancelled: &AtomicBool,
    ) -> Result<CompactOutcome, ActuatorError> {
        let unsupported =
            ActuatorError::Unsupported { actuator: "exec", what: "compact: no command is given" };
        let command = self.compact.as_ref().ok_or(unsupported)?.expand_for(request)?;
        let run = run_to_end(&command, self.time_limit, cancelled)?;
        let end = match run.ending {
            Ending::Cancelled => CompactEnd::Cancelled { reason: "it was asked for".to_owned() },
            Ending::Ended(_) | Ending::TimedOut => CompactEnd::Done,
        };
        Ok(CompactOutcome {
            end,
            duration: run.duration,
            bytes_replaced: 0,
            bytes_flushed: 0,
            deletions_before: 0,
            deletions_after: 0,
            command: Some(command_end(run)),
        })
    }

    fn set_throttle(&mut self, setting: &ThrottleRequest) -> Result<ThrottleOutcome, ActuatorError> {
        let command = expand(setting)?;
        let run = run_to_end(&command, setting.time_limit, &AtomicBool::new(false))?;
        Ok(ThrottleOutcome { duration: run.duration, command: command_end(run) })
    }

    fn commands_for(&self, request: &CompactRequest) -> Vec<String> {
        let Some(template) = &self.compact else { return Vec::new() };
        let expanded =
            if self.show_keys { template.expand_for(request) } else { template.expand_redacted(request) };
        match expanded {
            Ok(command) => vec![command.shell_line()],
            Err(error) => vec![format!("# {error}")],
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use sexton_inspect::facts::ProcessId;
    use sexton_tuner::{cost::Bottommost, key::Key, range::KeyRange};
    use std::path::PathBuf;

    pub fn request(begin: &[u8], end: Option<&[u8]>) -> CompactRequest {
        CompactRequest {
            process: ProcessId { pid: 4711, start_time_ticks: 1 },
            target: "java-4711".into(),
            database: PathBuf::from("/data/om.db"),
            column_family: "keyTable".into(),
            handles: None,
            range: KeyRange { begin: Key::new(begin), end: end.map(Key::new) },
            cost_bytes: 1 << 20,
            bottommost: Bottommost::ForceOptimized,
        }
    }

    fn actuator(words: &[&str], time_limit: Duration) -> ExecActuator {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        ExecActuator::new(Some(CommandTemplate::new(&words).unwrap()), time_limit, true)
    }

    #[test]
    fn a_real_command_gets_the_range() {
        let words = ["echo", "{column_family}", "{path}", "{begin_hex}", "..{end_hex}", "{pid}"];
        let mut exec = actuator(&words, Duration::from_secs(10));
        let request = request(b"/v/a", Some(b"/v/b"));
        let outcome = exec.compact_range(&request, &AtomicBool::new(false)).unwrap();
        let output = "keyTable /data/om.db 2f762f61 ..2f762f62 4711\n".to_owned();
        assert_eq!(outcome.command, Some(CommandEnd { exit_code: Some(0), output }));
        assert_eq!(outcome.end, CompactEnd::Done);
        assert_eq!(exec.commands_for(&request), ["echo keyTable /data/om.db 2f762f61 ..2f762f62 4711"]);
    }

    #[test]
    fn keys_are_redacted_unless_shown() {
        let mut exec = actuator(&["ctl", "{begin_hex}"], Duration::from_secs(10));
        exec.show_keys = false;
        let commands = exec.commands_for(&request(b"customer-4711", None));
        assert!(!commands[0].contains(&Key::new(*b"customer-4711").hex()), "{commands:?}");
    }

    #[test]
    fn failures_keep_exit_code_and_output() {
        let mut exec = actuator(&["sh", "-c", "echo no such range; exit 4"], Duration::from_secs(10));
        let error = exec.compact_range(&request(b"", None), &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.contains("exit status: 4") && error.contains("no such range"), "{error}");
        let mut exec = actuator(&["sleep", "60"], Duration::from_millis(100));
        let error = exec.compact_range(&request(b"", None), &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.contains("time limit"), "{error}");
        let mut exec = actuator(&["/nowhere/ctl"], Duration::from_secs(10));
        let error = exec.compact_range(&request(b"", None), &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, ActuatorError::Spawn { .. }) && !error.remedy().is_empty());
        let mut none = ExecActuator::new(None, Duration::from_secs(1), false);
        assert!(none.compact_range(&request(b"", None), &AtomicBool::new(false)).is_err());
    }

    #[test]
    fn cancelling_is_an_outcome() {
        let mut exec = actuator(&["sleep", "60"], Duration::from_secs(60));
        let outcome = exec.compact_range(&request(b"", None), &AtomicBool::new(true)).unwrap();
        assert!(matches!(outcome.end, CompactEnd::Cancelled { .. }));
    }

    #[test]
    fn the_value_in_force_is_the_first_line_that_is_printed() {
        let get = |script: &str| {
            let request = ThrottleRequest {
                process: ProcessId { pid: 1, start_time_ticks: 1 },
                name: "deletion".into(),
                value: "2000".into(),
                command: ["sh".into(), "-c".into(), script.into()].into(),
                time_limit: Duration::from_secs(10),
            };
            ExecActuator::new(None, Duration::from_secs(1), false).get_throttle(&request)
        };
        assert_eq!(get("echo ' 50000 '; echo more; echo warning >&2").unwrap(), "50000");
        assert!(get("true").unwrap_err().to_string().contains("printed no value"));
        assert!(get("head -c 300 /dev/zero | tr '\\0' 9").is_err());
        assert!(get("echo 50000; exit 22").unwrap_err().to_string().contains("exit status: 22"));
    }

    #[test]
    fn a_throttle_is_set_by_its_own_command() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("set");
        let mut exec = ExecActuator::new(None, Duration::from_secs(1), false);
        let setting = ThrottleRequest {
            process: ProcessId { pid: 1, start_time_ticks: 1 },
            name: "deletion".into(),
            value: "2000".into(),
            command: ["sh".into(), "-c".into(), "echo {value} > \"$0\"".into(), file.display().to_string()]
                .into(),
            time_limit: Duration::from_secs(10),
        };
        exec.set_throttle(&setting).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "2000\n");
    }
}

//! The actuator of mode `advise`: does nothing, and says what an operator would run.

use super::Actuator;
use super::error::ActuatorError;
use super::exec::ExecActuator;
use super::request::{CompactOutcome, CompactRequest, ThrottleOutcome, ThrottleRequest};
use super::sql::SqlActuator;
use super::template::shell_word;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// What would act, if anything were to act.
#[derive(Clone, Debug)]
enum Instead {
    /// A command of the policy.
    Exec(ExecActuator),
    /// A statement to the server that the policy names.
    Sql(SqlActuator),
    /// The hook, with the policy's file if there is one.
    Hook { policy: Option<PathBuf> },
}

/// Shows commands and never runs one.
#[derive(Clone, Debug)]
pub struct AdviseActuator {
    instead: Instead,
}

impl AdviseActuator {
    /// For a target that would be acted on by a command.
    pub fn instead_of_exec(exec: ExecActuator) -> AdviseActuator {
        AdviseActuator { instead: Instead::Exec(exec) }
    }

    /// For a target that would be acted on by a statement.
    pub fn instead_of_sql(sql: SqlActuator) -> AdviseActuator {
        AdviseActuator { instead: Instead::Sql(sql) }
    }

    /// For a target that would be acted on by the hook: no tool outside of the process can compact an
    /// open database, so the command is this agent's own, in mode `act`. `policy` is the file it runs
    /// with now.
    pub fn instead_of_hook(policy: Option<PathBuf>) -> AdviseActuator {
        AdviseActuator { instead: Instead::Hook { policy } }
    }
}

impl Actuator for AdviseActuator {
    fn name(&self) -> &'static str {
        "advise"
    }

    fn compact_range(
        &mut self,
        _request: &CompactRequest,
        _cancelled: &AtomicBool,
    ) -> Result<CompactOutcome, ActuatorError> {
        Err(ActuatorError::Unsupported { actuator: "advise", what: "act: it only shows commands" })
    }

    fn set_throttle(&mut self, _setting: &ThrottleRequest) -> Result<ThrottleOutcome, ActuatorError> {
        Err(ActuatorError::Unsupported { actuator: "advise", what: "act: it only shows commands" })
    }

    fn commands_for(&self, request: &CompactRequest) -> Vec<String> {
        match &self.instead {
            Instead::Exec(exec) => exec.commands_for(request),
            Instead::Sql(sql) => sql.commands_for(request),
            Instead::Hook { policy: Some(policy) } => vec![format!(
                "sexton run --policy {}  # with `mode: act` for {}",
                shell_word(&policy.to_string_lossy()),
                shell_word(&request.target)
            )],
            Instead::Hook { policy: None } => vec![format!(
                "sexton run --policy act.yaml  # a policy with `mode: act` and `pid: {}` as a target",
                request.process.pid
            )],
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::exec::tests::request;
    use super::super::template::CommandTemplate;
    use super::*;
    use std::time::Duration;

    #[test]
    fn shows_and_never_runs() {
        let template = CommandTemplate::new(&["touch".into(), "{path}".into()]).unwrap();
        let exec = ExecActuator::new(Some(template), Duration::from_secs(1), true);
        let mut advise = AdviseActuator::instead_of_exec(exec);
        let request = request(b"a", None);
        assert_eq!(advise.commands_for(&request), ["touch /data/om.db"]);
        assert!(advise.compact_range(&request, &AtomicBool::new(false)).is_err());
        let with_policy = AdviseActuator::instead_of_hook(Some("/etc/sexton/my policy.yaml".into()));
        let line = with_policy.commands_for(&request).remove(0);
        assert!(line.starts_with("sexton run --policy '/etc/sexton/my policy.yaml'"), "{line}");
        let without = AdviseActuator::instead_of_hook(None).commands_for(&request).remove(0);
        assert!(without.contains("4711"), "{without}");
    }
}

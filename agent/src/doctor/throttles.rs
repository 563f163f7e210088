//! Whether the values of a policy's throttles can be read: by the very commands, as the very user.
//!
//! What stands in the way of such a command is most often its environment: a program that is not in `PATH`,
//! no `JAVA_HOME`, no Kerberos ticket, a quota that a JVM does not start within. Only trying finds that out.
//! Commands that set something are not tried.

use super::finding::Finding;
use sexton_execute::{SettingTask, Task, ThrottleTask, run_throttle};
use sexton_inspect::facts::Target;
use sexton_tuner::policy::{Mode, Policy, TargetPolicy, ThrottlePolicy};

/// One finding for each throttle of the target that says how its value is read.
pub fn findings(target: &Target, policy: Option<&Policy>) -> Vec<Finding> {
    let Some(policy) = policy else { return Vec::new() };
    let Some(entry) = policy.target_for(&target.candidate()) else { return Vec::new() };
    let may_run = policy.mode_of(entry) == Mode::Act;
    let readable = entry.throttles.iter().filter_map(|throttle| Some((throttle, throttle.get.clone()?)));
    readable.map(|(throttle, get)| finding(target, entry, throttle, get, may_run)).collect()
}

fn finding(
    target: &Target,
    entry: &TargetPolicy,
    throttle: &ThrottlePolicy,
    get: Vec<String>,
    may_run: bool,
) -> Finding {
    let name = format!("throttle {}", throttle.name);
    if !may_run {
        let remedy = "give doctor a copy of the policy with mode: act";
        return Finding::unknown(
            name,
            "its value is read",
            "the policy's commands are run in mode act only",
            remedy,
        );
    }
    let task = ThrottleTask {
        process: target.process,
        value: String::new(),
        command: throttle.command.clone(),
        get: Some(get.clone()),
        only_from: None,
        user: entry.commands_user.clone(),
        time_limit: throttle.timeout.duration(),
    };
    match run_throttle(&Task::Read(SettingTask::Throttle(task))) {
        Ok(outcome) => Finding::yes(name, format!("{} is in force", outcome.value.unwrap_or_default())),
        Err(error) => {
            let program = get.first().map(String::as_str).unwrap_or_default();
            let user = entry.commands_user.as_deref().unwrap_or("the agent's user");
            let remedy = format!(
                "run {program} by hand as {user}, with the service's environment: PATH, JAVA_HOME, a Kerberos ticket \
                 (KRB5CCNAME), and its CPUQuota= and MemoryMax="
            );
            Finding::no(name, "its value is read", error.to_string(), remedy)
        }
    }
}

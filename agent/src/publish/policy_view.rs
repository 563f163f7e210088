//! The policy as the outside sees it: what may be secret is left out.

use serde_json::Value;
use sexton_tuner::policy::{EXEC_PLACEHOLDERS, GUARD_PLACEHOLDERS, Policy, THROTTLE_PLACEHOLDER};

/// Stands for an argument of a command, or for what an address is asked with.
const LEFT_OUT: &str = "(left out)";

/// The whole policy, defaults filled in. Commands keep their program and the placeholders: what else they are
/// called with may be a password, and so may be what stands behind an address.
pub fn policy_view(policy: &Policy) -> Value {
    let mut shown = policy.clone();
    let hold = shown.guards.hold.iter_mut().map(|hold| &mut hold.run);
    let command = shown.guards.command.iter_mut().map(|command| &mut command.run);
    hold.chain(command).for_each(|command| leave_arguments_out(command));
    for target in &mut shown.targets {
        if let Some(exec) = &mut target.exec {
            leave_arguments_out(&mut exec.compact);
        }
        for throttle in &mut target.throttles {
            leave_arguments_out(&mut throttle.command);
            throttle.get.iter_mut().for_each(|command| leave_arguments_out(command));
        }
        let signals = target.pressure.iter_mut().flat_map(|pressure| &mut pressure.signals);
        for endpoint in signals.filter_map(|signal| signal.endpoint.as_mut()) {
            if let Some((address, _)) = endpoint.split_once('?') {
                *endpoint = format!("{address}?{LEFT_OUT}");
            }
        }
    }
    // A policy that was read can be written.
    serde_json::to_value(&shown).unwrap_or_default()
}

fn leave_arguments_out(command: &mut [String]) {
    let known = [&EXEC_PLACEHOLDERS[..], &GUARD_PLACEHOLDERS].concat();
    let is_placeholder = |argument: &str| argument == THROTTLE_PLACEHOLDER || known.contains(&argument);
    for argument in command.iter_mut().skip(1).filter(|argument| !is_placeholder(argument)) {
        *argument = LEFT_OUT.to_owned();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn what_may_be_secret_is_left_out_and_the_rest_is_there() {
        let policy = Policy::parse(
            "mode: act\nguards: { hold: { run: [/bin/lock, --password=secret, '{entry}'] } }\ntargets:\n  - name: om\n    match: { user: hdfs }\n    executor: exec\n    \
             exec: { compact: [/bin/admin, --password=secret, '{begin_hex}', '{end_hex}', '{column_family}'] }\n    \
             pressure: { signals: [{ name: q, kind: metric, low: 1, high: 9, metric: m, \
             endpoint: 'http://127.0.0.1:9874/prom?token=secret' }] }\n    \
             throttles:\n      - { name: t, inside: '9', outside: '5', command: [/bin/set, secret, '{value}'], get: [/bin/get, secret] }\n",
        )
        .unwrap();
        let view = policy_view(&policy);
        let text = view.to_string();
        assert!(!text.contains("secret"), "{text}");
        let target = &view["targets"][0];
        assert_eq!(target["exec"]["compact"][2], "{begin_hex}");
        assert_eq!(view["guards"]["hold"]["run"], json!(["/bin/lock", "(left out)", "{entry}"]));
        assert_eq!(target["throttles"][0]["command"], json!(["/bin/set", "(left out)", "{value}"]));
        assert!(
            target["pressure"]["signals"][0]["endpoint"]
                .as_str()
                .unwrap()
                .starts_with("http://127.0.0.1:9874/prom?")
        );
        assert_eq!((&view["mode"], &view["keys"]), (&json!("act"), &json!("redacted")));
    }
}

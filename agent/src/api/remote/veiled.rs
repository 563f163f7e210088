//! What is known without whole keys: for callers that may not see them, where the policy shows them.
//!
//! Keys that stand by themselves are redacted. Sentences may name keys: they are left out whole. Where the
//! policy redacts keys already, nothing is done.

use crate::snapshot::{ActionView, PlanStepView, RangeView, RefusalView, Snapshot};
use serde_json::Value;
use sexton_journal::Event;
use sexton_tuner::key::Key;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;

/// Stands for a sentence.
const WITHHELD: &str = "(may name keys: to be read with the scope keys)";
/// The kind of action that `begin` and `end` are keys of.
const COMPACT_RANGE: &str = "compact_range";

/// The veiled snapshots, and what makes them as long as it is waited for.
pub fn follow(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
) -> (watch::Receiver<Arc<Snapshot>>, impl Future<Output = ()>) {
    let first = Arc::clone(&snapshots.borrow_and_update());
    let (sender, receiver) = watch::channel(veiled(&first));
    let feeding = async move {
        while snapshots.changed().await.is_ok() {
            let newest = Arc::clone(&snapshots.borrow_and_update());
            sender.send_replace(veiled(&newest));
        }
        // Whoever reads it is told that nothing more comes.
        drop(sender);
        std::future::pending().await
    };
    (receiver, feeding)
}

fn veiled(snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
    if !snapshot.shows_keys {
        return Arc::clone(snapshot);
    }
    let mut veiled = Snapshot::clone(snapshot);
    veiled.shows_keys = false;
    veiled.history = snapshot.history.redacted();
    veiled.ranges.iter_mut().for_each(veil_range);
    veiled.plan.steps.iter_mut().for_each(veil_step);
    veiled.plan.refusals.iter_mut().for_each(veil_refusal);
    veiled.actions.iter_mut().for_each(veil_action);
    veiled.events = snapshot.events.iter().filter_map(veil_event).collect();
    Arc::new(veiled)
}

fn veil_range(range: &mut RangeView) {
    veil_keys(&mut range.begin, &mut range.end);
    range.reason = WITHHELD.to_owned();
}

fn veil_step(step: &mut PlanStepView) {
    if step.action == COMPACT_RANGE {
        veil_keys(&mut step.begin, &mut step.end);
        step.commands.iter_mut().for_each(|command| *command = WITHHELD.to_owned());
    }
    step.reason = WITHHELD.to_owned();
}

fn veil_refusal(refusal: &mut RefusalView) {
    refusal.subject = WITHHELD.to_owned();
    refusal.reason = WITHHELD.to_owned();
}

fn veil_action(action: &mut ActionView) {
    if action.action == COMPACT_RANGE {
        veil_keys(&mut action.begin, &mut action.end);
    }
    action.reason = WITHHELD.to_owned();
    action.outcome = WITHHELD.to_owned();
}

/// `None`: it cannot be taken apart, and is left out.
fn veil_event(event: &Event) -> Option<Event> {
    let mut value = serde_json::to_value(event).ok()?;
    let name = event.kind.name();
    let fields = value.as_object_mut()?;
    let is_about_keys = fields.contains_key("action_id") || ["refused", "plan_made"].contains(&name);
    if !is_about_keys {
        return Some(event.clone());
    }
    if fields.get("action").is_some_and(|action| action == COMPACT_RANGE) {
        for field in ["begin", "end"] {
            if let Some(Value::String(key)) = fields.get_mut(field) {
                *key = redacted(key);
            }
        }
    }
    // Elsewhere the subject is a column family.
    let subject = (name == "refused").then_some("subject");
    for field in ["reason", "outcome", "first"].into_iter().chain(subject) {
        if let Some(Value::String(text)) = fields.get_mut(field) {
            *text = WITHHELD.to_owned();
        }
    }
    serde_json::from_value(value).ok()
}

fn veil_keys(begin: &mut String, end: &mut Option<String>) {
    *begin = redacted(begin);
    if let Some(end) = end {
        *end = redacted(end);
    }
}

/// A whole key, as text, redacted.
fn redacted(whole: &str) -> String {
    Key::new(bytes_of(whole)).redacted()
}

/// What [`Key::escaped`] has made a text of.
fn bytes_of(whole: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(whole.len());
    let mut rest = whole.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, left) = match (first, after) {
            (b'\\', [b'x', digits @ ..]) => match digits.split_at_checked(2) {
                Some((digits, left)) => (hexadecimal(digits), left),
                None => (b'\\', after),
            },
            (b'\\', [_, left @ ..]) => (b'\\', left),
            _ => (*first, after),
        };
        bytes.push(byte);
        rest = left;
    }
    bytes
}

fn hexadecimal(digits: &[u8]) -> u8 {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn nothing_is_done_where_the_policy_redacts_keys() {
        let snapshot = Arc::new(Snapshot::default());
        assert!(Arc::ptr_eq(&veiled(&snapshot), &snapshot));
    }

    #[test]
    fn no_key_is_left_anywhere() {
        let key = "/vol/very-secret/key";
        let text = format!("range [{key} .. end) hurts");
        let subject = json!({
            "action_id": 1, "action": "compact_range", "target": "t", "database": "/db", "subject": "keyTable",
            "begin": key, "end": key, "reason": text, "outcome": text,
        });
        let of = |name: &str, more: Value| {
            let mut event = json!({"id": 7, "at": "2026-11-20T10:00:00Z", "event": name});
            for fields in [subject.as_object().unwrap(), more.as_object().unwrap()] {
                event.as_object_mut().unwrap().extend(fields.clone());
            }
            serde_json::from_value::<Event>(event).unwrap()
        };
        let plan = json!({"steps": 1, "refusals": 0, "cost_bytes": 1, "budget_bytes": 1, "first": text});
        let refused = json!({
            "target": "t", "database": "/db", "column_family": "keyTable", "rule": "cooldown", "ranges": 1,
            "subject": text,
        });
        let end = json!({"state": "done", "bytes_rewritten": 1, "duration_seconds": 1.0});
        let snapshot = Snapshot {
            shows_keys: true,
            ranges: vec![RangeView {
                begin: key.to_owned(),
                end: Some(key.to_owned()),
                reason: text.clone(),
                ..RangeView::default()
            }],
            actions: vec![serde_json::from_value(subject.clone()).unwrap()],
            events: vec![
                of("plan_made", plan),
                of("refused", refused),
                of("slice_started", json!({"cost_bytes": 1})),
                of("slice_done", end),
                of("slice_paused", json!({"guard": "level0_files"})),
                of("verified", json!({"helped": true, "pain_before": 1.0, "pain_after": 0.0})),
                of("backed_off", json!({"failures_in_a_row": 1})),
                of("interrupted", json!({})),
                of("target_gone", json!({"pid": 1})),
            ],
            plan: serde_json::from_value(json!({
                "budget_bytes": 1, "cost_bytes": 1,
                "steps": [{
                    "action": "compact_range", "target": "t", "subject": "keyTable", "begin": key, "end": key,
                    "cost_bytes": 1, "relief_seconds_per_second": 1.0, "reason": text, "commands": [text],
                }],
                "refusals": [{"subject": text, "rule": "cooldown", "reason": text}],
            }))
            .unwrap(),
            ..Snapshot::default()
        };
        let events = snapshot.events.len();
        let veiled = veiled(&Arc::new(snapshot));
        let text = serde_json::to_string(&*veiled).unwrap();
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("2f766f6c…(20 bytes)") && veiled.events.len() == events, "{text}");
    }

    proptest! {
        #[test]
        fn an_escaped_key_is_taken_apart_again(bytes: Vec<u8>) {
            prop_assert_eq!(bytes_of(&Key::new(bytes.clone()).escaped()), bytes);
        }

        #[test]
        fn no_text_ends_the_agent(text: String) {
            redacted(&text);
        }
    }
}

//! How an action ends: in numbers, in words, and what it is charged.

use super::action::Action;
use super::context::{Context, Next};
use super::event::{Effect, Measurement, Record};
use super::job::JobEnd;
use super::kind::ActionKind;
use super::moment::Moment;
use super::news::News;
use super::outcome::{End, Outcome};
use super::setting::SettingChange;
use super::state::ActionState;
use crate::charge::charged_bytes;

/// Why an action whose process has ended has failed.
pub(super) const TARGET_GONE: &str = "its target has ended";

/// The end of an action as its executor has seen it; `message` is what came of it or why it ended so, in
/// words.
pub(super) fn end_of(
    action: &Action,
    outcome: Outcome,
    message: String,
    job: Option<&JobEnd>,
    now: Moment,
) -> End {
    let duration_seconds = now.since(&action.started).as_secs_f64();
    End {
        duration_seconds,
        bytes_rewritten: action.bytes_replaced,
        deletions_before: job.map_or(0, |job| job.deletions_before),
        deletions_after: job.map_or(0, |job| job.deletions_after),
        ..End::new(now, outcome, message)
    }
}

/// What is known of what an action has changed.
#[derive(Clone, Copy)]
pub(super) enum Changed {
    /// It was measured.
    Measured(Measurement),
    /// Nobody has looked, or could.
    NotMeasured,
    /// Its process ended while it was under way.
    TargetGone,
}

/// Ends an action.
pub(super) fn complete(action: &mut Action, mut end: End, changed: Changed, context: &Context<'_>) -> Next {
    let is_gone = matches!(changed, Changed::TargetGone);
    let mut device_bytes = None;
    if let Changed::Measured(measured) = changed {
        device_bytes = measured.device_bytes;
        take(&mut end, &measured);
    }
    end.bytes_transient = action.bytes_transient;
    end.bytes_rewritten = end.bytes_rewritten.saturating_add(action.bytes_transient);
    end.at = context.now;
    end.duration_seconds = context.now.since(&action.started).as_secs_f64();
    // What a target that has ended made of it is not known.
    end.rests |= is_gone
        || end.may_run_on
        || action.parts_done > 0
        || matches!(end.outcome, Outcome::Done | Outcome::Aborted(_));
    end.message = in_words(action, &end);
    let spent_bytes = spent(action, &end, device_bytes, is_gone);
    action.claim = action.claim.take().filter(|_| end.outcome == Outcome::Done);
    let mut news = vec![News::Ended];
    if is_gone {
        news.push(News::TargetGone);
    }
    ended(action, end, news, spent_bytes)
}

/// Writes down that an action has ended.
pub(super) fn ended(action: &Action, end: End, news: Vec<News>, spent_bytes: u64) -> Next {
    let is_orphaned = end.may_run_on && action.kind.cost_bytes() > 0;
    let mut effects = vec![Effect::Record(Record { news, spent_bytes, ..Record::default() })];
    if is_orphaned {
        effects.push(Effect::Orphan);
    }
    (ActionState::Done(end), effects)
}

fn take(end: &mut End, measured: &Measurement) {
    if let Some(bytes) = measured.bytes_replaced {
        end.bytes_rewritten = bytes;
    }
    if let Some((before, after)) = measured.deletions {
        (end.deletions_before, end.deletions_after) = (before, after);
    }
    end.memtable_deletions_before = measured.memtable_deletions_before;
    end.memtable_deletions_after = measured.memtable_deletions_after;
    end.snapshots = measured.snapshots;
    end.oldest_snapshot_age_seconds = measured.oldest_snapshot_age_seconds;
    end.oldest_snapshot_sequence = measured.oldest_snapshot_sequence;
}

/// What an action takes from the budgets. Where nobody can say what was written, it is all that was expected.
fn spent(action: &Action, end: &End, device_bytes: Option<u64>, is_gone: bool) -> u64 {
    let cost_bytes = action.kind.cost_bytes();
    let is_unknown = is_gone || end.may_run_on;
    match &action.kind {
        ActionKind::Compact(_) => {
            let charged = charged_bytes(end.bytes_rewritten, cost_bytes, device_bytes);
            if is_unknown { charged.max(all_of(action)) } else { charged }
        }
        ActionKind::Flush(_) if is_unknown || end.outcome == Outcome::Done => cost_bytes,
        ActionKind::Flush(_) => action.bytes_transient,
        ActionKind::ChangeSetting(_) => 0,
    }
}

/// What an action costs where nobody knows how much of it was done, beside what it has thrown away before.
pub(super) fn all_of(action: &Action) -> u64 {
    action.kind.cost_bytes().saturating_add(action.bytes_transient)
}

fn in_words(action: &Action, end: &End) -> String {
    let message = end.message.as_str();
    match &action.kind {
        ActionKind::Compact(_) => compaction_in_words(action, end),
        ActionKind::Flush(_) if end.outcome == Outcome::Done => "flushed".to_owned(),
        ActionKind::ChangeSetting(SettingChange::Option(set)) if end.outcome == Outcome::Done => {
            format!("{} was {} before", set.name, set.restore)
        }
        ActionKind::ChangeSetting(_) if action.failures() > 0 => {
            format!("{message}, after {} failures", action.failures())
        }
        ActionKind::Flush(_) | ActionKind::ChangeSetting(_) => message.to_owned(),
    }
}

fn compaction_in_words(action: &Action, end: &End) -> String {
    let message = end.message.as_str();
    if matches!(end.outcome, Outcome::Failed | Outcome::Skipped) {
        return message.to_owned();
    }
    let mut changed = format!(
        "{} bytes of SST files rewritten, deletions in the range {} -> {}",
        end.bytes_rewritten, end.deletions_before, end.deletions_after
    );
    if let (Some(before), Some(after)) = (end.memtable_deletions_before, end.memtable_deletions_after) {
        changed = format!("{changed}, in memtables {before} -> {after}");
    }
    if action.pauses > 0 {
        changed = format!("paused by guards {} times; {changed}", action.pauses);
    }
    match end.outcome {
        _ if message.is_empty() => changed,
        // What a command has said comes last.
        Outcome::Done => format!("{changed}; {message}"),
        _ => format!("{message}; {changed}"),
    }
}

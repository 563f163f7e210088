//! Actions, effects and settings in words.

use sexton_tuner::run::{
    Action, ActionState, Effect, End, KeptSetting, KeptState, Moment, News, Phase, Rejection, SettingRecord,
};
use sexton_tuner::words;
use sexton_tuner::{KeyRange, policy::KeyDisplay};

fn range(range: &KeyRange) -> String {
    words::range(range, KeyDisplay::Shown)
}

pub fn shown_rejection(rejection: &Rejection, now: Moment) -> String {
    let until = rejection.until.map(|until| format!(" (for {:.0} s)", now.until(&until).as_secs_f64()));
    format!("rejected by {}: {}{}", rejection.by.name(), rejection.reason, until.unwrap_or_default())
}

pub fn shown_effect(effect: &Effect) -> String {
    match effect {
        Effect::Refuse(rejection) => format!("refused by {}: {}", rejection.by.name(), rejection.reason),
        Effect::WriteAhead { is_first, setting, .. } => {
            let setting = setting.as_ref().map(|setting| {
                format!(", and to restore {}={}", setting.setting.name, value(setting.restore.as_deref()))
            });
            let again = if *is_first { "" } else { " that it goes on" };
            format!("write ahead{again}{}", setting.unwrap_or_default())
        }
        Effect::Start(part) => format!("start {}", range(part)),
        Effect::Cancel => "cancel".to_owned(),
        Effect::AskAfter(job) => format!("ask after job {}", job.0),
        Effect::ReadFiles => "read files".to_owned(),
        Effect::Measure => "measure".to_owned(),
        Effect::Objection(refusal) => format!("count an objection of {}", refusal.guard.name()),
        Effect::Orphan => "its job may run on unseen".to_owned(),
        Effect::Record(record) => {
            let mut text = "record".to_owned();
            for news in &record.news {
                text = format!("{text}, tell {}", shown_news(news));
            }
            if record.spent_bytes > 0 {
                text = format!("{text}, spend {}", words::bytes(record.spent_bytes));
            }
            text + &shown_setting_record(&record.setting)
        }
    }
}

fn shown_setting_record(record: &SettingRecord) -> String {
    match record {
        SettingRecord::Unchanged => String::new(),
        SettingRecord::Put(setting) => format!(", put setting {}", setting.setting.name),
        SettingRecord::Remove(setting) => format!(", remove setting {}", setting.setting.name),
    }
}

fn value(value: Option<&str>) -> &str {
    value.unwrap_or("unknown")
}

fn shown_news(news: &News) -> String {
    match news {
        News::Paused(refusal) => format!("paused by {}", refusal.guard.name()),
        News::Ended => "ended".to_owned(),
        News::Interrupted => "interrupted".to_owned(),
        News::TargetGone => "target gone".to_owned(),
        News::Verified => "verified".to_owned(),
        News::BackedOff => "backed off".to_owned(),
        News::SettingFailed => "setting failed".to_owned(),
        News::SettingChanged => "setting changed".to_owned(),
        News::SettingRestored { value: now, reason } => {
            format!("setting restored to {}, because {reason}", value(now.as_deref()))
        }
    }
}

pub fn shown_setting(setting: &KeptSetting, now: Moment) -> String {
    let state = match &setting.state {
        KeptState::Intended => "is about to be set".to_owned(),
        KeptState::InForce => "is in force".to_owned(),
        KeptState::Restoring(reason) if setting.is_to_be_restored(now) => {
            format!("is to be restored: {reason}")
        }
        KeptState::Restoring(reason) => format!("is to be restored later: {reason}"),
    };
    let was = value(setting.restore.as_deref());
    format!("{}={} (was {was}) {state}", setting.setting.name, setting.wanted)
}

/// `#1 running (working on [a, m)), job 7`.
pub fn shown_action(action: &Action) -> String {
    let state = match &action.state {
        ActionState::Planned => String::new(),
        ActionState::Running(running) => {
            let phase = match &running.phase {
                Phase::WritingAhead { .. } => "writing ahead".to_owned(),
                Phase::Working => format!("working on {}", range(&running.part)),
                Phase::Measuring(end) => format!("measuring, {}", end.outcome.name()),
            };
            let left: Vec<String> = running.left.iter().map(range).collect();
            let left = if left.is_empty() { String::new() } else { format!(", then {}", left.join(", ")) };
            let job = running.job.map(|job| format!(", job {}", job.0)).unwrap_or_default();
            let stop = if running.stop.is_some() { ", to stop" } else { "" };
            format!(" ({phase}{left}{job}{stop})")
        }
        ActionState::Paused(paused) => format!(" (paused by {})", paused.objection.guard.name()),
        ActionState::Retrying(_) => {
            format!(" ({} times, {})", action.failures(), action.failure.as_ref().map_or("", |it| &it.reason))
        }
        ActionState::InDoubt(doubt) => format!(" (in doubt, job {})", doubt.job.0),
        ActionState::Done(end) => shown_end(end),
        ActionState::Verified { end, verification } => {
            let cause = verification.cause.map(|cause| format!(" ({})", cause.name())).unwrap_or_default();
            let rests = if end.rests { ", rests" } else { "" };
            format!(
                "{cause}, {} failures in a row{rests}: {}",
                verification.failures_in_a_row, verification.reason
            )
        }
    };
    let owed = if action.awaits_verification() { "; to be verified" } else { "" };
    format!("#{} {}{state}{owed}", action.id, action.state.name())
}

fn shown_end(end: &End) -> String {
    let rests = if end.rests { ", rests" } else { "" };
    format!(" after {:.0} s{rests}: {}", end.duration_seconds, end.message)
}

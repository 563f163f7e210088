//! Throttles and pressures as the outside sees them.

use crate::act::Actor;
use crate::observe::{Observer, Watched};
use crate::snapshot::{PressureView, SignalView, ThrottleView};
use sexton_tuner::policy::{Mode, ThrottlePolicy};
use sexton_tuner::pressure::{Pressure, SignalReading};
use sexton_tuner::run::SettingKind;
use sexton_tuner::throttle::{KnownThrottles, ThrottleSetting, ThrottleStep, throttle_values};

pub fn throttle_views(observer: &Observer, actor: &Actor) -> Vec<ThrottleView> {
    let known = actor.known_throttles();
    let watched = observer.roster.watched.iter();
    watched.flat_map(|watched| views_of(observer, actor, watched, &known)).collect()
}

fn views_of(
    observer: &Observer,
    actor: &Actor,
    watched: &Watched,
    known: &KnownThrottles,
) -> Vec<ThrottleView> {
    let settings = throttle_values(&observer.policy, &watched.entry, &watched.target.name, known);
    let pressure = observer.signals.pressure_of(watched).map(|pressure| pressure.ratio);
    let views = watched.entry.throttles.iter().map(|throttle| {
        let setting = settings.iter().find(|setting| setting.name == throttle.name);
        let numbers = numbers(observer, throttle, pressure);
        view(actor, watched, throttle, setting, numbers, known)
    });
    views.collect()
}

/// What a throttle's number is made of, where it follows pressure.
fn numbers(observer: &Observer, throttle: &ThrottlePolicy, pressure: Option<f64>) -> ThrottleView {
    let side = observer.policy.throttle_side().0;
    let Some((slowest, fastest)) = throttle.bounds(side) else { return ThrottleView::default() };
    ThrottleView {
        slowest: Some(slowest),
        fastest: Some(fastest),
        ratio: Some(throttle.ratio(side)),
        pressure,
        ..ThrottleView::default()
    }
}

fn view(
    actor: &Actor,
    watched: &Watched,
    throttle: &ThrottlePolicy,
    setting: Option<&ThrottleSetting>,
    numbers: ThrottleView,
    known: &KnownThrottles,
) -> ThrottleView {
    let now = jiff::Timestamp::now();
    let target = &watched.target;
    let state = known.get(&(target.name.clone(), throttle.name.clone()));
    let is_it = |kind: &SettingKind, name: &str| *kind == SettingKind::Throttle && name == throttle.name;
    let mut kept = actor.ledger.settings().iter();
    let kept =
        kept.find(|kept| kept.process == target.process && is_it(&kept.setting.kind, &kept.setting.name));
    let is_failing =
        state.and_then(|state| state.failure.as_ref()).filter(|failure| !failure.reason.is_empty());
    let step = setting.map(|setting| setting.step(state, now));
    let read = state.and_then(|state| state.read_unix_s);
    ThrottleView {
        target: target.name.clone(),
        name: throttle.name.clone(),
        wanted: setting.map(|setting| setting.value.clone()),
        observed: state.and_then(|state| state.value.clone()),
        observed_age_seconds: read.and_then(|read| u64::try_from(now.as_second().saturating_sub(read)).ok()),
        restore: kept.and_then(|kept| kept.restore.clone()),
        state: match step {
            _ if watched.mode != Mode::Act => "not_acted_on",
            _ if state.is_some_and(|state| state.is_being_restored) => "restoring",
            Some(ThrottleStep::Yield) => "yields",
            Some(ThrottleStep::InForce) => "in_force",
            _ if is_failing.is_some() => "failing",
            Some(ThrottleStep::Set | ThrottleStep::Rest) => "to_be_set",
            Some(ThrottleStep::Read) | None => "to_be_read",
        }
        .to_owned(),
        reason: setting.map(|setting| setting.reason.clone()),
        failure: is_failing.map(|failure| failure.reason.clone()),
        ..numbers
    }
}

pub fn pressure_views(observer: &Observer) -> Vec<PressureView> {
    let asked = observer.roster.watched.iter().filter(|watched| watched.entry.pressure.is_some());
    let views = asked.map(|watched| {
        let Pressure { ratio, signals } = match observer.signals.pressure_of(watched) {
            Some(pressure) => pressure,
            None => return PressureView { target: watched.target.name.clone(), ..PressureView::default() },
        };
        PressureView {
            target: watched.target.name.clone(),
            pressure: Some(ratio),
            signals: signals.into_iter().map(signal_view).collect(),
        }
    });
    views.collect()
}

fn signal_view(reading: SignalReading) -> SignalView {
    SignalView {
        name: reading.name,
        kind: reading.kind.name().to_owned(),
        value: reading.value.as_ref().ok().copied(),
        pressure: reading.pressure,
        trouble: reading.value.err(),
    }
}

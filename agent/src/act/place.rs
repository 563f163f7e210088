//! Where actions are done: databases, their block devices, column families, keys.

use crate::observe::{Observer, Watched};
use crate::session::{PROBE_LIMIT, Session, note};
use sexton_tuner::policy::KeyDisplay;
use sexton_tuner::run::{ActionId, ActionKind, KeptSetting, Place};
use sexton_tuner::words;
use std::path::{Path, PathBuf};

/// The option that an action would set, as it would be kept.
pub fn option_of(watched: &Watched, kind: &ActionKind) -> Option<KeptSetting> {
    let place = place_of(watched, kind)?;
    KeptSetting::of(ActionId::default(), kind, watched.target.process, Some(&place))
}

/// The keys that an action is done to; `None` where these are none of a database that is open.
pub fn place_of(watched: &Watched, kind: &ActionKind) -> Option<Place> {
    Some(Place {
        database: watched.identity_of(Path::new(kind.database()?))?,
        column_family: kind.column_family()?.to_owned(),
        range: kind.range(),
    })
}

/// The databases of a target that lie on a block device.
pub fn databases_on(watched: &Watched, device: u64) -> Vec<PathBuf> {
    let databases = watched.target.databases.iter();
    databases.filter(|known| known.device == Some(device)).map(|known| known.path.clone()).collect()
}

/// The block device that a database lies on.
pub fn device_of(watched: &Watched, database: &Path) -> Option<u64> {
    watched.target.databases.iter().find(|known| known.path == database)?.device
}

/// What an action is done to, as the policy allows it to be shown.
pub fn subject(kind: &ActionKind, keys: KeyDisplay) -> String {
    let column_family = kind.column_family().unwrap_or_default();
    match kind {
        ActionKind::Compact(compact) => format!("{column_family} {}", words::range(&compact.range, keys)),
        ActionKind::Flush(_) => column_family.to_owned(),
        ActionKind::ChangeSetting(change) => format!("{column_family} {}", change.setting().name),
    }
}

/// The target that has a setting's database open: the process of then, or another one.
pub fn watched_of<'a>(observer: &'a mut Observer, kept: &KeptSetting) -> Option<&'a mut Watched> {
    let has_it = |watched: &Watched| {
        let mut databases = watched.target.databases.iter();
        databases.any(|database| Some(database.identity()) == kept.database)
    };
    let watched = &mut observer.roster.watched;
    let same_process = watched.iter().position(|it| it.target.process == kept.process && has_it(it));
    let at = same_process.or_else(|| watched.iter().position(has_it))?;
    watched.get_mut(at)
}

/// Notes a value as the next OPTIONS file will have it.
pub fn note_value(watched: &mut Watched, kept: &KeptSetting, value: &str) {
    let families = kept.database.as_ref().and_then(|database| watched.options.get_mut(&database.path));
    note(families, kept, value);
    let (kept, value) = (kept.clone(), value.to_owned());
    watched.worker.ask("noting an option's value", PROBE_LIMIT, move |session: &mut Session| {
        session.note_value(&kept, &value);
    });
}

//! The history of pain and actions: what each cycle adds to it, where it is kept, and how it is shown.
//!
//! How it is merged and drawn is the tuner's ([`sexton_tuner::history`]). Here it is fed, written to Parquet
//! files in the state directory by a thread of its own ([`writer`]), read back at the start ([`file`]), and
//! shown with its keys redacted ([`view`]). The loop never waits for the disk.

mod file;
mod range;
mod view;
mod writer;

pub use file::{load, store};
pub use range::{PublishedRanges, RangeStretchView};
pub use view::{CountedView, FamiliesView, FamilyView, HeatmapView, Shown, TimesView};

use crate::session::FamilyName;
use sexton_journal::Listed;
use sexton_tuner::history::{Amounts, Bucket, Cell, History, Metric, Place};
use sexton_tuner::policy::KeyDisplay;
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::run::{Action, ActionId, ActionKind};
use sexton_tuner::waits::Times;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use writer::Writer;

/// What operations in an unknown column family are listed under.
const UNKNOWN: &str = "unknown";

/// How often it is written: an agent that is killed loses so much of it.
const WRITE_INTERVAL: Duration = Duration::from_secs(15);

/// The history, and what is new for it.
pub struct Recorder {
    history: History,
    /// `None`: it is forgotten with the agent.
    writer: Option<Writer>,
    /// When a cycle last added to it.
    last: Option<Instant>,
    /// When it was last written; `None`: not in this run.
    written: Option<Instant>,
    /// Actions whose end is in it.
    ended: BTreeSet<ActionId>,
}

impl Recorder {
    /// With what an earlier run has left in the state directory. Where it cannot be read, it begins anew: the
    /// agent decides nothing by it.
    pub fn open(state_directory: Option<&Path>) -> Recorder {
        let directory = state_directory.map(|state| state.join("history"));
        let history = directory.as_deref().map(load).unwrap_or_default();
        let writer = directory.and_then(|directory| Writer::start(directory, history.clone()));
        Recorder { history, writer, last: None, written: None, ended: BTreeSet::new() }
    }

    /// Takes in what readers lose time in since the last cycle, at most for `time_max`, how long operations
    /// took by target and column family, and the actions that have ended since.
    pub fn record<'a>(
        &mut self,
        now: jiff::Timestamp,
        time_max: Duration,
        ranges: &[RangeAssessment],
        times: Vec<(String, FamilyName, Times)>,
        listed: impl Iterator<Item = Listed<'a>>,
    ) {
        let began = Instant::now();
        let time = self.last.replace(began).map_or(Duration::ZERO, |last| began.duration_since(last));
        let seconds = time.min(time_max).as_secs_f64();
        let lost = ranges.iter().filter_map(|range| lost_in(range, seconds));
        let lost: Vec<(Place, Cell)> = lost.chain(self.done(listed)).collect();
        let times = times.into_iter().map(|(target, name, times)| (place_of_family(target, name), times));
        self.history.record(now.as_second(), &Bucket::of(lost).with_times(times));
        if !self.history.is_empty() && self.written.is_none_or(|written| written.elapsed() >= WRITE_INTERVAL)
        {
            self.written = Some(began);
            self.write();
        }
    }

    /// What actions have ended in this run and are not in the history yet.
    fn done<'a>(&mut self, listed: impl Iterator<Item = Listed<'a>>) -> Vec<(Place, Cell)> {
        let of_this_run = listed.filter(|listed| !listed.is_earlier).map(|listed| listed.action);
        let ended: Vec<&Action> = of_this_run.filter(|action| action.state.end().is_some()).collect();
        let news: Vec<_> = ended.iter().filter(|action| !self.ended.contains(&action.id)).collect();
        let cells = news.into_iter().filter_map(|action| cell_of(action)).collect();
        self.ended = ended.iter().map(|action| action.id).collect();
        cells
    }

    fn write(&self) {
        if let Some(writer) = &self.writer {
            writer.write(self.history.clone());
        }
    }

    /// What the outside may see of it.
    pub fn shown(&self, keys: KeyDisplay) -> Shown {
        Shown::new(self.history.clone(), keys)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.write();
        if let Some(writer) = self.writer.take() {
            writer.end();
        }
    }
}

fn place_of_family(target: String, FamilyName { database, column_family }: FamilyName) -> Place {
    Place {
        target,
        database: database.map_or_else(|| UNKNOWN.to_owned(), |path| path.display().to_string()),
        column_family: column_family.unwrap_or_else(|| UNKNOWN.to_owned()),
    }
}

/// What readers lost in a range in so many seconds.
fn lost_in(range: &RangeAssessment, seconds: f64) -> Option<(Place, Cell)> {
    let operations = range.operations_per_second * seconds;
    let sums = Amounts::default()
        .with(Metric::Pain, range.pain_seconds_per_second * seconds)
        .with(Metric::Operations, operations)
        .with(Metric::TombstonesSkipped, range.tombstones_per_seek * operations)
        .with(Metric::BlockMisses, range.misses_per_seek * operations);
    (sums != Amounts::default()).then(|| (place_of(range), Cell::new(&range.range, sums, seconds)))
}

/// What a range is listed under.
pub fn place_of(range: &RangeAssessment) -> Place {
    Place {
        target: range.target.clone(),
        database: range.database.clone(),
        column_family: range.column_family.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
    }
}

/// What an action has done to keys; `None` where it changed a setting.
fn cell_of(action: &Action) -> Option<(Place, Cell)> {
    if matches!(action.kind, ActionKind::ChangeSetting(_)) {
        return None;
    }
    let end = action.state.end()?;
    let place = Place {
        target: action.kind.target().to_owned(),
        database: action.kind.database()?.to_owned(),
        column_family: action.kind.column_family()?.to_owned(),
    };
    let sums = Amounts::default()
        .with(Metric::Actions, 1.0)
        .with(Metric::BytesCompacted, end.bytes_rewritten as f64);
    Some((place, Cell::new(&action.kind.range(), sums, end.duration_seconds.max(1.0))))
}

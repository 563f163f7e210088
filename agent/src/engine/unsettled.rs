//! Actions that were under way when an earlier run ended, and of which the hook may still know: it does not end with the
//! agent, and keeps what came of its last jobs.

use super::Engine;
use super::history::History;
use sexton_execute::ExecuteError;
use sexton_hook_protocol::{CompactionState, ErrorKind, Finished};
use sexton_inspect::facts::ProcessId;
use sexton_inspect::process::is_alive;
use std::time::{Duration, Instant};

/// How long the hook of such an action is waited for: a first window brings it in, and a busy node opens that late.
const HOOK_WAIT_MAX: Duration = Duration::from_secs(120);

/// An action of an earlier run whose end is not written down yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsettled {
    /// The action.
    pub id: u64,
    /// The process it is done to.
    pub process: ProcessId,
    /// The hook's number of it.
    pub job: u64,
    /// When this run first knew of it.
    pub since: Instant,
}

/// What can be said of such an action now.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// Not yet known.
    Open,
    /// It will never be known.
    Unknown,
    /// The hook's word.
    Ended(Finished),
}

impl Engine {
    /// Asks the hooks what became of actions that an earlier run could not end.
    pub(super) fn settle_earlier(&mut self) {
        for unsettled in self.history.unsettled().to_vec() {
            match self.fate(&unsettled) {
                Fate::Open => {}
                Fate::Unknown => self.history.interrupt(unsettled.id),
                Fate::Ended(finished) => end(&mut self.history, &unsettled, &finished),
            }
        }
    }

    fn fate(&self, unsettled: &Unsettled) -> Fate {
        if !is_alive(&unsettled.process) {
            return Fate::Unknown;
        }
        let patience = if unsettled.since.elapsed() < HOOK_WAIT_MAX { Fate::Open } else { Fate::Unknown };
        let mut targets = self.roster.watched.iter().filter(|it| it.target.process == unsettled.process);
        let Some(hook) = targets.find_map(|watched| watched.hook.as_ref()) else { return patience };
        let Ok(mut hook) = hook.try_lock() else { return patience };
        match hook.compaction_status(unsettled.job) {
            Ok(CompactionState::Running { .. }) => Fate::Open,
            Ok(CompactionState::Finished(finished)) => Fate::Ended(finished),
            Err(ExecuteError::Hook { kind: ErrorKind::NotFound, .. }) => Fate::Unknown,
            Err(_) => patience,
        }
    }
}

/// Writes down what the hook says. What the job changed nobody has measured.
fn end(history: &mut History, unsettled: &Unsettled, finished: &Finished) {
    let seconds = Duration::from_nanos(finished.duration_ns).as_secs_f64();
    let (state, ended) = match finished {
        Finished { cancelled: true, .. } => ("cancelled", "was cancelled"),
        Finished { ok: true, .. } => ("done", "was done"),
        Finished { .. } => ("failed", "failed"),
    };
    let why = finished.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    history.end_earlier(unsettled.id, state == "done", |action| {
        action.state = state.into();
        action.duration_seconds = seconds;
        action.outcome = format!(
            "the agent ended while it was under way; the hook says that it {ended} after {seconds:.1} s{why}"
        );
    });
}

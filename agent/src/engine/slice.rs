//! One slice under guard: between two polls of it somebody watches. It is paused, goes on in halves, or is
//! given up, as the guards say.

use super::Engine;
use super::act::StartedJob;
use super::control::{Control, POLL_INTERVAL};
use super::windows::{account, settle};
use crate::session::{Meanwhile, ReportedStatus, SstRead};
use sexton_execute::{ExecuteError, JobEnd, JobOutcome};
use sexton_inspect::facts::TargetId;
use sexton_tuner::evidence::MemtableDeletions;
use sexton_tuner::governor::Allowance;
use sexton_tuner::guard::{self, Course, GuardRefusal};
use sexton_tuner::latency::Latencies;
use sexton_tuner::plan::CompactRange;
use sexton_tuner::range::KeyRange;
use sexton_tuner::rest::{halves, rest};
use sexton_tuner::run::{ActionId, JobId};
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// How often a window is asked for again where the probe budget had none to give.
const WINDOW_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest pause of a slice: readers that have waited catch up, and what was cancelled is over.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest pause of a slice: by then its evidence is old, and the next plan knows better.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What became of a slice.
pub struct Ran {
    /// As of its last part; the duration is that of all.
    pub result: Result<JobOutcome, ExecuteError>,
    /// How often it was stopped by a guard, and went on.
    pub pauses: u32,
    /// The guard that it was given up for.
    pub given_up_for: Option<GuardRefusal>,
    /// Bytes that were written and are in no list of files, neither before nor after: what was flushed first,
    /// and what parts had written when they were stopped.
    pub bytes_transient: u64,
}

/// A compaction that has begun and has not ended.
pub struct Acting {
    /// Its target.
    pub target: TargetId,
    /// The block device that its database lies on.
    pub device: Option<u64>,
    /// Its number.
    pub id: ActionId,
    /// What is compacted.
    pub compact: CompactRange,
    /// The same as it was priced, before its ends were closed.
    pub priced: CompactRange,
    /// The live files before.
    pub files_before: Option<SstRead>,
    /// Deletions in memtables before.
    pub memtables_before: Option<MemtableDeletions>,
    /// When it began.
    pub started: Instant,
    /// What has come of it so far.
    pub ran: Ran,
    parts: VecDeque<KeyRange>,
    stage: Stage,
}

/// What a compaction does now.
enum Stage {
    /// The next part is to begin.
    Next,
    /// A part runs.
    Running(Box<Part>),
    /// It waits until the guards admit the rest of a part.
    Pausing { since: Instant, looked: Instant, refusal: GuardRefusal, part: KeyRange, in_halves: bool },
    /// Nothing is left to do.
    Over,
}

/// A part that runs.
struct Part {
    range: KeyRange,
    job: StartedJob,
    written_before: Option<u64>,
    course: Course,
    is_cancelled: bool,
    /// What operations waited for since the part began, of windows that have closed.
    latencies: Latencies,
    window_wanted: Instant,
}

impl Acting {
    /// A compaction that is about to begin.
    pub fn new(begun: Begun) -> Acting {
        let Begun { target, device, id, compact, priced, files_before, memtables_before } = begun;
        let ran =
            Ran { result: Ok(JobOutcome::default()), pauses: 0, given_up_for: None, bytes_transient: 0 };
        Acting {
            parts: VecDeque::from([compact.range.clone()]),
            target,
            device,
            id,
            compact,
            priced,
            files_before,
            memtables_before,
            started: Instant::now(),
            ran,
            stage: Stage::Next,
        }
    }
}

/// What a compaction begins with.
pub struct Begun {
    pub target: TargetId,
    pub device: Option<u64>,
    pub id: ActionId,
    pub compact: CompactRange,
    pub priced: CompactRange,
    pub files_before: Option<SstRead>,
    pub memtables_before: Option<MemtableDeletions>,
}

impl Engine {
    /// Takes the compactions that run a step further; gives those that are over.
    pub(super) fn follow_slices(&mut self, control: &Control) -> Vec<Acting> {
        let mut over = Vec::new();
        for mut acting in std::mem::take(&mut self.acting) {
            self.follow_slice(&mut acting, control);
            if matches!(acting.stage, Stage::Over) {
                over.push(acting);
            } else {
                self.acting.push(acting);
            }
        }
        over
    }

    /// Takes one a step further, and begins its next part at once.
    pub(super) fn follow_slice(&mut self, acting: &mut Acting, control: &Control) {
        self.take_step(acting, control);
        while matches!(acting.stage, Stage::Next) {
            self.take_step(acting, control);
        }
    }

    fn take_step(&mut self, acting: &mut Acting, control: &Control) {
        acting.stage = match std::mem::replace(&mut acting.stage, Stage::Over) {
            Stage::Next => self.begin_part(acting),
            Stage::Running(part) => self.follow_part(acting, part, control),
            Stage::Pausing { since, looked, refusal, part, in_halves } => {
                if control.is_cancelled() || since.elapsed() >= PAUSE_MAX {
                    acting.ran.given_up_for = (!control.is_cancelled()).then_some(refusal);
                    Stage::Over
                } else if since.elapsed() < PAUSE_MIN || looked.elapsed() < POLL_INTERVAL {
                    Stage::Pausing { since, looked, refusal, part, in_halves }
                } else if self.objection(&acting.compact).is_some() {
                    Stage::Pausing { since, looked: Instant::now(), refusal, part, in_halves }
                } else {
                    self.history.resume(acting.id);
                    for left in self.left_of(&acting.compact, &part, in_halves).into_iter().rev() {
                        acting.parts.push_front(left);
                    }
                    Stage::Next
                }
            }
            Stage::Over => Stage::Over,
        };
    }

    fn begin_part(&mut self, acting: &mut Acting) -> Stage {
        let Some(range) = acting.parts.pop_front() else {
            // All parts have ended; that the last one before a pause was cancelled is past.
            if let Ok(outcome) = &mut acting.ran.result {
                outcome.end = JobEnd::Done;
            }
            return Stage::Over;
        };
        if range != acting.compact.range {
            self.history.note_job(acting.id, None);
        }
        match self.start_part(&acting.compact, &range) {
            Ok(job) => Stage::Running(Box::new(Part {
                written_before: written_bytes(Some(acting.target.process.pid)),
                range,
                job,
                course: Course::Go,
                is_cancelled: false,
                latencies: Latencies::default(),
                window_wanted: Instant::now(),
            })),
            Err(error) => {
                acting.ran.result = Err(error);
                Stage::Over
            }
        }
    }

    /// Hears how a part stands, asks the guards and keeps a window open on the target.
    fn follow_part(&mut self, acting: &mut Acting, mut part: Box<Part>, control: &Control) -> Stage {
        let result = match self.report_of(&part.job) {
            Some(ReportedStatus::Ended(result)) => Some(result),
            Some(ReportedStatus::Running(meanwhile)) => {
                if meanwhile.heard.hook_job.is_some() && part.range == acting.compact.range {
                    self.history.note_job(acting.id, meanwhile.heard.hook_job.map(JobId));
                }
                // Guards have had their say before it began; what cannot be stopped could only be begun a
                // second time.
                if part.course == Course::Go && meanwhile.can_stop {
                    part.course = self.look_after(acting, &part, meanwhile);
                }
                None
            }
            None => self.is_heard_of(&part.job).err().map(Err),
        };
        if let Some(result) = result {
            return self.end_part(acting, *part, result);
        }
        if !part.is_cancelled && (part.course != Course::Go || control.is_cancelled()) {
            self.cancel_job(&part.job);
            part.is_cancelled = true;
        }
        self.keep_slice_window(acting.target, &mut part);
        Stage::Running(part)
    }

    /// Asks the guards.
    fn look_after(&mut self, acting: &Acting, part: &Part, meanwhile: Meanwhile) -> Course {
        let Some(watched) = self.roster.get(acting.target) else { return Course::Go };
        let mut latencies = part.latencies.clone();
        if let Some(Ok(open)) = watched.window.as_ref().map(|window| self.windows.latencies(window)) {
            latencies.merge(&open);
        }
        let readings = self.readings_meanwhile(watched, &acting.compact, meanwhile, &latencies);
        debug!(target = watched.target.name, action = acting.id.0, "the guards are asked");
        guard::during(&self.options.policy.guards, &readings, acting.ran.pauses)
    }

    /// A part has ended: there may be another one, or a pause before it.
    fn end_part(
        &mut self,
        acting: &mut Acting,
        mut part: Part,
        result: Result<JobOutcome, ExecuteError>,
    ) -> Stage {
        self.close_slice_window(acting.target, &mut part);
        if let Course::Pause(refusal) | Course::Halve(refusal) | Course::Stop(refusal) = &part.course {
            self.note_objection(&acting.compact.target, refusal);
        }
        if let Err(ExecuteError::Hook { .. }) = &result {
            self.forget_pointers(&acting.compact.target, &acting.compact.database);
        }
        let ran = &mut acting.ran;
        let before = ran.result.as_ref().map(|outcome| outcome.duration).unwrap_or_default();
        if let Ok(outcome) = &result {
            let written = written_since(Some(acting.target.process.pid), part.written_before);
            let unseen = bytes_transient(outcome, written, acting.compact.cost_bytes);
            ran.bytes_transient = ran.bytes_transient.saturating_add(unseen);
        }
        ran.result = result.map(|outcome| added(outcome, before));
        let was_cancelled = match &ran.result {
            Ok(outcome) => matches!(outcome.end, JobEnd::Cancelled { .. }),
            Err(_) => return Stage::Over,
        };
        let (refusal, in_halves) = match part.course {
            // It ran through, if with the guard's word on its heels.
            _ if !was_cancelled => return Stage::Next,
            // Somebody else cancelled it.
            Course::Go => return Stage::Over,
            Course::Stop(refusal) => {
                ran.given_up_for = Some(refusal);
                return Stage::Over;
            }
            Course::Pause(refusal) => (refusal, false),
            Course::Halve(refusal) => (refusal, true),
        };
        ran.pauses += 1;
        self.history.pause(acting.id, &refusal);
        let now = Instant::now();
        Stage::Pausing { since: now, looked: now, refusal, part: part.range, in_halves }
    }

    /// What is still to be compacted of a part that was stopped.
    fn left_of(&mut self, compact: &CompactRange, part: &KeyRange, in_halves: bool) -> Vec<KeyRange> {
        let read = self
            .watched_mut(&compact.target)
            .and_then(|watched| watched.read_files(Path::new(&compact.database)));
        let Some(mut files) = read else { return vec![part.clone()] };
        files.retain(|file| file.column_family == compact.column_family);
        match rest(part, &files) {
            Some(left) if in_halves => halves(left, &files),
            Some(left) => vec![left],
            None => Vec::new(),
        }
    }

    /// Keeps a window open on the target as far as its probe budget goes.
    fn keep_slice_window(&mut self, id: TargetId, part: &mut Part) {
        let prices = self.prices.in_force();
        let Some(watched) = self.roster.get_mut(id) else { return };
        let target = watched.target.name.clone();
        if let Some(mut window) = watched.window.take() {
            if let Err(error) = self.windows.poll() {
                warn!(%error, "while a window is open");
            }
            let counted = account(&mut self.windows, &mut window, &prices, &mut watched.spending);
            let is_over = counted.is_err() || watched.spending.is_over();
            watched.window = Some(window);
            if is_over {
                self.close_slice_window(id, part);
            }
            return;
        }
        if watched.is_blind() || part.window_wanted > Instant::now() {
            return;
        }
        part.window_wanted = Instant::now() + WINDOW_RETRY_INTERVAL;
        let Allowance::Window { length_ns, credit_ns } =
            watched.spending.allowance(self.options.policy.timing.window)
        else {
            return;
        };
        match self.sentinel.read(watched.slot) {
            Ok(reading) => watched.take_reading(reading),
            Err(error) => return warn!(target, %error, "cannot read totals"),
        }
        let prices = prices.corrected(watched.spending.correction_ratio());
        let credit = prices.credit(credit_ns, &watched.target.module.sites);
        let thresholds = watched.thresholds(&self.options.policy);
        match self.windows.open(&watched.target, watched.slot, thresholds, &credit, &watched.last) {
            Ok(window) => {
                watched.spending.begin_window(length_ns);
                watched.window = Some(window);
            }
            Err(error) => warn!(target, %error, "cannot open a window"),
        }
    }

    /// What the window saw counts as that of any other; its latencies are the slice's.
    fn close_slice_window(&mut self, id: TargetId, part: &mut Part) {
        let prices = self.prices.in_force();
        let Some(watched) = self.roster.get_mut(id) else { return };
        let target = watched.target.name.clone();
        let Some(window) = watched.window.take() else { return };
        match settle(&mut self.sentinel, &mut self.windows, watched, window, &prices) {
            Ok((result, _)) => part.latencies.merge(&result.latencies),
            Err(error) => warn!(target, %error, "the window is lost"),
        }
    }
}

/// Bytes that a process has written so far, by whatever call; `None` where that cannot be read.
fn written_bytes(pid: Option<u32>) -> Option<u64> {
    let process = procfs::process::Process::new(i32::try_from(pid?).ok()?).ok()?;
    process.io().ok().map(|io| io.wchar)
}

fn written_since(pid: Option<u32>, before: Option<u64>) -> Option<u64> {
    Some(written_bytes(pid)?.saturating_sub(before?))
}

/// What a part wrote that is in no list of files. RocksDB throws away what a job has written when it is
/// stopped, and says nothing of it: that is at most what the process has written meanwhile, and at most the
/// price; that, where nothing is known.
fn bytes_transient(outcome: &JobOutcome, written: Option<u64>, cost_bytes: u64) -> u64 {
    let flushed = outcome.bytes_flushed;
    match outcome.end {
        JobEnd::Done => flushed,
        JobEnd::Cancelled { .. } => {
            let seen = outcome.bytes_replaced.saturating_add(flushed);
            let discarded = written.unwrap_or(u64::MAX).min(cost_bytes).saturating_sub(seen);
            flushed.saturating_add(discarded)
        }
    }
}

/// A part's outcome with the time that the parts before it took.
fn added(outcome: JobOutcome, before: Duration) -> JobOutcome {
    JobOutcome { duration: outcome.duration.saturating_add(before), ..outcome }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const PRICE: u64 = 1_000_000;

    fn ended(end: JobEnd, bytes_replaced: u64, bytes_flushed: u64) -> JobOutcome {
        JobOutcome { end, bytes_replaced, bytes_flushed, ..JobOutcome::default() }
    }

    fn cancelled(bytes_replaced: u64, bytes_flushed: u64) -> JobOutcome {
        ended(JobEnd::Cancelled { reason: "a guard".to_owned() }, bytes_replaced, bytes_flushed)
    }

    #[test]
    fn what_a_cancelled_part_had_written_counts() {
        assert_eq!(bytes_transient(&cancelled(0, 0), Some(700_000), PRICE), 700_000);
        assert_eq!(bytes_transient(&cancelled(0, 0), Some(0), PRICE), 0);
        // Others of the process write too: never more than it would have cost.
        assert_eq!(bytes_transient(&cancelled(0, 0), Some(1 << 40), PRICE), PRICE);
        assert_eq!(bytes_transient(&cancelled(0, 0), None, PRICE), PRICE);
        // Jobs that had ended are in the files, and what was flushed was flushed.
        assert_eq!(bytes_transient(&cancelled(300_000, 0), Some(700_000), PRICE), 400_000);
        assert_eq!(bytes_transient(&cancelled(0, 100_000), Some(700_000), PRICE), 700_000);
    }

    #[test]
    fn what_a_part_flushes_first_counts() {
        assert_eq!(bytes_transient(&ended(JobEnd::Done, 500_000, 70_000), Some(1 << 40), PRICE), 70_000);
        assert_eq!(bytes_transient(&ended(JobEnd::Done, 500_000, 0), None, PRICE), 0);
    }

    #[test]
    fn what_a_process_writes_is_read() {
        let own = Some(std::process::id());
        let before = written_bytes(own);
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[0; 100_000]).unwrap();
        assert!(written_since(own, before).unwrap() >= 100_000);
        assert_eq!(written_bytes(None), None);
    }
}

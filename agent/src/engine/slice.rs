//! One slice under guard: between two polls of it somebody watches. It is paused, goes on in halves, or is
//! given up, as the guards say.

use super::control::{Control, POLL_INTERVAL};
use super::evidence::read_files;
use super::{Engine, WINDOW_POLL_INTERVAL, account, settle};
use sexton_execute::{ExecuteError, Executor, JobEnd, JobOutcome, JobStatus, Progress, Task};
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
use tracing::warn;

/// How often the guards look at a slice that runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

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

/// What is watched while a part of a slice runs.
struct Watch<'a> {
    compact: &'a CompactRange,
    /// What the executor has told since the guards looked last.
    heard: Progress,
    interruptions: u32,
    /// What operations waited for since the part began, of windows that have closed.
    latencies: Latencies,
    looked: Instant,
    window_wanted: Instant,
}

impl Watch<'_> {
    fn hear(&mut self, news: Progress) {
        self.heard.properties = news.properties.or(self.heard.properties);
        if !news.loads.is_empty() {
            self.heard.loads = news.loads;
        }
    }
}

impl Engine {
    /// Runs a slice to its end, through pauses and in halves where guards want it. `run` compacts one part of
    /// it.
    pub(super) fn run_slice(&mut self, compact: &CompactRange, id: ActionId, control: &mut Control) -> Ran {
        let pid = self.watched_mut(&compact.target).map(|watched| watched.target.process.pid);
        let mut parts = VecDeque::from([compact.range.clone()]);
        let mut ran =
            Ran { result: Ok(JobOutcome::default()), pauses: 0, given_up_for: None, bytes_transient: 0 };
        while let Some(part) = parts.pop_front() {
            let before = ran.result.as_ref().map(|outcome| outcome.duration).unwrap_or_default();
            let written_before = written_bytes(pid);
            let (result, course) = self.run_part(compact, &part, (id, ran.pauses), control);
            if let Ok(outcome) = &result {
                let written = written_since(pid, written_before);
                let unseen = bytes_transient(outcome, written, compact.cost_bytes);
                ran.bytes_transient = ran.bytes_transient.saturating_add(unseen);
            }
            ran.result = result.map(|outcome| added(outcome, before));
            let Ok(JobOutcome { end: JobEnd::Cancelled { .. }, .. }) = &ran.result else {
                if ran.result.is_err() {
                    return ran;
                }
                // It ran through, if with the guard's word on its heels.
                continue;
            };
            let (refusal, in_halves) = match course {
                // Somebody else cancelled it.
                Course::Go => return ran,
                Course::Stop(refusal) => {
                    ran.given_up_for = Some(refusal);
                    return ran;
                }
                Course::Pause(refusal) => (refusal, false),
                Course::Halve(refusal) => (refusal, true),
            };
            ran.pauses += 1;
            self.note_pause(id, &refusal, control);
            if !self.waits_until_bearable(compact, control) {
                let was_asked = control.is_cancelled();
                ran.given_up_for = (!was_asked).then_some(refusal);
                return ran;
            }
            self.history.resume(id);
            for part in self.left_of(compact, &part, in_halves).into_iter().rev() {
                parts.push_front(part);
            }
        }
        // All parts have ended; that the last one before a pause was cancelled is past.
        if let Ok(outcome) = &mut ran.result {
            outcome.end = JobEnd::Done;
        }
        ran
    }

    fn note_pause(&mut self, id: ActionId, refusal: &GuardRefusal, control: &Control) {
        self.history.pause(id, refusal);
        control.publish(self.snapshot());
    }

    /// Waits until no guard objects any more; `false` where that takes too long, or somebody cancels it.
    fn waits_until_bearable(&mut self, compact: &CompactRange, control: &mut Control) -> bool {
        // The guard's own wish to cancel has been met; whoever cancels from here on means all that is left.
        control.begin_action();
        let began = Instant::now();
        while began.elapsed() < PAUSE_MAX {
            control.take_commands();
            if control.is_cancelled() || self.watched_mut(&compact.target).is_none() {
                return false;
            }
            self.follower.wait(POLL_INTERVAL);
            self.follow(control);
            if began.elapsed() >= PAUSE_MIN && self.objection(compact).is_none() {
                return true;
            }
        }
        false
    }

    /// What is still to be compacted of a part that was stopped.
    fn left_of(&mut self, compact: &CompactRange, part: &KeyRange, in_halves: bool) -> Vec<KeyRange> {
        let read = self
            .watched_mut(&compact.target)
            .and_then(|watched| read_files(watched, Path::new(&compact.database)));
        let Some(mut files) = read else { return vec![part.clone()] };
        files.retain(|file| file.column_family == compact.column_family);
        match rest(part, &files) {
            Some(left) if in_halves => halves(left, &files),
            Some(left) => vec![left],
            None => Vec::new(),
        }
    }

    /// Drives a part of a slice to its end. Meanwhile commands are heard, processes are followed and the
    /// guards look on; gives what they said as well.
    pub(super) fn drive(
        &mut self,
        executor: &mut dyn Executor,
        task: &Task,
        watch: (&CompactRange, bool, (ActionId, u32)),
        control: &mut Control,
    ) -> (Result<JobOutcome, ExecuteError>, Course) {
        let (compact, is_whole, (id, interruptions)) = watch;
        let (heard, latencies) = (Progress::default(), Latencies::default());
        let now = Instant::now();
        let mut watch = Watch { compact, heard, interruptions, latencies, looked: now, window_wanted: now };
        let mut course = Course::Go;
        if !is_whole {
            self.history.note_job(id, None);
        }
        let job = match executor.start(task) {
            Ok(job) => job,
            Err(error) => return (Err(error), course),
        };
        let result = loop {
            let progress = match executor.poll(job) {
                JobStatus::Ended(result) => break result,
                JobStatus::Running(progress) => progress,
            };
            if progress.hook_job.is_some() && is_whole {
                self.history.note_job(id, progress.hook_job.map(JobId));
            }
            let patience = self.patience_in_slice(compact).min(progress.poll_again_in);
            watch.hear(progress);
            self.follower.wait(patience);
            self.follow(control);
            control.take_commands();
            // Guards have had their say before it began; what cannot be stopped could only be begun a second
            // time.
            if course == Course::Go && executor.can_stop() {
                course = self.look_after(&mut watch);
            }
            if course != Course::Go || control.is_cancelled() {
                executor.cancel(job);
            }
        };
        self.close_slice_window(&mut watch);
        if let Course::Pause(refusal) | Course::Halve(refusal) | Course::Stop(refusal) = &course {
            self.note_objection(&compact.target, refusal);
        }
        (result, course)
    }

    /// An open window has to be looked at more often.
    fn patience_in_slice(&self, compact: &CompactRange) -> Duration {
        let mut watched = self.roster.watched.iter().filter(|watched| watched.target.name == compact.target);
        if watched.any(|watched| watched.window.is_some()) { WINDOW_POLL_INTERVAL } else { POLL_INTERVAL }
    }

    /// Keeps a window open on the target as far as its probe budget goes, and asks the guards.
    fn look_after(&mut self, watch: &mut Watch<'_>) -> Course {
        self.keep_slice_window(watch);
        if watch.looked.elapsed() < LOOK_INTERVAL {
            return Course::Go;
        }
        watch.looked = Instant::now();
        let mut watched = self.roster.watched.iter().filter(|it| it.target.name == watch.compact.target);
        let Some(watched) = watched.next() else { return Course::Go };
        let mut latencies = watch.latencies.clone();
        if let Some(Ok(open)) = watched.window.as_ref().map(|window| self.windows.latencies(window)) {
            latencies.merge(&open);
        }
        let heard = std::mem::take(&mut watch.heard);
        let readings = self.readings_meanwhile(watched, watch.compact, heard, &latencies);
        guard::during(&self.options.policy.guards, &readings, watch.interruptions)
    }

    fn keep_slice_window(&mut self, watch: &mut Watch<'_>) {
        let prices = self.prices.in_force();
        let target = &watch.compact.target;
        let Some(watched) = self.roster.watched.iter_mut().find(|it| it.target.name == *target) else {
            return;
        };
        if let Some(mut window) = watched.window.take() {
            if let Err(error) = self.windows.poll() {
                warn!(%error, "while a window is open");
            }
            let counted = account(&mut self.windows, &mut window, &prices, &mut watched.spending);
            let is_over = counted.is_err() || watched.spending.is_over();
            watched.window = Some(window);
            if is_over {
                self.close_slice_window(watch);
            }
            return;
        }
        if watched.is_blind() || watch.window_wanted > Instant::now() {
            return;
        }
        watch.window_wanted = Instant::now() + WINDOW_RETRY_INTERVAL;
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
    fn close_slice_window(&mut self, watch: &mut Watch<'_>) {
        let prices = self.prices.in_force();
        let target = &watch.compact.target;
        let Some(watched) = self.roster.watched.iter_mut().find(|it| it.target.name == *target) else {
            return;
        };
        let Some(window) = watched.window.take() else { return };
        match settle(&mut self.sentinel, &mut self.windows, watched, window, &prices) {
            Ok(result) => watch.latencies.merge(&result.latencies),
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

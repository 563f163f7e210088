//! Jobs that run in the target: begun, polled between requests, and reported while they run.

use super::{Answer, Session};
use sexton_execute::{
    ExecuteError, Executor, JobId, JobOutcome, JobStatus, Progress, Site, Task, executor_for,
};
use sexton_tuner::policy::TargetPolicy;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the guards hear of a job that runs.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// Longest that one poll of a job may take: one step of an executor, which has 10 seconds for all it asks,
/// and what is read for the guards.
pub const POLL_LIMIT: Duration = Duration::from_secs(15);

/// Takes what a session reports without being asked.
pub type Reporter = Box<dyn Fn(Answer) + Send>;

/// What is done by whom.
#[derive(Clone, Debug)]
pub struct Order {
    /// The loop's number of the job.
    pub number: u64,
    /// The policy's entry.
    pub entry: TargetPolicy,
    /// Where the policy came from, for what is shown.
    pub policy_path: Option<PathBuf>,
    /// Whether whole keys may be shown.
    pub shows_keys: bool,
}

/// What is heard of a job.
#[derive(Debug)]
pub struct JobReport {
    /// The loop's number of it.
    pub number: u64,
    /// How it stands.
    pub status: ReportedStatus,
    /// Bytes that the process has written since it began, by whatever call; `None` where that cannot be read.
    pub bytes_written: Option<u64>,
}

/// How a job stands.
#[derive(Debug)]
pub enum ReportedStatus {
    /// It runs.
    Running(Meanwhile),
    /// It has ended.
    Ended(Result<JobOutcome, ExecuteError>),
}

/// What is new while a job runs.
#[derive(Clone, Debug)]
pub struct Meanwhile {
    /// Whether it can be stopped.
    pub can_stop: bool,
    /// What the executor has told since the last report.
    pub heard: Progress,
    /// Bytes that the process could still write.
    pub disk_free_bytes: Option<u64>,
}

/// A job that runs.
pub struct RunningJob {
    number: u64,
    executor: Box<dyn Executor>,
    id: JobId,
    written_before: Option<u64>,
    database: Option<PathBuf>,
    /// Whether it is a `CompactFiles`.
    is_of_files: bool,
    next_poll: Instant,
    next_report: Instant,
    heard: Progress,
}

impl Session {
    /// Begins a job; how it stands is reported. `task` is made of what is known here.
    pub fn start_job(
        &mut self,
        order: Order,
        task: impl FnOnce(&Session) -> Result<Task, ExecuteError>,
    ) -> Answer {
        let number = order.number;
        match task(self).and_then(|task| self.begin_job(&order, &task)) {
            Ok(job) => {
                self.jobs.push(job);
                Answer::JobBegun(number)
            }
            Err(error) => {
                let status = ReportedStatus::Ended(Err(error));
                Answer::Job(Box::new(JobReport { number, status, bytes_written: Some(0) }))
            }
        }
    }

    fn begin_job(&self, order: &Order, task: &Task) -> Result<RunningJob, ExecuteError> {
        let Order { number, entry, policy_path, shows_keys } = order;
        let site = Site {
            entry,
            hook: self.hook.as_ref(),
            policy_path: policy_path.as_ref(),
            shows_keys: *shows_keys,
        };
        let mut executor = executor_for(task, &site)?;
        let written_before = written_bytes(self.target.process.pid);
        let id = executor.start(task)?;
        let now = Instant::now();
        let database = match task {
            Task::Compact(task) => Some(task.database.clone()),
            Task::Flush(_) | Task::Set(_) | Task::Read(_) => None,
        };
        let is_of_files = matches!(task, Task::Compact(task) if task.files.is_some());
        let (number, heard) = (*number, Progress::default());
        Ok(RunningJob {
            number,
            executor,
            id,
            written_before,
            database,
            is_of_files,
            next_poll: now,
            next_report: now,
            heard,
        })
    }

    /// Has a job end before its time.
    pub fn cancel_job(&mut self, number: u64) {
        for job in self.jobs.iter_mut().filter(|job| job.number == number) {
            job.executor.cancel(job.id);
            job.next_poll = Instant::now();
        }
    }

    /// When the next job is to be polled.
    pub(super) fn next_poll_in(&self) -> Option<Duration> {
        let next = self.jobs.iter().map(|job| job.next_poll).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Polls the jobs whose time has come.
    pub(super) fn poll_jobs(&mut self) {
        let now = Instant::now();
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.retain_mut(|job| job.next_poll > now || self.poll_job(job));
        self.jobs.append(&mut jobs);
    }

    /// Polls a job; gives whether it goes on.
    fn poll_job(&self, job: &mut RunningJob) -> bool {
        let status = match job.executor.poll(job.id) {
            JobStatus::Ended(result) => {
                let failed = job.database.clone().filter(|_| job.is_of_files && result.is_err());
                self.refusing_files.borrow_mut().extend(failed);
                ReportedStatus::Ended(result)
            }
            JobStatus::Running(progress) => {
                job.next_poll = Instant::now() + progress.poll_again_in;
                let is_begun = progress.hook_job.is_some();
                job.hear(progress);
                if !is_begun && job.next_report > Instant::now() {
                    return true;
                }
                job.next_report = Instant::now() + REPORT_INTERVAL;
                let database = job.database.as_deref();
                ReportedStatus::Running(Meanwhile {
                    can_stop: job.executor.can_stop(),
                    heard: std::mem::take(&mut job.heard),
                    disk_free_bytes: database.and_then(|database: &Path| self.disk_free_bytes(database)),
                })
            }
        };
        let goes_on = matches!(status, ReportedStatus::Running(_));
        let bytes_written = if goes_on { None } else { job.bytes_written(self.target.process.pid) };
        (self.reporter)(Answer::Job(Box::new(JobReport { number: job.number, status, bytes_written })));
        goes_on
    }
}

impl RunningJob {
    fn bytes_written(&self, pid: u32) -> Option<u64> {
        Some(written_bytes(pid)?.saturating_sub(self.written_before?))
    }

    fn hear(&mut self, news: Progress) {
        let Progress { hook_job, properties, loads, poll_again_in } = news;
        self.heard.hook_job = hook_job.or(self.heard.hook_job);
        self.heard.properties = properties.or(self.heard.properties);
        if !loads.is_empty() {
            self.heard.loads = loads;
        }
        self.heard.poll_again_in = poll_again_in;
    }
}

/// Bytes that a process has written so far, by whatever call; `None` where that cannot be read.
fn written_bytes(pid: u32) -> Option<u64> {
    let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
    process.io().ok().map(|io| io.wchar)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_a_process_writes_is_read() {
        let own = std::process::id();
        let before = written_bytes(own).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[0; 100_000]).unwrap();
        assert!(written_bytes(own).unwrap() >= before + 100_000);
        assert_eq!(written_bytes(u32::MAX), None);
    }
}

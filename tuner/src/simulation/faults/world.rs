//! What is outside of the agent: time, block devices, processes with databases, and the jobs that run in
//! them.

use crate::run::{
    ActionId, DatabaseIdentity, DeviceId, JobEnd, JobId, JobResult, JobStatus, Moment, ProcessId,
};
use crate::simulation::random::Random;
use jiff::Timestamp;
use std::time::Duration;

pub const SECOND_NS: u64 = 1_000_000_000;

/// 2026-11-20T12:00:00Z.
const BEGINNING_UNIX_S: i64 = 1_795_176_000;

/// A database, which outlives the processes that open it.
#[derive(Clone, Debug)]
pub struct Database {
    pub identity: DatabaseIdentity,
    pub device: DeviceId,
    /// The process that has it open now, or had it last.
    pub process: ProcessId,
    /// An option's value, as it is in force.
    pub option: u64,
    /// The value that its owner wants.
    pub owners_option: u64,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    pub id: ProcessId,
    pub is_alive: bool,
    /// Until when it answers nothing.
    pub silent_until_ns: u64,
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Compact,
    Flush,
    SetOption(u64),
    SetThrottle,
}

impl Work {
    /// Whether it writes to the block device.
    pub fn writes(self) -> bool {
        matches!(self, Work::Compact | Work::Flush)
    }
}

/// A job in a process.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: JobId,
    pub action: ActionId,
    pub process: ProcessId,
    pub database: usize,
    pub device: DeviceId,
    pub work: Work,
    /// Its keys, as numbers.
    pub keys: (u8, u8),
    pub began_ns: u64,
    /// When it will have run through.
    pub done_ns: u64,
    pub bytes: u64,
    pub written: u64,
    /// Whether it does not hear that it is to stop.
    pub is_deaf: bool,
    /// Whether it fails at its end.
    pub fails: bool,
    pub stop_ns: Option<u64>,
    /// When nobody was left who would hear how it ends.
    pub lost_ns: Option<u64>,
    pub ended: Option<(u64, JobResult)>,
}

impl Job {
    pub fn runs(&self) -> bool {
        self.ended.is_none()
    }

    /// Bytes that it has written up to a time.
    fn written_by(&self, now_ns: u64) -> u64 {
        let length = self.done_ns.saturating_sub(self.began_ns).max(1);
        let passed = now_ns.saturating_sub(self.began_ns).min(length);
        u64::try_from(u128::from(self.bytes) * u128::from(passed) / u128::from(length)).unwrap_or(self.bytes)
    }

    /// As its executor tells it.
    pub fn status(&self) -> JobStatus {
        let is_known = self.work != Work::SetThrottle;
        match &self.ended {
            None => {
                JobStatus::Running { job: is_known.then_some(self.id), can_stop: self.work == Work::Compact }
            }
            Some((ended_ns, result)) => JobStatus::Ended(JobEnd {
                duration: Duration::from_nanos(ended_ns.saturating_sub(self.began_ns)),
                bytes_replaced: if *result == JobResult::Done { self.written } else { 0 },
                bytes_written: Some(self.written),
                ..JobEnd::new(result.clone())
            }),
        }
    }
}

/// What is outside of the agent.
#[derive(Debug)]
pub struct World {
    pub now_ns: u64,
    /// How far the wall clock is ahead.
    pub ahead_s: i64,
    pub processes: Vec<Process>,
    pub databases: Vec<Database>,
    pub jobs: Vec<Job>,
    next_job: u64,
}

impl World {
    pub fn new() -> World {
        let process =
            |pid| Process { id: ProcessId { pid, start_time_ticks: 1 }, is_alive: true, silent_until_ns: 0 };
        // Two processes share the first device, one has a database on each.
        let database = |inode: u64, pid, device| Database {
            identity: DatabaseIdentity { path: format!("/{inode}").into(), inode },
            device: DeviceId(device),
            process: ProcessId { pid, start_time_ticks: 1 },
            option: 0,
            owners_option: 0,
        };
        World {
            now_ns: 1_000 * SECOND_NS,
            ahead_s: 0,
            processes: vec![process(1), process(2), process(3)],
            databases: vec![database(1, 1, 1), database(2, 2, 1), database(3, 2, 2), database(4, 3, 2)],
            jobs: Vec::new(),
            next_job: 1,
        }
    }

    pub fn now(&self) -> Moment {
        let wall_s = BEGINNING_UNIX_S + self.ahead_s + i64::try_from(self.now_ns / SECOND_NS).unwrap_or(0);
        let at = Timestamp::from_second(wall_s).unwrap_or_default();
        Moment { at, boot: 1, since_boot_ns: self.now_ns }
    }

    pub fn process(&self, id: &ProcessId) -> Option<&Process> {
        self.processes.iter().find(|process| process.id == *id)
    }

    pub fn is_alive(&self, id: &ProcessId) -> bool {
        self.process(id).is_some_and(|process| process.is_alive)
    }

    /// Whether a process answers now.
    pub fn answers(&self, id: &ProcessId) -> bool {
        self.process(id).is_some_and(|process| process.is_alive && process.silent_until_ns <= self.now_ns)
    }

    /// Time passes, and jobs go on; gives how many bytes they have written.
    pub fn pass(&mut self, nanoseconds: u64) -> u64 {
        self.now_ns += nanoseconds;
        let now_ns = self.now_ns;
        let mut bytes = 0;
        for job in self.jobs.iter_mut().filter(|job| job.ended.is_none()) {
            let stopped_ns = job.stop_ns.filter(|_| !job.is_deaf && job.work == Work::Compact);
            let end_ns = job.done_ns.min(stopped_ns.unwrap_or(u64::MAX));
            let written = job.written_by(end_ns.min(now_ns));
            bytes += written.saturating_sub(job.written);
            job.written = written;
            if end_ns > now_ns {
                continue;
            }
            let result = if end_ns < job.done_ns {
                JobResult::Cancelled("it was asked for".to_owned())
            } else if job.fails {
                JobResult::Failed { reason: "an error".to_owned(), may_run_on: false }
            } else {
                JobResult::Done
            };
            job.ended = Some((end_ns, result));
        }
        bytes
    }

    /// Begins with a job, which lasts so long.
    pub fn begin(&mut self, job: Job) -> usize {
        let id = JobId(self.next_job);
        self.next_job += 1;
        let changed = match job.work {
            Work::SetOption(value) if !job.fails => Some(value),
            _ => None,
        };
        if let (Some(value), Some(database)) = (changed, self.databases.get_mut(job.database)) {
            database.option = value;
        }
        self.jobs.push(Job { id, ..job });
        self.jobs.len() - 1
    }

    /// The process of a database ends, with its jobs, and another one opens what it had open.
    pub fn replace_process(&mut self, at: usize) -> Option<ProcessId> {
        let process = self.processes.get_mut(at)?;
        let gone = process.id;
        let new = ProcessId { pid: gone.pid, start_time_ticks: gone.start_time_ticks + 1 };
        (process.id, process.silent_until_ns) = (new, 0);
        for job in self.jobs.iter_mut().filter(|job| job.process == gone && job.ended.is_none()) {
            let reason = "its process has ended".to_owned();
            job.ended = Some((self.now_ns, JobResult::Failed { reason, may_run_on: false }));
        }
        for database in self.databases.iter_mut().filter(|database| database.process == gone) {
            database.process = new;
        }
        Some(gone)
    }

    /// Compactions and flushes that a database runs.
    pub fn running_in(&self, database: &DatabaseIdentity) -> u64 {
        let in_it =
            |job: &&Job| self.databases.get(job.database).is_some_and(|known| known.identity == *database);
        self.jobs.iter().filter(in_it).filter(|job| job.work.writes() && job.runs()).count() as u64
    }

    /// How long a job lasts: most some seconds, some for minutes.
    pub fn duration_ns(random: &mut Random) -> u64 {
        let seconds = if random.per_mille(100) { 400 } else { 30 };
        random.between(SECOND_NS / 10, seconds * SECOND_NS)
    }
}

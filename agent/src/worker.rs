//! A thread that owns what may wait, and whoever asks it never waits longer than a deadline.
//!
//! Requests are done one at a time, in order. One that misses its deadline is given up, and the thread with
//! it: a thread cannot be ended from outside, so it is left behind, and ends by itself once what it waits for
//! comes back. The number of threads that are left behind is bounded. What a request does, and what its
//! answer means, is not known here.

use sexton_tuner::back_off::{BackOff, Retry};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Requests of one worker that wait for their turn. The loop asks for a few things at a time; more means that
/// no answers come.
const QUEUED_MAX: usize = 32;

/// Threads of one worker that are left behind at the same time: the second tells a hang that stays from one
/// that passes, and a third would tell nothing new.
const LEFT_BEHIND_PER_WORKER_MAX: usize = 2;

/// Threads left behind on the whole node: each holds its stack and what its request has read so far.
const LEFT_BEHIND_MAX: usize = 64;

/// Pauses between two tries to reach a target. One that has recovered is to be watched again within 30
/// seconds, and a try takes some seconds itself.
const RETRY: BackOff = BackOff { first_seconds: 1, longest_seconds: 10 };

type Request<S> = Box<dyn FnOnce(&mut S) + Send>;
/// Makes what a thread owns; it is told which of the worker's threads that is.
type Make<S> = Arc<dyn Fn(u64) -> S + Send + Sync>;

/// What a worker owns.
pub trait Resident: Send + 'static {
    /// Longest time that one [`Resident::wake`] may take.
    const WAKE_LIMIT: Duration;

    /// When it wants to be woken if no request comes; `None`: not at all.
    fn wake_in(&self) -> Option<Duration>;

    /// The time has come.
    fn wake(&mut self);
}

/// Counts threads that are left behind, of all workers that share it.
#[derive(Clone, Debug, Default)]
pub struct LeftBehind(Arc<AtomicUsize>);

impl LeftBehind {
    /// How many there are now.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why no answers come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresponsive {
    /// In words.
    pub reason: String,
    /// Since when.
    pub since: Instant,
}

/// A thread with what it owns, and the requests that it has not answered yet.
pub struct Worker<S> {
    name: String,
    make: Make<S>,
    thread: Option<Thread<S>>,
    /// Of the thread that works now: an answer of an earlier one is too late.
    generation: u64,
    pending: VecDeque<Pending>,
    trouble: Option<Unresponsive>,
    retry: Retry,
    left_behind: LeftBehind,
    own_left_behind: LeftBehind,
    own_left_behind_max: usize,
}

struct Thread<S> {
    requests: mpsc::Sender<Request<S>>,
    pulse: Arc<Pulse>,
    handle: JoinHandle<()>,
    /// Requests of this thread that are known to be done.
    settled: u64,
}

struct Pending {
    what: &'static str,
    limit: Duration,
    /// When its turn came.
    started: Instant,
}

/// What a thread shows of itself.
#[derive(Default)]
struct Pulse {
    done: AtomicU64,
    waking_since: Mutex<Option<Instant>>,
    is_left_behind: AtomicBool,
}

impl<S: Resident> Worker<S> {
    /// A worker whose thread makes what it owns; it is started with the first request.
    pub fn new(
        name: String,
        left_behind: LeftBehind,
        make: impl Fn(u64) -> S + Send + Sync + 'static,
    ) -> Worker<S> {
        Worker {
            name,
            make: Arc::new(make),
            thread: None,
            generation: 0,
            pending: VecDeque::new(),
            trouble: None,
            retry: Retry::default(),
            left_behind,
            own_left_behind: LeftBehind::default(),
            own_left_behind_max: LEFT_BEHIND_PER_WORKER_MAX,
        }
    }

    /// A worker of which so many threads may be left behind at the same time.
    #[must_use]
    pub fn leaving_behind_at_most(self, threads: usize) -> Worker<S> {
        Worker { own_left_behind_max: threads, ..self }
    }

    /// What a new thread makes from now on.
    pub fn make_with(&mut self, make: impl Fn(u64) -> S + Send + Sync + 'static) {
        self.make = Arc::new(make);
    }

    /// Whether the thread of that generation is the one that works now.
    pub fn is_current(&self, generation: u64) -> bool {
        self.thread.is_some() && self.generation == generation
    }

    /// Of the thread that works now.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Of the thread that the next request goes to; it is started where there is none.
    pub fn next_generation(&mut self) -> u64 {
        if self.thread.is_none() && self.may_start() {
            self.start();
        }
        self.generation
    }

    /// Why no answers come; `None` where nothing is known against it.
    pub fn trouble(&self) -> Option<&Unresponsive> {
        self.trouble.as_ref()
    }

    /// Whether a request waits for its answer.
    #[cfg(test)]
    fn is_busy(&mut self) -> bool {
        self.settle();
        !self.pending.is_empty()
    }

    /// Has `work` done, which sends its answer itself; it may take `limit` from when its turn has come.
    /// `false`: it is not done, for no answers come at present.
    pub fn ask(
        &mut self,
        what: &'static str,
        limit: Duration,
        work: impl FnOnce(&mut S) + Send + 'static,
    ) -> bool {
        self.trouble.is_none() && self.send(what, limit, Box::new(work))
    }

    /// As [`Worker::ask`], of one that gives no answers: whether it does again. The caller says so by
    /// [`Worker::recovered`].
    pub fn probe(
        &mut self,
        what: &'static str,
        limit: Duration,
        work: impl FnOnce(&mut S) + Send + 'static,
    ) -> bool {
        self.retry.fail(RETRY, jiff::Timestamp::now());
        self.send(what, limit, Box::new(work))
    }

    /// Whether it is time to probe one that gives no answers.
    pub fn is_probe_due(&mut self) -> bool {
        self.settle();
        let is_due = self.retry.may_try(RETRY, jiff::Timestamp::now());
        self.trouble.is_some() && self.pending.is_empty() && self.may_start() && is_due
    }

    /// Whether there is a thread, or there may be another one.
    pub fn may_start(&self) -> bool {
        self.thread.is_some()
            || self.own_left_behind.count() < self.own_left_behind_max
                && self.left_behind.count() < LEFT_BEHIND_MAX
    }

    /// It answers again.
    pub fn recovered(&mut self) {
        self.trouble = None;
        self.retry.succeed();
    }

    /// Nothing is asked of it until it has recovered: what it stands for cannot answer.
    pub fn suspend(&mut self, reason: &str) {
        let since = self.trouble.as_ref().map_or_else(Instant::now, |trouble| trouble.since);
        self.trouble = Some(Unresponsive { reason: reason.to_owned(), since });
    }

    /// When the request whose turn it is has to be done.
    pub fn deadline(&self) -> Option<Instant> {
        let asked = self.pending.front().map(|pending| pending.started + pending.limit);
        let waking = self.thread.as_ref().and_then(Thread::waking_since).map(|since| since + S::WAKE_LIMIT);
        asked.into_iter().chain(waking).min()
    }

    /// Gives the worker up where it has missed a deadline; `true`: it just did.
    pub fn expire(&mut self, now: Instant) -> bool {
        self.settle();
        let seconds = |limit: Duration| limit.as_secs_f64();
        let waking = self.thread.as_ref().and_then(Thread::waking_since);
        let reason = match self.pending.front() {
            Some(Pending { what, limit, started }) if now >= *started + *limit => {
                format!("{what} takes longer than {:.1} s", seconds(*limit))
            }
            _ if waking.is_some_and(|since| now >= since + S::WAKE_LIMIT) => {
                format!("its running job does not answer within {:.1} s", seconds(S::WAKE_LIMIT))
            }
            Some(Pending { what, .. }) if self.thread.as_ref().is_some_and(|it| it.handle.is_finished()) => {
                format!("{what} failed in a way it must not")
            }
            _ => return false,
        };
        self.abandon(&reason);
        true
    }

    /// Gives the worker up for this reason.
    pub fn abandon(&mut self, reason: &str) {
        self.suspend(reason);
        self.leave_behind();
    }

    fn send(&mut self, what: &'static str, limit: Duration, work: Request<S>) -> bool {
        self.settle();
        if self.pending.len() >= QUEUED_MAX || self.thread.is_none() && !self.start() {
            return false;
        }
        let Some(thread) = &self.thread else { return false };
        // A thread that has failed is noticed when its deadline is looked at.
        let _ = thread.requests.send(work);
        self.pending.push_back(Pending { what, limit, started: Instant::now() });
        true
    }

    fn start(&mut self) -> bool {
        let (requests, received) = mpsc::channel();
        let pulse = Arc::new(Pulse::default());
        let counted = Counted {
            pulse: Arc::clone(&pulse),
            counts: [self.left_behind.clone(), self.own_left_behind.clone()],
        };
        let make = Arc::clone(&self.make);
        let generation = self.generation + 1;
        let body = move || work(make(generation), &received, &counted);
        let Ok(handle) = std::thread::Builder::new().name(self.name.clone()).spawn(body) else {
            return false;
        };
        self.generation = generation;
        self.thread = Some(Thread { requests, pulse, handle, settled: 0 });
        true
    }

    /// Takes note of the requests that are done.
    fn settle(&mut self) {
        let Some(thread) = &mut self.thread else { return };
        let done = thread.pulse.done.load(Ordering::Acquire);
        let newly = usize::try_from(done - thread.settled).unwrap_or(usize::MAX).min(self.pending.len());
        thread.settled = done;
        if newly > 0 {
            self.pending.drain(..newly);
            if let Some(next) = self.pending.front_mut() {
                next.started = Instant::now();
            }
        }
    }

    fn leave_behind(&mut self) {
        self.pending.clear();
        let Some(thread) = self.thread.take() else { return };
        for count in [&self.left_behind, &self.own_left_behind] {
            count.0.fetch_add(1, Ordering::Relaxed);
        }
        thread.pulse.is_left_behind.store(true, Ordering::Release);
        if thread.handle.is_finished() {
            // It ended without knowing that anybody counts it.
            forget(&thread.pulse, &[self.left_behind.clone(), self.own_left_behind.clone()]);
        }
    }
}

impl<S> Thread<S> {
    fn waking_since(&self) -> Option<Instant> {
        *self.pulse.waking_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pulse {
    fn set_waking_since(&self, since: Option<Instant>) {
        *self.waking_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// Takes a thread out of the counts when it ends, however it does.
struct Counted {
    pulse: Arc<Pulse>,
    counts: [LeftBehind; 2],
}

impl Drop for Counted {
    fn drop(&mut self) {
        forget(&self.pulse, &self.counts);
    }
}

/// Counts a thread that was left behind and has ended no more; once.
fn forget(pulse: &Pulse, counts: &[LeftBehind]) {
    if pulse.is_left_behind.swap(false, Ordering::AcqRel) {
        for count in counts {
            count.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What the thread does until nobody can ask it any more.
fn work<S: Resident>(mut resident: S, requests: &mpsc::Receiver<Request<S>>, counted: &Counted) {
    let pulse = &counted.pulse;
    loop {
        let request = match resident.wake_in() {
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(limit) => requests.recv_timeout(limit),
        };
        match request {
            Ok(request) => {
                request(&mut resident);
                pulse.done.fetch_add(1, Ordering::Release);
            }
            Err(RecvTimeoutError::Timeout) => {
                pulse.set_waking_since(Some(Instant::now()));
                resident.wake();
                pulse.set_waking_since(None);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    /// Long enough for a busy machine, and never waited for in full.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Counts what it was woken for.
    struct Counter {
        requests: u32,
        wakes_left: u32,
        woken: mpsc::Sender<u32>,
    }

    impl Resident for Counter {
        const WAKE_LIMIT: Duration = Duration::from_secs(5);

        fn wake_in(&self) -> Option<Duration> {
            (self.wakes_left > 0).then_some(Duration::from_millis(1))
        }

        fn wake(&mut self) {
            self.wakes_left -= 1;
            self.woken.send(self.wakes_left).unwrap();
        }
    }

    fn worker(left_behind: &LeftBehind) -> (Worker<Counter>, Receiver<u32>) {
        let (woken, wakes) = channel();
        let make = move |_| Counter { requests: 0, wakes_left: 0, woken: woken.clone() };
        (Worker::new("test".to_owned(), left_behind.clone(), make), wakes)
    }

    /// Asks how many requests there were, and gives the answer.
    fn count(worker: &mut Worker<Counter>) -> u32 {
        let (answer, answers) = channel();
        assert!(worker.ask("counting", PATIENCE, move |counter| {
            counter.requests += 1;
            answer.send(counter.requests).unwrap();
        }));
        answers.recv_timeout(PATIENCE).unwrap()
    }

    /// A request that ends when the sender is dropped.
    fn hang(worker: &mut Worker<Counter>, limit: Duration) -> mpsc::Sender<()> {
        let (release, held) = channel::<()>();
        assert!(worker.ask("hanging", limit, move |_| held.recv().unwrap_or_default()));
        release
    }

    fn until(mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < deadline, "waited in vain");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn requests_are_done_in_order_by_one_thread_that_keeps_what_it_owns() {
        let (mut worker, _wakes) = worker(&LeftBehind::default());
        assert_eq!((count(&mut worker), count(&mut worker), count(&mut worker)), (1, 2, 3));
        until(|| !worker.is_busy());
        assert_eq!((worker.generation(), worker.deadline(), worker.trouble()), (1, None, None));
    }

    #[test]
    fn a_missed_deadline_leaves_the_thread_behind_and_another_one_is_asked_later() {
        let left_behind = LeftBehind::default();
        let (mut worker, _wakes) = worker(&left_behind);
        let release = hang(&mut worker, Duration::from_millis(20));
        let due = worker.deadline().unwrap();
        assert!(!worker.expire(due - Duration::from_millis(1)));
        assert!(worker.expire(due) && !worker.expire(due));
        assert!(worker.trouble().unwrap().reason.contains("hanging takes longer than 0.0 s"));
        assert_eq!(left_behind.count(), 1);
        assert!(!worker.ask("counting", PATIENCE, |_| {}), "nothing is asked before it has answered again");

        assert!(worker.is_probe_due());
        let (answer, answers) = channel();
        assert!(worker.probe("probing", PATIENCE, move |counter| answer.send(counter.requests).unwrap()));
        assert!(!worker.is_probe_due(), "one probe at a time");
        assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), 0, "what the first thread had is with it");
        worker.recovered();
        assert_eq!((count(&mut worker), worker.generation()), (1, 2));
        assert_eq!(left_behind.count(), 1);
        drop(release);
        until(|| left_behind.count() == 0);
    }

    #[test]
    fn threads_left_behind_are_bounded() {
        let left_behind = LeftBehind::default();
        let (mut worker, _wakes) = worker(&left_behind);
        let mut releases = Vec::new();
        for _ in 0..LEFT_BEHIND_PER_WORKER_MAX {
            releases.push(hang(&mut worker, Duration::ZERO));
            assert!(worker.expire(Instant::now()));
            worker.recovered();
        }
        worker.suspend("it hangs");
        assert!(!worker.is_probe_due(), "a third thread would hang as well");
        releases.pop();
        until(|| left_behind.count() == 1);
        assert!(worker.is_probe_due());
    }

    #[test]
    fn a_request_that_waits_for_another_is_not_late() {
        let (mut worker, _wakes) = worker(&LeftBehind::default());
        let release = hang(&mut worker, PATIENCE);
        assert!(worker.ask("waiting", Duration::from_millis(1), |_| {}));
        std::thread::sleep(Duration::from_millis(5));
        assert!(!worker.expire(Instant::now()));
        drop(release);
        until(|| !worker.is_busy());
    }

    #[test]
    fn a_request_that_panics_gives_the_worker_up() {
        let left_behind = LeftBehind::default();
        let (mut worker, _wakes) = worker(&left_behind);
        assert!(worker.ask("failing", PATIENCE, |_| panic!("on purpose")));
        until(|| worker.expire(Instant::now()));
        assert!(worker.trouble().unwrap().reason.contains("failing failed"));
        assert_eq!(left_behind.count(), 0);
    }

    #[test]
    fn what_it_owns_is_woken_between_requests() {
        let (mut worker, wakes) = worker(&LeftBehind::default());
        assert!(worker.ask("winding up", PATIENCE, |counter| counter.wakes_left = 3));
        let woken: Vec<u32> = (0..3).map(|_| wakes.recv_timeout(PATIENCE).unwrap()).collect();
        assert_eq!(woken, [2, 1, 0]);
        assert_eq!(count(&mut worker), 1);
    }

    #[test]
    fn what_cannot_answer_is_asked_nothing_and_keeps_its_thread() {
        let left_behind = LeftBehind::default();
        let (mut worker, _wakes) = worker(&left_behind);
        assert_eq!(count(&mut worker), 1);
        worker.suspend("a signal has stopped it");
        let since = worker.trouble().unwrap().since;
        worker.suspend("its control group is frozen");
        assert_eq!(worker.trouble().unwrap().since, since, "it is one trouble");
        assert!(!worker.ask("counting", PATIENCE, |_| {}));
        worker.recovered();
        assert_eq!((count(&mut worker), left_behind.count()), (2, 0));
    }
}

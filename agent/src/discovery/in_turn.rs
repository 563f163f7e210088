//! Looks at one process after the other, where no target is watched yet: each gets some seconds.
//!
//! A process that keeps whoever looks at it waiting (its memory or its files lie on a file system that hangs,
//! or another thread holds its address space) holds up itself and nobody else: the thread that waits for it
//! is left behind, and another one goes on.

use sexton_inspect::error::InspectError;
use sexton_inspect::facts::Target;
use sexton_inspect::inspect::{Inspector, pids};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// After this the next process is looked at, beside the one that has not answered: longer than a large
/// program takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a process is waited for in all.
const LIMIT: Duration = Duration::from_secs(10);

/// Threads left behind at the same time: more processes that hang have one cause, and looking at further
/// ones would tell nothing new.
const LEFT_BEHIND_MAX: usize = 16;

/// What is found of each process of a number, by one that `make` has made.
///
/// # Errors
/// [`InspectError::Unresponsive`] in the place of one that has not answered.
pub fn in_turn<State, Found: Send + 'static>(
    pids: Vec<u32>,
    make: impl Fn() -> State + Send + Sync + 'static,
    look: impl Fn(&mut State, u32) -> Result<Found, InspectError> + Send + Sync + 'static,
) -> Vec<Result<Found, InspectError>> {
    let (make, look) = (Arc::new(make), Arc::new(look));
    let start = || Looker::start(Arc::clone(&make), Arc::clone(&look));
    let mut looker = start();
    let mut answers = Vec::new();
    let mut late = VecDeque::new();
    for pid in pids {
        let asked = Asked { pid, at: answers.len(), begun: Instant::now() };
        let may_go_on = late.len() < LEFT_BEHIND_MAX;
        let found = if may_go_on { looker.ask(pid) } else { None };
        let is_late = found.is_none() && may_go_on;
        answers.push(found.unwrap_or_else(|| Err(asked.unresponsive())));
        if is_late {
            late.push_back((asked, std::mem::replace(&mut looker, start())));
        }
    }
    for (asked, looker) in late {
        let found = looker.answers.recv_timeout(LIMIT.saturating_sub(asked.begun.elapsed()));
        if let (Some(answer), Ok(found)) = (answers.get_mut(asked.at), found) {
            *answer = found;
        }
    }
    answers
}

/// What is found of the targets in all processes but our own, by an inspector and what `make` makes beside
/// it. Processes without RocksDB and those that end meanwhile are left out; of the processes that may not be
/// looked into only the first is reported.
pub fn discover<State, Found: Send + 'static>(
    make: impl Fn() -> (Inspector, State) + Send + Sync + 'static,
    look: impl Fn(&mut State, &Target) -> Found + Send + Sync + 'static,
) -> Vec<Result<Found, InspectError>> {
    let make = move || {
        let (mut inspector, state) = make();
        inspector.begin_round();
        (inspector, state)
    };
    let found = in_turn(pids(), make, move |(inspector, state), pid| {
        let targets = inspector.look_into_another(pid)?;
        Ok(targets.iter().map(|target| look(state, target)).collect::<Vec<Found>>())
    });
    let mut is_denied = false;
    let mut results = Vec::new();
    for found in found {
        match found {
            Ok(targets) => results.extend(targets.into_iter().map(Ok)),
            Err(InspectError::NoRocksDb { .. } | InspectError::NoSuchProcess { .. }) => {}
            Err(InspectError::PermissionDenied { .. }) if is_denied => {}
            Err(error) => {
                is_denied |= matches!(error, InspectError::PermissionDenied { .. });
                results.push(Err(error));
            }
        }
    }
    results
}

#[derive(Clone, Copy)]
struct Asked {
    pid: u32,
    /// Where its answer goes.
    at: usize,
    begun: Instant,
}

impl Asked {
    fn unresponsive(self) -> InspectError {
        InspectError::Unresponsive { pid: self.pid, waited: LIMIT }
    }
}

/// A thread that looks at processes, one at a time. It ends when nobody asks any more.
struct Looker<Found> {
    requests: Sender<u32>,
    answers: Receiver<Result<Found, InspectError>>,
}

impl<Found: Send + 'static> Looker<Found> {
    fn start<State>(
        make: Arc<impl Fn() -> State + Send + Sync + 'static>,
        look: Arc<impl Fn(&mut State, u32) -> Result<Found, InspectError> + Send + Sync + 'static>,
    ) -> Looker<Found> {
        let (requests, asked) = mpsc::channel();
        let (answering, answers) = mpsc::channel();
        std::thread::spawn(move || {
            let mut state = make();
            for pid in asked {
                if answering.send(look(&mut state, pid)).is_err() {
                    return;
                }
            }
        });
        Looker { requests, answers }
    }

    /// The answer, if it comes soon.
    fn ask(&self, pid: u32) -> Option<Result<Found, InspectError>> {
        self.requests.send(pid).ok()?;
        self.answers.recv_timeout(PATIENCE).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::sync::Mutex;

    /// `sexton doctor` looked at one process after the other in a single thread, and a target on a file
    /// system that hung was the last that it looked at.
    #[test]
    fn a_process_that_keeps_one_waiting_holds_up_nobody() {
        let (release, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let answers = in_turn(
            vec![1, 2, 3],
            || 0,
            move |seen, pid| {
                *seen += 1;
                if pid == 2 {
                    let _ended = held.lock().unwrap().recv();
                }
                Ok((pid, *seen))
            },
        );
        drop(release);
        let [Ok(first), Err(InspectError::Unresponsive { pid: 2, .. }), Ok(third)] = answers.as_slice()
        else {
            unreachable!("{answers:?}");
        };
        // Another thread, which has seen nothing before.
        assert_eq!((*first, *third), ((1, 1), (3, 1)));
    }

    #[test]
    fn what_comes_late_but_in_time_counts() {
        let slow = |_: &mut (), pid: u32| {
            if pid == 1 {
                std::thread::sleep(PATIENCE + Duration::from_millis(200));
            }
            Ok(pid)
        };
        let answers: Vec<u32> = in_turn(vec![1, 2], || (), slow).into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [1, 2]);
    }
}

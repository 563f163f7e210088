//! Who uses which database, and their owner's wish to close them.
//!
//! Every call into RocksDB is made under a [`Pass`]. The owner's own calls that end a database or a column
//! family handle come through here first (`owner` sees to that): while one of them is under way no
//! pass is given for the object, and it waits until the passes that are out have come back. So nothing is
//! used after it is gone. A handle's deletion need not even wait: whoever comes back last does it.
//!
//! Addresses are only compared here, never followed.

use crate::log;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a close that waits for a pass says so in the log. It has no limit of its own: RocksDB's own
/// close waits without one for the same background work, and going on would free memory that is in use.
const WAIT_LOGGED_EVERY: Duration = Duration::from_secs(5);

/// Databases that were closed and not destroyed; a program that closes more without ever destroying one leaks
/// them. Beyond it no pass is given any more.
const CLOSED_MAX: usize = 4096;

/// Databases that the program has registered itself.
const REGISTERED_MAX: usize = 1024;

/// Keeps account. There is one in a process, [`GUARD`]; tests make their own.
pub struct Guard {
    state: Mutex<State>,
    changed: Condvar,
}

pub static GUARD: Guard = Guard::new();

struct State {
    /// Whether the owners' calls come through here.
    installed: bool,
    last_pass: u64,
    passes: Vec<Given>,
    /// Databases whose end is under way, one entry for each call; as many as the host has threads in one.
    ending: Vec<u64>,
    /// Databases that are closed and still there.
    closed: Vec<u64>,
    /// Databases for which the program itself tells when they end.
    registered: Vec<u64>,
    /// Handles whose end is under way or was left to us.
    leaving: Vec<u64>,
    /// Handles to delete, and how, when the last pass comes back.
    left: Vec<(u64, Deletion)>,
    /// Databases in which the agent has changed options.
    changed: Vec<u64>,
}

type Deletion = Box<dyn FnOnce() + Send>;

struct Given {
    id: u64,
    database: u64,
    handle: u64,
}

/// What became of a database by its owner's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Closed: the object is still there and can be used no more.
    Closed,
    /// Gone: the address means nothing any more.
    Destroyed,
    /// It would not be closed, and goes on.
    NotYet,
}

/// Why no pass was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The owner is closing or has closed the database.
    Closing,
    /// The owner is destroying the column family's handle.
    Leaving,
    /// Nobody would tell when the database is closed.
    Unguarded,
}

impl Refusal {
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Closing => "its owner closes the database, or has closed it",
            Refusal::Leaving => "its owner is done with this handle of the column family",
            Refusal::Unguarded => "the hook could not tell when its owner closes this database",
        }
    }
}

/// The right to use a database and one of its column families until it is dropped.
pub struct Pass<'guard> {
    guard: &'guard Guard,
    id: u64,
    database: u64,
    handle: u64,
}

impl Guard {
    const fn new() -> Guard {
        let state = State {
            installed: false,
            last_pass: 0,
            passes: Vec::new(),
            ending: Vec::new(),
            closed: Vec::new(),
            registered: Vec::new(),
            leaving: Vec::new(),
            left: Vec::new(),
            changed: Vec::new(),
        };
        Guard { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// No panic can leave the state half changed, so a poisoned lock is as good as another.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the owners' calls come through here, or no longer do.
    pub fn set_installed(&self, installed: bool) {
        self.state().installed = installed;
    }

    /// Gives the right to use both.
    pub fn enter(&self, database: u64, handle: u64) -> Result<Pass<'_>, Refusal> {
        let mut state = self.state();
        let is_told = state.installed || state.registered.contains(&database);
        if !is_told || state.closed.len() > CLOSED_MAX {
            return Err(Refusal::Unguarded);
        }
        if state.ending.contains(&database) || state.closed.contains(&database) {
            return Err(Refusal::Closing);
        }
        if state.leaving.contains(&handle) {
            return Err(Refusal::Leaving);
        }
        state.last_pass += 1;
        let id = state.last_pass;
        state.passes.push(Given { id, database, handle });
        Ok(Pass { guard: self, id, database, handle })
    }

    /// The owner ends `database` by `original`, which tells what became of it. Where it is in use, `stop` is
    /// called first and the passes are waited for. Behaves exactly as `original` where it is not.
    pub fn end_database(&self, database: u64, stop: impl FnOnce(), original: impl FnOnce() -> Ended) {
        let mut state = self.state();
        state.ending.push(database);
        let uses = |state: &mut State| state.passes.iter().any(|given| given.database == database);
        if uses(&mut state) {
            drop(state);
            stop();
            self.wait_while("database", uses);
        } else {
            drop(state);
        }
        let ended = original();
        let mut state = self.state();
        remove_one(&mut state.ending, database);
        if ended == Ended::NotYet {
            return;
        }
        state.changed.retain(|changed| *changed != database);
        if ended == Ended::Destroyed {
            state.closed.retain(|closed| *closed != database);
            state.registered.retain(|registered| *registered != database);
        } else if !state.closed.contains(&database) && state.closed.len() <= CLOSED_MAX {
            state.closed.push(database);
        }
    }

    /// The owner deletes `handle`, memory included. Where it is in use, that is left to whoever comes back
    /// last, and the owner goes on at once.
    pub fn delete_handle(&self, handle: u64, original: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        state.leaving.push(handle);
        if state.passes.iter().any(|given| given.handle == handle) {
            state.left.push((handle, Box::new(original)));
            return;
        }
        drop(state);
        original();
        remove_one(&mut self.state().leaving, handle);
    }

    /// The owner destroys `handle` and keeps its memory: that has to wait.
    pub fn destroy_handle(&self, handle: u64, original: impl FnOnce()) {
        self.state().leaving.push(handle);
        self.wait_while("handle", |state| state.passes.iter().any(|given| given.handle == handle));
        original();
        remove_one(&mut self.state().leaving, handle);
    }

    fn wait_while(&self, what: &str, mut in_use: impl FnMut(&mut State) -> bool) {
        let mut state = self.state();
        while in_use(&mut state) {
            let waited = self.changed.wait_timeout(state, WAIT_LOGGED_EVERY);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            if timeout.timed_out() {
                log::line(&format!("the owner of a {what} waits until RocksDB gives up our call"));
            }
        }
    }

    /// The program promises to say so before it ends the database. `false`: there are
    /// too many.
    pub fn register(&self, database: u64) -> bool {
        let mut state = self.state();
        state.closed.retain(|closed| *closed != database);
        if !state.registered.contains(&database) {
            if state.registered.len() >= REGISTERED_MAX {
                return false;
            }
            state.registered.push(database);
        }
        true
    }

    /// Notes that options of `database` were changed. Only for whoever holds a pass for it.
    pub fn note_changed(&self, database: u64) {
        let mut state = self.state();
        if !state.changed.contains(&database) {
            state.changed.push(database);
        }
    }

    /// Whether options were changed there; no more once its owner has closed it.
    pub fn is_changed(&self, database: u64) -> bool {
        self.state().changed.contains(&database)
    }
}

fn remove_one(list: &mut Vec<u64>, value: u64) {
    if let Some(at) = list.iter().position(|entry| *entry == value) {
        list.swap_remove(at);
    }
}

impl Pass<'_> {
    /// Whether the owner waits to close the database.
    pub fn is_ending(&self) -> bool {
        self.guard.state().ending.contains(&self.database)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.guard.state();
        let is_shared = state.passes.iter().any(|given| given.handle == self.handle && given.id != self.id);
        let left = state.left.iter().position(|(handle, _)| *handle == self.handle && !is_shared);
        if let Some((handle, deletion)) = left.map(|at| state.left.swap_remove(at)) {
            // The pass stays out meanwhile: the database must outlive its handle.
            drop(state);
            deletion();
            state = self.guard.state();
            remove_one(&mut state.leaving, handle);
        }
        state.passes.retain(|given| given.id != self.id);
        drop(state);
        self.guard.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

    const DATABASE: u64 = 0x1000;
    const HANDLE: u64 = 0x2000;

    /// A guard that is never given back, as the process' own.
    fn guard() -> &'static Guard {
        let guard: &Guard = Box::leak(Box::new(Guard::new()));
        guard.set_installed(true);
        guard
    }

    fn never() {
        panic!("stopped though nothing was in use");
    }

    #[test]
    fn a_database_that_nobody_uses_ends_at_once() {
        let guard = guard();
        guard.end_database(DATABASE, never, || Ended::NotYet);
        drop(guard.enter(DATABASE, HANDLE).unwrap());
        guard.end_database(DATABASE, never, || Ended::Closed);
        assert_eq!(guard.enter(DATABASE, HANDLE).err(), Some(Refusal::Closing));
        guard.end_database(DATABASE, never, || Ended::Destroyed);
        assert!(guard.enter(DATABASE, HANDLE).is_ok(), "another database may come to lie there");
    }

    #[test]
    fn an_end_waits_for_the_pass_and_refuses_new_ones() {
        let guard = guard();
        let pass = guard.enter(DATABASE, HANDLE).unwrap();
        let (stopped, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let stop = || stopped.store(true, SeqCst);
                guard.end_database(DATABASE, stop, || {
                    ended.store(true, SeqCst);
                    Ended::Destroyed
                });
            });
            while !stopped.load(SeqCst) {
                std::thread::yield_now();
            }
            assert!(pass.is_ending() && !ended.load(SeqCst));
            assert_eq!(guard.enter(DATABASE, HANDLE + 8).err(), Some(Refusal::Closing));
            assert!(guard.enter(DATABASE + 8, HANDLE + 8).is_ok(), "another database is not concerned");
            drop(pass);
        });
        assert!(ended.load(SeqCst));
    }

    #[test]
    fn a_handle_in_use_is_deleted_by_whoever_comes_back_last() {
        let guard = guard();
        let deleted: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let (one, two) = (guard.enter(DATABASE, HANDLE).unwrap(), guard.enter(DATABASE, HANDLE).unwrap());
        guard.delete_handle(HANDLE, || deleted.store(true, SeqCst));
        assert_eq!(guard.enter(DATABASE, HANDLE).err(), Some(Refusal::Leaving));
        assert!(!one.is_ending());
        drop(one);
        assert!(!deleted.load(SeqCst));
        drop(two);
        assert!(deleted.load(SeqCst));
        assert!(guard.enter(DATABASE, HANDLE).is_ok(), "another handle may come to lie there");
        guard.delete_handle(HANDLE + 8, || deleted.store(false, SeqCst));
        assert!(!deleted.load(SeqCst), "one that nobody uses is deleted at once");
    }

    #[test]
    fn a_handle_is_deleted_before_its_database() {
        let guard = guard();
        let order: &Mutex<Vec<&str>> = Box::leak(Box::new(Mutex::new(Vec::new())));
        let pass = guard.enter(DATABASE, HANDLE).unwrap();
        guard.delete_handle(HANDLE, || order.lock().unwrap().push("handle"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let original = || {
                    order.lock().unwrap().push("database");
                    Ended::Destroyed
                };
                guard.end_database(DATABASE, || (), original);
            });
            while !pass.is_ending() {
                std::thread::yield_now();
            }
            drop(pass);
        });
        assert_eq!(*order.lock().unwrap(), ["handle", "database"]);
    }

    #[test]
    fn without_the_owners_calls_only_registered_databases_are_used() {
        let guard: &Guard = Box::leak(Box::new(Guard::new()));
        assert_eq!(guard.enter(DATABASE, HANDLE).err(), Some(Refusal::Unguarded));
        assert!(guard.register(DATABASE) && guard.register(DATABASE));
        drop(guard.enter(DATABASE, HANDLE).unwrap());
        guard.end_database(DATABASE, never, || Ended::Destroyed);
        assert_eq!(guard.enter(DATABASE, HANDLE).err(), Some(Refusal::Unguarded));
    }

    #[test]
    fn changed_options_are_forgotten_with_their_database() {
        let guard = guard();
        guard.note_changed(DATABASE);
        guard.note_changed(DATABASE + 8);
        guard.end_database(DATABASE, never, || Ended::NotYet);
        assert!(guard.is_changed(DATABASE), "it was not closed");
        guard.end_database(DATABASE, never, || Ended::Closed);
        assert!(!guard.is_changed(DATABASE) && guard.is_changed(DATABASE + 8));
    }

    #[test]
    fn databases_closed_and_never_destroyed_are_counted_to_an_end() {
        let guard = guard();
        for database in 0..=CLOSED_MAX as u64 {
            guard.end_database(8 * database, never, || Ended::Closed);
        }
        assert_eq!(guard.enter(1, 1).err(), Some(Refusal::Unguarded));
    }

    /// Many threads use, delete and end a few databases; a word beside each tells whether one was used while
    /// it was gone.
    #[test]
    fn nothing_is_used_after_its_end() {
        const ROUNDS: u64 = 2_000;
        static GONE: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
        let (guard, used) = (guard(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for database in 0..3u64 {
                let gone = &GONE[database as usize];
                let (address, handle) = (DATABASE + 8 * database, HANDLE + 8 * database);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        guard.delete_handle(handle, || ());
                        let original = || {
                            gone.store(true, SeqCst);
                            Ended::Destroyed
                        };
                        guard.end_database(address, || (), original);
                        gone.store(false, SeqCst);
                    }
                });
            }
            for _ in 0..2 {
                let used = &used;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let database = round % 3;
                        let entered = guard.enter(DATABASE + 8 * database, HANDLE + 8 * database);
                        let Ok(pass) = entered else { continue };
                        let was_there = !GONE[database as usize].load(SeqCst);
                        std::thread::yield_now();
                        let is_there = !GONE[database as usize].load(SeqCst);
                        drop(pass);
                        assert!(!was_there || is_there, "used after its end");
                        used.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        assert!(used.load(SeqCst) > 0);
        assert!(guard.state().passes.is_empty() && guard.state().leaving.is_empty());
    }
}

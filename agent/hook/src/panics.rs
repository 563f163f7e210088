//! Whose panic it is. A panic of the hook's own code goes to its log; every other goes to the panic hook that
//! the host has, as if this library were not there.
//!
//! Loaded as a shared library the hook has a standard library of its own, whose panic hook nobody else sees.
//! Linked as a crate it shares the host's, and the host's panics come through here. What tells them apart is
//! the thread, and within it who has the word: RocksDB may call code of the host (a comparator, a compaction
//! filter) from a thread of ours.

use crate::log;
use std::cell::Cell;
use std::panic::{UnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether this thread runs the hook's own code now.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

static CHAINED: Once = Once::new();

/// Has panics of the hook's own code logged and not printed. A second time changes nothing. A panic hook that
/// the host sets later takes the place of this one, and sees our panics too.
pub fn keep_quiet() {
    // A thread that is panicking may not change the panic hook.
    if !std::thread::panicking() {
        CHAINED.call_once(chain);
    }
}

fn chain() {
    let theirs = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if IS_OURS.get() {
            log::line(&format!("bug: {panic}"));
        } else {
            theirs(panic);
        }
    }));
}

/// Who has the word in this thread until this is dropped; then it is again who had it before.
pub struct Scope {
    was_ours: bool,
}

impl Scope {
    /// The hook's own code runs.
    pub fn ours() -> Scope {
        Scope { was_ours: IS_OURS.replace(true) }
    }

    /// RocksDB or the host runs.
    pub fn theirs() -> Scope {
        Scope { was_ours: IS_OURS.replace(false) }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        IS_OURS.set(self.was_ours);
    }
}

/// Runs code of ours that was called from outside; no panic leaves it.
pub fn contain<T>(run: impl FnOnce() -> T + UnwindSafe) -> std::thread::Result<T> {
    let _scope = Scope::ours();
    catch_unwind(run)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::sync::{Arc, Mutex};

    /// What the host's own panic hook is told of these tests' panics.
    fn told(run: impl FnOnce()) -> Vec<String> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let words = panic.payload().downcast_ref::<&str>().copied().unwrap_or_default();
            if words.starts_with("panics.rs: ") {
                sink.lock().unwrap().push(words.to_owned());
            } else {
                before(panic);
            }
        }));
        chain();
        run();
        told.lock().unwrap().clone()
    }

    fn fail(words: &'static str) {
        std::panic::panic_any(words);
    }

    #[test]
    fn only_the_hook_s_own_panics_are_kept_from_the_host_s_panic_hook() {
        let told = told(|| {
            std::thread::spawn(|| fail("panics.rs: of the host")).join().unwrap_err();
            assert!(contain(|| fail("panics.rs: of ours")).is_err());
            let called_back = contain(|| {
                let _rocksdb = Scope::theirs();
                fail("panics.rs: of the host's comparator");
            });
            assert!(called_back.is_err());
            assert!(!IS_OURS.get(), "the thread is taken for ours after a panic");
        });
        assert_eq!(told, ["panics.rs: of the host", "panics.rs: of the host's comparator"]);
    }
}

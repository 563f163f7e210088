//! Priority while probes come and go.
//!
//! The kernel places and removes a probe under a lock of the target's address space. A thread of ours that
//! waits for a processor meanwhile has the target wait with it, and what is armed halfway is hit and of no
//! use. Both take some milliseconds of processor time, so that nobody else is much the later for it.

use rustix::process::{getpriority_process, setpriority_process};

/// Before whatever has the usual priority, and behind what has been given the highest.
const NICE: i32 = -15;

/// This thread's priority is raised until this is dropped. Where that is not allowed it stays as it is.
pub struct Haste {
    former: Option<i32>,
}

impl Haste {
    pub fn begin() -> Haste {
        let former = getpriority_process(None).ok().filter(|nice| *nice > NICE);
        Haste { former: former.filter(|_| setpriority_process(None, NICE).is_ok()) }
    }
}

impl Drop for Haste {
    fn drop(&mut self) {
        if let Some(former) = self.former {
            // Giving up priority is allowed to everybody.
            let _ = setpriority_process(None, former);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_former_priority_comes_back() {
        let before = getpriority_process(None).unwrap();
        let haste = Haste::begin();
        let meanwhile = getpriority_process(None).unwrap();
        assert!(meanwhile <= before);
        drop(haste);
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}

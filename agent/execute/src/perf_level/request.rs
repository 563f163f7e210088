//! What the agent says to the keeper: one line a thread, numbers only.

use sexton_inspect::facts::ThreadLevel;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Thread id in the agent's pid namespace.
    pub thread_id: u32,
    /// When the thread started, clock ticks since boot: a thread id alone can be reused.
    pub start_ticks: u64,
    /// Address of its `perf_level` byte in the target.
    pub address: u64,
}

impl Request {
    /// About a thread that the sentinel read.
    pub fn of(level: &ThreadLevel) -> Request {
        let nanoseconds_per_tick = 1_000_000_000 / procfs::ticks_per_second().max(1);
        Request {
            thread_id: level.thread_id,
            start_ticks: level.start_boot_ns / nanoseconds_per_tick.max(1),
            address: level.address,
        }
    }

    /// The line that says it.
    pub fn line(&self) -> String {
        format!("{} {} {}\n", self.thread_id, self.start_ticks, self.address)
    }

    /// What a line says; `None` for anything else.
    pub fn parse(line: &str) -> Option<Request> {
        let mut words = line.split_ascii_whitespace();
        let request = Request {
            thread_id: words.next()?.parse().ok()?,
            start_ticks: words.next()?.parse().ok()?,
            address: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn boot_time_becomes_the_ticks_that_proc_shows() {
        let level = ThreadLevel { thread_id: 7, start_boot_ns: 123_459_999_999, level: 1, address: 4096 };
        // A hundred ticks a second on x86-64.
        assert_eq!(Request::of(&level), Request { thread_id: 7, start_ticks: 12_345, address: 4096 });
    }

    proptest! {
        #[test]
        fn lines_say_what_was_meant(thread_id: u32, start_ticks: u64, address: u64) {
            let request = Request { thread_id, start_ticks, address };
            prop_assert_eq!(Request::parse(&request.line()), Some(request));
        }

        #[test]
        fn any_other_line_is_refused(line in "[a-z -]{0,40}") {
            prop_assert_eq!(Request::parse(&line), None);
        }
    }
}

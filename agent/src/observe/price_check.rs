//! What the windows of one target are held against: what the threads that ran into their probes did just
//! before and just after. The sentinel's readings of the loop tell it, and nothing more is read than is read
//! anyway.

use sexton_probe::{SentinelReading, ThreadKey};
use sexton_tuner::price_correction::{WindowWork, Work};
use std::collections::HashMap;

/// The readings around the windows of one target.
#[derive(Clone, Debug, Default)]
pub struct PriceCheck {
    /// What each thread did between the last two readings of the loop, if no window was open meanwhile.
    before: HashMap<ThreadKey, Work>,
    /// A window that has closed, until it is known what came after it.
    closed: Option<ClosedWindow>,
    /// Whether a window's probes may have been there since the last reading.
    is_disturbed: bool,
}

#[derive(Clone, Debug)]
struct ClosedWindow {
    threads: Vec<ThreadKey>,
    before: Work,
    during: Work,
    learnt_cost_ns: u64,
}

impl PriceCheck {
    /// Takes two readings of the loop with no window between them; gives the window before the earlier one,
    /// if all of its threads are still there.
    pub fn take_interval(&mut self, from: &SentinelReading, to: &SentinelReading) -> Option<WindowWork> {
        let closed = self.closed.take();
        self.before.clear();
        if std::mem::take(&mut self.is_disturbed) {
            return None;
        }
        self.before = to.work_since(from);
        let closed = closed?;
        Some(WindowWork {
            before: closed.before,
            during: closed.during,
            after: sum(&closed.threads, &self.before)?,
            learnt_cost_ns: closed.learnt_cost_ns,
        })
    }

    /// Takes the readings before the probes came and after they were gone, and who ran into them.
    pub fn take_window(
        &mut self,
        opening: &SentinelReading,
        closing: &SentinelReading,
        threads: &[ThreadKey],
        learnt_cost_ns: u64,
    ) {
        let (before, during) = (sum(threads, &self.before), sum(threads, &closing.work_since(opening)));
        self.closed = before.zip(during).map(|(before, during)| ClosedWindow {
            threads: threads.to_vec(),
            before,
            during,
            learnt_cost_ns,
        });
        self.before.clear();
    }

    /// A window is lost, or counters stand still: what the next interval begins with is not known.
    pub fn lose(&mut self) {
        *self = PriceCheck { is_disturbed: true, ..PriceCheck::default() };
    }
}

/// What these threads did together; `None` where it is not known of all, or there are none.
fn sum(threads: &[ThreadKey], work: &HashMap<ThreadKey, Work>) -> Option<Work> {
    let (first, others) = threads.split_first()?;
    others.iter().try_fold(*work.get(first)?, |sum, thread| Some(sum.plus(*work.get(thread)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sexton_tuner::evidence::Counters;

    const ONE: ThreadKey = (1, 7);
    const OTHER: ThreadKey = (2, 7);

    fn work(amount: u64) -> Work {
        let counters = Counters { block_cache_hits: amount, ..Counters::default() };
        Work { processor_ns: amount * 1_000, counters }
    }

    /// A reading in which these threads have done so much.
    fn reading(threads: &[(ThreadKey, u64)]) -> SentinelReading {
        SentinelReading::of_threads(threads.iter().map(|(thread, amount)| (*thread, work(*amount))))
    }

    #[test]
    fn a_window_is_told_once_it_is_known_what_came_after_it() {
        let mut check = PriceCheck::default();
        let all = |amounts: [u64; 2]| reading(&[(ONE, amounts[0]), (OTHER, amounts[1])]);
        let readings = [all([0, 0]), all([10, 3]), all([14, 5]), all([34, 6])];
        let [first, opening, closing, next] = &readings;
        assert_eq!(check.take_interval(first, opening), None);
        check.take_window(opening, closing, &[ONE], 77);
        let window = WindowWork { before: work(10), during: work(4), after: work(20), learnt_cost_ns: 77 };
        assert_eq!(check.take_interval(closing, next), Some(window));
        assert_eq!(check.take_interval(closing, next), None);
    }

    #[test]
    fn a_thread_that_came_or_went_leaves_the_window_out() {
        let (one, both) = (reading(&[(ONE, 10)]), reading(&[(ONE, 20), (OTHER, 10)]));
        let mut check = PriceCheck::default();
        assert_eq!(check.take_interval(&one, &one), None);
        check.take_window(&one, &both, &[ONE, OTHER], 77);
        assert_eq!(check.take_interval(&both, &both), None);
        check.take_window(&both, &both, &[ONE, OTHER], 77);
        assert_eq!(check.take_interval(&both, &one), None);
        check.take_window(&one, &one, &[], 77);
        assert_eq!(check.take_interval(&one, &one), None);
        // Counters that were set to zero are as good as a thread that went.
        check.take_window(&one, &one, &[ONE], 77);
        assert_eq!(check.take_interval(&both, &one), None);
    }

    #[test]
    fn what_comes_after_a_lost_window_is_held_against_nothing() {
        let readings = [0, 10, 20, 30, 40].map(|amount| reading(&[(ONE, amount)]));
        let [first, second, third, fourth, fifth] = &readings;
        let mut check = PriceCheck::default();
        assert_eq!(check.take_interval(first, second), None);
        check.lose();
        assert_eq!(check.take_interval(second, third), None);
        // The probes of the lost window may have been there.
        check.take_window(third, fourth, &[ONE], 77);
        assert_eq!(check.take_interval(fourth, fifth), None);
    }
}

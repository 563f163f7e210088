//! What probes cost one target by its own counters, held against what their learnt prices say.
//!
//! Prices are learnt on functions of the agent's own, and what a firing costs a database differs from that by
//! what the database has to fetch anew afterwards. But a target counts what it does, and the kernel counts
//! the processor time that its threads take for it. With probes the same work takes more processor time than
//! just before and just after, and the difference is what the probes took. One window says that with the
//! machine's noise, so the correction is the weighted median over many.
//!
//! The unit of work cancels out as long as the target goes on with what it did: it does not matter how many
//! operations a second there are, only what one takes. A window around which the mix of the work has changed
//! is left out.
//!
//! Reading counters and clocks, and pricing hits, is the agent's.

use crate::facts::evidence::Counters;
use std::collections::VecDeque;

/// Windows that a correction is made of: half an hour of them where there is one every thirty seconds. What
/// the target was like before that is forgotten.
pub const WINDOWS_KEPT_MAX: usize = 64;

/// Fewest windows that prices are corrected by: of three, two can be disturbed.
pub const WINDOWS_MIN: usize = 4;

/// Prices are corrected once the correction's standard error is at most this: twice it is what a learnt price
/// is likely to be off by, and no less is worth correcting.
pub const STANDARD_ERROR_MAX: f64 = 0.2;

/// Corrections that are believed. A trap costs as much in a target as in our own functions, so half of a
/// learnt price is spent anywhere; four times a price would mean that nearly all of a firing's cost comes
/// after it, which is another effect.
pub const RATIOS: (f64, f64) = (0.5, 4.0);

/// How well the learnt price is known without any window, as the standard error of a ratio of 1.
const LEARNT_PRICE_ERROR: f64 = 0.5;

/// What the speed of a processor differs by from one stretch of time to the next, with nobody to blame.
const SPEED_NOISE: f64 = 0.05;

/// What the kernel's word on a thread's processor time is late by, as a standard error: it is brought up to
/// date at each tick, every 4 ms as a rule.
const PROCESSOR_TIME_ERROR_NS: f64 = 1_600_000.0;

/// Least standard error of a single window: what is common to all of it is not seen in it.
const WINDOW_ERROR_MIN: f64 = 0.1;

/// A window that knows its ratio no better than this says nothing: its probes took too little of the time.
const WINDOW_ERROR_MAX: f64 = 2.0;

/// Least processor time of each stretch: several ticks.
const PROCESSOR_NS_MIN: u64 = 20_000_000;

/// Least work of each stretch, in nominal nanoseconds: some hundred blocks.
const NOMINAL_NS_MIN: f64 = 50_000.0;

/// Greatest share of the work that may be of another kind than in the stretch beside it.
const MIX_CHANGE_MAX: f64 = 0.2;

/// Greatest ratio of what the same work takes after a window and before it: beyond it the target does
/// something else.
const DRIFT_MAX: f64 = 1.5;

/// Nominal processor time of a block found in the cache, with the searching in it. Nominal times only say how
/// kinds of work compare: where the mix stays the same they cancel out.
const NOMINAL_NS_PER_CACHE_HIT: f64 = 500.0;

/// Of a block read from the page cache, checked and taken into the block cache.
const NOMINAL_NS_PER_BLOCK_READ: f64 = 5_000.0;

/// Of a key or a tombstone stepped over.
const NOMINAL_NS_PER_KEY: f64 = 50.0;

/// What threads did in a stretch of time, and the processor time they took for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Processor time of the threads.
    pub processor_ns: u64,
    /// What RocksDB counted in them.
    pub counters: Counters,
}

/// One window: what the threads that ran into its probes did before, while and after it was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowWork {
    /// Just before.
    pub before: Work,
    /// From before the probes came until they were gone.
    pub during: Work,
    /// Just after.
    pub after: Work,
    /// What the window's hits cost by the learnt prices.
    pub learnt_cost_ns: u64,
}

/// Why a window says nothing about prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Too little was done, in the window or around it.
    TooLittleWork,
    /// Something else was done than just before or just after.
    OtherWork,
    /// The probes took too little of the time to be told from noise.
    TooCheap,
}

impl Unusable {
    /// For a log.
    pub fn in_words(self) -> &'static str {
        match self {
            Unusable::TooLittleWork => "too little was done in the window or around it",
            Unusable::OtherWork => "other work was done in the window than around it",
            Unusable::TooCheap => "the probes took too little of the time to be told from noise",
        }
    }
}

/// What the learnt prices have to be multiplied by for one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriceCorrection {
    windows: VecDeque<WindowRatio>,
}

/// What one window cost by the target's own counters, per what it cost by the learnt prices.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WindowRatio {
    ratio: f64,
    /// One by the square of its standard error.
    weight: f64,
}

impl Work {
    /// Sum, saturating.
    pub fn plus(self, other: Work) -> Work {
        Work {
            processor_ns: self.processor_ns.saturating_add(other.processor_ns),
            counters: self.counters.plus(other.counters),
        }
    }

    /// What was done since `earlier`; `None` where a counter has been set to zero in between.
    pub fn since(self, earlier: Work) -> Option<Work> {
        let fell = self.counters.fell_below(earlier.counters) || self.processor_ns < earlier.processor_ns;
        (!fell).then(|| Work {
            processor_ns: self.processor_ns.saturating_sub(earlier.processor_ns),
            counters: self.counters.minus(earlier.counters),
        })
    }

    /// Nominal time of each kind of work.
    fn nominal_ns(&self) -> [f64; 3] {
        let counters = &self.counters;
        let keys = counters.keys_skipped as f64 + counters.tombstones_skipped as f64;
        [
            counters.block_cache_hits as f64 * NOMINAL_NS_PER_CACHE_HIT,
            counters.block_reads as f64 * NOMINAL_NS_PER_BLOCK_READ,
            keys * NOMINAL_NS_PER_KEY,
        ]
    }

    fn size(&self) -> f64 {
        self.nominal_ns().iter().sum()
    }

    fn is_enough(&self) -> bool {
        self.processor_ns >= PROCESSOR_NS_MIN && self.size() >= NOMINAL_NS_MIN
    }

    /// Processor time per nominal time.
    fn slowness(&self) -> f64 {
        self.processor_ns as f64 / self.size()
    }

    /// Share of the work that is of another kind than the other's.
    fn mix_change(&self, other: &Work) -> f64 {
        let (size, other_size) = (self.size(), other.size());
        let kinds = self.nominal_ns().into_iter().zip(other.nominal_ns());
        kinds.map(|(ours, theirs)| (ours / size - theirs / other_size).abs()).sum::<f64>() / 2.0
    }
}

impl WindowWork {
    fn ratio(&self) -> Result<WindowRatio, Unusable> {
        let WindowWork { before, during, after, learnt_cost_ns } = self;
        if ![before, during, after].into_iter().all(Work::is_enough) {
            return Err(Unusable::TooLittleWork);
        }
        let (slow_before, slow_after) = (before.slowness(), after.slowness());
        let drift = slow_after / slow_before;
        let is_other = [before, after].into_iter().any(|around| during.mix_change(around) > MIX_CHANGE_MAX);
        if is_other || !(1.0 / DRIFT_MAX..=DRIFT_MAX).contains(&drift) {
            return Err(Unusable::OtherWork);
        }
        let slowness = f64::midpoint(slow_before, slow_after);
        let processor_ns = during.processor_ns as f64;
        let cost_ns = (*learnt_cost_ns).max(1) as f64;
        // What lies between before and after may lie anywhere between them in the window.
        let drift_noise = (slow_after - slow_before) / (slow_after + slow_before);
        let noise_ns = (processor_ns * SPEED_NOISE.hypot(drift_noise)).hypot(PROCESSOR_TIME_ERROR_NS);
        let error = (noise_ns / cost_ns).max(WINDOW_ERROR_MIN);
        if error > WINDOW_ERROR_MAX {
            return Err(Unusable::TooCheap);
        }
        let ratio = (processor_ns - slowness * during.size()) / cost_ns;
        Ok(WindowRatio { ratio, weight: error.powi(-2) })
    }
}

impl PriceCorrection {
    /// Takes in a window.
    pub fn take(&mut self, window: &WindowWork) -> Result<(), Unusable> {
        let ratio = window.ratio()?;
        if self.windows.len() >= WINDOWS_KEPT_MAX {
            self.windows.pop_front();
        }
        self.windows.push_back(ratio);
        Ok(())
    }

    /// What the learnt prices are to be multiplied by, within [`RATIOS`]; 1 until enough windows have said
    /// so.
    pub fn ratio(&self) -> f64 {
        if self.is_known() { self.median().clamp(RATIOS.0, RATIOS.1) } else { 1.0 }
    }

    /// Whether enough windows have been seen.
    pub fn is_known(&self) -> bool {
        self.windows.len() >= WINDOWS_MIN && self.standard_error() <= STANDARD_ERROR_MAX
    }

    /// Windows that it is made of.
    pub fn windows(&self) -> usize {
        self.windows.len()
    }

    /// How well the windows know it, as the standard error of their weighted median; infinite without any.
    pub fn standard_error(&self) -> f64 {
        (std::f64::consts::FRAC_PI_2 / self.weight()).sqrt()
    }

    /// The learnt prices have changed: by the new ones the windows so far cost `ratio` times as much as by
    /// the former.
    pub fn learnt_prices_changed(&mut self, ratio: f64) {
        if !ratio.is_finite() || ratio <= 0.0 {
            return;
        }
        for window in &mut self.windows {
            window.ratio /= ratio;
            window.weight *= ratio * ratio;
        }
    }

    fn weight(&self) -> f64 {
        self.windows.iter().map(|window| window.weight).sum()
    }

    /// The weighted median of the windows' ratios, and of the learnt price's own ratio of 1 as one more.
    fn median(&self) -> f64 {
        let learnt = WindowRatio { ratio: 1.0, weight: LEARNT_PRICE_ERROR.powi(-2) };
        let mut ratios: Vec<WindowRatio> = self.windows.iter().copied().chain([learnt]).collect();
        ratios.sort_by(|one, two| one.ratio.total_cmp(&two.ratio));
        let half = ratios.iter().map(|window| window.weight).sum::<f64>() / 2.0;
        let mut below = 0.0;
        for window in &ratios {
            below += window.weight;
            if below >= half {
                return window.ratio;
            }
        }
        learnt.ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Cache hits in so much processor time without probes: 2 us each.
    fn work(processor_ms: f64, slower: f64) -> Work {
        let counters = Counters { block_cache_hits: (processor_ms * 500.0) as u64, ..Counters::default() };
        Work { processor_ns: (processor_ms * 1e6 * slower) as u64, counters }
    }

    /// A window in which the probes took `cost_ms` by the learnt prices and `ratio` times that in truth, and
    /// what each stretch was slower by for reasons of its own.
    fn window(cost_ms: f64, ratio: f64, slower: [f64; 3]) -> WindowWork {
        let [before, during, after] = slower;
        let mut window = WindowWork {
            before: work(800.0, before),
            during: work(40.0, during),
            after: work(800.0, after),
            learnt_cost_ns: (cost_ms * 1e6) as u64,
        };
        window.during.processor_ns += (cost_ms * ratio * during * 1e6) as u64;
        window
    }

    fn quiet(cost_ms: f64, ratio: f64) -> WindowWork {
        window(cost_ms, ratio, [1.0; 3])
    }

    #[test]
    fn a_price_that_says_three_fifths_is_put_right() {
        let mut correction = PriceCorrection::default();
        for _ in 0..8 {
            assert_eq!(correction.take(&quiet(48.0, 1.0 / 0.6)), Ok(()));
        }
        assert!(correction.is_known() && correction.standard_error() < 0.1);
        assert!((0.6 * correction.ratio() - 1.0).abs() < 0.01, "{correction:?}");
    }

    #[test]
    fn nothing_is_corrected_before_there_is_enough_evidence() {
        let mut correction = PriceCorrection::default();
        assert_eq!((correction.ratio(), correction.windows()), (1.0, 0));
        for seen in 1..WINDOWS_MIN {
            assert_eq!(correction.take(&quiet(48.0, 2.0)), Ok(()));
            assert_eq!((correction.ratio(), correction.windows()), (1.0, seen));
        }
        assert_eq!(correction.take(&quiet(48.0, 2.0)), Ok(()));
        assert!((correction.ratio() - 2.0).abs() < 0.01);
        // Windows whose probes take a thirtieth of the time do not add up to evidence.
        let mut cheap = PriceCorrection::default();
        for _ in 0..WINDOWS_KEPT_MAX {
            assert_eq!(cheap.take(&quiet(1.4, 2.0)), Ok(()));
        }
        assert!(!cheap.is_known());
        assert_eq!(cheap.ratio(), 1.0);
    }

    #[test]
    fn windows_that_say_nothing_are_named() {
        let mut correction = PriceCorrection::default();
        let idle = WindowWork { after: Work::default(), ..quiet(48.0, 1.0) };
        assert_eq!(correction.take(&idle), Err(Unusable::TooLittleWork));
        assert_eq!(correction.take(&quiet(0.5, 1.0)), Err(Unusable::TooCheap));
        assert_eq!(correction.take(&quiet(0.0, 1.0)), Err(Unusable::TooCheap));
        let mut scans = quiet(48.0, 1.0);
        scans.during.counters.keys_skipped = 1_000_000;
        assert_eq!(correction.take(&scans), Err(Unusable::OtherWork));
        assert_eq!(correction.take(&window(48.0, 1.0, [1.0, 1.3, 1.6])), Err(Unusable::OtherWork));
        assert_eq!(correction.windows(), 0);
    }

    #[test]
    fn a_load_that_rises_changes_nothing() {
        let mut correction = PriceCorrection::default();
        for _ in 0..8 {
            // Twenty times the operations after the window: the same work, only more of it.
            let busy = WindowWork { before: work(50.0, 1.0), after: work(1_000.0, 1.0), ..quiet(48.0, 1.5) };
            assert_eq!(correction.take(&busy), Ok(()));
        }
        assert!((correction.ratio() - 1.5).abs() < 0.01);
    }

    #[test]
    fn other_learnt_prices_do_not_change_what_probes_cost() {
        let mut correction = PriceCorrection::default();
        for _ in 0..8 {
            assert_eq!(correction.take(&quiet(48.0, 1.2)), Ok(()));
        }
        correction.learnt_prices_changed(0.8);
        assert!((correction.ratio() - 1.5).abs() < 0.01);
        for nonsense in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
            correction.learnt_prices_changed(nonsense);
        }
        assert!((correction.ratio() - 1.5).abs() < 0.01);
    }

    #[test]
    fn counters_that_were_set_to_zero_are_no_work() {
        let (less, more) = (work(10.0, 1.0), work(30.0, 1.0));
        assert_eq!(more.since(less), Some(work(20.0, 1.0)));
        assert_eq!(less.since(more), None);
    }

    proptest! {
        /// The machine is a tenth faster or slower over any stretch, a window in five is disturbed, and the
        /// price is off by anything that is believed.
        #[test]
        fn noisy_windows_come_close_to_the_truth(
            truth in 0.6f64..3.0,
            noise in proptest::collection::vec(((-0.1f64..0.1), (-0.1f64..0.1), (-0.1f64..0.1), 0u32..5), 48),
        ) {
            let mut correction = PriceCorrection::default();
            let mut taken = 0;
            for (at, (before, during, after, disturbed)) in noise.iter().enumerate() {
                let slower = if *disturbed == 0 && at % 2 == 0 { 0.25 } else { *during };
                let slower = [1.0 + before, 1.0 + slower, 1.0 + after];
                taken += usize::from(correction.take(&window(48.0 / truth, truth, slower)).is_ok());
            }
            prop_assert_eq!(taken, correction.windows());
            prop_assert!(correction.is_known());
            let said = correction.ratio() / truth;
            prop_assert!((0.85..=1.15).contains(&said), "{} of the truth, {}", said, truth);
        }

        #[test]
        fn nothing_leaves_the_bounds(
            windows in proptest::collection::vec((any::<[u64; 3]>(), any::<[u64; 3]>(), any::<u64>()), 0..80),
            changed: f64,
        ) {
            let mut correction = PriceCorrection::default();
            for (processor_ns, hits, learnt_cost_ns) in windows {
                let stretch = |at: usize| Work {
                    processor_ns: processor_ns[at] >> (hits[at] % 40),
                    counters: Counters { block_cache_hits: hits[at] >> 30, ..Counters::default() },
                };
                let window = WindowWork {
                    before: stretch(0),
                    during: stretch(1),
                    after: stretch(2),
                    learnt_cost_ns: learnt_cost_ns >> (hits[0] % 50),
                };
                let _ = correction.take(&window);
                prop_assert!((RATIOS.0..=RATIOS.1).contains(&correction.ratio()));
                prop_assert!(correction.windows() <= WINDOWS_KEPT_MAX);
            }
            correction.learnt_prices_changed(changed);
            prop_assert!((RATIOS.0..=RATIOS.1).contains(&correction.ratio()));
        }
    }
}

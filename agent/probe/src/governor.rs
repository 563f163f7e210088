//! What a firing of a probe costs on this machine, and so what a window's hits have cost.
//!
//! A probe costs the thread that runs into it a trap, the program, and the way back. The kernel's own
//! statistics see a third of that at most, so the prices are measured: on functions of our own
//! ([`super::subject`]), with the very programs, maps and mechanism that targets get, before the first window
//! and again now and then. They are measured in processor time, and of several measurements the least times
//! count: what else a machine does makes times longer, never shorter.
//!
//! What a firing costs a database is more than that by a factor that is its own:
//! `sexton_tuner::price_correction` learns it from the database's counters. How much may be spent is decided
//! by `sexton_tuner::governor`.

use super::abi::{SEXTON_OFFSET_ABSENT, SEXTON_SITES_MAX, sexton_recipe};
use super::site::{PlacedSite, ProbeHits, Site, SiteHits};
use super::subject::{Positioning, Subject, Timing};
use super::{Credit, ProbeError, Slot, Windows};
use sexton_inspect::facts::{ProbeSites, SiteKind};
use sexton_inspect::{maps, memory, prologue};
use sexton_tuner::evidence::Counters;
use std::collections::VecDeque;
use std::fmt::Display;
use std::path::PathBuf;

/// Slot of our own functions. Targets never get it.
pub const CALIBRATION_SLOT: Slot = super::TARGETS_MAX as Slot;

/// Calls of a function whose mean is one measurement: long enough for the clock, short enough that few are
/// interrupted.
const CALLS_PER_ROUND: usize = 50;

/// An iterator is created, positioned and ended: so many functions are entered.
const FUNCTIONS_PER_CALL: u64 = 3;

/// Rounds of which the median is taken: what an interruption has made longer is left out.
const ROUNDS: usize = 15;

/// Measurements for prices that are wanted at once: one of them may have met a busy moment of the machine.
const MEASUREMENTS_AT_ONCE: usize = 3;

/// Measurements of which the least times count. Older ones are forgotten, for a virtual machine may have
/// moved to a slower processor.
const MEASUREMENTS_KEPT_MAX: usize = 8;

/// What a firing costs a real host, by what it costs our own functions, which are small and do little: what
/// the host has to fetch anew afterwards, code, translations and branch history among it. Measured on
/// db_bench with all probes left armed: 1.21 and 1.33 times, and with those of `Seek` alone 1.37 (`make
/// bench-overhead`).
const HOST_FACTOR: f64 = 1.25;

/// What a firing costs the thread that runs into it, in nanoseconds.
///
/// An entry's price includes that of the return that follows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbePrices {
    pub seek_ns: f64,
    /// The creation of an iterator, followed.
    pub new_iterator_ns: f64,
    /// The end of an iterator, followed: it has no return probe.
    pub iterator_end_ns: f64,
    /// An entry that the programs skip.
    pub skipped_entry_ns: f64,
    /// A return that they skip; nothing where a skipped entry does not even arm its return.
    pub skipped_return_ns: f64,
    /// What an entry costs more where the kernel has to single-step the instruction instead of emulating it.
    pub single_step_ns: f64,
}

impl Default for ProbePrices {
    /// Where they cannot be measured: what was measured in a virtual machine, which is dearer than bare
    /// metal.
    fn default() -> ProbePrices {
        ProbePrices {
            seek_ns: 2_600.0,
            new_iterator_ns: 2_200.0,
            iterator_end_ns: 1_300.0,
            skipped_entry_ns: 750.0,
            skipped_return_ns: 500.0,
            single_step_ns: 8_700.0,
        }
    }
}

impl ProbePrices {
    /// Each price with its name.
    pub fn by_kind(&self) -> [(&'static str, f64); 6] {
        [
            ("seek", self.seek_ns),
            ("new_iterator", self.new_iterator_ns),
            ("iterator_end", self.iterator_end_ns),
            ("skipped_entry", self.skipped_entry_ns),
            ("skipped_return", self.skipped_return_ns),
            ("single_step", self.single_step_ns),
        ]
    }

    /// What these hits have cost, in nanoseconds.
    pub fn cost_ns(&self, hits: &ProbeHits) -> u64 {
        hits.sites.iter().map(|site| self.cost_of_site(site)).sum::<f64>() as u64
    }

    /// The same where a firing costs `ratio` times as much.
    pub fn corrected(&self, ratio: f64) -> ProbePrices {
        ProbePrices {
            seek_ns: self.seek_ns * ratio,
            new_iterator_ns: self.new_iterator_ns * ratio,
            iterator_end_ns: self.iterator_end_ns * ratio,
            skipped_entry_ns: self.skipped_entry_ns * ratio,
            skipped_return_ns: self.skipped_return_ns * ratio,
            single_step_ns: self.single_step_ns * ratio,
        }
    }

    /// So much credit for a window at these sites, to be spent at these prices.
    pub fn credit(&self, granted_ns: u64, sites: &ProbeSites) -> Credit {
        Credit::limited(granted_ns, sites, |site, kind| self.entry_ns(site, kind) as u64)
    }

    /// What an entry costs that is followed, with its return.
    pub fn entry_ns(&self, site: Site, kind: SiteKind) -> f64 {
        let followed_ns = match site {
            // Both read the counters and settle the thread's account.
            Site::IteratorEnd | Site::CountersReset => self.iterator_end_ns,
            // The same two readings of the counters, and a table of its own.
            Site::ReadBlockContents => self.seek_ns,
            Site::NewIterator => self.new_iterator_ns,
            Site::Seek | Site::SeekForPrev | Site::SeekToFirst | Site::SeekToLast => self.seek_ns,
        };
        followed_ns + self.trap_ns(kind)
    }

    /// What an entry costs more than one on an instruction that is emulated.
    fn trap_ns(&self, kind: SiteKind) -> f64 {
        match kind {
            SiteKind::Emulated => 0.0,
            SiteKind::SingleStepped => self.single_step_ns,
        }
    }

    fn cost_of_site(&self, hits: &SiteHits) -> f64 {
        let skipped_ns = self.skipped_entry_ns + self.trap_ns(hits.kind);
        hits.entries as f64 * self.entry_ns(hits.site, hits.kind)
            + hits.entries_skipped as f64 * skipped_ns
            + hits.returns_skipped as f64 * self.skipped_return_ns
    }
}

/// Measures the prices, in some tenth of a second.
/// Errors: [`ProbeError::Calibration`] where our own functions cannot be found or timed, and what arming
/// gives.
pub fn calibrate(windows: &mut Windows) -> Result<ProbePrices, ProbeError> {
    let mut calibration = Calibration::default();
    for _ in 1..MEASUREMENTS_AT_ONCE {
        calibration.learn(windows)?;
    }
    calibration.learn(windows)
}

/// The last measurements.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    measurements: VecDeque<Measurement>,
}

/// The times of our own functions without probes, with probes that are followed, and with probes that are
/// skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measurement {
    bare: Measured,
    followed: Measured,
    skipped: Measured,
}

impl Calibration {
    /// Measures once more, and gives the prices by the least times.
    /// Errors: as [`calibrate`]; what was measured before stays.
    pub fn learn(&mut self, windows: &mut Windows) -> Result<ProbePrices, ProbeError> {
        self.take(measure(windows)?);
        self.prices().ok_or_else(|| impossible("nothing was measured"))
    }

    fn take(&mut self, measurement: Measurement) {
        if self.measurements.len() >= MEASUREMENTS_KEPT_MAX {
            self.measurements.pop_front();
        }
        self.measurements.push_back(measurement);
    }

    /// Least times are compared with least times: the difference of two that were disturbed differently is no
    /// price.
    fn prices(&self) -> Option<ProbePrices> {
        let least = self.measurements.iter().copied().reduce(|least, measurement| Measurement {
            bare: least.bare.least(measurement.bare),
            followed: least.followed.least(measurement.followed),
            skipped: least.skipped.least(measurement.skipped),
        })?;
        Some(prices(&least.bare, &least.followed, &least.skipped))
    }
}

fn measure(windows: &mut Windows) -> Result<Measurement, ProbeError> {
    let subject = Subject::start().ok_or_else(|| impossible("no thread can be started"))?;
    let functions = subject.functions();
    let (module, sites) = place(&[
        (Site::NewIterator, functions.new_iterator),
        (Site::Seek, functions.seek),
        (Site::SeekForPrev, functions.stepped_seek),
        (Site::IteratorEnd, functions.iterator_end),
    ])?;
    let bare = Measured::of(&subject)?;
    // Every entry takes one, so the programs follow the calls of one measurement and skip those of the next.
    let credit = Measured::CALLS * FUNCTIONS_PER_CALL;
    let unattached = windows.prepare_at(CALIBRATION_SLOT, recipe(&subject), module, sites, credit)?;
    let window = windows.arm_from(unattached.attach()?, Counters::default(), std::time::Instant::now())?;
    let measured = Measured::of(&subject).and_then(|followed| Ok((followed, Measured::of(&subject)?)));
    let hits = windows.hits(&window);
    windows.abandon(window)?;
    let (followed, skipped) = measured?;
    all_were_hit(&hits?)?;
    Ok(Measurement { bare, followed, skipped })
}

/// Whether every call ran into its probe: only then do the times tell a price.
fn all_were_hit(hits: &ProbeHits) -> Result<(), ProbeError> {
    let is_hit = |site: &SiteHits| {
        // Half of the iterators are positioned by the one function, half by the other.
        let calls = if site.site.is_positioning() { Measured::CALLS / 2 } else { Measured::CALLS };
        (site.entries, site.entries_skipped) == (calls, calls)
    };
    match hits.sites.iter().find(|site| !is_hit(site)) {
        None => Ok(()),
        Some(missed) => {
            let SiteHits { site, entries, entries_skipped, .. } = missed;
            let counted = format!("{}: {entries} hits, {entries_skipped} skipped", site.label());
            Err(impossible(format!("our own functions ran past their probes: {counted}")))
        }
    }
}

fn impossible(reason: impl Display) -> ProbeError {
    ProbeError::Calibration { reason: reason.to_string() }
}

/// Where the functions at these addresses of ours are to be probed, and in which file they are.
fn place(functions: &[(Site, u64)]) -> Result<(PathBuf, Vec<PlacedSite>), ProbeError> {
    let pid = std::process::id();
    let maps = maps::read(pid).map_err(impossible)?;
    let mut module = None;
    let mut sites = Vec::new();
    for (site, address) in functions {
        let code = memory::read(pid, *address, prologue::PROLOGUE_BYTES).map_err(impossible)?;
        let choice = prologue::choose(&code).map_err(impossible)?;
        let mapping = maps.executable.iter().find(|mapping| (mapping.start..mapping.end).contains(address));
        let mapping = mapping.ok_or_else(|| impossible("our own code is in no mapped file"))?;
        let file_offset =
            address - mapping.start + mapping.file_offset + u64::from(choice.bytes_into_function);
        sites.push(PlacedSite { site: *site, file_offset, kind: choice.kind });
        module = Some(mapping.map_files_path(pid));
    }
    Ok((module.ok_or_else(|| impossible("there is nothing to measure"))?, sites))
}

/// What the programs are told of our own thread: its counters are in memory of ours, reached as static
/// thread-local memory is. Those of a library that was loaded later take three small reads more.
fn recipe(subject: &Subject) -> sexton_recipe {
    sexton_recipe {
        static_offset: subject.counters.wrapping_sub(subject.thread_pointer) as i64,
        has_perf_context: 1,
        perf_level_offset: SEXTON_OFFSET_ABSENT as u64,
        // Nobody's operation is recorded: what a record costs is not part of the price, for records are rare.
        tombstones_per_record: u64::MAX,
        block_reads_per_record: u64::MAX,
        skip_counters_offset: Subject::SKIP_COUNTERS_OFFSET,
        db_iter_offset: Subject::DB_ITER_OFFSET,
        process_id: std::process::id(),
        price_ns: [1; SEXTON_SITES_MAX as usize],
        ..sexton_recipe::default()
    }
}

/// The median time of each function's calls.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    emulated: Timing,
    stepped: Timing,
}

impl Measured {
    /// Iterators that are worked for it.
    const CALLS: u64 = 2 * (ROUNDS * CALLS_PER_ROUND) as u64;

    fn of(subject: &Subject) -> Result<Measured, ProbeError> {
        Ok(Measured {
            emulated: median_timing(subject, Positioning::Emulated)?,
            stepped: median_timing(subject, Positioning::SingleStepped)?,
        })
    }

    fn least(self, other: Measured) -> Measured {
        let least = |one: Timing, other: Timing| Timing {
            new_iterator_ns: one.new_iterator_ns.min(other.new_iterator_ns),
            seek_ns: one.seek_ns.min(other.seek_ns),
            iterator_end_ns: one.iterator_end_ns.min(other.iterator_end_ns),
        };
        Measured {
            emulated: least(self.emulated, other.emulated),
            stepped: least(self.stepped, other.stepped),
        }
    }
}

fn median_timing(subject: &Subject, positioning: Positioning) -> Result<Timing, ProbeError> {
    let rounds: Option<Vec<Timing>> =
        (0..ROUNDS).map(|_| subject.round(positioning, CALLS_PER_ROUND)).collect();
    let rounds = rounds.ok_or_else(|| impossible("the thread that is measured has ended"))?;
    let median = |field: fn(&Timing) -> f64| {
        let mut times: Vec<f64> = rounds.iter().map(field).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    Ok(Timing {
        new_iterator_ns: median(|timing| timing.new_iterator_ns),
        seek_ns: median(|timing| timing.seek_ns),
        iterator_end_ns: median(|timing| timing.iterator_end_ns),
    })
}

/// From times to prices: what a call takes longer. What noise has made negative costs nothing.
fn prices(bare: &Measured, followed: &Measured, skipped: &Measured) -> ProbePrices {
    let more = |armed_ns: f64, bare_ns: f64| (armed_ns - bare_ns).max(0.0) * HOST_FACTOR;
    let longer = |armed: &Measured| Timing {
        new_iterator_ns: more(armed.emulated.new_iterator_ns, bare.emulated.new_iterator_ns),
        seek_ns: more(armed.emulated.seek_ns, bare.emulated.seek_ns),
        iterator_end_ns: more(armed.emulated.iterator_end_ns, bare.emulated.iterator_end_ns),
    };
    let (followed_ns, skipped_ns) = (longer(followed), longer(skipped));
    let stepped_ns = more(followed.stepped.seek_ns, bare.stepped.seek_ns);
    ProbePrices {
        seek_ns: followed_ns.seek_ns,
        new_iterator_ns: followed_ns.new_iterator_ns,
        iterator_end_ns: followed_ns.iterator_end_ns,
        skipped_entry_ns: skipped_ns.iterator_end_ns,
        skipped_return_ns: (skipped_ns.seek_ns - skipped_ns.iterator_end_ns).max(0.0),
        single_step_ns: (stepped_ns - followed_ns.seek_ns).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: ProbePrices = ProbePrices {
        seek_ns: 2_000.0,
        new_iterator_ns: 1_500.0,
        iterator_end_ns: 1_000.0,
        skipped_entry_ns: 700.0,
        skipped_return_ns: 400.0,
        single_step_ns: 9_000.0,
    };

    fn hits(site: Site, kind: SiteKind) -> SiteHits {
        SiteHits { site, kind, entries: 10, entries_skipped: 0, returns: 10, returns_skipped: 0 }
    }

    #[test]
    fn a_return_is_paid_with_its_entry() {
        let sites = vec![
            hits(Site::SeekToLast, SiteKind::Emulated),
            hits(Site::NewIterator, SiteKind::Emulated),
            hits(Site::IteratorEnd, SiteKind::Emulated),
        ];
        assert_eq!(PRICES.cost_ns(&ProbeHits { sites }), 45_000);
        assert_eq!(PRICES.cost_ns(&ProbeHits::default()), 0);
    }

    #[test]
    fn skipped_hits_are_cheap_and_single_steps_are_not() {
        let skipped =
            SiteHits { entries: 0, entries_skipped: 10, returns: 0, ..hits(Site::Seek, SiteKind::Emulated) };
        assert_eq!(PRICES.cost_ns(&ProbeHits { sites: vec![skipped] }), 7_000);
        let with_returns = SiteHits { returns_skipped: 10, ..skipped };
        assert_eq!(PRICES.cost_ns(&ProbeHits { sites: vec![with_returns] }), 11_000);
        let stepped = SiteHits { kind: SiteKind::SingleStepped, ..skipped };
        assert_eq!(PRICES.cost_ns(&ProbeHits { sites: vec![stepped] }), 97_000);
    }

    #[test]
    fn prices_are_differences_and_never_negative() {
        let timing =
            |new_iterator_ns, seek_ns, iterator_end_ns| Timing { new_iterator_ns, seek_ns, iterator_end_ns };
        let measured = |emulated, stepped_ns| Measured { emulated, stepped: timing(0.0, stepped_ns, 0.0) };
        let bare = measured(timing(30.0, 30.0, 30.0), 25.0);
        let armed = |new_iterator_ns, seek_ns, iterator_end_ns, stepped_ns| {
            let longer = |bare_ns, price_ns| bare_ns + price_ns / HOST_FACTOR;
            let [new_iterator_ns, seek_ns, iterator_end_ns] =
                [new_iterator_ns, seek_ns, iterator_end_ns].map(|price_ns| longer(30.0, price_ns));
            measured(timing(new_iterator_ns, seek_ns, iterator_end_ns), longer(25.0, stepped_ns))
        };
        let followed = armed(1_500.0, 2_000.0, 1_000.0, 11_000.0);
        let skipped = armed(1_100.0, 1_100.0, 700.0, 10_000.0);
        assert_eq!(prices(&bare, &followed, &skipped), PRICES);
        let nothing = prices(&followed, &bare, &bare);
        assert!(nothing.by_kind().iter().all(|(_, ns)| *ns >= 0.0));
    }

    #[test]
    fn prices_are_told_by_the_least_times_of_several_measurements() {
        let all = |ns: f64| Timing { new_iterator_ns: ns, seek_ns: ns, iterator_end_ns: ns };
        let measured =
            |emulated_ns, stepped_ns| Measured { emulated: all(emulated_ns), stepped: all(stepped_ns) };
        let measurement = |slower: [f64; 3]| Measurement {
            bare: measured(100.0 * slower[0], 100.0 * slower[0]),
            followed: measured(2_100.0 * slower[1], 11_100.0 * slower[1]),
            skipped: measured(900.0 * slower[2], 900.0 * slower[2]),
        };
        let of = |measurements: &[[f64; 3]]| {
            let mut calibration = Calibration::default();
            measurements.iter().for_each(|slower| calibration.take(measurement(*slower)));
            calibration.prices()
        };
        let quiet = of(&[[1.0; 3]]);
        assert_eq!(quiet.map(|prices| prices.seek_ns), Some(2_000.0 * HOST_FACTOR));
        // A busy moment makes whichever time it met longer, and a price dearer or cheaper by that.
        assert_ne!(of(&[[1.0, 3.0, 1.0]]), quiet);
        assert_ne!(of(&[[3.0, 1.0, 1.0]]), quiet);
        assert_eq!(of(&[[3.0, 1.0, 2.0], [1.0, 3.0, 1.0], [1.5, 2.0, 3.0]]), quiet);
        // A machine that has become slower for good is believed in the end.
        let slower: Vec<[f64; 3]> =
            [[1.0; 3]].into_iter().chain(vec![[2.0; 3]; MEASUREMENTS_KEPT_MAX]).collect();
        assert_eq!(of(&slower).map(|prices| prices.seek_ns), Some(4_000.0 * HOST_FACTOR));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn our_own_functions_are_found_in_their_file() {
        let subject = Subject::start();
        let functions = subject.as_ref().map(Subject::functions);
        let seek = functions.map(|functions| functions.seek).unwrap_or_default();
        let placed = place(&[(Site::Seek, seek)]);
        assert!(placed.is_ok_and(|(_, sites)| sites.iter().all(|site| site.kind == SiteKind::Emulated)));
        assert!(place(&[(Site::Seek, 8)]).is_err());
    }
}

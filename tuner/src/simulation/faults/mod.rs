//! A closed loop over a model world: a ledger of actions, carried out on devices, targets and databases that
//! fail in every way that real ones do, with invariants that are checked at each step.
//!
//! `world` is what is outside of the agent, `agent` carries effects out as the engine does, `oracle` knows
//! what must never happen, `locks` are what actions run under, `fault` breaks what the agent does on purpose,
//! so that it is known that the oracle would see it. One history is made from its seed alone. Each of its
//! turns draws from numbers of its own, so that a history that fails can be told with the turns that matter,
//! and without the others.

mod agent;
mod fault;
mod history;
mod locks;
mod oracle;
mod world;

use fault::Fault;
use history::{History, TURNS};

/// Histories that `make test` runs; the environment variable says otherwise.
const HISTORIES: u64 = 100_000;

/// Names the number of histories to run.
const HISTORIES_VARIABLE: &str = "SEXTON_SIMULATION_HISTORIES";

/// Runs the history of a seed, without the turns that are left out. Gives what was wrong, if anything.
fn run(seed: u64, fault: Fault, left_out: &[bool; TURNS]) -> Result<(), String> {
    History::new(seed, fault).run(left_out)
}

/// The turns without which what is wrong does not happen: each of the others is left out where it happens all
/// the same.
fn shrink(seed: u64, fault: Fault) -> [bool; TURNS] {
    let mut left_out = [false; TURNS];
    for length in [32, 16, 8, 4, 2, 1] {
        for begin in (0..TURNS).step_by(length) {
            let mut fewer = left_out;
            fewer.iter_mut().skip(begin).take(length).for_each(|is_left_out| *is_left_out = true);
            if run(seed, fault, &fewer).is_err() {
                left_out = fewer;
            }
        }
    }
    left_out
}

/// What is wrong with a history, and how it came to that.
fn trace(seed: u64, fault: Fault) -> String {
    let left_out = shrink(seed, fault);
    let mut history = History::new(seed, fault).told();
    let wrong = history.run(&left_out).err().unwrap_or_default();
    format!("seed {seed}: {wrong}\n{}", history.trace().join("\n"))
}

mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn no_history_breaks_an_invariant() {
        let histories = std::env::var(HISTORIES_VARIABLE).map_or(HISTORIES, |text| text.parse().unwrap());
        let mut seen: BTreeMap<&'static str, u64> = BTreeMap::new();
        for seed in 0..histories {
            let mut history = History::new(seed, Fault::None);
            if history.run(&[false; TURNS]).is_err() {
                panic!("{}", trace(seed, Fault::None));
            }
            history.count(&mut seen);
        }
        // What never happens is not tested.
        let counted: Vec<String> = seen.iter().map(|(name, count)| format!("{name} {count}")).collect();
        eprintln!("{histories} histories: {}", counted.join(", "));
        let missing: Vec<&str> =
            history::EXPECTED.into_iter().filter(|name| !seen.contains_key(name)).collect();
        assert!(missing.is_empty() || histories < 1_000, "never seen: {missing:?}");
    }

    /// Each way to break the rules is noticed, within some hundred histories, by the invariant that it
    /// breaks.
    #[test]
    fn a_broken_step_is_noticed() {
        for (fault, invariant) in Fault::ALL {
            let found = (0..2_000).find(|seed| run(*seed, fault, &[false; TURNS]).is_err());
            let seed = found.unwrap_or_else(|| panic!("nobody notices {fault:?}"));
            let trace = trace(seed, fault);
            let first = trace.lines().next().unwrap();
            assert!(first.contains(invariant), "{fault:?} is noticed by another invariant: {trace}");
        }
    }

    #[test]
    fn a_seed_makes_one_history() {
        let told = |seed| {
            let mut history = History::new(seed, Fault::None).told();
            history.run(&[false; TURNS]).unwrap();
            history.trace().join("\n")
        };
        assert_eq!(told(7), told(7));
        assert_ne!(told(7), told(8));
    }
}

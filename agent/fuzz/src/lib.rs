//! Fuzzing: very many inputs, each a real one with some of it changed, to a parser that must survive them
//! all.
//!
//! Every input follows from a seed and its own number, so that one that did harm can be had again. Here are
//! the counting, the changing and the watch for a parser that does not come back; what is fuzzed stands in
//! the `fuzz` modules of `inspect`, `probe` and `execute`, and in `tests/tests/fuzz_workers.rs`.
//!
//! `SEXTON_FUZZ_RUNS`, `SEXTON_FUZZ_SEED` and `SEXTON_FUZZ_FIRST` set how many inputs, which, and from which
//! number on. `make fuzz` runs a million of each kind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Inputs of each kind where nothing else is asked for: a few seconds together.
const RUNS: u64 = 20_000;

/// A parser that works this long on one input of some kilobytes, where microseconds are usual, hangs. The
/// whole process is ended then: a thread cannot be.
const HANG: Duration = Duration::from_secs(20);

/// Changes made to one input at most.
const CHANGES_MAX: usize = 8;

/// Bytes that one change moves, removes or adds at most.
const SPAN_MAX: usize = 64;

/// Values at which arithmetic goes wrong, if anywhere.
const EDGES: [u64; 12] = [
    0,
    1,
    7,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_fff8,
    0xffff_ffff_ffff_ffff,
];

/// Gives `parse` many inputs, each one of `originals` with some changes, and prints how many there were.
/// `parse` says whether it accepted the input: both must happen, or the inputs would prove little.
pub fn fuzz(what: &str, originals: &[Vec<u8>], mut parse: impl FnMut(&[u8]) -> bool) {
    let seed = setting("SEXTON_FUZZ_SEED").unwrap_or_else(|| RandomState::new().hash_one(what));
    let (first, runs) =
        (setting("SEXTON_FUZZ_FIRST").unwrap_or(0), setting("SEXTON_FUZZ_RUNS").unwrap_or(RUNS));
    let watch = Watch::over(what, seed);
    let (mut input, mut accepted, mut slowest) = (Vec::new(), 0u64, (Duration::ZERO, 0));
    for number in first..first.saturating_add(runs) {
        let mut random = Random::new(seed, number);
        input.clone_from(random.choose(originals));
        random.change(&mut input);
        watch.begin(number);
        let began = Instant::now();
        accepted += u64::from(parse(&input));
        slowest = slowest.max((began.elapsed(), number));
    }
    drop(watch);
    let (time, number) = slowest;
    println!(
        "fuzz: {what}: {runs} inputs survived (seed {seed}), {accepted} of them accepted; the slowest, number \
         {number}, took {} µs",
        time.as_micros()
    );
    // One input alone is a second look at it.
    assert!(
        runs < RUNS || (accepted > 0 && accepted < runs),
        "{what}: all or none of {runs} inputs accepted"
    );
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, which is no number")))
}

/// Watches over one run: says which input it was when the parser panics or does not come back.
struct Watch {
    what: String,
    seed: u64,
    /// The number of the input being parsed plus one; 0 before the first.
    current: Arc<AtomicU64>,
}

impl Watch {
    fn over(what: &str, seed: u64) -> Watch {
        let watch = Watch { what: what.to_owned(), seed, current: Arc::new(AtomicU64::new(0)) };
        let (current, name) = (Arc::downgrade(&watch.current), what.to_owned());
        std::thread::spawn(move || {
            let mut seen = (0, Instant::now());
            while let Some(current) = current.upgrade() {
                let now = current.load(Ordering::Relaxed);
                drop(current);
                if now != seen.0 {
                    seen = (now, Instant::now());
                } else if now > 0 && seen.1.elapsed() > HANG {
                    eprintln!("fuzz: {name}: hangs on input {} of seed {seed}", now - 1);
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        watch
    }

    fn begin(&self, number: u64) {
        self.current.store(number + 1, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let number = self.current.load(Ordering::Relaxed).saturating_sub(1);
            eprintln!(
                "fuzz: {}: panics; again with SEXTON_FUZZ_SEED={} SEXTON_FUZZ_FIRST={number} SEXTON_FUZZ_RUNS=1",
                self.what, self.seed
            );
        }
    }
}

/// SplitMix64: enough to fuzz with, and the same numbers everywhere.
pub struct Random(u64);

impl Random {
    /// The numbers for one input.
    pub fn new(seed: u64, number: u64) -> Random {
        let mut random = Random(seed);
        random.0 = random.number() ^ number;
        random
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// One of a list, which is not empty.
    pub fn choose<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        list.get(self.below(list.len())).unwrap()
    }

    /// Changes an input at some places.
    pub fn change(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change_once(bytes);
        }
    }

    fn change_once(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        let span = at..(at + 1 + self.below(SPAN_MAX)).min(bytes.len());
        match self.below(16) {
            0..4 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            4..7 if !bytes.is_empty() => bytes[at] = self.number() as u8,
            7..12 => self.write_edge(bytes, at),
            12 => bytes.truncate(at),
            13 => drop(bytes.drain(span)),
            14 => {
                let copied = bytes[span].to_vec();
                let to = self.below(bytes.len());
                bytes.splice(to..to, copied);
            }
            _ => {
                let length = self.below(SPAN_MAX);
                let random = (0..length).map(|_| self.number() as u8).collect::<Vec<_>>();
                bytes.splice(at..at, random);
            }
        }
    }

    /// An edge value, or one near it, in 1, 2, 4 or 8 bytes; most fields are aligned to their size.
    fn write_edge(&mut self, bytes: &mut [u8], at: usize) {
        let near = (self.below(3) as u64).wrapping_sub(1);
        let value = self.choose(&EDGES).wrapping_add(near).to_le_bytes();
        let length = 1 << self.below(4);
        let at = if self.below(4) == 0 { at } else { at - at % length };
        for (byte, value) in bytes.iter_mut().skip(at).take(length).zip(value) {
            *byte = value;
        }
    }
}

/// Inputs that follow from the seed are the same each time, and are not all the same.
#[test]
fn inputs_follow_from_seed_and_number() {
    let input = |number| {
        let mut bytes = vec![7; 100];
        Random::new(1, number).change(&mut bytes);
        bytes
    };
    assert_eq!(input(5), input(5));
    let different: std::collections::BTreeSet<_> = (0..100).map(input).collect();
    assert!(different.len() > 90, "only {} of 100 inputs are different", different.len());
}

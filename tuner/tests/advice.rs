//! What advice is given is told by texts: looks at a database and windows, and what comes out.
//!
//! `BLESS=1 cargo test -p sexton-tuner --test advice` writes what comes out into the files; the difference is
//! what to review. A block is a command, its input, a line `----`, and the output up to an empty line:
//!
//! - `options CF`: options of a column family, `name=value` a line, as in an OPTIONS file.
//! - `look TIME [wal=BYTES] [reads=COUNT] [reads=none]`: a look at the database so long after the first, with
//!   bytes in its WAL and blocks that readers have asked for so far; the lines are its files:
//!   `CF LEVEL NUMBER keys=1..9[,20..29] entries=N [deletions=N] [merges=N] [ranges=N] [size=SIZE] [seq=1..9]
//!   [written=TIME] [marks=none] [collector=yes]`. Where no sequence numbers are given, compaction has taken
//!   them away.
//! - `window TIME CF operations=N [steps=N] [tombstones=N]`: what a window of this length has seen.
//! - `advise [CF]`: the advice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cases;

use jiff::Timestamp;
use proptest::prelude::*;
use sexton_tuner::Key;
use sexton_tuner::advice::{Advice, History, Strategy as Compaction, Workload, advise, text};
use sexton_tuner::evidence::{Counters, Evidence, Observation, SeekKind, SstFile, Window};
use sexton_tuner::oldest_snapshot::Sequences;
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::sighting::{SightedFile, Sighting, TableDetails};
use std::collections::BTreeMap;

/// Keys by which a file's index is sampled in a case.
const MARKS: u64 = 32;

/// When the first look of a case is.
const BEGUN_UNIX_S: i64 = 1_800_000_000;

/// Bytes of an entry before compression.
const ENTRY_BYTES: u64 = 100;

#[test]
fn cases() {
    cases::check("advice", 10, |text, _| {
        let mut state = State::default();
        cases::outputs_anew(text, |command, lines| state.command(command, lines))
    });
}

#[derive(Default)]
struct State {
    history: History,
    options: BTreeMap<String, ColumnFamilyOptions>,
}

impl State {
    fn command(&mut self, command: &str, lines: &str) -> Result<String, String> {
        let words: Vec<&str> = command.split(' ').collect();
        let arguments = arguments(&words);
        match words.as_slice() {
            ["options", name] => {
                let pairs = lines.lines().filter_map(|line| line.split_once('='));
                let stated = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                self.options.insert((*name).to_owned(), ColumnFamilyOptions::of_text(&stated));
                Ok("ok".to_owned())
            }
            ["look", at, ..] => {
                let seconds = seconds(at)?;
                let files = lines.lines().map(file).collect::<Result<Vec<SightedFile>, String>>()?;
                let reads = match arguments.get("reads") {
                    Some(&"none") => None,
                    count => Some(count.map_or(Ok(0), |count| number(count))?),
                };
                let wal = arguments.get("wal").map(|bytes| number(bytes)).transpose()?;
                self.history.take(&Sighting {
                    at: Timestamp::from_second(BEGUN_UNIX_S + seconds).map_err(|error| error.to_string())?,
                    wal_bytes: wal.into_iter().map(|bytes| (1, bytes)).collect(),
                    files,
                    options: self.options.clone(),
                    readers: reads
                        .map(|block_cache_hits| Counters { block_cache_hits, ..Counters::default() }),
                });
                Ok("ok".to_owned())
            }
            ["window", length, family, ..] => {
                let of = |name: &str| arguments.get(name).map_or(Ok(0), |count| number(count));
                let operations = of("operations")?;
                let observation = Observation {
                    column_family: Some((*family).to_owned()),
                    steps: Some(of("steps")?),
                    seek: Counters { tombstones_skipped: of("tombstones")?, ..Counters::default() },
                    weight: operations,
                    ..Observation::at(SeekKind::Seek, Key::default())
                };
                let duration_ns = seconds(length)?.unsigned_abs() * 1_000_000_000;
                self.history.take_window(&Evidence {
                    window: Window { duration_ns, operations, ..Window::default() },
                    observations: vec![observation],
                    ..Evidence::default()
                });
                Ok("ok".to_owned())
            }
            ["advise", wanted @ ..] => {
                let all = advise("app", "/data/db", &self.history);
                let all = all
                    .iter()
                    .filter(|advice| wanted.is_empty() || wanted.contains(&advice.column_family.as_str()));
                let shown: String = all.map(text).collect();
                Ok(if shown.is_empty() { "nothing is known of it".to_owned() } else { shown })
            }
            _ => Err(format!("no command {command:?}")),
        }
    }
}

fn arguments<'w>(words: &[&'w str]) -> BTreeMap<&'w str, &'w str> {
    words.iter().filter_map(|word| word.split_once('=')).collect()
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let (digits, factor) = match digits.strip_suffix('M') {
        Some(digits) => (digits.to_owned(), 1 << 20),
        None => (digits, 1),
    };
    digits.parse::<u64>().map(|number| number * factor).map_err(|_| format!("no number: {text}"))
}

fn seconds(text: &str) -> Result<i64, String> {
    let (digits, factor) = match text.strip_suffix('h') {
        Some(hours) => (hours, 3600),
        None => (text.strip_suffix('s').ok_or(format!("no time: {text}"))?, 1),
    };
    digits.parse::<i64>().map(|number| number * factor).map_err(|_| format!("no time: {text}"))
}

fn pair(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once("..").ok_or(format!("no range: {text}"))?;
    Ok((number(first)?, number(last)?))
}

fn key(number: u64) -> Key {
    Key::new(number.to_be_bytes())
}

fn file(line: &str) -> Result<SightedFile, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let arguments = arguments(&words);
    let [family, level, number_of_file, ..] = words.as_slice() else {
        return Err(format!("no file: {line}"));
    };
    let of = |name: &str| arguments.get(name).map_or(Ok(0), |count| number(count));
    let keys = arguments.get("keys").ok_or("a file has keys=")?;
    let stretches = keys.split(',').map(pair).collect::<Result<Vec<(u64, u64)>, String>>()?;
    let entries = of("entries")?;
    let written = arguments.get("written").map(|time| seconds(time)).transpose()?;
    let created = written.map(|seconds| (BEGUN_UNIX_S + seconds).unsigned_abs());
    let sequences = arguments.get("seq").map(|range| pair(range)).transpose()?.unwrap_or_default();
    Ok(SightedFile {
        file: SstFile {
            number: number(number_of_file)?,
            column_family: (*family).to_owned(),
            level: u32::try_from(number(level.trim_start_matches('L'))?).unwrap(),
            size_bytes: arguments.get("size").map_or(Ok(entries * ENTRY_BYTES), |size| number(size))?,
            entries,
            deletions: of("deletions")?,
            smallest: key(stretches.first().unwrap().0),
            largest: key(stretches.last().unwrap().1),
        },
        sequences: Some(Sequences { smallest: sequences.0, largest: sequences.1 }),
        details: Some(TableDetails {
            raw_bytes: entries * ENTRY_BYTES,
            merge_operands: of("merges")?,
            range_deletions: of("ranges")?,
            created_unix_s: created.unwrap_or_default(),
            collectors: arguments
                .get("collector")
                .map_or("[]", |_| "[CompactOnDeletionCollector]")
                .to_owned(),
        }),
        marks: if arguments.contains_key("marks") { Vec::new() } else { marks(&stretches) },
    })
}

fn marks(stretches: &[(u64, u64)]) -> Vec<Key> {
    let each = (MARKS / stretches.len() as u64).max(1);
    let of = |(first, last): &(u64, u64)| {
        let (first, width) = (*first, last - first);
        (1..=each).map(move |at| key(first + width * at / each)).collect::<Vec<Key>>()
    };
    stretches.iter().flat_map(of).collect()
}

/// One file that was flushed, of keys as they come.
fn flushed(number: u64, keys: &[u64], sequence: &mut u64) -> SightedFile {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    let (first, last) = (*sorted.first().unwrap(), *sorted.last().unwrap());
    let smallest = *sequence + 1;
    *sequence += keys.len() as u64;
    SightedFile {
        file: SstFile {
            number,
            column_family: "default".to_owned(),
            level: 0,
            size_bytes: keys.len() as u64 * ENTRY_BYTES,
            entries: keys.len() as u64,
            deletions: 0,
            smallest: key(first),
            largest: key(last),
        },
        sequences: Some(Sequences { smallest, largest: *sequence }),
        details: Some(TableDetails { created_unix_s: number, ..TableDetails::default() }),
        marks: sorted.into_iter().map(key).collect(),
    }
}

fn looked(files: Vec<SightedFile>, at: i64, has_filter: bool) -> Sighting {
    let options = ColumnFamilyOptions { has_compaction_filter: has_filter, ..ColumnFamilyOptions::default() };
    Sighting {
        at: Timestamp::from_second(BEGUN_UNIX_S + at).unwrap(),
        files,
        options: [("default".to_owned(), options)].into(),
        readers: Some(Counters::default()),
        ..Sighting::default()
    }
}

fn only(history: &History) -> Advice {
    advise("app", "/data/db", history).into_iter().next().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Files of any keys, in any number of looks: whoever wrote a key that is not behind all that were there
    /// is never told to drop the oldest files.
    #[test]
    fn fifo_is_never_advised_where_data_is_not_ordered_by_time(
        files in prop::collection::vec(prop::collection::vec(0_u64..10_000, 1..20), 2..12),
        a_look_takes in 1_usize..4,
        grows in any::<bool>(),
        stray in prop::option::of(0_usize..12),
        has_filter in any::<bool>(),
    ) {
        let (mut history, mut sequence, mut seen) = (History::default(), 0, Vec::new());
        let mut highest: Option<u64> = None;
        let mut is_ordered = true;
        for (number, keys) in files.iter().enumerate() {
            // Half of the cases write what grows, but for one file that does not.
            let moved = if grows && stray != Some(number) { number as u64 * 10_000 } else { 0 };
            let keys: Vec<u64> = keys.iter().map(|key| key + moved).collect();
            is_ordered &= highest.is_none_or(|highest| keys.iter().all(|key| *key > highest));
            highest = highest.max(keys.iter().max().copied());
            seen.push(flushed(number as u64 + 1, &keys, &mut sequence));
            if number % a_look_takes == 0 {
                history.take(&looked(seen.clone(), number as i64, has_filter));
            }
        }
        history.take(&looked(seen, files.len() as i64, has_filter));
        let advice = only(&history);
        let strategy = advice.recommendation.as_ref().map(|recommendation| recommendation.strategy);
        if !is_ordered {
            prop_assert_ne!(strategy, Some(Compaction::FifoWithTtl), "{:?}", advice);
            prop_assert!(advice.never.iter().any(|never| never.contains("FIFO")), "{:?}", advice);
        } else if has_filter && files.len() > 4 {
            prop_assert_eq!(strategy, Some(Compaction::FifoWithTtl), "{:?}", advice);
        }
        prop_assert!(!text(&advice).contains("NaN") && !text(&advice).contains("inf "));
    }

    /// Whatever is looked at, sums stay bounded and nothing overflows.
    #[test]
    fn any_looks_give_an_advice(
        looks in prop::collection::vec(
            prop::collection::vec((0_u64..40, 0_u32..8, any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..8),
            1..8,
        ),
        wal in any::<u64>(),
        hits in any::<u64>(),
    ) {
        let mut history = History::default();
        for (at, files) in looks.iter().enumerate() {
            let sighted = files.iter().map(|(number, level, entries, deletions, size_bytes, smallest, largest)| {
                SightedFile {
                    file: SstFile {
                        number: *number,
                        column_family: format!("family-{}", number % 3),
                        level: *level,
                        size_bytes: *size_bytes,
                        entries: *entries,
                        deletions: *deletions,
                        smallest: key(*smallest),
                        largest: key(*largest),
                    },
                    sequences: (number % 5 != 0).then_some(Sequences { smallest: *smallest, largest: *largest }),
                    details: (number % 7 != 0).then(|| TableDetails {
                        raw_bytes: *entries,
                        merge_operands: *deletions,
                        range_deletions: *smallest,
                        created_unix_s: *largest,
                        collectors: String::new(),
                    }),
                    marks: marks(&[(0, *largest)]),
                }
            });
            history.take(&Sighting {
                at: Timestamp::from_second(BEGUN_UNIX_S + at as i64).unwrap(),
                wal_bytes: [(at as u64, wal)].into(),
                files: sighted.collect(),
                options: BTreeMap::new(),
                readers: Some(Counters { block_cache_hits: hits, ..Counters::default() }),
            });
        }
        for advice in advise("app", "/data/db", &history) {
            let shown = text(&advice);
            prop_assert!(!shown.contains("NaN") && !shown.contains("inf "), "{}", shown);
            prop_assert_eq!(advice.workload == Workload::Unknown, !advice.missing.is_empty() && advice.recommendation.is_none() && advice.workload != Workload::Idle);
        }
    }
}

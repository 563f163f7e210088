//! Reads the pictures of LSM trees and their readers.
//!
//! ```text
//! target om /om.db                                     begins one database's evidence
//! open read_only  as its process has it open; it is read_write without that
//! lineage derived it shares files with /om.db  or unknown, and why; its files are its own without that
//! window 2s recorded=220 tombstones=9k reads=7         more than there are: lost records
//! window 2s recorded=220 lost=0                         of all databases of the target: so many were lost
//! sentinel 1s tombstones=900k reads=7                  without it: the same rate as the window
//! cf keyTable                                          the lines that follow are about it; ? is unknown
//! L6 [/v/b/000 .. /v/b/999] 64MiB entries=110k deletions=50k  linked, last: has a hard link elsewhere
//! 110x seek /v/b/ tombstones=0 took=30us then tombstones=50k reads=3 stepped=12 took=10ms
//! past [/v/b/ .. /v/b0) ended=2026-11-20T11:55:00Z failures=1 pending
//! memtables active=40k immutable=10k                    deletions in them, as RocksDB counts them
//! unseen no such directory                              the SST files cannot be seen, and why
//! options num_levels=3 compaction_style=kCompactionStyleUniversal     as an OPTIONS file has them
//! ```
//! Numbers may end in k or M. Operations: seek, seek_for_prev, seek_to_first, seek_to_last; `then` is the
//! scan, and `weight=20` says that each stands for 20. `hits=` are blocks found in the cache, `timed=8
//! fetched=2ms` says that eight of the operation's reads were timed and took 2 ms together; a last word
//! `estimated` that the tombstones are an estimate. A past action is `helped` unless it is `pending` or
//! `failed`, and a compaction unless it says `remedy=flush` or `remedy=options`; with `before=40ms
//! delivered=39ms operations=20` it says what readers lost a second, by how much that fell, and their pace.
//! `device 20MiB` is what the disk reads or writes in a second.

use sexton_tuner::evidence::{
    BlockFetches, Counters, Delivered, MemtableDeletions, Observation, PastAction, SeekKind,
    SentinelInterval, SstFile,
};
use sexton_tuner::lineage::Lineage;
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::policy::RemedyKind;
use sexton_tuner::{Evidence, Key, KeyRange};

pub fn parse_picture(text: &str) -> Result<Vec<Evidence>, String> {
    let mut all: Vec<Evidence> = Vec::new();
    let mut column_family = None;
    let mut given = Given::default();
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (first, rest) = words.split_first().ok_or("an empty line")?;
        if *first == "target" {
            let [name, database] = rest else { return Err(format!("{line}: target NAME DIRECTORY")) };
            finish(all.last_mut(), &std::mem::take(&mut given));
            all.push(Evidence {
                target: (*name).into(),
                database: (*database).into(),
                ..Evidence::default()
            });
            all.last_mut().ok_or("no target")?.window.duration_ns = 1_000_000_000;
            continue;
        }
        let evidence = all.last_mut().ok_or("a picture begins with its target")?;
        let fields = Fields(rest);
        match *first {
            "window" => {
                evidence.window.duration_ns = fields.time(0)?;
                evidence.window.operations_recorded = fields.number("recorded")?.unwrap_or(0);
                evidence.window.attributed = fields.counters()?;
                given.records_lost = fields.number("lost")?;
            }
            "sentinel" => {
                given.sentinel = true;
                evidence.sentinel =
                    SentinelInterval { duration_ns: fields.time(0)?, counters: fields.counters()? };
            }
            "cf" => {
                column_family = rest.first().filter(|name| **name != "?").map(|name| (*name).to_owned());
                if let Some(name) = &column_family {
                    evidence.column_families.entry(name.clone()).or_default();
                }
            }
            "primitives" => evidence.primitives.compact_files = rest.contains(&"compact_files"),
            "device" => {
                let rate = parse_size(rest.first().ok_or("device needs a size")?)?;
                evidence.device_bytes_per_second = Some(rate as f64);
            }
            "past" => {
                evidence.past_actions.push(past(&fields, column_family.clone().ok_or("past needs a cf")?)?)
            }
            "memtables" => {
                let name = column_family.clone().ok_or("memtables need a cf")?;
                let count = |name: &str| Ok::<u64, String>(fields.number(name)?.unwrap_or(0));
                let deletions =
                    MemtableDeletions { active: count("active")?, immutable: count("immutable")? };
                evidence.memtables.insert(name, deletions);
            }
            "unseen" => evidence.files_unseen = Some(rest.join(" ")),
            "options" => {
                let stated = rest.iter().filter_map(|word| word.split_once('='));
                let stated = stated.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                let name = column_family.clone().ok_or("options need a cf")?;
                evidence.column_families.insert(name, ColumnFamilyOptions::of_text(&stated));
            }
            "open" => evidence.is_read_only = rest == ["read_only"],
            "lineage" => evidence.lineage = lineage(rest)?,
            level if level.starts_with('L') => {
                let number = evidence.files.len() as u64 + 1;
                if rest.last() == Some(&"linked") {
                    evidence.linked_files.insert(number);
                }
                evidence.files.push(file(
                    level,
                    &fields,
                    number,
                    column_family.clone().ok_or("a file needs a cf")?,
                )?);
            }
            times if times.ends_with('x') => {
                let count = parse_number(times.trim_end_matches('x'))?;
                let operation = observation(&fields, column_family.clone())?;
                evidence.observations.extend((0..count).map(|_| operation.clone()));
            }
            _ => return Err(format!("cannot read the line {line}")),
        }
    }
    finish(all.last_mut(), &given);
    Ok(all)
}

fn lineage(words: &[&str]) -> Result<Lineage, String> {
    let reason = words.get(1..).unwrap_or(&[]).join(" ");
    match words.first() {
        Some(&"derived") => Ok(Lineage::Derived { reason }),
        Some(&"unknown") => Ok(Lineage::Unknown { reason }),
        other => Err(format!("no lineage is {other:?}")),
    }
}

/// What a picture says of a window, where it says it.
#[derive(Default)]
struct Given {
    sentinel: bool,
    records_lost: Option<u64>,
}

/// What the picture leaves out: totals of the window, and a sentinel that saw the same.
fn finish(evidence: Option<&mut Evidence>, given: &Given) {
    let Some(evidence) = evidence else { return };
    let window = &mut evidence.window;
    window.operations_recorded = window.operations_recorded.max(evidence.observations.len() as u64);
    let unrecorded = window.operations_recorded - evidence.observations.len() as u64;
    window.records_lost = given.records_lost.unwrap_or(unrecorded);
    if window.attributed == Counters::default() {
        let totals = evidence.observations.iter().map(Observation::weighted);
        window.attributed = totals.fold(Counters::default(), Counters::plus);
    }
    if !given.sentinel {
        evidence.sentinel = SentinelInterval { duration_ns: window.duration_ns, counters: window.attributed };
    }
}

fn file(level: &str, fields: &Fields<'_>, number: u64, column_family: String) -> Result<SstFile, String> {
    let [smallest, dots, largest, size, ..] = fields.0 else {
        return Err("a file is [KEY .. KEY] SIZE".to_owned());
    };
    if *dots != ".." {
        return Err(format!("{dots} instead of .."));
    }
    Ok(SstFile {
        number,
        column_family,
        level: level.trim_start_matches('L').parse().map_err(|error| format!("{level}: {error}"))?,
        size_bytes: parse_size(size)?,
        entries: fields.number("entries")?.unwrap_or(0),
        deletions: fields.number("deletions")?.unwrap_or(0),
        smallest: Key::new(smallest.trim_start_matches('[')),
        largest: Key::new(largest.trim_end_matches(']')),
    })
}

fn observation(fields: &Fields<'_>, column_family: Option<String>) -> Result<Observation, String> {
    let then = fields.0.iter().position(|word| *word == "then").unwrap_or(fields.0.len());
    let (seek, scan) = fields.0.split_at(then);
    let (seek, scan) = (Fields(seek), Fields(scan));
    let block_fetches = BlockFetches {
        count: fields.number("timed")?.unwrap_or(0),
        bytes: 0,
        latency_ns: fields.named("fetched").map_or(Ok(0), parse_time)?,
    };
    let kind = match fields.0.first() {
        Some(&"seek") => SeekKind::Seek,
        Some(&"seek_for_prev") => SeekKind::SeekForPrev,
        Some(&"seek_to_first") => SeekKind::SeekToFirst,
        Some(&"seek_to_last") => SeekKind::SeekToLast,
        other => return Err(format!("unknown operation {other:?}")),
    };
    let key = match kind {
        SeekKind::Seek | SeekKind::SeekForPrev => Key::new(*fields.0.get(1).ok_or("seek needs a key")?),
        SeekKind::SeekToFirst | SeekKind::SeekToLast => Key::default(),
    };
    Ok(Observation {
        column_family,
        kind,
        key,
        end_key: fields.named("to").map(Key::new),
        seek: seek.counters()?,
        scan: scan.counters()?,
        seek_latency_ns: seek.named("took").map_or(Ok(0), parse_time)?,
        scan_elapsed_ns: scan.named("took").map_or(Ok(0), parse_time)?,
        block_fetches,
        steps: fields.number("steps")?,
        estimated: fields.0.last() == Some(&"estimated"),
        ambiguous: fields.0.last() == Some(&"ambiguous"),
        weight: fields.number("weight")?.unwrap_or(1),
    })
}

fn past(fields: &Fields<'_>, column_family: String) -> Result<PastAction, String> {
    let ended = fields.named("ended").ok_or("past needs ended=")?;
    let ended: jiff::Timestamp = ended.parse().map_err(|error| format!("{ended}: {error}"))?;
    Ok(PastAction {
        column_family,
        range: parse_range(fields.0)?,
        ended_unix_s: ended.as_second(),
        helped: match fields.0.last() {
            Some(&"pending") => None,
            Some(&"failed") => Some(false),
            _ => Some(true),
        },
        awaits_verdict: fields.0.last() == Some(&"pending"),
        failures_in_a_row: u32::try_from(fields.number("failures")?.unwrap_or(0)).unwrap_or(u32::MAX),
        remedy: match fields.named("remedy") {
            Some("flush") => RemedyKind::Flush,
            Some("options") => RemedyKind::Options,
            _ => RemedyKind::Compact,
        },
        delivered: match (fields.named("before"), fields.named("delivered")) {
            (Some(before), Some(delivered)) => Some(Delivered {
                pain_before_seconds_per_second: parse_time(before)? as f64 / 1e9,
                delivered_seconds_per_second: parse_time(delivered)? as f64 / 1e9,
                operations_per_second: fields.number("operations")?.unwrap_or(u64::MAX) as f64,
            }),
            _ => None,
        },
    })
}

/// `[KEY .. KEY)`; the ends of all keys are `start` and `end`.
pub fn parse_range(words: &[&str]) -> Result<KeyRange, String> {
    let [begin, _, end, ..] = words else { return Err("a range is [KEY .. KEY)".to_owned()) };
    let key = |text: &str| if matches!(text, "start" | "end") { None } else { Some(Key::new(text)) };
    let begin = key(begin.trim_start_matches('[')).unwrap_or_default();
    KeyRange::new(begin, key(end.trim_end_matches(')'))).ok_or("an empty range".to_owned())
}

/// Words of a line, some of them `name=value`.
struct Fields<'a>(&'a [&'a str]);

impl<'a> Fields<'a> {
    fn named(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find_map(|word| word.split_once('=').filter(|(known, _)| *known == name))
            .map(|(_, value)| value)
    }

    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.named(name).map(parse_number).transpose()
    }

    fn time(&self, index: usize) -> Result<u64, String> {
        parse_time(self.0.get(index).ok_or("a time is missing")?)
    }

    fn counters(&self) -> Result<Counters, String> {
        Ok(Counters {
            tombstones_skipped: self.number("tombstones")?.unwrap_or(0),
            keys_skipped: self.number("stepped")?.unwrap_or(0),
            block_reads: self.number("reads")?.unwrap_or(0),
            block_cache_hits: self.number("hits")?.unwrap_or(0),
            merge_operands: self.number("merges")?.unwrap_or(0),
            range_deletion_reseeks: self.number("reseeks")?.unwrap_or(0),
            ..Counters::default()
        })
    }
}

pub fn parse_size(text: &str) -> Result<u64, String> {
    unit(text, &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)])
}

fn parse_number(text: &str) -> Result<u64, String> {
    unit(text, &[("M", 1_000_000), ("k", 1_000), ("", 1)])
}

fn parse_time(text: &str) -> Result<u64, String> {
    unit(text, &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)])
}

fn unit(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let split = units.iter().find_map(|(name, factor)| Some((text.strip_suffix(name)?, factor)));
    let (number, factor) = split.ok_or(format!("{text} has no unit"))?;
    Ok(number.parse::<u64>().map_err(|error| format!("{text}: {error}"))? * factor)
}

//! The bytes that a compaction is predicted to rewrite, against what RocksDB itself says it has read.
//!
//! Databases of differing shapes are built with RocksDB; the agent's own reader sees their files and options;
//! the tuner predicts; then these keys are compacted and the input sizes of the jobs in RocksDB's event log
//! are summed up. Every slice has to be within a fifth. Deletions are left in its files where the tuner says
//! so, and nowhere else: of slices that the planner cuts, nowhere.

#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use rust_rocksdb::{
    BottommostLevelCompaction, CompactOptions, DB, DBCompactionStyle, DBCompressionType, Options,
    UniversalCompactOptions, WaitForCompactOptions,
};
use serde_json::Value;
use sexton_sst::{Place, PropertiesCache, Reader};
use sexton_tests::artifact;
use sexton_tuner::cost::{Bottommost, Levels};
use sexton_tuner::evidence::SstFile;
use sexton_tuner::job::{Job, JobInput, ReliefMap, Site, jobs};
use sexton_tuner::placement::Placement;
use sexton_tuner::primitives::Primitives;
use sexton_tuner::{Key, KeyRange};
use std::cell::Cell;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Greatest difference, as a share of what RocksDB reports.
const DIFFERENCE_MAX: f64 = 0.2;

/// Fewest slices that are compared.
const SLICES_MIN: usize = 50;

/// Keys that are written into each database.
const KEYS: u64 = 24_000;

/// Bytes of a value.
const VALUE_BYTES: usize = 250;

/// Bytes of keys and values that are flushed at once. Each flush is waited for, and the compactions that
/// follow it: otherwise the shape of a tree depends on which of writing and compacting is faster on this
/// machine.
const FLUSH_BYTES: usize = 448 << 10;

/// Bytes that an entry takes in a memtable beside its key and value.
const ENTRY_BYTES: usize = 24;

#[test]
fn predictions_are_within_a_fifth_of_what_rocksdb_reports() -> Result<()> {
    let mut rows = Vec::new();
    for shape in shapes() {
        let case = Case::build(&shape).with_context(|| shape.name.to_owned())?;
        for request in shape.requests {
            rows.extend(case.compare(shape.name, request).with_context(|| shape.name.to_owned())?);
        }
    }
    println!(
        "{:<34} {:>22} {:>16} {:>12} {:>12} {:>7} {:>6}",
        "shape", "keys", "bottommost", "predicted", "reported", "off", "left"
    );
    for row in &rows {
        println!("{row}");
        if row.difference() > DIFFERENCE_MAX || !row.leaves_what_was_said() {
            println!("{}", row.details);
        }
    }
    let surprises = rows.iter().filter(|row| !row.leaves_what_was_said()).count();
    let off: Vec<f64> = rows.iter().map(Row::difference).collect();
    let wrong = off.iter().filter(|off| **off > DIFFERENCE_MAX).count();
    let mean = off.iter().sum::<f64>() / off.len().max(1) as f64;
    println!(
        "{} slices, {:.1} % off on average, {wrong} by more than {:.0} %",
        rows.len(),
        mean * 100.0,
        DIFFERENCE_MAX * 100.0
    );
    let compared = rows.iter().filter(|row| row.reported > 0).count();
    ensure!(compared >= SLICES_MIN, "only {compared} slices were compared");
    ensure!(wrong == 0, "{wrong} of {} slices are off by more than a fifth; see the table", rows.len());
    ensure!(surprises == 0, "{surprises} slices have left deletions, or none, against what was said");
    Ok(())
}

/// What is compacted: keys by their number, cut into slices of at most so many bytes; with a way, as one.
#[derive(Clone, Copy)]
struct Request {
    first: u64,
    end: u64,
    way: Way,
}

#[derive(Clone, Copy)]
enum Way {
    /// Slices, as the planner cuts them.
    Sliced { slice_bytes_max: u64 },
    /// These keys in one go.
    Whole(Bottommost),
}

fn sliced(first: u64, end: u64, slice_bytes_max: u64) -> Request {
    Request { first, end, way: Way::Sliced { slice_bytes_max } }
}

fn whole(first: u64, end: u64, bottommost: Bottommost) -> Request {
    Request { first, end, way: Way::Whole(bottommost) }
}

/// One shape of LSM tree.
struct Shape {
    name: &'static str,
    options: fn(&mut Options),
    fill: fn(&Writer) -> Result<()>,
    requests: Vec<Request>,
}

fn shapes() -> Vec<Shape> {
    const MIB: u64 = 1 << 20;
    vec![
        Shape {
            name: "one level, deletions in L0",
            options: |_| {},
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.compact_everything()?;
                writer.delete(4_000..9_000, 1)
            },
            requests: vec![
                sliced(4_000, 9_000, MIB),
                whole(12_000, 15_000, Bottommost::Force),
                whole(15_500, 16_500, Bottommost::ForceOptimized),
                whole(17_000, 17_500, Bottommost::Force),
                whole(19_000, 22_000, Bottommost::ForceOptimized),
            ],
        },
        Shape {
            name: "one level, deletions in pieces",
            options: |_| {},
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.compact_everything()?;
                for begin in (1_000..22_000).step_by(3_000) {
                    writer.delete(begin..begin + 900, 1)?;
                }
                Ok(())
            },
            requests: vec![
                sliced(0, 12_000, MIB / 2),
                sliced(12_000, 18_000, MIB),
                sliced(18_000, 24_000, 4 * MIB),
            ],
        },
        Shape {
            name: "overlapping files in L0",
            options: |_| {},
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.compact_everything()?;
                for round in 0..4 {
                    writer.put(round * 1_000..round * 1_000 + 6_000, 3)?;
                }
                writer.delete(0..5_000, 2)
            },
            requests: vec![
                sliced(0, 6_000, 2 * MIB),
                whole(12_000, 16_000, Bottommost::ForceOptimized),
                whole(18_000, 18_500, Bottommost::Force),
            ],
        },
        Shape {
            name: "everything in L0",
            options: |_| {},
            fill: |writer| {
                for round in 0..4 {
                    writer.put(round * 4_000..round * 4_000 + 6_000, 1)?;
                }
                writer.delete(3_000..5_000, 1)
            },
            requests: vec![whole(3_000, 5_000, Bottommost::Default)],
        },
        Shape {
            name: "levels as they grow, dynamic",
            options: |options| growing(options, true),
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.put(0..KEYS, 5)?;
                writer.put(0..KEYS, 7)?;
                writer.delete(6_000..12_000, 2)
            },
            requests: vec![
                sliced(6_000, 12_000, MIB),
                whole(0, 2_000, Bottommost::Default),
                whole(14_000, 16_000, Bottommost::ForceOptimized),
                whole(18_000, 21_000, Bottommost::Force),
                whole(21_000, 21_400, Bottommost::ForceOptimized),
                whole(22_000, 23_000, Bottommost::Default),
            ],
        },
        Shape {
            name: "levels as they grow, static",
            options: |options| growing(options, false),
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.put(0..KEYS, 5)?;
                writer.put(0..KEYS, 7)?;
                writer.delete(6_000..12_000, 2)
            },
            requests: vec![
                sliced(6_000, 12_000, MIB),
                whole(0, 2_000, Bottommost::Default),
                whole(14_000, 16_000, Bottommost::ForceOptimized),
                whole(18_000, 21_000, Bottommost::Force),
            ],
        },
        Shape {
            name: "a queue: oldest deleted first",
            options: |options| growing(options, true),
            fill: |writer| {
                for round in 0..12 {
                    writer.put(round * 2_000..(round + 1) * 2_000, 1)?;
                    writer.delete(round * 1_000..(round + 1) * 1_000, 1)?;
                }
                Ok(())
            },
            requests: vec![
                sliced(0, 12_000, MIB),
                whole(12_000, 14_000, Bottommost::Force),
                whole(16_000, 20_000, Bottommost::ForceOptimized),
                whole(21_000, 23_000, Bottommost::Default),
            ],
        },
        Shape {
            name: "tombstones moved to the bottom",
            options: |_| {},
            fill: |writer| {
                writer.put(0..KEYS / 2, 1)?;
                writer.compact_everything()?;
                // Nothing lies below these: they are moved down as they are.
                for begin in (KEYS / 2..KEYS).step_by(2_000) {
                    writer.delete(begin..begin + 2_000, 1)?;
                    writer.move_down(begin..begin + 2_000)?;
                }
                Ok(())
            },
            requests: vec![
                sliced(14_000, 20_000, MIB / 32),
                whole(20_000, 22_000, Bottommost::Force),
                whole(22_000, 23_000, Bottommost::ForceOptimized),
            ],
        },
        Shape {
            name: "written between tombstones",
            options: |_| {},
            fill: written_between_tombstones,
            // The first stops at what it has written itself.
            requests: vec![whole(4_000, 10_000, Bottommost::ForceOptimized), sliced(4_000, 10_000, 4 * MIB)],
        },
        Shape {
            name: "the same, as the planner does it",
            options: |_| {},
            fill: written_between_tombstones,
            requests: vec![sliced(4_000, 10_000, 8 * MIB)],
        },
        Shape {
            name: "one wide file over many",
            options: |_| {},
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.compact_everything()?;
                writer.delete(0..KEYS, 40)
            },
            requests: vec![
                whole(8_000, 8_400, Bottommost::Default),
                whole(15_000, 17_000, Bottommost::Force),
            ],
        },
        Shape {
            name: "jobs limited in size",
            options: |options| options.set_max_compaction_bytes(MIB),
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.compact_everything()?;
                writer.delete(2_000..20_000, 2)
            },
            requests: vec![
                whole(2_000, 12_000, Bottommost::Default),
                whole(12_000, 20_000, Bottommost::Force),
            ],
        },
        Shape {
            name: "limited jobs, static levels",
            options: |options| {
                growing(options, false);
                options.set_max_compaction_bytes(MIB);
            },
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.put(0..KEYS, 3)?;
                writer.delete(2_000..20_000, 2)
            },
            requests: vec![
                sliced(2_000, 8_000, 4 * MIB),
                whole(9_000, 14_000, Bottommost::Default),
                whole(14_000, 20_000, Bottommost::ForceOptimized),
            ],
        },
        Shape {
            name: "one large file",
            options: |options| options.set_target_file_size_base(64 << 20),
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.compact_everything()?;
                writer.delete(0..3_000, 1)
            },
            requests: vec![sliced(0, 3_000, MIB), whole(9_000, 9_100, Bottommost::Force)],
        },
        Shape {
            name: "small files",
            options: |options| options.set_target_file_size_base(64 << 10),
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.compact_everything()?;
                writer.delete(5_000..8_000, 1)
            },
            requests: vec![
                sliced(5_000, 8_000, MIB / 4),
                whole(10_000, 10_200, Bottommost::Force),
                whole(12_000, 14_000, Bottommost::ForceOptimized),
                whole(16_000, 16_001, Bottommost::Force),
                whole(18_000, 19_000, Bottommost::Force),
                whole(20_000, 20_400, Bottommost::ForceOptimized),
                whole(21_000, 23_000, Bottommost::Force),
            ],
        },
        Shape {
            name: "compressed otherwise at the bottom",
            options: |options| {
                growing(options, true);
                options.set_compression_type(DBCompressionType::Lz4);
                options.set_bottommost_compression_type(DBCompressionType::Zstd);
            },
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.put(0..KEYS, 4)?;
                writer.delete(6_000..9_000, 1)
            },
            requests: vec![sliced(6_000, 9_000, MIB), whole(12_000, 15_000, Bottommost::Default)],
        },
        Shape {
            name: "universal",
            options: |options| universal(options, 7),
            fill: |writer| {
                writer.put(0..KEYS, 1)?;
                writer.put(0..KEYS, 3)?;
                writer.delete(3_000..6_000, 1)
            },
            requests: vec![sliced(3_000, 6_000, MIB)],
        },
        Shape {
            name: "universal, L0 only",
            options: |options| universal(options, 1),
            fill: |writer| {
                writer.put(0..KEYS, 2)?;
                writer.delete(3_000..6_000, 1)
            },
            requests: vec![whole(3_000, 6_000, Bottommost::Default)],
        },
    ]
}

/// Tombstones at the bottom on either side of keys that other tombstones, in L0, are about.
fn written_between_tombstones(writer: &Writer) -> Result<()> {
    writer.put(0..4_000, 1)?;
    writer.put(6_000..8_000, 1)?;
    writer.compact_everything()?;
    for begin in [4_000, 8_000] {
        writer.delete(begin..begin + 2_000, 1)?;
        writer.move_down(begin..begin + 2_000)?;
    }
    writer.delete(6_500..7_000, 1)
}

/// What all shapes begin with: small files, so that a few megabytes make many of them.
fn small(options: &mut Options) {
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    // More than is ever written between two flushes: RocksDB begins none by itself.
    options.set_write_buffer_size(64 << 20);
    options.set_target_file_size_base(256 << 10);
    options.set_disable_auto_compactions(true);
}

/// Several levels, filled by RocksDB's own compactions, after each flush until nothing is left to do.
///
/// Filled while it compacts, a tree is another one each time, and one slice in some hundred was 29 or 44 %
/// off: a wide file of L0 merges with one file below it, and how far the next level is drawn in depends on
/// where RocksDB cuts what it writes on the way.
fn growing(options: &mut Options, is_dynamic: bool) {
    options.set_disable_auto_compactions(false);
    options.set_level_compaction_dynamic_level_bytes(is_dynamic);
    options.set_max_bytes_for_level_base(1 << 20);
    options.set_max_bytes_for_level_multiplier(3.0);
    options.set_target_file_size_base(128 << 10);
}

fn universal(options: &mut Options, levels: i32) {
    options.set_compaction_style(DBCompactionStyle::Universal);
    options.set_universal_compaction_options(&UniversalCompactOptions::default());
    options.set_num_levels(levels);
}

struct Writer {
    database: DB,
    /// Written since the last flush.
    unflushed_bytes: Cell<usize>,
}

impl Writer {
    /// Every key of these numbers that is a multiple of `step`, with a value that does not compress.
    fn put(&self, keys: std::ops::Range<u64>, step: usize) -> Result<()> {
        let mut state = keys.start.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for number in keys.step_by(step) {
            let value: Vec<u8> = std::iter::repeat_with(|| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            })
            .flatten()
            .take(VALUE_BYTES)
            .collect();
            self.database.put(key(number), value)?;
            self.count(VALUE_BYTES)?;
        }
        self.flush()
    }

    fn delete(&self, keys: std::ops::Range<u64>, step: usize) -> Result<()> {
        for number in keys.step_by(step) {
            self.database.delete(key(number))?;
            self.count(0)?;
        }
        self.flush()
    }

    fn count(&self, value_bytes: usize) -> Result<()> {
        self.unflushed_bytes.set(self.unflushed_bytes.get() + key(0).len() + value_bytes + ENTRY_BYTES);
        if self.unflushed_bytes.get() < FLUSH_BYTES { Ok(()) } else { self.flush() }
    }

    /// Until there is nothing to compact.
    fn flush(&self) -> Result<()> {
        self.unflushed_bytes.set(0);
        self.database.flush()?;
        Ok(self.database.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn compact_everything(&self) -> Result<()> {
        let options = options_for(Bottommost::ForceOptimized);
        self.database.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn move_down(&self, keys: std::ops::Range<u64>) -> Result<()> {
        let options = options_for(Bottommost::Default);
        self.database.compact_range_opt(Some(key(keys.start)), Some(key(keys.end)), &options);
        Ok(())
    }
}

fn key(number: u64) -> String {
    format!("k{number:08}")
}

fn options_for(bottommost: Bottommost) -> CompactOptions {
    let mut options = CompactOptions::default();
    options.set_exclusive_manual_compaction(false);
    options.set_bottommost_level_compaction(match bottommost {
        Bottommost::Default => BottommostLevelCompaction::IfHaveCompactionFilter,
        Bottommost::ForceOptimized => BottommostLevelCompaction::ForceOptimized,
        Bottommost::Force => BottommostLevelCompaction::Force,
    });
    options
}

/// A database of one shape, at rest.
struct Case {
    directory: TempDir,
    writer: Writer,
}

/// One compaction: what was said before and after.
struct Row {
    shape: &'static str,
    keys: String,
    bottommost: Bottommost,
    predicted: u64,
    reported: u64,
    /// Deletions that are said to be left in its files.
    left_predicted: u64,
    left: u64,
    /// The files before, and the jobs as RocksDB told them.
    details: String,
}

impl Case {
    fn build(shape: &Shape) -> Result<Case> {
        let directory = tempfile::tempdir()?;
        let mut options = Options::default();
        small(&mut options);
        (shape.options)(&mut options);
        let writer =
            Writer { database: DB::open(&options, directory.path())?, unflushed_bytes: Cell::default() };
        (shape.fill)(&writer)?;
        // From here on nothing moves but what is asked for.
        writer.database.set_options(&[("disable_auto_compactions", "true")])?;
        Ok(Case { directory, writer })
    }

    fn compare(&self, shape: &'static str, request: Request) -> Result<Vec<Row>> {
        let range = KeyRange::new(Key::new(key(request.first)), Some(Key::new(key(request.end)))).unwrap();
        let wanted = match request.way {
            Way::Whole(bottommost) => vec![(range, bottommost)],
            Way::Sliced { slice_bytes_max } => {
                let (files, levels) = self.look()?;
                let parts: Vec<&SstFile> = files.iter().collect();
                let site = Site { range: &range, relief_seconds_per_second: 1.0, are_in_memtables: false };
                let input = JobInput {
                    levels: &levels,
                    placement: &Placement::of(&parts, &[], None),
                    relief: &ReliefMap::default(),
                    sites: &[site],
                    resting: &[],
                    slice_bytes_max,
                    primitives: Primitives::default(),
                    value: &|job: &Job| job.relief_seconds_per_second,
                };
                let jobs = jobs(&input);
                let leaves = |job: &Job| levels.predict(&job.range, job.bottommost).deletions_left > 0;
                ensure!(!jobs.iter().any(leaves), "a job would leave deletions: {jobs:?}");
                jobs.into_iter().map(|job| (job.range, job.bottommost)).collect()
            }
        };
        ensure!(!wanted.is_empty(), "no slices");
        wanted.into_iter().map(|(range, bottommost)| self.compact(shape, &range, bottommost)).collect()
    }

    /// Files and options, as the agent reads them.
    fn look(&self) -> Result<(Vec<SstFile>, Levels)> {
        let reader = Reader { executable: artifact::built("sexton")?, time_limit: Duration::from_secs(20) };
        let place = Place::of(self.directory.path());
        let mut read = reader.read(place)?;
        let completion =
            sexton_sst::complete(&reader, &mut read.files, place, &mut PropertiesCache::default());
        ensure!(completion.first_error.is_none(), "{completion:?}");
        let options = &read.column_families.first().context("no column family")?.options;
        let levels = Levels::of(&read.files.iter().collect::<Vec<_>>(), options);
        Ok((read.files, levels))
    }

    fn compact(&self, shape: &'static str, range: &KeyRange, bottommost: Bottommost) -> Result<Row> {
        let (mut files, levels) = self.look()?;
        files.sort_by(|one, two| (one.level, &one.smallest).cmp(&(two.level, &two.smallest)));
        let prediction = levels.predict(range, bottommost);
        let log = Log::at_its_end(self.directory.path())?;
        let begin = (!range.begin.is_empty()).then(|| range.begin.as_bytes());
        let end = range.end.as_ref().map(Key::as_bytes);
        self.writer.database.compact_range_opt(begin, end, &options_for(bottommost));
        let shown = |key: &[u8]| String::from_utf8_lossy(key).trim_end_matches('\0').to_owned();
        let keys =
            format!("{}..{}", begin.map(shown).unwrap_or_default(), end.map(shown).unwrap_or_default());
        let mut details = String::new();
        for file in &files {
            let (from, to) = (shown(file.smallest.as_bytes()), shown(file.largest.as_bytes()));
            let SstFile { number, level, size_bytes, entries, deletions, .. } = file;
            writeln!(details, "  {number} L{level} {from}..{to} {size_bytes} bytes {entries} {deletions}")?;
        }
        let mut reported = 0;
        for (job, bytes) in log.jobs_since()? {
            reported += bytes;
            writeln!(details, "  {job}")?;
        }
        let (after, _) = self.look()?;
        let inside = after.iter().filter(|file| range.overlaps_closed(&file.smallest, &file.largest));
        Ok(Row {
            shape,
            keys,
            bottommost,
            predicted: prediction.read_bytes,
            reported,
            left_predicted: prediction.deletions_left,
            left: inside.map(|file| file.deletions).sum(),
            details,
        })
    }
}

/// RocksDB's log from some place on.
struct Log {
    path: PathBuf,
    from: usize,
}

impl Log {
    fn at_its_end(directory: &Path) -> Result<Log> {
        let path = directory.join("LOG");
        let from = std::fs::read(&path)?.len();
        Ok(Log { path, from })
    }

    /// Compaction jobs that began since, and the bytes of the files that they read.
    fn jobs_since(&self) -> Result<Vec<(String, u64)>> {
        let text = std::fs::read(&self.path)?;
        let text =
            String::from_utf8_lossy(text.get(self.from..).context("the log got shorter")?).into_owned();
        let events = text.lines().filter_map(|line| line.split_once("EVENT_LOG_v1 ")).map(|(_, event)| event);
        let mut jobs = Vec::new();
        for text in events {
            let event: Value = serde_json::from_str(text)?;
            if event.get("event").and_then(Value::as_str) == Some("compaction_started") {
                let size = event.get("input_data_size").and_then(Value::as_u64);
                jobs.push((text.to_owned(), size.context("a compaction without the size of its input")?));
            }
        }
        Ok(jobs)
    }
}

impl Row {
    /// As a share of what was reported.
    fn difference(&self) -> f64 {
        if self.predicted == self.reported {
            return 0.0;
        }
        self.predicted.abs_diff(self.reported) as f64 / self.reported.max(1) as f64
    }

    /// Whether there are deletions left where some were to be, and none where none were.
    fn leaves_what_was_said(&self) -> bool {
        (self.left > 0) == (self.left_predicted > 0)
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bottommost = format!("{:?}", self.bottommost);
        let (keys, off) = (&self.keys, self.difference() * 100.0);
        write!(
            formatter,
            "{:<34} {keys:>22} {bottommost:>16} {:>12} {:>12} {off:>6.1}% {:>6}",
            self.shape, self.predicted, self.reported, self.left
        )
    }
}

//! The simulated LSM tree, against RocksDB itself.
//!
//! Small databases are filled at random, and the same is done to a tree: writes of every kind, snapshots,
//! flushes, and compactions of ranges and of files, in leveled and universal style. Then the files are the
//! same to the key, the compactions have read the same bytes, and readers that walk in both directions count
//! the same tombstones and keys, to the unit.

#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use rust_rocksdb::compaction::CompactionOptions;
use rust_rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use rust_rocksdb::{
    BottommostLevelCompaction, CompactOptions, DB, DBCompactionStyle, DBCompressionType, MergeOperands,
    Options, ReadOptions, SnapshotWithThreadMode,
};
use serde_json::Value;
use sexton_tuner::cost::Bottommost;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::options::{ColumnFamilyOptions, CompactionStyle};
use sexton_tuner::simulation::lsm::entry::Kind;
use sexton_tuner::simulation::lsm::names::Names;
use sexton_tuner::simulation::lsm::reader::{Counts, Reader};
use sexton_tuner::simulation::lsm::{Settings, Tree, Work};
use sexton_tuner::simulation::random::Random;
use std::path::Path;
use tempfile::TempDir;

const DATABASES: u64 = 60;

/// Steps of a database: most of them write some keys.
const STEPS: usize = 60;

/// Walks that are compared each time that something was compacted.
const WALKS: usize = 4;

/// Greatest difference of the bytes that compactions read and of file sizes, as a share.
const BYTES_DIFFERENCE_MAX: f64 = 0.05;

#[test]
fn a_simulated_tree_is_what_rocksdb_makes_of_the_same_operations() -> Result<()> {
    set_perf_stats(PerfStatsLevel::EnableCount);
    let mut all = Compared::default();
    for seed in 0..DATABASES {
        let shape = Shape::of(seed);
        let directory = TempDir::new()?;
        let database = DB::open(&shape.rocksdb(), directory.path())?;
        let mut case = Case {
            tree: Tree::new(shape.simulated()),
            shape: &shape,
            database: &database,
            directory: directory.path(),
            snapshots: Vec::new(),
            random: Random::of(seed, 1),
            compared: &mut all,
        };
        case.run().with_context(|| format!("database {seed}, {shape:?}"))?;
    }
    println!("{all:?}, bytes off by {:.3} %", all.bytes_off() * 100.0);
    ensure!(all.bytes_off() <= BYTES_DIFFERENCE_MAX);
    ensure!(
        all.walks > 1_000 && all.deletes_skipped > 10_000 && all.jobs > 300 && all.files > 3_000,
        "{all:?}"
    );
    ensure!(all.range_tombstones > 40 && all.merges > 1_000 && all.moved > 30, "{all:?}");
    Ok(())
}

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    walks: u64,
    deletes_skipped: u64,
    keys_skipped: u64,
    merges: u64,
    files: u64,
    range_tombstones: u64,
    jobs: u64,
    moved: u64,
    read_bytes: u64,
    read_bytes_by_rocksdb: u64,
}

impl Compared {
    fn bytes_off(&self) -> f64 {
        off(self.read_bytes, self.read_bytes_by_rocksdb)
    }
}

fn off(simulated: u64, real: u64) -> f64 {
    simulated.abs_diff(real) as f64 / real.max(1) as f64
}

/// How a database is set.
#[derive(Debug)]
struct Shape {
    names: Names,
    style: CompactionStyle,
    is_dynamic: bool,
    target_file_size_base: u64,
    max_compaction_bytes: u64,
    /// So many keys there are.
    keys: u64,
}

impl Shape {
    fn of(seed: u64) -> Shape {
        let mut random = Random::of(seed, 0);
        let mut pick = |choices: &[u64]| choices[random.index(choices.len())];
        let names = [
            Names::Decimal,
            Names::Prefixed,
            Names::BigEndian,
            Names::Directories { keys: 100 },
            Names::Spread,
        ];
        Shape {
            names: names[pick(&[0, 1, 2, 3, 4]) as usize].clone(),
            style: [CompactionStyle::Level, CompactionStyle::Universal][pick(&[0, 0, 0, 0, 1]) as usize],
            is_dynamic: pick(&[0, 1]) == 1,
            target_file_size_base: pick(&[16 << 10, 32 << 10, 64 << 10, 1 << 20, 1 << 20]),
            max_compaction_bytes: pick(&[128 << 10, 512 << 10, 64 << 20]),
            keys: pick(&[300, 1_000, 3_000]),
        }
    }

    fn simulated(&self) -> Settings {
        let options = ColumnFamilyOptions {
            compaction_style: self.style,
            level_compaction_dynamic_level_bytes: self.is_dynamic,
            target_file_size_base: self.target_file_size_base,
            max_compaction_bytes: self.max_compaction_bytes,
            max_bytes_for_level_base: 256 << 10,
            disable_auto_compactions: true,
            ..ColumnFamilyOptions::default()
        };
        Settings { names: self.names.clone(), options, ..Settings::default() }
    }

    fn rocksdb(&self) -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        options.set_disable_auto_compactions(true);
        options.set_write_buffer_size(64 << 20);
        options.set_target_file_size_base(self.target_file_size_base);
        options.set_max_compaction_bytes(self.max_compaction_bytes);
        options.set_max_bytes_for_level_base(256 << 10);
        options.set_level_compaction_dynamic_level_bytes(self.is_dynamic);
        if self.style == CompactionStyle::Universal {
            options.set_compaction_style(DBCompactionStyle::Universal);
        }
        // The longest of all: its length is what the tree takes it to have.
        let longest = |_: &[u8], value: Option<&[u8]>, operands: &MergeOperands| {
            operands.iter().chain(value).max_by_key(|value| value.len()).map(<[u8]>::to_vec)
        };
        options.set_merge_operator_associative("longest", longest);
        options
    }
}

/// A database and its simulation.
struct Case<'d, 'c> {
    tree: Tree,
    shape: &'d Shape,
    database: &'d DB,
    directory: &'d Path,
    snapshots: Vec<(u64, SnapshotWithThreadMode<'d, DB>)>,
    random: Random,
    compared: &'c mut Compared,
}

impl Case<'_, '_> {
    fn run(&mut self) -> Result<()> {
        for step in 0..STEPS {
            self.step().with_context(|| format!("step {step}"))?;
        }
        self.compact_range(None, None, Bottommost::Force)?;
        self.compare()
    }

    fn step(&mut self) -> Result<()> {
        match self.random.index(20) {
            0..=9 => self.write(),
            // An output can end where a range tombstone begins, and the tree's does not.
            10 if self.shape.target_file_size_base >= 1 << 20 => self.delete_range(),
            11..=13 => self.flush(),
            14 | 15 => {
                let begin = self.random.between(0, self.shape.keys);
                let end = begin + self.random.between(1, self.shape.keys / 2);
                let ways = [Bottommost::Default, Bottommost::ForceOptimized, Bottommost::Force];
                let way = ways[self.random.index(ways.len())];
                self.compact_range(Some(begin), Some(end), way)?;
                self.compare().with_context(|| format!("{begin} to {end}, {way:?}"))
            }
            16 | 17 if self.shape.style == CompactionStyle::Level => {
                let said = self.compact_files()?;
                self.compare().context(said)
            }
            18 => {
                self.snapshots.push((self.tree.take_snapshot(), self.database.snapshot()));
                Ok(())
            }
            19 if !self.snapshots.is_empty() => {
                let place = self.random.index(self.snapshots.len());
                let (sequence, snapshot) = self.snapshots.remove(place);
                drop(snapshot);
                self.tree.release_snapshot(sequence);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Keys in a row, or here and there; deletes with them or by themselves. Keys of the last quarter are
    /// written once and deleted singly.
    fn write(&mut self) -> Result<()> {
        let count = self.random.between(1, self.shape.keys / 4);
        let first = self.random.between(0, self.shape.keys);
        let is_run = self.random.per_mille(600);
        let mostly = [Kind::Put, Kind::Put, Kind::Delete, Kind::Merge][self.random.index(4)];
        for number in 0..count {
            let key = if is_run { first + number } else { self.random.between(0, self.shape.keys) };
            let key = key % self.shape.keys;
            let kind = if self.random.per_mille(800) { mostly } else { Kind::Put };
            self.write_one(key, kind)?;
        }
        for number in 0..self.random.between(0, 30) {
            // Behind all others: put once, and then deleted once.
            let key = self.shape.keys * 2 + self.tree.sequence() + number;
            self.write_one(key, Kind::Put)?;
            if self.random.per_mille(200) {
                self.flush()?;
            }
            self.write_one(key, Kind::SingleDelete)?;
        }
        Ok(())
    }

    fn write_one(&mut self, key: u64, kind: Kind) -> Result<()> {
        let name = self.shape.names.key(key);
        let value_bytes = self.random.between(0, 300) as u32;
        let value = vec![b'v'; value_bytes as usize];
        match kind {
            Kind::Put => self.database.put(name.as_bytes(), value)?,
            Kind::Delete => self.database.delete(name.as_bytes())?,
            Kind::SingleDelete => self.database.single_delete(name.as_bytes())?,
            Kind::Merge => self.database.merge(name.as_bytes(), value)?,
        }
        self.tree.write(key, kind, value_bytes);
        Ok(())
    }

    fn delete_range(&mut self) -> Result<()> {
        let begin = self.random.between(0, self.shape.keys);
        let end = begin + self.random.between(1, self.shape.keys / 8);
        let (from, to) = (self.shape.names.key(begin), self.shape.names.key(end));
        let mut batch = rust_rocksdb::WriteBatch::default();
        batch.delete_range(from.as_bytes(), to.as_bytes());
        self.database.write(&batch)?;
        self.tree.delete_range(begin, end);
        self.compared.range_tombstones += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.database.flush()?;
        self.tree.flush();
        Ok(())
    }

    fn compact_range(&mut self, begin: Option<u64>, end: Option<u64>, way: Bottommost) -> Result<()> {
        let before = log_bytes(self.directory)?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(match way {
            Bottommost::Default => BottommostLevelCompaction::IfHaveCompactionFilter,
            Bottommost::ForceOptimized => BottommostLevelCompaction::ForceOptimized,
            Bottommost::Force => BottommostLevelCompaction::Force,
        });
        let key = |number: Option<u64>| number.map(|number| self.shape.names.key(number));
        let (from, to) = (key(begin), key(end));
        let bytes = |key: &Option<sexton_tuner::Key>| key.as_ref().map(|key| key.as_bytes().to_vec());
        self.database.compact_range_opt(bytes(&from), bytes(&to), &options);
        let work = self.tree.compact_range(begin, end, way);
        self.compare_work(before, work).with_context(|| format!("{begin:?} to {end:?}, {way:?}"))
    }

    fn compact_files(&mut self) -> Result<String> {
        let files = self.tree.files("default");
        let Some(file) = files.get(self.random.index(files.len())) else { return Ok(String::new()) };

        let output = (file.level as u64 + self.random.between(0, 2)).clamp(1, 6);
        let limit = [u64::MAX, self.shape.target_file_size_base][self.random.index(2)];
        let live = self.database.live_files()?;
        let same = live.iter().find(|live| is_same(live, file)).context("no such file")?;
        let mut options = CompactionOptions::default();
        options.set_output_file_size_limit(limit);
        let before = log_bytes(self.directory)?;
        self.database.compact_files(&options, [same.name.trim_start_matches('/')], output as i32)?;
        let work =
            self.tree.compact_files(&[file.number].into(), output as usize, limit).context("no such file")?;
        let said = format!("file {} to level {output}, at most {limit} bytes", file.number);
        self.compare_work(before, work).with_context(|| said.clone())?;
        Ok(said)
    }

    fn compare_work(&mut self, before: usize, work: Work) -> Result<()> {
        let (read_bytes, jobs) = compacted_bytes(self.directory, before)?;
        self.compared.read_bytes += work.read_bytes;
        self.compared.read_bytes_by_rocksdb += read_bytes;
        self.compared.jobs += work.jobs;
        self.compared.moved += work.files_moved;
        let difference = off(work.read_bytes, read_bytes);
        ensure!(
            difference <= BYTES_DIFFERENCE_MAX,
            "{} bytes read, by RocksDB {read_bytes}: {jobs}",
            work.read_bytes
        );
        Ok(())
    }

    fn compare(&mut self) -> Result<()> {
        self.compare_files()?;
        let view = self.tree.view();
        for _ in 0..WALKS {
            let snapshot = self.random.index(self.snapshots.len() + 1);
            let keys = self.shape.keys;
            let (lower, upper) = (self.random.between(0, keys / 4), self.random.between(keys / 2, keys * 2));
            let bounds = self.random.per_mille(300).then_some((lower, upper));
            let mut options = ReadOptions::default();
            let mut reader = view.reader();
            if let Some((sequence, held)) = self.snapshots.get(snapshot) {
                options.set_snapshot(held);
                reader = view.reader_at(*sequence);
            }
            if let Some((lower, upper)) = bounds {
                options.set_iterate_lower_bound(self.shape.names.key(lower).as_bytes());
                options.set_iterate_upper_bound(self.shape.names.key(upper).as_bytes());
                reader = reader.within(lower, Some(upper));
            }
            self.compare_walk(options, reader).with_context(|| format!("a walk within {bounds:?}"))?;
        }
        Ok(())
    }

    fn compare_files(&mut self) -> Result<()> {
        let mut live_files = self.database.live_files()?;
        live_files.sort_by(|one, two| {
            let place =
                |file: &rust_rocksdb::LiveFile| (file.level, file.start_key.clone(), file.num_entries);
            place(one).cmp(&place(two))
        });
        let mut files = self.tree.files("default");
        files.sort_by(|one, two| {
            let place = |file: &SstFile| (file.level, file.smallest.clone(), file.entries);
            place(one).cmp(&place(two))
        });
        for (live, file) in live_files.iter().zip(&files) {
            let difference = off(file.size_bytes, live.size as u64);
            // Properties are what is estimated of a file.
            let is_near =
                difference <= BYTES_DIFFERENCE_MAX || file.size_bytes.abs_diff(live.size as u64) < 200;
            ensure!(is_same(live, file) && is_near, "{}", self.side_by_side(&live_files, &files));
        }
        ensure!(live_files.len() == files.len(), "{}", self.side_by_side(&live_files, &files));
        self.compared.files += files.len() as u64;
        Ok(())
    }

    /// Level, keys, entries, deletions and bytes of all files.
    fn side_by_side(&self, real: &[rust_rocksdb::LiveFile], simulated: &[SstFile]) -> String {
        let number = |key: &[u8]| self.shape.names.first_from(&sexton_tuner::Key::new(key));
        let real = real.iter().map(|file| {
            let keys = [&file.start_key, &file.end_key].map(|key| key.as_deref().map_or(0, number));
            format!("L{} {keys:?} {} {} {}", file.level, file.num_entries, file.num_deletions, file.size)
        });
        let simulated = simulated.iter().map(|file| {
            let keys = [&file.smallest, &file.largest].map(|key| number(key.as_bytes()));
            format!("L{} {keys:?} {} {} {}", file.level, file.entries, file.deletions, file.size_bytes)
        });
        let (real, simulated) = (real.collect::<Vec<_>>(), simulated.collect::<Vec<_>>());
        format!("RocksDB has\n{}\nand the simulation\n{}", real.join("\n"), simulated.join("\n"))
    }

    fn compare_walk(&mut self, options: ReadOptions, mut reader: Reader<'_>) -> Result<()> {
        let mut context = PerfContext::default();
        context.reset();
        let mut iterator = self.database.raw_iterator_opt(options);
        let key = self.random.between(0, self.shape.keys);
        let name = self.shape.names.key(key);
        let start = self.random.index(4);
        match start {
            0 => (iterator.seek(name.as_bytes()), reader.seek(key)),
            1 => (iterator.seek_for_prev(name.as_bytes()), reader.seek_for_prev(key)),
            2 => (iterator.seek_to_first(), reader.seek_to_first()),
            _ => (iterator.seek_to_last(), reader.seek_to_last()),
        };
        let is_forward = self.random.per_mille(500);
        for step in 0..self.random.between(0, 200) {
            let expected = reader.key().map(|key| self.shape.names.key(key));
            let found = iterator.key();
            ensure!(
                found == expected.as_ref().map(sexton_tuner::Key::as_bytes),
                "step {step}: {:?}",
                reader.key()
            );
            same_counts(&context, reader.counts()).with_context(|| format!("start {start}, step {step}"))?;
            if found.is_none() {
                break;
            }
            let turns = self.random.per_mille(50);
            match is_forward != turns {
                true => (iterator.next(), reader.next()),
                false => (iterator.prev(), reader.prev()),
            };
        }
        same_counts(&context, reader.counts())?;
        let counts = reader.counts();
        self.compared.walks += 1;
        self.compared.deletes_skipped += counts.deletes_skipped;
        self.compared.keys_skipped += counts.keys_skipped;
        self.compared.merges += counts.merges;
        Ok(())
    }
}

fn same_counts(context: &PerfContext, counts: Counts) -> Result<()> {
    let real = [
        PerfMetric::InternalDeleteSkippedCount,
        PerfMetric::InternalKeySkippedCount,
        PerfMetric::InternalMergeCount,
    ]
    .map(|metric| context.metric(metric));
    let simulated = [counts.deletes_skipped, counts.keys_skipped, counts.merges];
    ensure!(real == simulated, "RocksDB counts {real:?}, the simulation {simulated:?}");
    Ok(())
}

fn is_same(live: &rust_rocksdb::LiveFile, file: &SstFile) -> bool {
    live.level == file.level as i32
        && live.start_key.as_deref() == Some(file.smallest.as_bytes())
        && live.end_key.as_deref() == Some(file.largest.as_bytes())
        && (live.num_entries, live.num_deletions) == (file.entries, file.deletions)
}

fn log_bytes(directory: &Path) -> Result<usize> {
    Ok(std::fs::read(directory.join("LOG"))?.len())
}

/// Bytes that compactions have read since the log was so long, by RocksDB's event log, and its own words.
fn compacted_bytes(directory: &Path, from: usize) -> Result<(u64, String)> {
    let text = std::fs::read(directory.join("LOG"))?;
    let text = String::from_utf8_lossy(text.get(from..).context("the log got shorter")?).into_owned();
    let events = text.lines().filter_map(|line| line.split_once("EVENT_LOG_v1 ")).map(|(_, event)| event);
    let (mut bytes, mut jobs) = (0, String::new());
    for event in events {
        let event: Value = serde_json::from_str(event)?;
        if event.get("event").and_then(Value::as_str) == Some("compaction_started") {
            jobs.push_str(&format!("\n{event}"));
            bytes += event.get("input_data_size").and_then(Value::as_u64).context("no size of the input")?;
        }
    }
    Ok((bytes, jobs))
}

//! Whether what is planned is good: held against a tree whose truth is known to the unit.
//!
//! Small trees are written, deleted and compacted at random, and readers walk over them. The planner sees
//! what the agent would see of that. What its plan really relieves and costs is worked out by carrying it
//! out, and so is what any other job would have come to.
//!
//! Each property has the bound that is wanted and the one that is reached; what is reached is printed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use common::{CASES, VALUE_BYTES, compact, compactions, of_all_cases, planned, planned_after, policy};
use sexton_tuner::cost::Bottommost;
use sexton_tuner::evidence::{EventCosts, Evidence, Observation, SstFile};
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::primitives::Primitives;
use sexton_tuner::simulation::lsm::entry::Kind;
use sexton_tuner::simulation::lsm::names::Names;
use sexton_tuner::simulation::lsm::picture::{Position, Prices, Walk, Walked, observe};
use sexton_tuner::simulation::lsm::{Settings, Tree};
use sexton_tuner::simulation::random::Random;
use sexton_tuner::{CompactRange, Key, KeyRange, Plan, Rule};
use std::collections::BTreeSet;

/// Most plans, as a share of all, whose first action has less than seven tenths of the best single job's
/// relief per byte, where the target can be asked for `CompactFiles` too. Wanted: 0.05. Reached: 0.047.
const WORSE_MAX: f64 = 0.06;

/// And less than three tenths, or that do nothing where something could be done. Wanted: 0. Reached:
/// 0.007.
const FAR_WORSE_MAX: f64 = 0.02;

/// The same of the best job that `CompactRange` can do, where that is all there is. Reached: 0.037 and 0.006.
const WORSE_BY_RANGE_MAX: f64 = 0.06;
const FAR_WORSE_BY_RANGE_MAX: f64 = 0.012;

/// Most cases in which it changes what is decided that a column family is split. Wanted: 0. Reached: 17
/// (seed 2529).
const SPLIT_OTHERWISE_MAX: u64 = 40;

/// The same where more pain ranks lower. Wanted: 0. Reached: 0.
const RANKED_LOWER_MAX: u64 = 20;

/// Where a plan waits for RocksDB: most bytes that its actions read then, as a share of what they read when
/// they come first, and the same with what RocksDB reads. Wanted: 0 and 1. Reached: 0.08 and 1.08, for
/// RocksDB merges level by level what a range's compaction takes down at once.
const OWN_BYTES_MAX: f64 = 0.12;
const ALL_BYTES_MAX: f64 = 1.12;

/// Seconds of an interval, all of which the window sees.
const SECONDS: f64 = 1.0;

/// The cases of which something is true.
fn cases_where(is_so: impl Fn(u64) -> bool + Sync) -> Vec<u64> {
    of_all_cases(|seed| is_so(seed).then_some(seed)).into_iter().flatten().collect()
}

/// A group of readers that all do the same, and how often a second.
#[derive(Clone, Copy, Debug)]
struct Group {
    walk: Walk,
    per_second: u64,
}

#[derive(Clone, Debug)]
struct Case {
    tree: Tree,
    groups: Vec<Group>,
}

const PRICES: Prices = Prices { seek_ns: 5_000, tombstone_ns: 2_000, entry_ns: 100 };

impl Case {
    fn new(seed: u64) -> Case {
        let mut random = Random::of(seed, 0);
        let keys = random.between(200, 600);
        let mut tree = Tree::new(settings(&mut random));
        (0..keys).for_each(|key| tree.write(key, Kind::Put, VALUE_BYTES));
        tree.compact_range(None, None, Bottommost::Default);
        for _ in 0..random.between(1, 5) {
            write_some(&mut tree, keys, &mut random);
            tree.flush();
            if random.per_mille(400) {
                tree.settle(u64::MAX);
            }
        }
        if random.per_mille(200) {
            write_some(&mut tree, keys / 4, &mut random);
        }
        let groups = (0..random.between(1, 6)).map(|_| group(keys, &mut random)).collect();
        Case { tree, groups }
    }

    fn walked(&self, tree: &Tree) -> Vec<Walked> {
        let view = tree.view();
        self.groups.iter().map(|group| group.walk.on(&mut view.reader())).collect()
    }

    /// Seconds a second that readers of a tree lose.
    fn pain(&self, tree: &Tree) -> f64 {
        let walked = self.walked(tree);
        let pain_ns =
            walked.iter().zip(&self.groups).map(|(walked, group)| PRICES.pain_ns(walked) * group.per_second);
        pain_ns.sum::<u64>() as f64 / 1e9
    }

    fn observations(&self, column_family: &str) -> Vec<Observation> {
        let walked = self.walked(&self.tree);
        let mut all = Vec::new();
        for (walked, group) in walked.iter().zip(&self.groups) {
            let one = self.tree.observation(column_family, &group.walk, walked, &PRICES);
            all.extend((0..group.per_second).map(|_| one.clone()));
        }
        all
    }

    fn evidence(&self) -> Evidence {
        // What a tombstone takes readers is known from the windows before.
        let (ns_per_tombstone, tombstone_learnt) = (PRICES.tombstone_ns as f64, true);
        let costs = EventCosts { ns_per_tombstone, tombstone_learnt, ..EventCosts::default() };
        let mut evidence = Evidence { target: "t".into(), database: "/db".into(), ..Evidence::default() };
        evidence.costs = Some(costs);
        self.tree.add_to(&mut evidence, "cf");
        observe(&mut evidence, &self.observations("cf"), (SECONDS * 1e9) as u64);
        self.tree.add_index_marks(&mut evidence);
        evidence
    }

    /// Relief a byte of what is done to a copy of the tree; `None` where it costs and relieves nothing.
    fn worth(&self, act: impl FnOnce(&mut Tree) -> u64) -> Option<f64> {
        let mut tree = self.tree.clone();
        let read_bytes = act(&mut tree);
        let relief = self.pain(&self.tree) - self.pain(&tree);
        (read_bytes > 0 || relief.abs() > 0.0).then(|| relief / read_bytes.max(1 << 20) as f64)
    }
}

fn settings(random: &mut Random) -> Settings {
    let options = ColumnFamilyOptions {
        target_file_size_base: random.between(1, 5) << 20,
        max_bytes_for_level_base: random.between(4, 17) << 20,
        level_compaction_dynamic_level_bytes: random.per_mille(700),
        compression: "kNoCompression".to_owned(),
        ..ColumnFamilyOptions::default()
    };
    Settings { names: names(random), options, ..Settings::default() }
}

fn names(random: &mut Random) -> Names {
    let mut all = vec![Names::Decimal, Names::Prefixed, Names::BigEndian, Names::Spread];
    all.push(Names::Directories { keys: 100 });
    all.swap_remove(random.index(all.len()))
}

/// A run of deletes, overwritten keys, or both, of one or two places.
fn write_some(tree: &mut Tree, keys: u64, random: &mut Random) {
    for _ in 0..random.between(1, 3) {
        let first = random.between(0, keys);
        let count = random.between(1, keys / 2);
        let often = [1000, 1000, 500, 100][random.index(4)];
        let kind = if random.per_mille(700) { Kind::Delete } else { Kind::Put };
        for key in first..(first + count).min(keys) {
            if random.per_mille(often) {
                tree.write(key, kind, VALUE_BYTES);
            }
        }
    }
}

fn group(keys: u64, random: &mut Random) -> Group {
    let key = random.between(0, keys);
    let (position, is_forward) = match random.index(6) {
        0 => (Position::SeekToFirst, true),
        1 => (Position::SeekForPrev(key), false),
        _ => (Position::Seek(key), true),
    };
    let steps = [0, 5, 50, 200][random.index(4)];
    Group { walk: Walk { position, steps, is_forward }, per_second: random.between(1, 20) }
}

/// Bytes that an action reads.
fn carry_out(tree: &mut Tree, action: &CompactRange) -> u64 {
    let Some(compact_files) = action.primitive.files() else {
        return compact(tree, &action.range, action.bottommost);
    };
    let numbers: BTreeSet<u64> = compact_files.files.iter().copied().collect();
    let output_level = usize::try_from(compact_files.output_level).unwrap();
    let before: BTreeSet<u64> = tree.files("cf").iter().map(|file| file.number).collect();
    let work = tree.compact_files(&numbers, output_level, compact_files.output_file_bytes).unwrap();
    let after: BTreeSet<u64> = tree.files("cf").iter().map(|file| file.number).collect();
    // RocksDB adds none, and what it reads is what was predicted.
    assert_eq!(before.difference(&after).copied().collect::<BTreeSet<u64>>(), numbers);
    assert_eq!(work.read_bytes, action.cost_bytes);
    work.read_bytes
}

/// Jobs that could be done: each file's keys, runs of neighbours of the deepest level, each file by itself
/// down to the bottom, and everything. The best of those that `CompactRange` can do, and of all.
fn best_jobs(case: &Case) -> [f64; 2] {
    let files = case.tree.files("cf");
    let deepest = files.iter().map(|file| file.level).max().unwrap_or(0);
    let closed =
        |smallest: &Key, largest: &Key| KeyRange { begin: smallest.clone(), end: Some(largest.successor()) };
    let mut ranges: Vec<KeyRange> = files.iter().map(|file| closed(&file.smallest, &file.largest)).collect();
    let bottom: Vec<_> = files.iter().filter(|file| file.level == deepest).collect();
    for length in [2, 4] {
        let runs = bottom.windows(length).step_by(length);
        ranges.extend(runs.map(|run| closed(&run[0].smallest, &run[length - 1].largest)));
    }
    ranges.push(KeyRange::everything());
    let of_ranges =
        ranges.iter().filter_map(|range| case.worth(|tree| compact(tree, range, Bottommost::ForceOptimized)));
    let of_files = files.iter().filter_map(|file| {
        let limit = 4 << 20;
        let down = |tree: &mut Tree| {
            tree.compact_files(&[file.number].into(), 6, limit).map_or(0, |work| work.read_bytes)
        };
        case.worth(down)
    });
    let by_range = of_ranges.fold(0.0, f64::max);
    [by_range, of_files.fold(by_range, f64::max)]
}

/// The first action of the plan, against the best of all jobs: those of `CompactRange`, where the target can
/// be asked for nothing else, and those of `CompactFiles` besides. What that reads is predicted to the byte.
#[test]
fn a_plan_is_nearly_as_good_as_the_best_job() {
    let policy = policy();
    let share = |seed: u64| {
        let case = Case::new(seed);
        let hurts = case.pain(&case.tree) >= policy.thresholds.pain.seconds_per_second();
        let best = if hurts { best_jobs(&case) } else { [0.0; 2] };
        if best[0] <= 0.0 {
            return None;
        }
        let own = [false, true].map(|compact_files| {
            let evidence = Evidence { primitives: Primitives { compact_files }, ..case.evidence() };
            let plan = planned(&policy, &[evidence]);
            let own = compactions(&plan).next();
            own.and_then(|own| case.worth(|tree| carry_out(tree, own))).unwrap_or(0.0)
        });
        Some(([own[0] / best[0], own[1] / best[1]], seed))
    };
    let shares: Vec<([f64; 2], u64)> = of_all_cases(share).into_iter().flatten().collect();
    assert!(shares.len() as u64 > CASES / 4);
    let bounds = [(WORSE_BY_RANGE_MAX, FAR_WORSE_BY_RANGE_MAX), (WORSE_MAX, FAR_WORSE_MAX)];
    for (number, (worse_max, far_worse_max)) in bounds.into_iter().enumerate() {
        let mut shares: Vec<(f64, u64)> =
            shares.iter().map(|(of_best, seed)| (of_best[number], *seed)).collect();
        shares.sort_by(|one, two| one.0.total_cmp(&two.0));
        let below = |share: f64| shares.partition_point(|one| one.0 < share) as f64 / shares.len() as f64;
        println!(
            "{} cases, {:.4} of them below 0.3 of the best job's relief per byte ({}), {:.4} below 0.7, {:.4} below \
             0.95; the worst has {:.3} (seed {})",
            shares.len(),
            below(0.3),
            ["by CompactRange", "in any way"][number],
            below(0.7),
            below(0.95),
            shares[0].0,
            shares[0].1,
        );
        assert!(below(0.7) <= worse_max, "{}", below(0.7));
        assert!(below(0.3) <= far_worse_max, "{}", below(0.3));
    }
}

/// What a plan does in one database.
fn decided(plan: &Plan, database: &str) -> Vec<(KeyRange, Bottommost, u64)> {
    let own = compactions(plan).filter(|compact| compact.database == database);
    own.map(|compact| (compact.range.clone(), compact.bottommost, compact.cost_bytes)).collect()
}

#[test]
fn a_second_database_and_an_idle_reader_change_no_other_decision() {
    let policy = policy();
    of_all_cases(|seed| {
        let (one, two) = (Case::new(seed), Case::new(seed + CASES));
        let alone = one.evidence();
        let before = decided(&planned(&policy, std::slice::from_ref(&alone)), "/db");
        // They share the window of their process, which counts the operations of both.
        let idle: Vec<Observation> =
            one.observations("cf").into_iter().take(5).map(without_tombstones).collect();
        let mut both = [alone, Evidence { database: "/other".into(), ..two.evidence() }];
        let operations = [one.observations("cf"), two.observations("cf"), idle].concat();
        let mut together = Evidence::default();
        observe(&mut together, &operations, (SECONDS * 1e9) as u64);
        for evidence in &mut both {
            (evidence.window, evidence.sentinel) = (together.window, together.sentinel);
        }
        let after = decided(&planned(&policy, &both), "/db");
        assert_eq!(before, after, "seed {seed}");
    });
}

fn without_tombstones(operation: Observation) -> Observation {
    let mut idle = operation;
    (idle.seek.tombstones_skipped, idle.scan.tombstones_skipped) = (0, 0);
    idle
}

/// Numbers of the keys that a plan compacts.
fn numbers_decided(plan: &Plan, names: &Names) -> BTreeSet<(u64, Option<u64>)> {
    compactions(plan).map(|compact| names.numbers(&compact.range)).collect()
}

fn renamed(evidence: &Evidence, from: &Names, to: &Names) -> Evidence {
    let rename = |key: &Key| {
        if key.is_empty() {
            return key.clone();
        }
        to.key(from.first_from(key))
    };
    let mut evidence = evidence.clone();
    for file in &mut evidence.files {
        (file.smallest, file.largest) = (rename(&file.smallest), rename(&file.largest));
    }
    for seen in &mut evidence.observations {
        (seen.key, seen.end_key) = (rename(&seen.key), seen.end_key.as_ref().map(rename));
    }
    for marks in evidence.index_marks.values_mut() {
        *marks = marks.renamed(|key| {
            let next = from.first_from(key);
            if from.key(next) == *key {
                return to.key(next);
            }
            // A key between two of the names, and in the same order as others that are.
            let before = next.checked_sub(1).map(|before| to.key(before)).unwrap_or_default();
            Key::new([before.as_bytes(), &[0], key.as_bytes()].concat())
        });
    }
    evidence
}

#[test]
fn keys_of_other_names_change_no_decision() {
    let policy = policy();
    let otherwise = cases_where(|seed| {
        let case = Case::new(seed);
        let (from, to) = (case.tree.names(), names(&mut Random::of(seed, 7)));
        let evidence = case.evidence();
        let other = renamed(&evidence, from, &to);
        let before = numbers_decided(&planned(&policy, &[evidence]), from);
        let after = numbers_decided(&planned(&policy, &[other]), &to);
        before != after
    });
    assert!(otherwise.is_empty(), "decided otherwise in {otherwise:?}");
}

/// Files that a plan compacts keys of.
fn files_decided(plan: &Plan, evidence: &Evidence) -> BTreeSet<u64> {
    let touched = |compact: &CompactRange| {
        let family = compact.column_family.clone();
        let range = compact.range.clone();
        let own = evidence.files.iter().filter(move |file| file.column_family == family);
        own.filter(move |file| range.overlaps_closed(&file.smallest, &file.largest)).map(|file| file.number)
    };
    compactions(plan).flat_map(touched).collect()
}

/// One of two equal parts of the key space: its files and operations, as a column family of this name, added
/// to a database's.
fn add_part(
    whole: &mut Evidence,
    operations: &mut Vec<Observation>,
    evidence: &Evidence,
    (number, column_family): (u8, &str),
) {
    let shift = |key: &Key| Key::new([&[number][..], key.as_bytes()].concat());
    let other = |file: u64| file + u64::from(number) * 1_000;
    let file = |file: &SstFile| SstFile {
        number: other(file.number),
        column_family: column_family.to_owned(),
        smallest: shift(&file.smallest),
        largest: shift(&file.largest),
        ..file.clone()
    };
    let observation = |seen: &Observation| Observation {
        column_family: Some(column_family.to_owned()),
        key: shift(&seen.key),
        end_key: seen.end_key.as_ref().map(shift),
        ..seen.clone()
    };
    // What begins at the first key of all begins in the other part.
    let sought = evidence.observations.iter().filter(|seen| !seen.key.is_empty());
    operations.extend(sought.map(observation));
    whole.files.extend(evidence.files.iter().map(file));
    let marks = evidence.index_marks.iter().map(|(file, marks)| (other(*file), marks.renamed(shift)));
    whole.index_marks.extend(marks);
}

/// One column family of two equal parts that have nothing to do with each other, and the same as two.
#[test]
fn a_split_column_family_changes_no_decision() {
    let policy = policy();
    let otherwise = cases_where(|seed| {
        let evidence = Case::new(seed).evidence();
        let decided = [["cf", "cf"], ["cf", "high"]].map(|families| {
            let mut whole = Evidence { files: Vec::new(), observations: Vec::new(), ..evidence.clone() };
            whole.memtables.clear();
            whole.index_marks.clear();
            let mut operations = Vec::new();
            for (number, family) in (1..).zip(families) {
                add_part(&mut whole, &mut operations, &evidence, (number, family));
                // Of twice the size it has the same shape where its levels may be twice as large.
                let mut options = evidence.options_of("cf");
                options.max_bytes_for_level_base *= if families[0] == families[1] { 2 } else { 1 };
                whole.column_families.insert(family.to_owned(), options);
            }
            (whole.window, whole.sentinel) = Default::default();
            observe(&mut whole, &operations, (SECONDS * 1e9) as u64);
            files_decided(&planned(&policy, std::slice::from_ref(&whole)), &whole)
        });
        decided[0] != decided[1]
    });
    println!("decided otherwise in {} of {CASES}: {:?}", otherwise.len(), otherwise.first());
    assert!(otherwise.len() as u64 <= SPLIT_OTHERWISE_MAX);
}

/// Where in the plan the first action is that helps a group; behind all where none does.
fn rank_of(case: &Case, plan: &Plan, group: usize) -> usize {
    let before = case.walked(&case.tree)[group];
    let helps = |compact: &&CompactRange| {
        let mut tree = case.tree.clone();
        self::compact(&mut tree, &compact.range, compact.bottommost);
        PRICES.pain_ns(&case.walked(&tree)[group]) < PRICES.pain_ns(&before)
    };
    let place = compactions(plan).position(|compact| helps(&compact));
    place.unwrap_or(usize::MAX)
}

#[test]
fn more_pain_never_ranks_lower() {
    let policy = policy();
    let lower = cases_where(|seed| {
        let mut case = Case::new(seed);
        let group = Random::of(seed, 8).index(case.groups.len());
        let before = planned(&policy, &[case.evidence()]);
        let before = rank_of(&case, &before, group);
        case.groups[group].per_second *= 3;
        let after = planned(&policy, &[case.evidence()]);
        rank_of(&case, &after, group) > before
    });
    println!("ranked lower in {} of {CASES}: {:?}", lower.len(), lower.first());
    assert!(lower.len() as u64 <= RANKED_LOWER_MAX);
}

/// Tombstones that are in no file, nor in a memtable as far as RocksDB says: an iterator that is held open
/// goes on skipping what a compaction has dropped.
#[test]
fn nothing_is_planned_on_what_is_unexplained() {
    let policy = policy();
    of_all_cases(|seed| {
        let mut case = Case::new(seed);
        let evidence = case.evidence();
        case.tree.compact_range(None, None, Bottommost::Force);
        let mut now = Evidence::default();
        case.tree.add_to(&mut now, "cf");
        let evidence = Evidence { files: now.files, memtables: now.memtables, ..evidence };
        assert!(evidence.files.iter().all(|file| file.deletions == 0), "seed {seed}");
        let plan = planned(&policy, &[evidence]);
        assert_eq!(compactions(&plan).count(), 0, "seed {seed}: {:?}", plan.actions);
    });
}

/// Bytes that are read, by the plan's first action and by RocksDB itself, and what readers lose then.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    read_bytes: f64,
    /// Those that the plan's action read.
    own_bytes: f64,
    pain: f64,
    actions: f64,
}

impl Outcome {
    fn plus(self, other: Outcome) -> Outcome {
        Outcome {
            read_bytes: self.read_bytes + other.read_bytes,
            own_bytes: self.own_bytes + other.own_bytes,
            pain: self.pain + other.pain,
            actions: self.actions + other.actions,
        }
    }
}

/// Where a plan leaves something to RocksDB: what it comes to when RocksDB comes first, and when the plan
/// does.
#[test]
fn what_rocksdb_rewrites_next_is_left_to_it() {
    let policy = policy();
    let act = |case: &Case, tree: &mut Tree| -> Outcome {
        let now = Case { tree: tree.clone(), groups: case.groups.clone() };
        let plan = planned(&policy, &[now.evidence()]);
        let Some(first) = compactions(&plan).next() else { return Outcome::default() };
        let read_bytes = compact(tree, &first.range, first.bottommost) as f64;
        Outcome { read_bytes, own_bytes: read_bytes, pain: 0.0, actions: 1.0 }
    };
    let of = |seed: u64| {
        let case = Case::new(seed);
        let at_once = planned_after(&policy, &[case.evidence()], None, 0);
        let is_left = |rule| at_once.refusals.iter().any(|refusal| refusal.rule == rule);
        if !is_left(Rule::AutomaticCompaction) || compactions(&at_once).next().is_some() {
            return None;
        }
        let by_itself = |tree: &mut Tree| Outcome {
            read_bytes: tree.settle(u64::MAX).read_bytes as f64,
            ..Outcome::default()
        };
        let left = |tree: &Tree| Outcome { pain: case.pain(tree), ..Outcome::default() };
        let (mut first, mut last) = (case.tree.clone(), case.tree.clone());
        let planned_first = act(&case, &mut first).plus(by_itself(&mut first)).plus(left(&first));
        let planned_last = by_itself(&mut last).plus(act(&case, &mut last)).plus(left(&last));
        Some([planned_first, planned_last, left(&case.tree)])
    };
    let found: Vec<[Outcome; 3]> = of_all_cases(of).into_iter().flatten().collect();
    let sum = |number: usize| found.iter().fold(Outcome::default(), |sum, found| sum.plus(found[number]));
    let [first, last, before] = [sum(0), sum(1), sum(2)];
    println!("{} cases: acting first {first:?}, RocksDB first {last:?}; before {before:?}", found.len());
    assert!(found.len() as u64 > CASES / 100);
    assert!(last.own_bytes <= first.own_bytes * OWN_BYTES_MAX);
    assert!(last.read_bytes <= first.read_bytes * ALL_BYTES_MAX);
    assert!(last.pain <= first.pain && first.pain < before.pain / 10.0);
}

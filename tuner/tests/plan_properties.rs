//! What holds for every plan, whatever the evidence.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use jiff::Timestamp;
use proptest::prelude::*;
use sexton_tuner::evidence::{
    BlockFetches, Counters, Delivered, EventCosts, MemtableDeletions, Observation, PastAction, SeekKind,
    SentinelInterval, SstFile, Window,
};
use sexton_tuner::index_marks::{IndexMarks, Thinning};
use sexton_tuner::lineage::Lineage;
use sexton_tuner::oldest_snapshot::{OldestSnapshot, Sequences};
use sexton_tuner::options::{ColumnFamilyOptions, CompactionStyle};
use sexton_tuner::policy::{Mode, RemedyKind};
use sexton_tuner::primitives::Primitives;
use sexton_tuner::{
    Action, Budget, CompactRange, Evidence, Flush, Key, KeyRange, KnownThrottles, Plan, PlanInput,
    PlanTarget, Policy, RangeAssessment, SetOptions, TargetPolicy, assess, families, plan,
};
use std::collections::{BTreeMap, BTreeSet};

const POLICY: &str = "
mode: act
thresholds: { pain: 1us/s, density: 0.05 }
cooldown: 1m
range_bytes_max: 64MiB
targets:
  - name: t
    match: { pid: 1 }
    column_families:
      - { name: a, prefix: { bytes: 1 } }
      - { name: b, prefix: { delimiter: '/', count: 1 } }
      - { name: '*' }
    remedies: [flush, compact, wait, options]
    throttles: [{ name: limit, inside: '9', outside: '1', command: [set, '{value}'] }]
schedule:
  - { name: off-peak, time_zone: Europe/Berlin, from: '22:00', to: '05:00', io_budget: { rate: 1GiB/s, burst: 8GiB } }
";

fn key() -> impl Strategy<Value = Key> {
    proptest::collection::vec(prop_oneof![Just(b'/'), b'a'..=b'd', any::<u8>()], 0..5).prop_map(Key::new)
}

fn family() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(str::to_owned)
}

/// Mostly plausible, sometimes absurd.
fn count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..200_000, 1 => any::<u64>()]
}

fn counters() -> impl Strategy<Value = Counters> {
    (count(), count(), count(), count()).prop_map(|(tombstones, keys, block_reads, block_cache_hits)| {
        Counters {
            tombstones_skipped: tombstones,
            keys_skipped: keys,
            block_reads,
            block_cache_hits,
            ..Counters::default()
        }
    })
}

prop_compose! {
    fn file()(
        column_family in family(),
        level in 0u32..7,
        size_bytes in prop_oneof![8 => 0u64..1 << 28, 1 => any::<u64>()],
        entries in count(),
        deletions in count(),
        one in key(),
        two in key(),
        ordered in prop::bool::weighted(0.95),
    ) -> SstFile {
        // Now and then the wrong way round, as a broken file might say.
        let (smallest, largest) = if one <= two || !ordered { (one, two) } else { (two, one) };
        SstFile { number: 1, column_family, level, size_bytes, entries, deletions, smallest, largest }
    }
}

prop_compose! {
    fn fetches()(count in count(), bytes in count(), latency_ns in count()) -> BlockFetches {
        BlockFetches { count, bytes, latency_ns }
    }
}

prop_compose! {
    fn observation()(
        column_family in proptest::option::weighted(0.9, family()),
        kind in prop_oneof![
            Just(SeekKind::Seek),
            Just(SeekKind::SeekForPrev),
            Just(SeekKind::SeekToFirst),
            Just(SeekKind::SeekToLast),
        ],
        key in key(),
        end_key in proptest::option::of(key()),
        seek in counters(),
        scan in counters(),
        seek_latency_ns in prop_oneof![4 => 0u64..1 << 34, 1 => any::<u64>()],
        scan_elapsed_ns in prop_oneof![4 => 0u64..1 << 34, 1 => any::<u64>()],
        block_fetches in fetches(),
        estimated in prop::bool::weighted(0.1),
        weight in prop_oneof![4 => Just(1u64), 4 => 1u64..1000, 1 => any::<u64>()],
    ) -> Observation {
        Observation {
            column_family,
            end_key,
            seek,
            scan,
            seek_latency_ns,
            scan_elapsed_ns,
            block_fetches,
            estimated,
            weight,
            ..Observation::at(kind, key)
        }
    }
}

prop_compose! {
    fn past()(
        column_family in family(),
        begin in key(),
        end in proptest::option::of(key()),
        ended_unix_s in prop_oneof![4 => 1_789_999_000i64..1_790_000_100, 1 => any::<i64>()],
        helped in any::<Option<bool>>(),
        failures_in_a_row in prop_oneof![4 => 0u32..4, 1 => any::<u32>()],
        remedy in prop_oneof![4 => Just(RemedyKind::Compact), 1 => Just(RemedyKind::Flush)],
        delivered in proptest::option::of((0.0..2.0, 0.0..2.0, 0.0..100.0)),
    ) -> PastAction {
        let range = KeyRange::new(begin, end).unwrap_or_else(KeyRange::everything);
        let awaits_verdict = helped.is_none();
        let delivered = delivered.map(|(pain, fell, operations_per_second)| Delivered {
            pain_before_seconds_per_second: pain,
            delivered_seconds_per_second: fell,
            operations_per_second,
        });
        PastAction { column_family, range, ended_unix_s, helped, awaits_verdict, failures_in_a_row, remedy, delivered }
    }
}

prop_compose! {
    fn options()(
        compaction_style in prop_oneof![
            6 => Just(CompactionStyle::Level),
            1 => Just(CompactionStyle::Universal),
            1 => Just(CompactionStyle::Fifo),
        ],
        num_levels in 2u32..9,
        is_dynamic: bool,
        target_file_size_base in (16u64 << 10)..1 << 28,
        max_compaction_bytes in (16u64 << 10)..1 << 34,
        write_buffer_size in count(),
        comparator in prop_oneof![
            6 => Just("leveldb.BytewiseComparator"),
            1 => Just("rocksdb.ReverseBytewiseComparator"),
            1 => Just("app.MyOrder"),
        ],
        scan_flush_trigger in proptest::option::of(prop_oneof![Just("0"), Just("1000"), Just("many")]),
    ) -> ColumnFamilyOptions {
        let trigger = scan_flush_trigger.map(|value| ("memtable_op_scan_flush_trigger".to_owned(), value.to_owned()));
        ColumnFamilyOptions {
            comparator: comparator.to_owned(),
            compaction_style,
            num_levels,
            level_compaction_dynamic_level_bytes: is_dynamic,
            target_file_size_base,
            max_compaction_bytes,
            write_buffer_size,
            run_time_options: trigger.into_iter().collect(),
            ..ColumnFamilyOptions::default()
        }
    }
}

prop_compose! {
    fn evidence()(
        database in prop_oneof![Just("/one"), Just("/two")],
        duration_ns in prop_oneof![8 => 1_000_000u64..1 << 34, 1 => 1u64..=u64::MAX],
        operations_recorded in count(),
        attributed in counters(),
        sentinel_ns in count(),
        in_sentinel in counters(),
        observations in proptest::collection::vec(observation(), 0..30),
        files in proptest::collection::vec(file(), 0..20),
        past_actions in proptest::collection::vec(past(), 0..4),
        a in options(),
        b in options(),
        memtables in proptest::collection::btree_map(family(), (count(), count()), 0..3),
        unseen in prop::bool::weighted(0.1),
        (is_read_only, lineage, linked_files, index_marks) in links(),
        (oldest_snapshot, compact_files) in (proptest::option::weighted(0.1, snapshot()), any::<bool>()),
    ) -> Evidence {
        let memtable = |(name, (active, immutable))| (name, MemtableDeletions { active, immutable });
        Evidence {
            target: "t".to_owned(),
            database: database.to_owned(),
            is_read_only,
            lineage,
            window: Window { duration_ns, operations_recorded, attributed, ..Window::default() },
            sentinel: SentinelInterval { duration_ns: sentinel_ns, counters: in_sentinel },
            observations,
            files,
            files_unseen: unseen.then(|| "no such directory".to_owned()),
            memtables: memtables.into_iter().map(memtable).collect(),
            linked_files,
            index_marks,
            oldest_snapshot,
            column_families: [("a", a), ("b", b), ("c", ColumnFamilyOptions::default())]
                .map(|(name, options)| (name.to_owned(), options))
                .into(),
            file_reads: Vec::new(),
            past_actions,
            costs: None,
            device_bytes_per_second: None,
            surveyed: None,
            primitives: Primitives { compact_files },
        }
    }
}

/// A snapshot, and sequence numbers of the files.
fn snapshot() -> impl Strategy<Value = OldestSnapshot> {
    (count(), count(), count()).prop_map(|(sequence, smallest, largest)| OldestSnapshot {
        sequence,
        files: [(1, Sequences { smallest, largest })].into(),
    })
}

/// Whether a database is open for reading only, whose its files are, which have a link elsewhere, and what is
/// known of their index blocks, be it right or wrong.
fn links() -> impl Strategy<Value = (bool, Lineage, BTreeSet<u64>, BTreeMap<u64, IndexMarks>)> {
    let reason = || "so".to_owned();
    let lineage = prop_oneof![
        6 => Just(Lineage::Own),
        1 => Just(Lineage::Derived { reason: reason() }),
        1 => Just(Lineage::Unknown { reason: reason() }),
    ];
    let marks = proptest::collection::vec((key(), 0u64..1 << 20), 0..6).prop_map(|marks| {
        let mut thinning = Thinning::default();
        marks.iter().for_each(|(key, bytes_before)| thinning.push(key.as_bytes(), *bytes_before));
        BTreeMap::from([(1, thinning.marks())])
    });
    (prop::bool::weighted(0.1), lineage, proptest::collection::btree_set(0u64..3, 0..3), marks)
}

fn planned(policy: &Policy, evidence: &[Evidence], available_bytes: u64, now_s: i64) -> Plan {
    let now = Timestamp::from_second(now_s).unwrap();
    let values = policy.at(now, 0);
    let target: &TargetPolicy = values.targets.first().unwrap();
    let input = PlanInput {
        policy: &values,
        targets: &[PlanTarget { name: "t", policy: target, evidence }],
        budget: Budget { available_bytes },
        throttles: &KnownThrottles::new(),
        now,
        previous: None,
    };
    let first = plan(&input).unwrap();
    assert_eq!(first, plan(&input).unwrap(), "the same input gave two plans");
    first
}

/// Databases of one process: they share its window, which has the sums over all of them. In each so many
/// records were lost for one that was not, and so many times its counts were counted in the sentinel's
/// interval.
fn in_one_process(databases: &[Evidence], lost: u64, pace: u64) -> Vec<Evidence> {
    let mut window = Window { duration_ns: 1_000_000_000, ..Window::default() };
    for database in databases {
        let recorded = database.observations.len() as u64;
        window.operations_recorded += recorded * (1 + lost);
        window.records_lost += recorded * lost;
        for operation in &database.observations {
            let tombstones_skipped = 1 + operation.total().tombstones_skipped % 100_000;
            let counted = Counters { tombstones_skipped, ..Counters::default() };
            window.attributed = window.attributed.plus(counted);
        }
    }
    let tombstones_skipped = window.attributed.tombstones_skipped * pace;
    let counters = Counters { tombstones_skipped, ..Counters::default() };
    let sentinel = SentinelInterval { duration_ns: window.duration_ns, counters };
    let named = databases.iter().zip(0..);
    let of_process = |(database, number): (&Evidence, usize)| Evidence {
        database: format!("/{number}"),
        window,
        sentinel,
        ..database.clone()
    };
    named.map(of_process).collect()
}

fn check_overlaps(actions: &[Action]) {
    let compactions: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            Action::CompactRange(CompactRange { target, database, column_family, range, .. }) => {
                Some(((target, database, column_family), range))
            }
            Action::Flush(_) | Action::SetOptions(_) | Action::SetThrottle(_) => None,
        })
        .collect();
    for (index, (place, range)) in compactions.iter().enumerate() {
        for (other_place, other) in compactions.iter().skip(index + 1) {
            assert!(place != other_place || !range.overlaps(other), "{range:?} and {other:?} overlap");
        }
    }
}

fn check_numbers(plan: &Plan) {
    for range in &plan.assessments {
        let numbers = [
            range.operations_per_second,
            range.tombstones_per_seek,
            range.memtable_tombstones_per_seek,
            range.unexplained_tombstones_per_seek,
            range.unexplained_seconds_per_second,
            range.misses_per_seek,
            range.seconds_per_miss,
            range.cache_hit_ratio.unwrap_or(0.0),
            range.block_read_seconds_per_second,
            range.density,
            range.pain_seconds_per_second,
            range.relief_seconds_per_second,
            range.relief_per_byte,
        ];
        assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0), "{range:?}");
        assert!(range.density <= 1.0 && range.pain_seconds_per_second > 0.0, "{range:?}");
        assert!(!range.reason.is_empty());
        assert!(!range.is_estimated || range.tombstones_per_seek <= 0.0 || range.reason.contains("estimate"));
    }
    let known: Vec<bool> = plan.assessments.iter().map(RangeAssessment::has_dead_entries).collect();
    assert!(
        known.is_sorted_by(|one, two| one >= two),
        "a range without deletions comes before one with them"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_keeps_to_its_budget_and_its_ranges_apart(
        evidence in proptest::collection::vec(evidence(), 0..3),
        available_bytes in prop_oneof![4 => 0u64..1 << 32, 1 => any::<u64>()],
        now_s in 1_790_000_000i64..1_790_700_000,
    ) {
        let policy = Policy::parse(POLICY).unwrap();
        let plan = planned(&policy, &evidence, available_bytes, now_s);
        let costs = plan.actions.iter().map(|action| match action {
            Action::CompactRange(CompactRange { cost_bytes, .. }) => u128::from(*cost_bytes),
            Action::Flush(Flush { cost_bytes, .. }) => u128::from(*cost_bytes),
            Action::SetOptions(_) | Action::SetThrottle(_) => 0,
        });
        let cost: u128 = costs.sum();
        prop_assert_eq!(cost, u128::from(plan.cost_bytes));
        prop_assert!(plan.cost_bytes <= available_bytes);
        check_overlaps(&plan.actions);
        check_numbers(&plan);
    }

    #[test]
    fn a_database_more_changes_no_other_databases_assessment(
        mut databases in proptest::collection::vec(evidence(), 1..6),
        idle in proptest::collection::vec(any::<bool>(), 6),
        lost in 0u64..4,
        // Powers of two, so that what is compared is not rounded.
        pace in prop_oneof![Just(1u64), Just(2), Just(4), Just(8)],
    ) {
        for (database, _) in databases.iter_mut().zip(&idle).skip(1).filter(|(_, idle)| **idle) {
            database.observations.clear();
        }
        let policy = Policy::parse(POLICY).unwrap();
        let target = policy.targets.first().unwrap();
        let assessed = |database: &Evidence| assess(database, &families(database), target, &policy).unwrap();
        let mut before: Vec<_> = Vec::new();
        for count in 1..=databases.len() {
            let now: Vec<_> = in_one_process(&databases[..count], lost, pace).iter().map(assessed).collect();
            for (now, before) in now.iter().zip(&before) {
                prop_assert_eq!(now, before);
            }
            before = now;
        }
    }

    /// A record that stands for several operations is as good as a record of each of them.
    #[test]
    fn a_weight_is_as_many_operations(
        mut evidence in evidence(),
        weights in proptest::collection::vec(1u64..6, 30),
    ) {
        // What is learnt of prices is learnt of records, whatever they stand for.
        evidence.costs = Some(EventCosts::default());
        let mut repeated = evidence.clone();
        repeated.observations.clear();
        for (operation, weight) in evidence.observations.iter_mut().zip(weights) {
            // Longer than this a row is not believed, however it came about.
            operation.seek_latency_ns %= 1 << 40;
            operation.scan_elapsed_ns %= 1 << 40;
            let once = Observation { weight: 1, ..operation.clone() };
            repeated.observations.extend((0..weight).map(|_| once.clone()));
            operation.weight = weight;
        }
        let policy = Policy::parse(POLICY).unwrap();
        let target = policy.targets.first().unwrap();
        let assessed = |seen: &Evidence| assess(seen, &families(seen), target, &policy).unwrap();
        prop_assert_eq!(assessed(&evidence), assessed(&repeated));
    }

    #[test]
    fn advise_plans_what_act_does_and_observe_nothing(evidence in evidence()) {
        let mut policy = Policy::parse(POLICY).unwrap();
        let act = planned(&policy, std::slice::from_ref(&evidence), u64::MAX, 1_790_000_000);
        policy.mode = Mode::Advise;
        let advise = planned(&policy, std::slice::from_ref(&evidence), u64::MAX, 1_790_000_000);
        prop_assert_eq!(&act.actions, &advise.actions);
        policy.mode = Mode::Observe;
        let observe = planned(&policy, std::slice::from_ref(&evidence), u64::MAX, 1_790_000_000);
        prop_assert!(observe.actions.is_empty());
        prop_assert_eq!(act.assessments, observe.assessments);
    }

    #[test]
    fn every_range_that_hurts_is_planned_or_refused(
        evidence in evidence(),
        available_bytes in 0u64..1 << 32,
    ) {
        let policy = Policy::parse(POLICY).unwrap();
        let plan = planned(&policy, std::slice::from_ref(&evidence), available_bytes, 1_790_000_000);
        for range in &plan.assessments {
            let refused = plan.refusals.iter().any(|refusal| {
                let same = refusal.range.overlaps(&range.range) && refusal.column_family == range.column_family;
                same && !refusal.reason.is_empty()
            });
            let acted = plan.actions.iter().any(|action| match action {
                Action::CompactRange(CompactRange { column_family, range: keys, .. }) => {
                    Some(column_family) == range.column_family.as_ref() && keys.overlaps(&range.range)
                }
                Action::Flush(Flush { column_family, ranges, .. })
                | Action::SetOptions(SetOptions { column_family, ranges, .. }) => {
                    Some(column_family) == range.column_family.as_ref() && ranges.contains(&range.range)
                }
                Action::SetThrottle(_) => false,
            });
            prop_assert!(refused || acted, "{:?} is neither refused nor planned", range);
        }
    }

    #[test]
    fn only_column_families_in_bytewise_order_are_acted_on(evidence in evidence()) {
        let policy = Policy::parse(POLICY).unwrap();
        let plan = planned(&policy, std::slice::from_ref(&evidence), u64::MAX, 1_790_000_000);
        for action in &plan.actions {
            let family = match action {
                Action::CompactRange(CompactRange { column_family, .. })
                | Action::Flush(Flush { column_family, .. })
                | Action::SetOptions(SetOptions { column_family, .. }) => column_family,
                Action::SetThrottle(_) => continue,
            };
            prop_assert_eq!(evidence.comparator_of(family), Some("leveldb.BytewiseComparator"), "{:?}", action);
        }
    }

    #[test]
    fn checkpoints_are_left_alone_unless_named_and_what_is_only_read_always(evidence in evidence()) {
        let unnamed = Policy::parse(POLICY).unwrap();
        let databases = format!("    databases: {{ include: [{}] }}\n    throttles:", evidence.database);
        let text = POLICY.replace("    throttles:", &databases);
        let named = Policy::parse(&text).unwrap();
        for (policy, is_named) in [(unnamed, false), (named, true)] {
            let plan = planned(&policy, std::slice::from_ref(&evidence), u64::MAX, 1_790_000_000);
            let acts = plan.actions.iter().any(|action| !matches!(action, Action::SetThrottle(_)));
            let may_act = !evidence.is_read_only && (is_named || evidence.lineage == Lineage::Own);
            prop_assert!(may_act || !acts, "{:?}", plan.actions);
            prop_assert!(may_act || plan.refusals.len() == plan.assessments.len());
        }
    }

    #[test]
    fn redacted_reasons_show_no_key(evidence in evidence()) {
        // Keys that could be in a reason are marked by a text that no number or name has.
        let mut marked = evidence;
        for file in &mut marked.files {
            file.smallest = Key::new([file.smallest.as_bytes(), b"QQQQQQQQ"].concat());
            file.largest = Key::new([file.largest.as_bytes(), b"QQQQQQQQ"].concat());
        }
        let policy = Policy::parse(POLICY).unwrap();
        let plan = planned(&policy, std::slice::from_ref(&marked), u64::MAX, 1_790_000_000);
        for action in &plan.actions {
            if let Action::CompactRange(CompactRange { reason, .. }) = action {
                prop_assert!(!reason.contains("QQQQ") && !reason.contains("5151515151"));
            }
        }
        for refusal in &plan.refusals {
            prop_assert!(!refusal.subject.contains("QQQQ") && !refusal.reason.contains("QQQQ"));
        }
    }
}

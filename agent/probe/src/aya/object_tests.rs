//! Holds the compiled objects against Rust's view of them, as a reader that shares no code with libbpf sees
//! them: no kernel, no root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::btf::{Structure, structures};
use crate::abi::*;
use crate::object::BpfObject;
use crate::site::Site;
use aya_obj::Object;
use aya_obj::generated::bpf_map_type::{self, *};
use std::collections::{BTreeMap, BTreeSet};

fn parsed(object: BpfObject) -> Object {
    Object::parse(object.bytes()).unwrap_or_else(|error| panic!("{}: {error}", object.name()))
}

fn programs(object: &Object) -> BTreeSet<String> {
    object.programs.iter().map(|(name, program)| format!("{:?} {name}", program.section)).collect()
}

/// Type, bytes of a key, bytes of a value, entries.
type Definition = (u32, usize, usize, u32);

/// The maps that the source defines; sections of constants and globals are maps too, without such a name.
fn maps(object: &Object) -> BTreeMap<&str, Definition> {
    let named = object.maps.iter().filter(|(name, _)| name.starts_with("sexton_"));
    named
        .map(|(name, map)| {
            let definition =
                (map.map_type(), map.key_size() as usize, map.value_size() as usize, map.max_entries());
            (name.as_str(), definition)
        })
        .collect()
}

/// Size and offsets of a structure of `sexton.h`, as Rust has them. Taking the value apart fails to compile
/// when a member is missing here.
macro_rules! of_rust {
    ($structure:ident { $($member:ident),* }) => {{
        let $structure { $($member: _),* } = $structure::default();
        let members = [$((stringify!($member).to_owned(), std::mem::offset_of!($structure, $member))),*];
        (stringify!($structure), Structure { bytes: size_of::<$structure>(), members: members.into() })
    }};
}

fn of_rust() -> BTreeMap<&'static str, Structure> {
    [
        of_rust!(sexton_counters {
            tombstones_skipped,
            keys_skipped,
            block_reads,
            block_read_bytes,
            block_cache_hits,
            merge_operands,
            range_deletion_reseeks
        }),
        of_rust!(sexton_fetches { count, bytes, latency_ns }),
        of_rust!(sexton_family {
            database,
            column_family_handle,
            seek_ns,
            seek_histogram,
            list_ns,
            list_histogram,
            block_read_ns,
            block_read_histogram,
            tombstones,
            tombstone_histogram
        }),
        of_rust!(sexton_family_id { column_family_data, slot, padding }),
        of_rust!(sexton_file { fetches, histogram, fetcher }),
        of_rust!(sexton_file_id { file, slot, padding }),
        of_rust!(sexton_identity { database, column_family_handle, column_family_data, pause }),
        of_rust!(sexton_iterator_id { iterator, slot, padding }),
        of_rust!(sexton_learnt { column_family_data_offset, database_offset }),
        of_rust!(sexton_operation {
            seek,
            scan,
            fetches,
            iterator,
            column_family_data,
            column_family_handle,
            database,
            owner_before,
            start_ns,
            return_ns,
            end_ns,
            pause,
            process_id,
            thread_id,
            kind,
            key_bytes,
            end_key_bytes,
            slot,
            is_estimated,
            weight,
            keys_skipped_at_return,
            keys_walked,
            tombstones_ambiguous,
            steps_before,
            steps_and_one,
            key,
            end_key
        }),
        of_rust!(sexton_process { count, slots }),
        of_rust!(sexton_recipe {
            module_id,
            static_offset,
            perf_context_offset,
            perf_level_offset,
            tombstones_per_record,
            block_reads_per_record,
            block_counters_offset,
            skip_counters_offset,
            reseek_word,
            padding,
            db_iter_offset,
            current_key_offset,
            process_id,
            has_perf_context,
            keys_skipped_offset,
            fetch_file_offset,
            skip_count_offset,
            has_musl_vector,
            price_ns
        }),
        of_rust!(sexton_site_hits { entries, entries_skipped, returns, returns_skipped }),
        of_rust!(sexton_spending { spent_ns, pause }),
        of_rust!(sexton_thread {
            boundary,
            owner,
            active,
            active_stack_pointer,
            start_boot_ns,
            pause,
            fetch_start_ns,
            fetch_iterator,
            fetch_file,
            fetch_reads,
            fetch_bytes,
            positioned,
            known,
            moved,
            mover,
            mover_keys
        }),
        of_rust!(sexton_thread_id { thread_id, slot }),
        of_rust!(sexton_totals {
            attributed,
            unowned,
            discarded,
            paused,
            operations,
            operations_recorded,
            operations_estimated,
            block_reads_timed,
            records_lost,
            read_failures,
            map_full,
            sites,
            seek_histogram,
            block_read_histogram
        }),
    ]
    .into()
}

/// Every structure of ours that the object has is laid out as Rust has it, and `expected` are among them.
fn check_structures(kind: BpfObject, expected: &[&str]) {
    let btf = parsed(kind).btf.expect("compiled with -g");
    let theirs = structures(&btf.to_bytes()).expect("BTF");
    let ours = of_rust();
    for (name, structure) in theirs.iter().filter(|(name, _)| name.starts_with("sexton_")) {
        let known = ours.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not listed here"));
        assert_eq!(structure, known, "{name}: left is {}.bpf.o, right is Rust", kind.name());
    }
    for name in expected {
        assert!(theirs.contains_key(*name), "{}.bpf.o has no {name}", kind.name());
    }
}

#[test]
fn the_windows_structures_are_those_of_rust() {
    check_structures(
        BpfObject::Seek,
        &[
            "sexton_counters",
            "sexton_fetches",
            "sexton_family",
            "sexton_family_id",
            "sexton_file",
            "sexton_file_id",
            "sexton_identity",
            "sexton_iterator_id",
            "sexton_learnt",
            "sexton_operation",
            "sexton_process",
            "sexton_recipe",
            "sexton_site_hits",
            "sexton_spending",
            "sexton_thread",
            "sexton_thread_id",
            "sexton_totals",
        ],
    );
}

#[test]
fn the_sentinels_structures_are_those_of_rust() {
    // What stands in no map is not in the BTF; sexton.h asserts its size.
    check_structures(BpfObject::Sentinel, &["sexton_process", "sexton_recipe"]);
}

#[test]
fn the_windows_programs_are_those_that_are_asked_for() {
    let mut expected: BTreeSet<String> = BTreeSet::new();
    expected.insert("UProbe { sleepable: false } sexton_entry".to_owned());
    expected.insert("URetProbe { sleepable: false } sexton_return".to_owned());
    for site in Site::ALL {
        let suffix = site.program_suffix();
        expected.insert(format!("UProbe {{ sleepable: false }} sexton_entry_{suffix}"));
        if site.has_return() {
            expected.insert(format!("URetProbe {{ sleepable: false }} sexton_return_{suffix}"));
        }
    }
    assert_eq!(programs(&parsed(BpfObject::Seek)), expected);
}

#[test]
fn the_sentinels_programs_are_those_that_are_asked_for() {
    let expected = ["BtfTracePoint sexton_thread_end", "Iter { sleepable: false } sexton_sentinel"];
    assert_eq!(programs(&parsed(BpfObject::Sentinel)), expected.map(str::to_owned).into());
}

#[test]
fn the_windows_maps_hold_rusts_records() {
    const WORD: usize = size_of::<u32>();
    let iterator_id = size_of::<sexton_iterator_id>();
    let expected = [
        ("sexton_armed", BPF_MAP_TYPE_ARRAY, WORD, size_of::<sexton_recipe>(), SEXTON_TARGETS_MAX),
        (
            "sexton_threads",
            BPF_MAP_TYPE_HASH,
            size_of::<sexton_thread_id>(),
            size_of::<sexton_thread>(),
            SEXTON_THREADS_MAX,
        ),
        (
            "sexton_operations",
            BPF_MAP_TYPE_HASH,
            iterator_id,
            size_of::<sexton_operation>(),
            SEXTON_ITERATORS_MAX,
        ),
        (
            "sexton_identities",
            BPF_MAP_TYPE_LRU_HASH,
            iterator_id,
            size_of::<sexton_identity>(),
            SEXTON_ITERATORS_MAX,
        ),
        (
            "sexton_creations",
            BPF_MAP_TYPE_LRU_HASH,
            size_of::<sexton_thread_id>(),
            size_of::<sexton_identity>(),
            SEXTON_THREADS_MAX,
        ),
        ("sexton_learnt_offsets", BPF_MAP_TYPE_ARRAY, WORD, size_of::<sexton_learnt>(), SEXTON_TARGETS_MAX),
        (
            "sexton_files",
            BPF_MAP_TYPE_HASH,
            size_of::<sexton_file_id>(),
            size_of::<sexton_file>(),
            SEXTON_FILES_MAX,
        ),
        (
            "sexton_families",
            BPF_MAP_TYPE_HASH,
            size_of::<sexton_family_id>(),
            size_of::<sexton_family>(),
            SEXTON_FAMILIES_MAX,
        ),
        ("sexton_granted", BPF_MAP_TYPE_ARRAY, WORD, size_of::<u64>(), SEXTON_TARGETS_MAX),
        ("sexton_spending", BPF_MAP_TYPE_ARRAY, WORD, size_of::<sexton_spending>(), SEXTON_TARGETS_MAX),
        ("sexton_totals", BPF_MAP_TYPE_PERCPU_ARRAY, WORD, size_of::<sexton_totals>(), SEXTON_TARGETS_MAX),
        ("sexton_processes", BPF_MAP_TYPE_HASH, WORD, size_of::<sexton_process>(), SEXTON_TARGETS_MAX),
        ("sexton_records", BPF_MAP_TYPE_RINGBUF, 0, 0, SEXTON_RECORDS_BYTES),
    ];
    check_maps(BpfObject::Seek, &expected);
}

#[test]
fn the_sentinels_maps_hold_rusts_records() {
    const WORD: usize = size_of::<u32>();
    let expected = [
        ("sexton_watched", BPF_MAP_TYPE_ARRAY, WORD, size_of::<sexton_recipe>(), SEXTON_TARGETS_MAX),
        ("sexton_processes", BPF_MAP_TYPE_HASH, WORD, size_of::<sexton_process>(), SEXTON_TARGETS_MAX),
        ("sexton_passes", BPF_MAP_TYPE_HASH, WORD, WORD, SEXTON_PASSES_MAX),
        ("sexton_ended", BPF_MAP_TYPE_RINGBUF, 0, 0, SEXTON_ENDED_BYTES),
    ];
    check_maps(BpfObject::Sentinel, &expected);
}

/// Name, type, bytes of a key, bytes of a value, entries.
type NamedDefinition = (&'static str, bpf_map_type, usize, usize, u32);

fn check_maps(kind: BpfObject, expected: &[NamedDefinition]) {
    let object = parsed(kind);
    let expected: BTreeMap<&str, Definition> = expected
        .iter()
        .map(|(name, map_type, key, value, entries)| (*name, (*map_type as u32, *key, *value, *entries)))
        .collect();
    assert_eq!(maps(&object), expected);
}

//! What becomes of a recording when it is played.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::policy::Policy;
use crate::simulation::trace::tests::writer::{delete, put, seek, trace};
use crate::simulation::workload::{Report, Strategy, play_recording};

fn untold(list: u64) -> Untold {
    Untold { name: "recorded".to_owned(), list, column_family_id: None, options: BTreeMap::new() }
}

fn key(number: u32) -> String {
    format!("row{number:06}")
}

fn played(recording: &Recording, strategy: Strategy) -> Report {
    play_recording(recording, strategy, 1).unwrap()
}

#[test]
fn seeks_meet_the_tombstones_that_were_written_before_them() {
    let mut calls: Vec<Vec<u8>> = (0..100).map(|number| put(&key(number), b"value")).collect();
    calls.push(seek(&key(0)));
    calls.extend((0..60).map(|number| delete(&key(number))));
    calls.push(seek(&key(0)));
    calls.push(seek(&key(50)));
    calls.push(seek(&key(99)));
    let bytes = trace(10, &calls);
    let recording = Recording::of(&[&bytes], untold(10)).unwrap();
    assert_eq!((recording.calls(), recording.calls_of_others), (calls.len(), 0));
    assert_eq!(played(&recording, Strategy::Nothing).tombstones_skipped, 70);
}

#[test]
fn keys_that_are_deleted_before_they_are_put_were_there() {
    let calls = [delete("b"), delete("a"), put("c", b"12345678"), delete("c"), seek("a")];
    let bytes = trace(10, &calls);
    let recording = Recording::of(&[&bytes], untold(10)).unwrap();
    assert_eq!((recording.loaded.as_slice(), recording.value_bytes), (&[0, 1][..], 8));
    assert_eq!(played(&recording, Strategy::Nothing).tombstones_skipped, 3);
}

#[test]
fn traces_are_played_in_the_order_of_time_whatever_the_order_of_the_files() {
    let first = trace(10, &[put("a", b"1"), delete("a")]);
    let later = trace(1_000, &[seek("a")]);
    let one = Recording::of(&[&first, &later], untold(1)).unwrap();
    let other = Recording::of(&[&later, &first], untold(1)).unwrap();
    assert_eq!(one.operations, other.operations);
    assert_eq!(played(&one, Strategy::Nothing).tombstones_skipped, 1);
}

#[test]
fn a_column_family_without_a_call_is_refused() {
    let bytes = trace(10, &[put("a", b"1")]);
    let other = Untold { column_family_id: Some(7), ..untold(1) };
    assert_eq!(Recording::of(&[&bytes], other).unwrap_err(), TraceError::Empty(7));
}

/// A queue: rows are made and deleted, and the oldest are listed, for five minutes.
#[test]
fn the_planner_relieves_a_recorded_queue() {
    let mut calls = Vec::new();
    for number in 0..15_000 {
        calls.push(put(&key(number), &[7; 100]));
        if number >= 1_000 {
            calls.push(delete(&key(number - 1_000)));
        }
        if number % 5 == 0 {
            calls.push(seek(&key(0)));
        }
    }
    let bytes = trace(300_000_000 / calls.len() as u64, &calls);
    let recording = Recording::of(&[&bytes], untold(100)).unwrap();
    let nothing = played(&recording, Strategy::Nothing);
    let policy = Policy::parse("cooldown: 30s").unwrap();
    let planned = played(&recording, Strategy::Planner(Box::new(policy)));
    assert_eq!(nothing.samples.len(), planned.samples.len());
    assert!(planned.actions > 0, "{planned:?}");
    assert!(
        planned.pain_seconds * 3.0 < nothing.pain_seconds,
        "{} s lost, of {} s",
        planned.pain_seconds,
        nothing.pain_seconds
    );
}

//! The policy as operators meet it: whole texts, and where an error points.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;
use sexton_tuner::policy::{
    Candidate, ExecutorKind, Mode, Naming, POLICY_BYTES_MAX, Policy, PolicyError, schema,
};

const WHOLE: &str = r#"
mode: advise
targets:
  - name: ozone-om
    match: { pid: 123, executable: "*/java", command_line: "OzoneManagerStarter" }
    mode: act
    executor: exec
    exec:
      compact: ["ozone", "repair", "--begin={begin_hex}", "--end={end_hex}", "--cf={column_family}", "{path}"]
      timeout: 10m
    column_families:
      - { name: keyTable, prefix: { delimiter: "/", count: 3 } }
      - { name: blockData, prefix: { bytes: 8 } }
      - { name: "*" }
    databases: { include: ["*/om.db"], exclude: [/old/*] }
    throttles:
      - { name: limit, inside: "50000", outside: "5000", command: [env, "true", "{value}"], timeout: 30s }
  - name: rest
    match: { executable: "*" }
thresholds:
  tombstones_per_operation: 1000
  block_reads_per_operation: 64
  pain: 5ms/s
  density: 0.1
loop: { interval: 5s, window: 2s, survey: 60s }
io_budget: { rate: 16MiB/s, burst: 1GiB }
schedule:
  - { name: off-peak, time_zone: Europe/Berlin, from: "22:00", to: "05:00", days: [mon, tue],
      io_budget: { rate: 128MiB/s, burst: 8GiB } }
  - { name: freeze, time_zone: UTC, dates: [2026-12-24], except: [2026-12-25], jitter: 5m, mode: observe, pain: 1ms/s,
      ranker: density, guards: { latency_ratio_max: 3 }, throttles: outside, io_budget_ratio: 0.5 }
cooldown: 10m
range_bytes_max: 256MiB
slice_bytes_max: 64MiB
keys: redacted
"#;

#[test]
fn a_whole_policy_is_read() {
    let policy = Policy::parse(WHOLE).unwrap();
    assert_eq!(policy.mode, Mode::Advise);
    let java = |pid| Candidate {
        pid,
        executable: "/usr/bin/java".into(),
        command_line: "java OzoneManagerStarter".into(),
        ..Candidate::default()
    };
    let target = policy.target_for(&java(123)).unwrap();
    assert_eq!((target.name.as_str(), policy.mode_of(target)), ("ozone-om", Mode::Act));
    assert_eq!(target.executor, ExecutorKind::Exec);
    assert!(target.prefix_rule("keyTable").is_some() && target.prefix_rule("other").is_none());
    let rest = policy.target_for(&java(124)).unwrap();
    assert_eq!((rest.name.as_str(), policy.mode_of(rest)), ("rest", Mode::Advise));
    let budget = policy.schedule[0].io_budget.as_ref().unwrap();
    assert_eq!(budget.rate.bytes_per_second(), 128 << 20);
    assert_eq!(
        (policy.schedule[1].mode, policy.schedule[1].guards.latency_ratio_max),
        (Some(Mode::Observe), Some(3.0))
    );
}

#[test]
fn the_example_policies_are_valid() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies");
    let examples = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let examples: Vec<_> =
        examples.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    assert!(!examples.is_empty(), "no examples in {}", folder.display());
    for path in examples {
        let policy = Policy::parse(&std::fs::read_to_string(&path).unwrap());
        assert!(policy.is_ok(), "{}: {policy:?}", path.display());
        if path.file_name().is_some_and(|name| name == "default.yaml") {
            assert_eq!(policy.unwrap(), Policy::default(), "default.yaml does not say what the defaults are");
        }
    }
}

/// The Ozone Manager opens its snapshots' checkpoints and the database of snapshot diffs for writing.
#[test]
fn the_ozone_policy_includes_the_live_database_only() {
    let text = include_str!("../../policies/ozone.yaml");
    let policy = Policy::parse(text).unwrap();
    let target = policy.targets.first().unwrap();
    assert_eq!(target.naming("/data/metadata/om.db"), Naming::Included);
    for other in [
        "/data/metadata/db.snapshots/checkpointState/om.db-0f3c1e52-8a47-4b1f-9a50-1c2d3e4f5a6b",
        "/data/metadata/db.snapdiff",
        "/data/metadata/om.db.candidate",
    ] {
        assert_eq!(target.naming(other), Naming::NotIncluded, "{other}");
    }
}

#[test]
fn no_fields_means_the_defaults() {
    assert_eq!(Policy::parse("{}").unwrap(), Policy::default());
    let everything = Policy::default();
    assert!(everything.target_for(&Candidate::default()).is_some());
    assert_eq!(everything.mode_of(everything.targets.first().unwrap()), Mode::Advise);
}

#[test]
fn a_target_can_have_a_probe_budget_of_its_own() {
    let text = "probes: { budget: 0.5% }\n\
                targets: [{ name: a, match: { pid: 1 } }, { name: b, match: { pid: 2 }, probes: { budget: 0% } }]";
    let policy = Policy::parse(text).unwrap();
    let parts = |pid| {
        let target = policy.target_for(&Candidate { pid, ..Candidate::default() }).unwrap();
        policy.probes_of(target).budget.parts_per_million()
    };
    assert_eq!((parts(1), parts(2)), (5_000, 0));
}

#[test]
fn a_policy_written_out_reads_back() {
    let policy = Policy::parse(WHOLE).unwrap();
    assert_eq!(Policy::parse(&serde_yaml::to_string(&policy).unwrap()).unwrap(), policy);
}

/// Text, line and column of the error, a part of its message, a part of its help.
type Refused = (&'static str, usize, usize, &'static str, &'static str);

const REFUSED: &[Refused] = &[
    ("modes: act", 1, 1, "unknown field `modes`", "did you mean `mode`?"),
    ("mode: acting", 1, 7, "unknown variant `acting`", "did you mean `act`?"),
    ("cooldown: 10m\ncooldown: 5m", 2, 1, "here twice", "take out the other"),
    ("loop: { window: 1s, window: 2s }", 1, 21, "here twice", "take out the other"),
    ("io_budget: { rate: 64MB/s, burst: 1GiB }", 1, 20, "unknown unit", "did you mean 64MiB/s?"),
    ("io_budget: { rate: 64MiB, burst: 1GiB }", 1, 20, "lacks \"/s\"", "16MiB/s"),
    ("io_budget: { rate: 0B/s, burst: 1GiB }", 1, 20, "budget of 0", "advise"),
    ("io_budget: { rate: 1B/s, burst: 0B }", 1, 33, "budget of 0", "advise"),
    ("io_budget: { rate: 1B/s }", 1, 12, "missing field `burst`", "add `burst`"),
    ("io_budget: { rate: 1B/s, burst:", 1, 32, "", "breaks off"),
    ("cooldown: 10 minuts", 1, 11, "unknown unit", "10m"),
    ("cooldown: -10m", 1, 11, "negative", "10m"),
    ("cooldown: 10", 1, 11, "no unit", "10m"),
    ("cooldown:", 1, 10, "", ""),
    ("targets: [{ name: a, match: { pid: 1 }, databases: }]", 1, 0, "", ""),
    ("off_peak: { time_zone: UTC }", 1, 1, "unknown field", "`schedule`"),
    ("cooldown: 9999999d", 1, 11, "too large", ""),
    ("cooldown: 9999d", 1, 11, "longer than 365d", "unit"),
    ("loop: { interval: 1s, window: 2s }", 1, 31, "does not fit", "shorter"),
    ("loop:\n  interval: 1s", 1, 0, "does not fit", "shorter"),
    ("loop: { interval: 0s }", 1, 19, "shorter than", "unit"),
    ("probes: { budget: 1 }", 1, 19, "no percent sign", "1%"),
    ("probes: { budget: 101% }", 1, 19, "more than 100%", "1%"),
    (
        "targets:\n  - { name: a, match: { pid: 1 }, probes: { budget: 100.5% } }",
        2,
        53,
        "more than 100%",
        "1%",
    ),
    ("thresholds: { pain: 0.005 }", 1, 21, "whole number", "ns/s"),
    ("thresholds: { pain: 0ms/s }", 1, 21, "hurt nobody", "5ms/s"),
    ("thresholds: { density: 1.5 }", 1, 24, "not a share", "0 to 1"),
    ("thresholds: { density: .nan }", 1, 24, "not a share", "0 to 1"),
    ("thresholds: { tombstones_per_operation: 0 }", 1, 41, "recorded", "at least 1"),
    ("thresholds: { tombstones_per_operation: -1 }", 1, 41, "invalid", "expected kind"),
    ("guards: { target_age: 1m }", 1, 11, "unknown field", "called `process_uptime_min` now"),
    ("max_slice_bytes: 64MiB", 1, 1, "unknown field", "called `slice_bytes_max` now"),
    ("range_bytes_max: 0B", 1, 18, "no bytes", "256MiB"),
    ("slice_bytes_max: 0B", 1, 18, "no bytes", "64MiB"),
    ("targets:\n  - { name: a, match: { pid: 1 }, remedies: [] }", 2, 45, "nothing could ever", "observe"),
    (
        "targets:\n  - { name: a, match: { pid: 1 }, remedies: [flush, flush] }",
        2,
        53,
        "twice",
        "take one out",
    ),
    ("targets: []", 1, 10, "nothing is watched", "leave `targets` out"),
    ("targets:\n  - { name: a, match: {} }", 2, 23, "no condition", "executable"),
    ("targets:\n  - { name: a }", 2, 5, "missing field `match`", "add `match`"),
    ("targets:\n  - { name: '', match: { pid: 1 } }", 2, 13, "empty", "name"),
    (
        "targets:\n  - { name: a, match: { pid: 1 } }\n  - { name: a, match: { pid: 2 } }",
        3,
        13,
        "here twice",
        "own",
    ),
    ("targets:\n  - { name: a, match: { executable: '' } }", 2, 37, "empty", "take it out"),
    ("targets:\n  - { name: a, match: { pid: 1 }, executor: exec }", 2, 45, "no command", "exec"),
    (
        "targets:\n  - { name: a, match: { pid: 1 }, executor: sql }",
        2,
        45,
        "not said where the server is",
        "socket",
    ),
    ("targets:\n  - { name: a, match: { pid: 1 }, sql: { socket: /s } }", 2, 40, "not sql", "executor: sql"),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    executor: sql\n    sql: { address: '10.0.0.5:3306' }",
        5,
        10,
        "where the server is",
        "127.0.0.1",
    ),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    executor: sql\n    \
         sql: { socket: /s, password_file: x.cnf }",
        5,
        39,
        "no whole path",
        "/etc/sexton",
    ),
    (
        "targets:\n  - { name: a, match: { pid: 1 }, exec: { compact: [x] } }",
        2,
        41,
        "not exec",
        "executor: exec",
    ),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    executor: exec\n    \
         exec: { compact: [x, '{begn}'] }",
        5,
        26,
        "not a known placeholder",
        "{begin_hex}",
    ),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    \
         column_families: [{ name: x, prefix: { bytes: 1, count: 2 } }]",
        4,
        42,
        "where to cut",
        "bytes: 8",
    ),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    databases: {}",
        4,
        16,
        "names no database",
        "`include` or `exclude`",
    ),
    ("targets:\n  - name: a\n    match: { pid: 1 }\n    databases:", 4, 0, "", ""),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    databases: { only: [/db] }",
        4,
        18,
        "unknown field `only`",
        "",
    ),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    databases: { include: [om.db] }",
        4,
        28,
        "no beginning of a whole path",
        "*/om.db",
    ),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    databases: { include: [/db, '*'] }",
        4,
        33,
        "names none",
        "take it out",
    ),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    databases: { exclude: [/a, /a] }",
        4,
        32,
        "here twice",
        "take one out",
    ),
    (
        "targets:\n  - name: a\n    match: { pid: 1 }\n    \
         throttles: [{ name: t, inside: '1', outside: '2', command: [x] }]",
        4,
        64,
        "set no value",
        "{value}",
    ),
    (
        "schedule: [{ name: a, time_zone: Europe/Berln, from: '22:00', to: '05:00' }]",
        1,
        34,
        "not a time zone",
        "Europe/Berlin",
    ),
    (
        "schedule: [{ name: a, time_zone: UTC, from: '22:00', to: '23:00', jitter: 1h }]",
        1,
        75,
        "might not open",
        "less than the period",
    ),
    (
        "schedule: [{ name: a, time_zone: UTC, io_budget: { rate: 1B/s, burst: 1B }, io_budget_ratio: 2 }]",
        1,
        94,
        "there is an io_budget too",
        "take one",
    ),
    ("schedule: [{ name: a, time_zone: UTC, io_budget_ratio: 0 }]", 1, 56, "no multiple", "0.5"),
    ("schedule: [{ name: a, time_zone: UTC, dates: [2026-02-30] }]", 1, 47, "not a date", "2026-12-24"),
    ("schedule: [{ name: a, time_zone: UTC, except: [2026-02-03, 2026-02-03] }]", 1, 60, "twice", "take one"),
    (
        "schedule: [{ name: a, time_zone: UTC }, { name: a, time_zone: UTC }]",
        1,
        49,
        "twice",
        "name of its own",
    ),
    (
        "schedule: [{ name: a, time_zone: UTC, guards: { latency_ratio_max: 0.5 } }]",
        1,
        68,
        "a latency that falls",
        "from 1 on",
    ),
    (
        "targets:\n  - { name: a, match: { pid: 1 }, throttles: [{ name: t, outside: x, inside_ratio: 2, command: ['{value}'] }] }",
        2,
        0,
        "no number",
        "inside",
    ),
    (
        "targets:\n  - { name: a, match: { pid: 1 }, throttles: [{ name: t, outside: x, command: ['{value}'] }] }",
        2,
        0,
        "not said which value",
        "inside_ratio",
    ),
    (
        "schedule: [{ name: a, time_zone: UTC, from: '25:00', to: '22:00' }]",
        1,
        45,
        "not a time of day",
        "22:00",
    ),
    ("schedule: [{ name: a, time_zone: UTC, days: [] }]", 1, 45, "never open", "every day"),
    ("targets: [", 1, 0, "", "breaks off"),
    ("mode: \"act", 1, 0, "", ""),
    ("", 1, 1, "empty", "{}"),
    ("# only a comment\n", 1, 1, "empty", "{}"),
    ("mode: act\n---\nmode: act\n", 2, 1, "more than one document", "---"),
    ("mode: !act x", 1, 7, "tag", "take out"),
    ("- a\n- b", 1, 1, "invalid type", ""),
    ("just text", 1, 1, "invalid type", ""),
];

#[test]
fn errors_point_at_the_value_and_say_what_to_do() {
    for (text, line, column, message, help) in REFUSED {
        let error = Policy::parse(text).expect_err(text);
        assert!(error.message.contains(message), "{text}\n{error:?}");
        assert!(error.help.contains(help), "{text}\n{error:?}");
        assert!(!error.message.contains('\n') && !error.message.contains('\u{1f}'), "{text}\n{error:?}");
        assert!(error.line.is_some_and(|found| found >= *line), "{text}\n{error:?}");
        if *column > 0 {
            assert_eq!((error.line, error.column), (Some(*line), Some(*column)), "{text}\n{error:?}");
        }
        check_place(text, &error);
    }
}

fn check_place(text: &str, error: &PolicyError) {
    let offset = error.offset_bytes.expect("a place");
    assert!(text.is_char_boundary(offset) && offset <= text.len(), "{text}\n{error:?}");
    assert!(error.length >= 1, "{text}\n{error:?}");
}

#[test]
fn the_length_covers_the_value() {
    let error = Policy::parse("io_budget: { rate: 64MB/s, burst: 1GiB }").unwrap_err();
    let offset = error.offset_bytes.unwrap();
    let text = "io_budget: { rate: 64MB/s, burst: 1GiB }";
    assert_eq!(text.get(offset..offset + error.length), Some("64MB/s"));
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    let error = Policy::parse(&"#".repeat(POLICY_BYTES_MAX + 1)).unwrap_err();
    assert!(error.message.contains("the most is"), "{error:?}");
}

#[test]
fn every_truncation_is_an_error_or_a_policy_and_never_a_panic() {
    for (end, _) in WHOLE.char_indices() {
        if let Err(error) = Policy::parse(WHOLE.get(..end).unwrap()) {
            assert!(error.line.is_some(), "cut at {end}: {error:?}");
        }
    }
}

#[test]
fn the_schema_names_every_section() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
    let sections = schema.get("properties").unwrap().as_object().unwrap();
    for name in [
        "mode",
        "targets",
        "thresholds",
        "loop",
        "probes",
        "io_budget",
        "schedule",
        "cooldown",
        "range_bytes_max",
        "slice_bytes_max",
        "keys",
    ] {
        assert!(sections.contains_key(name), "{name}");
    }
    assert_eq!(schema.get("additionalProperties"), Some(&serde_json::Value::Bool(false)));
}

/// Pieces of YAML, so that random texts get past the first character.
fn yaml_like() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("mode".to_owned()),
        Just("targets".to_owned()),
        Just("schedule".to_owned()),
        Just("loop".to_owned()),
        Just(": ".to_owned()),
        Just("\n  - ".to_owned()),
        Just("\n".to_owned()),
        Just("{ ".to_owned()),
        Just(" }".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just(", ".to_owned()),
        Just("&a ".to_owned()),
        Just("*a".to_owned()),
        Just("<<: ".to_owned()),
        Just("? ".to_owned()),
        Just("!x ".to_owned()),
        Just("| ".to_owned()),
        Just("\"".to_owned()),
        Just("---\n".to_owned()),
        Just("10m".to_owned()),
        Just("act".to_owned()),
        Just("\u{feff}".to_owned()),
        "\\PC{0,4}",
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_text_gives_a_policy_or_an_error(text in any::<String>()) {
        let _ = Policy::parse(&text).is_ok();
    }

    #[test]
    fn anything_like_yaml_gives_a_policy_or_an_error(text in yaml_like()) {
        if let Err(error) = Policy::parse(&text) {
            prop_assert!(!error.message.is_empty() && !error.help.is_empty());
            check_place(&text, &error);
        }
    }
}

/// Editors check policies against the committed schema; `BLESS=1` writes it anew.
#[test]
fn the_committed_schema_is_the_one_of_this_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../policies/schema.json");
    let now = format!("{}\n", schema().trim_end());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == now, "{path} is not up to date: BLESS=1 cargo test -p sexton-tuner --test policy");
}

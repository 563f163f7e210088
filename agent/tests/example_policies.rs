//! The policies that are shipped can be read, and say what they claim to say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use sexton_tuner::policy::{Candidate, Mode, Policy, ThrottleSide};
use std::path::{Path, PathBuf};

fn policies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies")
}

fn read(path: &Path) -> Policy {
    let text = std::fs::read_to_string(path).unwrap();
    Policy::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_example_is_valid_and_only_advises() {
    let mut examples = 0;
    for entry in std::fs::read_dir(policies()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let policy = read(&path);
            let modes = policy.targets.iter().map(|target| policy.mode_of(target));
            let acting = modes.filter(|mode| *mode == Mode::Act).count();
            assert_eq!(acting, 0, "{}: an operator switches to act", path.display());
            examples += 1;
        }
    }
    assert!(examples >= 2);
}

#[test]
fn the_default_policy_is_what_applies_without_one() {
    assert_eq!(read(&policies().join("default.yaml")), Policy::default());
}

#[test]
fn the_ozone_example_matches_each_of_its_daemons_and_nothing_else() {
    let policy = read(&policies().join("ozone.yaml"));
    let entry = |executable: &str, command_line: &str| {
        let executable = executable.into();
        let candidate = Candidate { executable, command_line: command_line.into(), ..Candidate::default() };
        policy.target_for(&candidate).map(|target| target.name.clone())
    };
    let java = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java";
    for (class, name) in [
        ("om.OzoneManagerStarter", "ozone-om"),
        ("hdds.scm.server.StorageContainerManagerStarter", "ozone-scm"),
        ("ozone.HddsDatanodeService", "ozone-datanode"),
    ] {
        let command_line = format!("java -Xmx4g org.apache.hadoop.{class}");
        assert_eq!(entry(java, &command_line).as_deref(), Some(name));
        assert_eq!(entry("/usr/bin/python3", &command_line), None);
    }
    assert_eq!(entry(java, "java org.apache.hadoop.ozone.recon.ReconServer"), None);
}

/// The value by night is a multiple of the one by day, and both give way to pressure.
#[test]
fn the_ozone_example_has_each_daemon_delete_and_scrub_off_peak() {
    let policy = read(&policies().join("ozone.yaml"));
    let throttles = policy.targets.iter().flat_map(|target| &target.throttles);
    let bounds: Vec<_> = throttles
        .map(|throttle| {
            let of = |side| throttle.bounds(side).expect("it follows pressure");
            (throttle.name.as_str(), of(ThrottleSide::Outside), of(ThrottleSide::Inside))
        })
        .collect();
    let mib = 1_048_576.0;
    let expected = [
        ("key_deleting_limit_per_task", (500.0, 5_000.0), (5_000.0, 50_000.0)),
        ("block_deletion_per_interval_max", (20_000.0, 100_000.0), (100_000.0, 500_000.0)),
        ("block_deleting_limit_per_interval", (1_000.0, 5_000.0), (4_000.0, 20_000.0)),
        ("replication_streams_limit", (2.0, 5.0), (4.0, 10.0)),
        ("scrub_bytes_per_second", (mib, 2.0 * mib), (3.0 * mib, 6.0 * mib)),
    ];
    assert_eq!(bounds, expected);
}

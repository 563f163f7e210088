//! The policies that are shipped can be read, and say what they claim to say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use sexton_tuner::policy::{Candidate, Mode, Policy};
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
fn the_ozone_example_matches_an_ozone_manager_only() {
    let policy = read(&policies().join("ozone-om.yaml"));
    let matches = |executable: &str, command_line: &str| {
        let executable = executable.into();
        let candidate = Candidate { executable, command_line: command_line.into(), ..Candidate::default() };
        policy.target_for(&candidate).is_some()
    };
    let starter = "java -Xmx4g org.apache.hadoop.ozone.om.OzoneManagerStarter";
    assert!(matches("/usr/lib/jvm/java-17-openjdk-amd64/bin/java", starter));
    assert!(!matches("/usr/bin/python3", starter));
    assert!(!matches("/usr/bin/java", "java org.apache.hadoop.ozone.HddsDatanodeService"));
}

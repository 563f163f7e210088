//! Reading a policy from a file, and showing what is wrong with it as a picture of the line.

use crate::failure::Failure;
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, miette};
use sexton_tuner::policy::{POLICY_BYTES_MAX, Policy, PolicyError, TargetPolicy};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Columns of a picture: what a terminal has at least.
const PICTURE_COLUMNS: usize = 100;

/// The policy in `path`.
/// Errors: Exit code 1 when the file cannot be read, 2 when it is not a policy, or one that acts and that
/// others can write.
pub fn load(path: &Path) -> Result<Policy, Failure> {
    load_with_text(path).map(|(policy, _)| policy)
}

/// The policy in `path`, and the text that it was read from.
/// Errors: as [`load`].
pub fn load_with_text(path: &Path) -> Result<(Policy, String), Failure> {
    let text = read(path)?;
    let policy = Policy::parse(&text).map_err(|error| failure(path, &text, &error))?;
    if policy.changes_anything() {
        refuse_what_others_write(path)?;
    }
    Ok((policy, text))
}

/// Whoever writes a policy that changes something, or puts another file in its place, has the agent do what
/// he likes, its commands included.
fn refuse_what_others_write(path: &Path) -> Result<(), Failure> {
    let own = rustix::process::geteuid().as_raw();
    let by_sudo = std::env::var("SUDO_UID").ok().and_then(|user_id| user_id.parse().ok());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for place in [path, directory] {
        // It was read just now; one that is gone is told of by the next reading.
        let Ok(data) = std::fs::metadata(place) else { continue };
        let is_owned = data.uid() == 0 || data.uid() == own || Some(data.uid()) == by_sudo;
        if !is_owned || is_written_by_others(data.mode(), data.uid(), data.gid()) {
            let what = format!("{} can be changed by others than root and the agent's user", place.display());
            let help = "a policy that acts is obeyed by root's eye in every process: give it and its directory to root \
                        (chown root) and take the others' right to write (chmod go-w)";
            return Err(Failure::usage(what, help));
        }
    }
    Ok(())
}

/// Whether others than its owner may write to a file, or to a directory's files. A group that has its owner's
/// number is the owner's alone.
fn is_written_by_others(mode: u32, owner: u32, group: u32) -> bool {
    let is_group_foreign = group != 0 && group != owner;
    let is_sticky = mode & libc::S_ISVTX != 0;
    !is_sticky && (mode & libc::S_IWOTH != 0 || mode & libc::S_IWGRP != 0 && is_group_foreign)
}

/// What is no mistake in a policy, and should be known.
pub fn warnings(policy: &Policy) -> Vec<String> {
    let warning = |target: &TargetPolicy| {
        format!(
            "entry {:?} acts on every process that any local user starts under that name: add user, unit, cgroup or \
             container to its match",
            target.name
        )
    };
    policy.acts_for_everybody().map(warning).collect()
}

fn read(path: &Path) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new(
            format!("cannot read the policy {}: {error}", path.display()),
            "check the path and its permissions",
        )
    };
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(POLICY_BYTES_MAX as u64 + 1).read_to_end(&mut text))
        .map_err(unreadable)?;
    String::from_utf8(text).map_err(|error| {
        Failure::usage(
            format!("the policy {} is not UTF-8: {}", path.display(), error.utf8_error()),
            "write it as UTF-8 text",
        )
    })
}

/// The error with its place in words, and the line as a picture.
fn failure(path: &Path, text: &str, error: &PolicyError) -> Failure {
    let place = match (error.line, error.column) {
        (Some(line), Some(column)) => format!(":{line}:{column}"),
        (Some(line), None) => format!(":{line}"),
        _ => String::new(),
    };
    let failure = Failure::usage(format!("{}{place}: {}", path.display(), error.message), &error.help);
    match picture(path, text, error) {
        Some(picture) => failure.with_excerpt(picture),
        None => failure,
    }
}

fn picture(path: &Path, text: &str, error: &PolicyError) -> Option<String> {
    let start = error.offset_bytes?.min(text.len());
    let length = error.length.min(text.len() - start);
    let label = LabeledSpan::at(start..start + length, error.message.clone());
    let report = miette!(labels = vec![label], "{}", error.message)
        .with_source_code(NamedSource::new(path.display().to_string(), text.to_owned()));
    let mut picture = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(PICTURE_COLUMNS)
        .with_cause_chain()
        .render_report(&mut picture, report.as_ref())
        .ok()?;
    // The first line repeats the message, which stands in the cause already.
    let body: Vec<&str> = picture.lines().skip_while(|line| !line.contains('╭')).collect();
    (!body.is_empty()).then(|| body.join("\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_picture_shows_the_line_and_points_at_the_value() {
        let text = "mode: advise\nio_budget: { rate: 10 bananas, burst: 1GiB }\n";
        let error = Policy::parse(text).unwrap_err();
        let picture = picture(Path::new("p.yaml"), text, &error).unwrap();
        assert!(picture.contains("p.yaml:2"), "{picture}");
        assert!(picture.contains("10 bananas"), "{picture}");
    }

    #[test]
    fn a_file_is_others_to_write_by_its_mode_and_group() {
        for (mode, owner, group) in
            [(0o666, 0, 0), (0o100_664, 0, 100), (0o777, 1000, 1000), (0o40_775, 0, 4)]
        {
            assert!(is_written_by_others(mode, owner, group), "{mode:o} {owner} {group}");
        }
        for (mode, owner, group) in [(0o644, 0, 0), (0o664, 0, 0), (0o664, 1000, 1000), (0o41_777, 0, 0)] {
            assert!(!is_written_by_others(mode, owner, group), "{mode:o} {owner} {group}");
        }
    }

    #[test]
    fn a_policy_that_acts_and_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.yaml");
        let allow = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for (mode, is_refused) in [("act", true), ("advise", false), ("observe", false)] {
            let text = format!("mode: {mode}\ntargets: [{{ name: a, match: {{ user: hdfs }} }}]\n");
            std::fs::write(&path, text).unwrap();
            allow(0o666);
            assert_eq!(load(&path).is_err(), is_refused, "{mode}");
            allow(0o644);
            assert!(load(&path).is_ok(), "{mode}");
        }
    }

    #[test]
    fn acting_on_what_any_user_can_start_is_warned_of() {
        let policy = |matches: &str| {
            let text = format!("mode: act\ntargets: [{{ name: om, match: {{ {matches} }} }}]");
            warnings(&Policy::parse(&text).unwrap())
        };
        assert!(policy("command_line: Om").first().is_some_and(|warning| warning.contains("\"om\" acts")));
        assert!(policy("command_line: Om, user: hdfs").is_empty());
    }
}

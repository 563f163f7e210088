//! Reading a policy from a file or the files of a directory, and showing what is wrong with it as a picture
//! of the line.

use crate::failure::Failure;
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, miette};
use sexton_tuner::policy::{
    POLICY_BYTES_MAX, POLICY_FILES_MAX, Policy, PolicyError, SourceFile, Sources, TargetPolicy,
};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Columns of a picture: what a terminal has at least.
const PICTURE_COLUMNS: usize = 100;

/// How the files of a policy in a directory end.
const FILE_ENDING: &str = ".yaml";

/// The policy in `path`: a file, or the files `*.yaml` of a directory.
/// Errors: Exit code 1 when a file cannot be read, 2 when it is not a policy, or one that acts and that
/// others can write.
pub fn load(path: &Path) -> Result<Policy, Failure> {
    load_with_sources(path).map(|(policy, _)| policy)
}

/// The policy in `path`, and where in there what stands.
/// Errors: as [`load`].
pub fn load_with_sources(path: &Path) -> Result<(Policy, Sources), Failure> {
    let unreadable = |error| unreadable(path, &error);
    let files = files(path).map_err(unreadable)?;
    let read = match path.is_dir() {
        true => load_files(path, &files),
        false => load_file(path),
    };
    let (policy, sources) = read?;
    if policy.changes_anything() {
        let directory = if path.is_dir() { path } else { parent(path) };
        let places = files.iter().map(PathBuf::as_path).chain([directory]);
        places.into_iter().try_for_each(refuse_what_others_write)?;
    }
    Ok((policy, sources))
}

fn load_file(path: &Path) -> Result<(Policy, Sources), Failure> {
    let text = read(path)?;
    let policy = Policy::parse(&text).map_err(|error| failure(path, &text, &error))?;
    Ok((policy, Sources::of_text(&text)))
}

fn load_files(directory: &Path, files: &[PathBuf]) -> Result<(Policy, Sources), Failure> {
    if files.is_empty() {
        return Err(Failure::new(
            format!("the directory {} has no file that ends with {FILE_ENDING}", directory.display()),
            "put the policy's files there, or name one file",
        ));
    }
    // One too many is enough to be told of.
    let files = files.iter().take(POLICY_FILES_MAX + 1);
    let read = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(SourceFile { name, text: read(path)? })
    };
    let read = files.map(read).collect::<Result<Vec<SourceFile>, Failure>>()?;
    let at_fault = |error: &PolicyError| read.get(error.file?);
    Policy::parse_files(read.clone()).map_err(|error| match at_fault(&error) {
        Some(file) => failure(&directory.join(&file.name), &file.text, &error),
        None => failure(directory, "", &error),
    })
}

/// The files of a policy in `path`, in the order of their names: that file itself, or what a directory has of
/// them. What begins with a dot is an editor's.
pub fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(FILE_ENDING) && !name.starts_with('.') && !entry.path().is_dir() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whoever writes a policy that changes something, or puts another file in its place, has the agent do what
/// he likes, its commands included.
fn refuse_what_others_write(place: &Path) -> Result<(), Failure> {
    let own = rustix::process::geteuid().as_raw();
    let by_sudo = std::env::var("SUDO_UID").ok().and_then(|user_id| user_id.parse().ok());
    // It was read just now; one that is gone is told of by the next reading.
    let Ok(data) = std::fs::metadata(place) else { return Ok(()) };
    let is_owned = data.uid() == 0 || data.uid() == own || Some(data.uid()) == by_sudo;
    if is_owned && !is_written_by_others(data.mode(), data.uid(), data.gid()) {
        return Ok(());
    }
    let what = format!("{} can be changed by others than root and the agent's user", place.display());
    let help = "a policy that acts is obeyed by root's eye in every process: give it and its directory to root \
                (chown root) and take the others' right to write (chmod go-w)";
    Err(Failure::usage(what, help))
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

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let what = format!("cannot read the policy {}: {error}", path.display());
    Failure::new(what, "check the path and its permissions")
}

fn read(path: &Path) -> Result<String, Failure> {
    let unreadable = |error| unreadable(path, &error);
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
    fn a_directory_is_one_policy_in_the_order_of_names() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let error = load(directory.path()).unwrap_err();
        assert!(!error.is_usage() && error.cause().contains("has no file that ends with .yaml"), "{error:?}");
        std::fs::write(at("b.yaml"), "targets: [{ name: b, match: { user: b } }]\n").unwrap();
        std::fs::write(at("a.yaml"), "mode: act\ntargets: [{ name: a, match: { user: a } }]\n").unwrap();
        std::fs::write(at(".c.yaml"), "no policy").unwrap();
        std::fs::write(at("d.yml"), "no policy").unwrap();
        let policy = load(directory.path()).unwrap();
        let names: Vec<&str> = policy.targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        std::fs::write(at("b.yaml"), "\ntargets: [{ name: a, match: { user: b } }]\n").unwrap();
        let error = load(directory.path()).unwrap_err();
        assert!(error.is_usage() && error.cause().contains("b.yaml:2:19: "), "{error:?}");
        assert!(error.cause().contains("a.yaml, line 2"), "{error:?}");
        std::fs::write(at("b.yaml"), "cooldown: 1m\n").unwrap();
        let allow = |name: &str, mode| {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap()
        };
        for place in ["b.yaml", "."] {
            allow(place, 0o777);
            let error = load(directory.path()).unwrap_err();
            assert!(error.is_usage() && error.cause().contains("can be changed by others"), "{error:?}");
            allow(place, 0o755);
        }
        assert!(load(directory.path()).is_ok());
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

//! One policy out of several files: the entries of `targets` one after the other, and each other field from
//! the one file that gives it.

use super::error::from_yaml;
use super::parse::{check_text, placed};
use super::sources::{SourceFile, Sources, shown};
use super::{Policy, PolicyError, check, written};
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};

/// Files of one policy; an entry for each of the programs of a node is many.
pub const POLICY_FILES_MAX: usize = 64;

/// What a file says.
struct Said {
    policy: Policy,
    fields: BTreeSet<String>,
}

/// Reads and checks a policy in several files, in the order of the list.
pub(super) fn parse_files(files: Vec<SourceFile>) -> Result<(Policy, Sources), PolicyError> {
    if files.len() > POLICY_FILES_MAX {
        let message = format!("the policy has {} files, the most is {POLICY_FILES_MAX}", files.len());
        return Err(PolicyError::of_text(message, "put several entries into one file"));
    }
    let mut sources = Sources::default();
    let mut merged = Policy::default();
    for (number, file) in files.into_iter().enumerate() {
        let said = said_in(&file).map_err(|error| PolicyError { file: Some(number), ..error })?;
        says_nothing_again(&said.fields, &file, &sources)?;
        let entries = if said.fields.contains("targets") { said.policy.targets.len() } else { 0 };
        let is_first = !sources.has("targets");
        take(&mut merged, said.policy, &said.fields, is_first);
        sources.add(file, said.fields, entries);
    }
    names_differ(&merged, &sources)?;
    check::check(&merged, &sources)?;
    Ok((merged, sources))
}

/// What a file says, if it is a policy by itself. What its values are worth is checked with all of them.
fn said_in(file: &SourceFile) -> Result<Said, PolicyError> {
    let text = &file.text;
    check_text(text)?;
    let error = |error: serde_yaml::Error| placed(from_yaml(&error, text), text);
    let policy = serde_yaml::from_str(text).map_err(error)?;
    let fields: BTreeMap<String, IgnoredAny> = serde_yaml::from_str(text).map_err(error)?;
    Ok(Said { policy, fields: fields.into_keys().collect() })
}

/// Entries of `targets` are in many files, all else is in one.
fn says_nothing_again(
    fields: &BTreeSet<String>,
    file: &SourceFile,
    sources: &Sources,
) -> Result<(), PolicyError> {
    let again = fields.iter().find(|field| *field != "targets" && sources.has(field));
    let Some(field) = again else { return Ok(()) };
    let other = sources.line_of(field).map(|line| shown(&line)).unwrap_or_default();
    let message = format!("{field}: it stands here and in {other}");
    let error = PolicyError::of_text(message, "what is about the whole node stands in one file only");
    let error = Sources::of_text(&file.text).at(error, field);
    Err(PolicyError { file: Some(sources.count()), ..error })
}

/// Takes over the fields that a file gives.
fn take(into: &mut Policy, from: Policy, given: &BTreeSet<String>, is_first: bool) {
    // Whoever adds a field is told here.
    let Policy {
        mode,
        targets,
        thresholds,
        timing,
        probes,
        io_budget,
        schedule,
        open_periods: _,
        cooldown,
        relief_ratio_min,
        ranker,
        margin,
        guards,
        range_bytes_max,
        slice_bytes_max,
        ask_libraries,
        keys,
    } = from;
    macro_rules! take {
        ($($field:ident: $name:literal),*) => {
            $(if given.contains($name) {
                into.$field = $field;
            })*
        };
    }
    take!(
        mode: "mode", thresholds: "thresholds", timing: "loop", probes: "probes", io_budget: "io_budget",
        schedule: "schedule", cooldown: "cooldown", relief_ratio_min: "relief_ratio_min", ranker: "ranker",
        margin: "margin", guards: "guards", range_bytes_max: "range_bytes_max",
        slice_bytes_max: "slice_bytes_max", ask_libraries: "ask_libraries", keys: "keys"
    );
    if given.contains("targets") {
        // The default is a target, too.
        if is_first {
            into.targets.clear();
        }
        into.targets.extend(targets);
    }
}

/// Entries of two files that have one name.
fn names_differ(policy: &Policy, sources: &Sources) -> Result<(), PolicyError> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, target) in policy.targets.iter().enumerate() {
        let Some(first) = seen.insert(&target.name, index) else { continue };
        let path = |index: usize| format!("targets[{index}].name");
        let other = sources.line_of(&path(first)).map(|line| shown(&line)).unwrap_or_default();
        let message = format!("the name {} is here and in {other}", written::shown(&target.name));
        return Err(
            sources.at(PolicyError::of_text(message, "give each entry a name of its own"), &path(index))
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn files(texts: &[(&str, &str)]) -> Vec<SourceFile> {
        let file = |(name, text): &(&str, &str)| SourceFile { name: (*name).into(), text: (*text).into() };
        texts.iter().map(file).collect()
    }

    fn wrong(texts: &[(&str, &str)]) -> (usize, Option<usize>, Option<usize>, String) {
        let error = parse_files(files(texts)).unwrap_err();
        (error.file.unwrap(), error.line, error.column, error.message)
    }

    const NODE: (&str, &str) = ("10-node.yaml", "mode: act\nio_budget: { rate: 1MiB/s, burst: 1GiB }\n");
    const OM: (&str, &str) = ("20-om.yaml", "targets:\n  - name: om\n    match: { user: hdfs }\n");
    const SCM: (&str, &str) = (
        "30-scm.yaml",
        "targets:\n  - { name: scm, match: { user: scm } }\n  - { name: dn, match: { user: dn } }\n",
    );

    #[test]
    fn files_together_are_the_policy_that_one_would_be() {
        let (policy, sources) = parse_files(files(&[NODE, OM, SCM])).unwrap();
        let targets = SCM.1.replacen("targets:\n", "", 1);
        assert_eq!(policy, Policy::parse(&format!("{}{}{targets}", NODE.1, OM.1)).unwrap());
        let place = |path: &str| sources.line_of(path).map(|line| (line.file.unwrap_or_default(), line.line));
        assert_eq!(place("io_budget.rate"), Some(("10-node.yaml", 2)));
        assert_eq!(place("targets[0].match"), Some(("20-om.yaml", 3)));
        assert_eq!(place("targets[2].name"), Some(("30-scm.yaml", 3)));
        assert_eq!((place("targets[3].name"), place("cooldown")), (None, None));
    }

    /// Each field that a policy has is taken from the file that gives it.
    #[test]
    fn no_field_is_forgotten() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../policies/default.yaml"));
        let text = text.unwrap();
        let default = Policy::parse(&text).unwrap();
        let serde_json::Value::Object(fields) = serde_json::to_value(&default).unwrap() else {
            unreachable!("a policy is a mapping")
        };
        let said = said_in(&SourceFile { name: String::new(), text }).unwrap();
        let mut other = Policy::parse("mode: observe\ncooldown: 1s\nkeys: shown\nranker: density\n").unwrap();
        other.targets.clear();
        take(&mut other, said.policy, &fields.keys().cloned().collect(), true);
        assert_eq!(other, default);
    }

    /// A word that YAML has another meaning for is a word where one is wanted, as in one file.
    #[test]
    fn words_are_read_as_in_one_file() {
        let text = "guards: { command: { run: [true] } }\n";
        let (policy, _) = parse_files(files(&[("a.yaml", text), OM])).unwrap();
        assert_eq!(policy.guards, Policy::parse(text).unwrap().guards);
    }

    /// What one file needs another one has: the user of commands that the node's guards run.
    #[test]
    fn files_are_checked_together() {
        let hold = ("a.yaml", "guards: { hold: { run: [lock] } }\n");
        let user = ("b.yaml", "targets: [{ name: a, match: { user: a }, commands_user: nobody }]\n");
        assert!(parse_files(files(&[hold, user])).is_ok());
        let (file, line, _, message) = wrong(&[OM, user]);
        assert_eq!((file, line), (1, Some(1)), "{message}");
        assert!(message.starts_with("targets[1].commands_user: "), "{message}");
    }

    #[test]
    fn what_two_files_say_is_told_with_both_places() {
        let again = ("40-more.yaml", "# more\nmode: advise\n");
        let (file, line, column, message) = wrong(&[NODE, OM, again]);
        assert_eq!((file, line, column), (2, Some(2), Some(7)));
        assert_eq!(message, "mode: it stands here and in 10-node.yaml, line 1");
        let twin = ("50-twin.yaml", "targets: [{ name: dn, match: { user: b } }]\n");
        let (file, line, column, message) = wrong(&[OM, SCM, twin]);
        assert_eq!((file, line, column), (2, Some(1), Some(19)));
        assert_eq!(message, "the name \"dn\" is here and in 30-scm.yaml, line 3");
    }

    #[test]
    fn an_error_in_one_file_is_placed_there() {
        assert_eq!(wrong(&[NODE, ("x.yaml", "cooldown: 10 bananas\n")]).0, 1);
        let (file, line, _, message) =
            wrong(&[NODE, OM, ("x.yaml", "targets:\n  - name: x\n    match: {}\n")]);
        assert_eq!((file, line), (2, Some(3)), "{message}");
        assert_eq!(wrong(&[OM, ("x.yaml", "")]).0, 1, "an empty file is a slip");
        let many: Vec<SourceFile> = (0..=POLICY_FILES_MAX)
            .map(|number| SourceFile { name: number.to_string(), text: "{}".into() })
            .collect();
        let error = parse_files(many).unwrap_err();
        assert!(error.message.contains("files") && error.file.is_none(), "{error:?}");
    }
}

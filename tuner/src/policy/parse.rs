//! From text to a checked policy.

use super::{Policy, PolicyError, check, error::from_yaml, sources::Sources, walk};

/// Longest policy that is read; a policy for a hundred targets has some 40 KiB.
pub const POLICY_BYTES_MAX: usize = 256 * 1024;

/// Reads and checks a policy; the first error ends it.
pub(super) fn parse(text: &str) -> Result<Policy, PolicyError> {
    check_text(text)?;
    let policy: Policy = serde_yaml::from_str(text).map_err(|error| placed(from_yaml(&error, text), text))?;
    check::check(&policy, &Sources::of_text(text))?;
    Ok(policy)
}

/// Whether a text is YAML with something in it, and says nothing twice.
pub(super) fn check_text(text: &str) -> Result<(), PolicyError> {
    if text.len() > POLICY_BYTES_MAX {
        return Err(PolicyError::of_text(
            format!("the policy has {} bytes, the most is {POLICY_BYTES_MAX}", text.len()),
            "shorten it; is this the right file?",
        ));
    }
    if has_no_content(text) {
        let error = PolicyError::of_text("the policy is empty", "write `{}` for a policy of defaults only");
        return Err(error.at(text, 0));
    }
    walk::check(text).map_err(|error| placed(from_yaml(&error, text), text))
}

fn has_no_content(text: &str) -> bool {
    let content =
        |line: &&str| !line.is_empty() && !line.starts_with('#') && *line != "---" && *line != "...";
    !text.trim_start_matches('\u{feff}').lines().map(str::trim).any(|line| content(&line))
}

/// The few errors that the YAML parser gives no place for get the one where a text breaks off: its
/// last line, or the second document's first.
pub(super) fn placed(error: PolicyError, text: &str) -> PolicyError {
    if error.line.is_some() {
        return error;
    }
    let second_document =
        text.lines().skip(1).position(|line| line.starts_with("---")).map(|index| index + 1);
    let index = second_document.unwrap_or_else(|| text.lines().count().saturating_sub(1));
    let before: usize = text.split_inclusive('\n').take(index).map(|line| line.chars().count()).sum();
    error.at(text, before)
}

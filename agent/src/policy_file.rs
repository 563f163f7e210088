//! Reading a policy from a file, and showing what is wrong with it as a picture of the line.

use crate::failure::Failure;
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, miette};
use sexton_tuner::policy::{POLICY_BYTES_MAX, Policy, PolicyError};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Columns of a picture: what a terminal has at least.
const PICTURE_COLUMNS: usize = 100;

/// The policy in `path`.
/// Errors: Exit code 1 when the file cannot be read, 2 when it is not a policy.
pub fn load(path: &Path) -> Result<Policy, Failure> {
    let text = read(path)?;
    Policy::parse(&text).map_err(|error| failure(path, &text, &error))
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
}

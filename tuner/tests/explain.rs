//! Policies in sentences, as texts: a policy, and what it says at a time.
//!
//! `BLESS=1 cargo test -p sexton-tuner --test explain` writes what comes out into the files; the difference
//! is what to review. A block is a command, its input, a line `----`, and the output up to an empty line.
//! Commands:
//!
//! - `policy`: the policy's YAML.
//! - `at TIME`: what it says then, of which only statements with these words, a line each; without any, all.
//! - `database TARGET PATH`: what it says of a database.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cases;

use jiff::Timestamp;
use sexton_tuner::policy::{Explanation, Policy, Source, Sources, Statement, explain, explain_database};
use std::path::Path;

#[test]
fn cases() {
    cases::check("explain", 14, run);
}

fn run(text: &str, _: &Path) -> String {
    let mut policy = None;
    cases::outputs_anew(text, |command, lines| command_output(&mut policy, command, lines))
}

fn command_output(
    policy: &mut Option<(String, Policy)>,
    command: &str,
    lines: &str,
) -> Result<String, String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    if words == ["policy"] {
        let parsed = Policy::parse(lines).map_err(|error| error.to_string())?;
        *policy = Some((lines.to_owned(), parsed));
        return Ok("ok".to_owned());
    }
    let (text, policy) = policy.as_ref().ok_or("no policy yet")?;
    match words.as_slice() {
        ["at", time] => {
            let time: Timestamp = time.parse().map_err(|error| format!("{error}"))?;
            Ok(shown(&explain(&Sources::of_text(text), policy, time, 0), lines))
        }
        ["database", target, path] => {
            let target = policy.targets.iter().find(|known| known.name == *target);
            target.map(|target| explain_database(target, path)).ok_or_else(|| "no such target".to_owned())
        }
        _ => Err(format!("unknown command {command}")),
    }
}

fn shown(explanation: &Explanation, wanted: &str) -> String {
    let is_wanted = |text: &str| wanted.is_empty() || wanted.lines().any(|words| text.contains(words));
    let line = |statement: &Statement| {
        let source = match &statement.source {
            Source::Default => "default".to_owned(),
            Source::Line(line) => format!("line {line}"),
            Source::File { file, line } => format!("{file}, line {line}"),
            Source::Period { name, line, .. } => format!("period {name}, line {}", line.unwrap_or(0)),
        };
        is_wanted(&statement.text).then(|| format!("{} [{source}]", statement.text))
    };
    let mut lines: Vec<String> = explanation.node.iter().filter_map(line).collect();
    for target in &explanation.targets {
        let said = target.statements.iter().filter_map(line);
        lines.extend(said.map(|text| format!("{}: {text}", target.name)));
    }
    lines.join("\n")
}

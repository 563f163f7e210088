//! The documents and the tree agree: the code map, the README's commands, the words.

use super::none;
use super::source::{self, Source, words};
use anyhow::{Context, Result};
use sexton_tests::artifact;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The texts that are checked besides the sources.
const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "BENCHMARKS.md", "policies/default.yaml"];

/// The pages whose commands exist, as those of the README do.
const PAGES: [&str; 3] =
    ["deploy/docs/install.md", "deploy/docs/first-hour.md", "deploy/docs/what-it-does.md"];

/// Marks of what is unfinished, and words that say nothing.
const BANNED: [&str; 6] = ["TODO", "FIXME", "XXX", "HACK", "obviously", "basically"];

/// Most words in the glossary.
const GLOSSARY_WORDS_MAX: usize = 40;

fn document(name: &str) -> Result<String> {
    std::fs::read_to_string(artifact::repository().join(name)).with_context(|| format!("reading {name}"))
}

/// Places where a banned word stands.
fn banned(path: &str, lines: impl Iterator<Item = String>) -> Vec<String> {
    let found = lines.enumerate().flat_map(|(index, line)| {
        let found: Vec<String> =
            words(&line).filter(|word| BANNED.contains(word)).map(str::to_owned).collect();
        found.into_iter().map(move |word| format!("{path}:{}: {word}", index + 1))
    });
    found.collect()
}

/// The texts in backticks in the first column of the table under `heading`.
fn first_column(text: &str, heading: &str) -> Vec<String> {
    let section = text.split(heading).nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    rows.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Rows of the code map that lead nowhere, and folders with production code that no row is about.
fn code_map(map: &[String], folders: &BTreeSet<String>, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let lost = map
        .iter()
        .filter(|path| !path.contains('*') && !exists(path))
        .map(|path| format!("{path} is not there"));
    let missing =
        folders.iter().filter(|folder| !map.iter().any(|row| row.trim_end_matches('/') == folder.as_str()));
    lost.chain(missing.map(|folder| format!("{folder} is not in the code map"))).collect()
}

/// Crates, and the folders of the agent's own crate.
fn folders(sources: &[Source]) -> BTreeSet<String> {
    let produced = sources.iter().filter(|source| source.is_production());
    let of = |path: &str| {
        let inside = path.strip_prefix("agent/src/").and_then(|inside| inside.split_once('/'));
        match inside {
            Some((folder, _)) => Some(format!("agent/src/{folder}")),
            None if path.starts_with("agent/src/") => None,
            None => path.split_once("/src/").map(|(package, _)| package.to_owned()),
        }
    };
    produced.filter_map(|source| of(&source.path)).collect()
}

/// The `sexton` commands in a text, each with its flags. `a|b` stands for either.
fn commands(text: &str) -> Vec<(String, Vec<String>)> {
    let blocks = text.split("```").enumerate().filter(|(index, _)| index % 2 == 1).map(|(_, block)| block);
    let indented = text.lines().filter(|line| line.starts_with("    "));
    let inline = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let places = blocks.flat_map(str::lines).chain(indented).chain(inline);
    let mut found = Vec::new();
    for line in places {
        let line = line.split(" # ").next().unwrap_or_default().trim();
        let Some(arguments) = line.strip_prefix("sexton ") else { continue };
        let is_word =
            |word: &&str| word.chars().all(|character| character.is_ascii_lowercase() || character == '-');
        let subcommand: Vec<&str> =
            arguments.split_whitespace().take_while(is_word).filter(|word| !word.starts_with('-')).collect();
        let flags = arguments.split([' ', '[', ']', '=']).filter(|word| word.starts_with("--"));
        found.push((subcommand.join(" "), flags.map(str::to_owned).collect()));
    }
    found
}

/// What is wrong with a command, going by its help.
fn wrong_command(program: &Path, subcommand: &str, flags: &[String]) -> Result<Vec<String>> {
    let output = Command::new(program).args(subcommand.split(' ')).arg("--help").output()?;
    if !output.status.success() {
        return Ok(vec![format!("there is no `sexton {subcommand}`")]);
    }
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let unknown = flags.iter().filter(|flag| !help.contains(flag.as_str()));
    Ok(unknown.map(|flag| format!("`sexton {subcommand}` has no {flag}")).collect())
}

#[test]
fn no_banned_words() -> Result<()> {
    let mut complaints = Vec::new();
    for name in DOCUMENTS.into_iter().chain(PAGES) {
        complaints.extend(banned(name, document(name)?.lines().map(str::to_owned)));
    }
    for source in source::all()?.into_iter().filter(|source| !source.path.contains("/tidy/")) {
        complaints.extend(banned(&source.path.clone(), source.lines.into_iter()));
    }
    none("banned words", &complaints)
}

#[test]
fn the_code_map_is_true() -> Result<()> {
    let map = first_column(&document("ARCHITECTURE.md")?, "## Code map");
    let repository = artifact::repository();
    none("code map", &code_map(&map, &folders(&source::all()?), |path| repository.join(path).exists()))
}

#[test]
fn the_glossary_is_short() -> Result<()> {
    let text = document("ARCHITECTURE.md")?;
    let (_, glossary) = text.split_once("\n## Glossary\n").context("there is no glossary")?;
    // The first two rows are the table's head.
    let words = glossary.lines().filter(|line| line.starts_with('|')).count().saturating_sub(2);
    anyhow::ensure!((1..=GLOSSARY_WORDS_MAX).contains(&words), "{words} words, at most {GLOSSARY_WORDS_MAX}");
    Ok(())
}

#[test]
fn every_command_of_the_documents_exists() -> Result<()> {
    let program = artifact::built("sexton")?;
    let mut complaints = Vec::new();
    let mut found = commands(&document("README.md")?);
    anyhow::ensure!(found.len() > 10, "only {} commands were found", found.len());
    for page in PAGES {
        found.extend(commands(&document(page)?));
    }
    for (subcommand, flags) in found {
        complaints.extend(wrong_command(&program, &subcommand, &flags)?);
    }
    none("commands of the README", &complaints)
}

#[test]
fn what_is_untrue_in_a_document_is_found() -> Result<()> {
    assert_eq!(banned("a", ["fine".to_owned(), "// TODO: later".to_owned()].into_iter()), ["a:2: TODO"]);
    let map = first_column(
        "## Code map\n\n| where | what |\n|---|---|\n| `a/`, `b/*` | `c/` |\n\n## Other\n| `d` |",
        "## Code map",
    );
    assert_eq!(map, ["a/", "b/*"]);
    let folders = BTreeSet::from(["a".to_owned(), "e".to_owned()]);
    assert_eq!(code_map(&map, &folders, |_| false), ["a/ is not there", "e is not in the code map"]);
    let text = "    sexton run --pid PID   # watch\n`sexton policy check FILE...`, `make test`\n";
    let expected = [("run".to_owned(), vec!["--pid".to_owned()]), ("policy check".to_owned(), vec![])];
    assert_eq!(commands(text), expected);
    let program = artifact::built("sexton")?;
    assert_eq!(wrong_command(&program, "dance", &[])?.len(), 1);
    assert_eq!(wrong_command(&program, "run", &["--pid".to_owned(), "--waltz".to_owned()])?.len(), 1);
    Ok(())
}

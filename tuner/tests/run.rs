//! What becomes of actions is tested as texts: what happens to them, line by line, and what is to be done
//! about it.
//!
//! `BLESS=1 cargo test -p sexton-tuner --test run` writes what comes out into the files; the difference is
//! what to review. A file begins with a sentence on what it shows; `policy` is a block of YAML; a block `run`
//! has the lines that are described in `run/script.rs`, a line `----`, and what came of each of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "run/script.rs"]
mod script;
#[path = "run/shown.rs"]
mod shown;

use script::Script;
use std::path::{Path, PathBuf};

/// Line between a block's input and its output.
const SEPARATOR: &str = "----";

#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run");
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    assert!(files.len() >= 20, "the cases are missing from {}", folder.display());
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# "), "{} begins with no sentence on what it shows", file.display());
        let fresh = run(&text);
        if fresh == text {
            continue;
        }
        if bless {
            std::fs::write(&file, fresh).unwrap();
        } else {
            wrong.push(format!("{}\n{}", file.display(), first_difference(&text, &fresh)));
        }
    }
    assert!(wrong.is_empty(), "{}\nBLESS=1 accepts what came out", wrong.join("\n"));
}

fn first_difference(expected: &str, found: &str) -> String {
    let mut lines = expected.lines().zip(found.lines()).enumerate();
    match lines.find(|(_, (expected, found))| expected != found) {
        Some((index, (expected, found))) => {
            format!("line {}\n  expected {expected}\n  found    {found}", index + 1)
        }
        None => "one is longer than the other".to_owned(),
    }
}

/// The case with its outputs computed anew.
fn run(text: &str) -> String {
    let mut script = Script::default();
    let mut blocks = Vec::new();
    for block in text.trim_end().split("\n\n") {
        if block.starts_with('#') {
            blocks.push(block.to_owned());
            continue;
        }
        let (input, _) = block.split_once(&format!("\n{SEPARATOR}")).unwrap_or((block, ""));
        let (command, lines) = input.split_once('\n').unwrap_or((input, ""));
        let output = match command {
            "policy" => script.take_policy(lines),
            "run" => Ok(script.run(lines)),
            _ => Err(format!("unknown command {command}")),
        };
        let output = output.unwrap_or_else(|error| format!("error: {error}"));
        blocks.push(format!("{input}\n{SEPARATOR}\n{}", output.trim_end()));
    }
    blocks.join("\n\n") + "\n"
}

//! Tests as texts: files of blocks, each a command, its input, a line `----`, and what comes out up to an
//! empty line. `BLESS=1` writes what comes out into the files; the difference is what to review.

use std::path::{Path, PathBuf};

/// Line between a block's input and its output.
const SEPARATOR: &str = "----";

/// Compares each file of a folder beside the tests with what `run` makes of its text. There are to be at
/// least so many files.
pub fn check(folder: &str, files_min: usize, run: impl Fn(&str, &Path) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    assert!(files.len() >= files_min, "the cases are missing from {}", folder.display());
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# "), "{} begins with no sentence on what it shows", file.display());
        let fresh = run(&text, &file);
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

/// The text with its outputs computed anew; a command is given its name and the lines of its input.
pub fn outputs_anew(text: &str, mut command: impl FnMut(&str, &str) -> Result<String, String>) -> String {
    let mut blocks = Vec::new();
    for block in text.trim_end().split("\n\n") {
        if block.starts_with('#') {
            blocks.push(block.to_owned());
            continue;
        }
        let (input, _) = block.split_once(&format!("\n{SEPARATOR}")).unwrap_or((block, ""));
        let (name, lines) = input.split_once('\n').unwrap_or((input, ""));
        let output = command(name, lines).unwrap_or_else(|error| format!("error: {error}"));
        blocks.push(format!("{input}\n{SEPARATOR}\n{}", output.trim_end()));
    }
    blocks.join("\n\n") + "\n"
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

//! The Rust files of the tree, and which of their lines are production code.

use anyhow::{Context, Result};
use sexton_tests::artifact;
use std::collections::BTreeSet;
use std::path::Path;

/// Folders of the repository with Rust in them.
const ROOTS: [&str; 3] = ["agent", "tuner", "tests"];

pub struct Source {
    /// From the repository's root: `agent/src/text.rs`.
    pub path: String,
    pub lines: Vec<String>,
    /// Whether it is declared under `#[cfg(test)]`.
    pub is_test: bool,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), lines: text.lines().map(str::to_owned).collect(), is_test: false }
    }

    /// Whether any of it is production code: no test, no demo, no benchmark.
    pub fn is_production(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let is_test = self.is_test || name == "fuzz.rs" || name == "tests.rs" || name.ends_with("_tests.rs");
        !is_test && !self.path.split('/').any(|part| ["tests", "examples", "benches", "fuzz"].contains(&part))
    }

    /// Paths, without `.rs`, of the modules that it declares for tests only.
    fn test_modules(&self) -> Vec<String> {
        let path = self.path.trim_end_matches(".rs");
        let folder = ["/mod", "/lib", "/main"].iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
        let pairs = self.lines.iter().zip(self.lines.iter().skip(1));
        let names = pairs.filter(|(first, _)| first.trim() == "#[cfg(test)]").filter_map(|(_, second)| {
            second.trim().strip_suffix(';')?.rsplit_once("mod ").map(|(_, name)| name)
        });
        names.map(|name| format!("{folder}/{name}")).collect()
    }

    /// Its lines without `#[cfg(test)]` items, with their numbers from one.
    pub fn production(&self) -> Vec<(usize, &str)> {
        let mut kept = Vec::new();
        let mut index = 0;
        while let Some(line) = self.lines.get(index) {
            if line.trim() == "#[cfg(test)]" {
                index = self.end_of_item(index + 1) + 1;
            } else {
                kept.push((index + 1, line.as_str()));
                index += 1;
            }
        }
        kept
    }

    /// Index of the last line of the item that begins at `start`, its other attributes included.
    pub fn end_of_item(&self, start: usize) -> usize {
        let line = |index: usize| self.lines.get(index).map_or("", String::as_str);
        let mut first = start;
        while line(first).trim_start().starts_with("#[") {
            first += 1;
        }
        let indent = indent(line(first));
        // A block ends with its brace, whatever lines a text in it has at the left margin.
        let is_block = line(first).ends_with('{');
        let ends = |text: &str| {
            let rest = text.trim_start();
            let is_statement = !is_block && (rest.ends_with(';') || rest.ends_with('}'));
            indent == text.len() - rest.len() && (rest.starts_with('}') || is_statement)
        };
        (first..self.lines.len()).find(|index| ends(line(*index))).unwrap_or(self.lines.len())
    }
}

/// Spaces at the beginning of a line.
pub fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether the line is a comment as a whole.
pub fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The words of a line of code: names, keywords, numbers.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| !word.is_empty())
}

/// Every Rust file of the tree, in order of paths.
pub fn all() -> Result<Vec<Source>> {
    let repository = artifact::repository();
    let mut sources = Vec::new();
    for root in ROOTS {
        collect(&repository, &repository.join(root), &mut sources)?;
    }
    sources.sort_by(|one, two| one.path.cmp(&two.path));
    let tests: BTreeSet<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        let path = source.path.trim_end_matches(".rs");
        let path = path.strip_suffix("/mod").unwrap_or(path);
        // What a test's module declares is a test as well.
        source.is_test =
            path.match_indices('/').any(|(end, _)| tests.contains(&path[..end])) || tests.contains(path);
    }
    Ok(sources)
}

fn collect(repository: &Path, folder: &Path, sources: &mut Vec<Source>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(repository, &path, sources)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            sources.push(Source::new(&path.strip_prefix(repository)?.to_string_lossy(), &text));
        }
    }
    Ok(())
}

#[test]
fn tests_are_no_production_code() {
    let text = "fn a() {\n    b();\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {\n    }\n}\n#[cfg(test)]\nuse x;\nfn d() {}\n";
    let source = Source::new("tuner/src/a.rs", text);
    let numbers: Vec<usize> = source.production().iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 12]);
    let with_text = Source::new("a.rs", "#[cfg(test)]\nmod tests {\nsay;\n    fn c() {}\n}\nfn d() {}\n");
    assert_eq!(with_text.production().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [6]);
    let declaring = Source::new("agent/src/a/mod.rs", "#[cfg(test)]\npub(crate) mod btf;\nmod b;\n");
    assert_eq!(declaring.test_modules(), ["agent/src/a/btf"]);
    for (path, is_production) in [
        ("agent/src/text.rs", true),
        ("agent/build.rs", true),
        ("agent/src/sst/tests.rs", false),
        ("agent/src/target/elf_tests.rs", false),
        ("agent/src/probe/fuzz.rs", false),
        ("agent/fuzz/src/lib.rs", false),
        ("tuner/tests/policy.rs", false),
        ("tests/src/bin/demo/main.rs", false),
    ] {
        assert_eq!(Source::new(path, "").is_production(), is_production, "{path}");
    }
}

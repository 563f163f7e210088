//! How long things are: the whole, a function, a line.

use super::at_most;
use super::source::{self, Source, is_comment};
use anyhow::{Context, Result, ensure};
use sexton_tests::artifact;
use std::collections::BTreeMap;

/// Most lines of production Rust in the whole project, comments and empty lines included. Only a
/// commit that brings an ability raises it.
const PRODUCTION_LINES_MAX: usize = 77_000;

/// Most lines of the folder that owns the loop: what observes and what acts has folders of its own.
const ENGINE_LINES_MAX: usize = 1_000;

/// Comments that are wider than what rustfmt allows the code.
const WIDE_LINES_MAX: usize = 0;

/// Functions that are longer than a screen.
const LONG_FUNCTIONS_MAX: usize = 0;

/// Most lines of a function, from its first to its closing brace: a screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines of production code by crate or, in the agent, by folder.
fn count(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_production()) {
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *counts.entry(folder.to_owned()).or_default() += source.production().len();
    }
    counts
}

fn long_functions(source: &Source) -> Vec<String> {
    let produced = source.production().into_iter().filter(|_| source.is_production());
    let starts = produced.filter(|(_, line)| is_function(line)).map(|(number, line)| (number - 1, line));
    let lengths = starts.map(|(start, line)| (start, line, source.end_of_item(start) + 1 - start));
    let long = lengths.filter(|(_, _, length)| *length > FUNCTION_LINES_MAX);
    long.map(|(start, line, length)| {
        format!(
            "{}:{}: {length} lines, at most {FUNCTION_LINES_MAX}: {}",
            source.path,
            start + 1,
            line.trim()
        )
    })
    .collect()
}

fn is_function(line: &str) -> bool {
    let code = line.split(" fn ").next().unwrap_or_default();
    let is_modifier = |word: &str| {
        ["pub", "const", "async", "unsafe", "extern", "default"].iter().any(|known| word.starts_with(known))
            || word.starts_with('"')
            || word.ends_with(')')
    };
    line.trim_start().starts_with("fn ")
        || (line.contains(" fn ") && code.split_whitespace().all(is_modifier))
}

/// Comments only: code is rustfmt's business, but for texts and macros, which it leaves alone for a reason.
fn wide_lines(source: &Source, columns_max: usize) -> Vec<String> {
    let comments = source.lines.iter().enumerate().filter(|(_, line)| is_comment(line));
    let wide = comments.filter(|(_, line)| line.chars().count() > columns_max);
    wide.map(|(index, line)| format!("{}:{}: {} columns", source.path, index + 1, line.chars().count()))
        .collect()
}

fn columns_max() -> Result<usize> {
    let text = std::fs::read_to_string(artifact::repository().join("rustfmt.toml"))?;
    let value = text.lines().find_map(|line| line.strip_prefix("max_width = ")).context("no max_width")?;
    Ok(value.parse()?)
}

#[test]
fn production_lines_stay_within_the_limit() -> Result<()> {
    let counts = count(&source::all()?);
    let total: usize = counts.values().sum();
    let table: Vec<String> = counts.iter().map(|(folder, lines)| format!("{lines:>7} {folder}")).collect();
    println!("{}\n{total:>7} in all, at most {PRODUCTION_LINES_MAX}", table.join("\n"));
    ensure!(
        total <= PRODUCTION_LINES_MAX,
        "{total} lines of production Rust, at most {PRODUCTION_LINES_MAX}"
    );
    let engine = counts.get("agent/src/engine").copied().context("no agent/src/engine")?;
    ensure!(engine <= ENGINE_LINES_MAX, "{engine} lines of the engine, at most {ENGINE_LINES_MAX}");
    Ok(())
}

#[test]
fn functions_are_a_screen_long() -> Result<()> {
    at_most(
        LONG_FUNCTIONS_MAX,
        "long functions",
        &source::all()?.iter().flat_map(long_functions).collect::<Vec<_>>(),
    )
}

#[test]
fn lines_keep_to_the_width() -> Result<()> {
    let columns_max = columns_max()?;
    let wide = |source: &Source| wide_lines(source, columns_max);
    at_most(WIDE_LINES_MAX, "wide lines", &source::all()?.iter().flat_map(wide).collect::<Vec<_>>())
}

#[test]
fn long_things_are_found() {
    let body = "    a();\n".repeat(FUNCTION_LINES_MAX);
    let long = Source::new("a.rs", &format!("pub(crate) fn long(\n    b: u8,\n) {{\n{body}}}\n"));
    assert_eq!(long_functions(&long).len(), 1);
    let short = Source::new(
        "a.rs",
        &format!("impl A {{\n    fn one(&self) {{}}\n}}\n// fn {body}\nconst fn two() {{}}\n"),
    );
    assert_eq!(long_functions(&short), [""; 0]);
    let wide = Source::new("a.rs", "/// One two three.\nlet a = \"one two three\";\n");
    assert_eq!(wide_lines(&wide, 12).len(), 1);
    assert_eq!(
        count(&[Source::new("tuner/src/a.rs", "a\nb\n"), Source::new("tests/b.rs", "a\n")])
            .values()
            .sum::<usize>(),
        2
    );
}

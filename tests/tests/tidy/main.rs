//! What `make lint` asks of the tree as a whole: limits of length, words, a code map that is true, commands
//! of the README that exist, items that somebody uses, no circles of files, and those invariants that a text
//! can show.
//!
//! Each rule is a function from texts to complaints, with a test that shows a text it refuses. The sources
//! are formatted by rustfmt, which `make lint` checks first: so an item ends where a brace stands at its own
//! indent.

mod circles;
mod documents;
mod invariants;
mod items;
mod lines;
mod source;

use anyhow::{Result, ensure};

/// Fails with all complaints of a rule, one a line.
fn none(rule: &str, complaints: &[String]) -> Result<()> {
    at_most(0, rule, complaints)
}

/// The same for a rule that the tree does not keep everywhere yet; `most` only ever falls.
fn at_most(most: usize, rule: &str, complaints: &[String]) -> Result<()> {
    let count = complaints.len();
    ensure!(count <= most, "{rule}: {count}, at most {most}:\n  {}", complaints.join("\n  "));
    Ok(())
}

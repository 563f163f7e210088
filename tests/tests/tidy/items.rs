//! Public items that nobody uses: the compiler sees dead code only where it is private.

use super::at_most;
use super::source::{self, Source, indent, is_comment, words};
use anyhow::Result;
use std::collections::{HashMap, HashSet};

/// Items that still wait for their user.
const UNUSED_MAX: usize = 6;

const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "const", "static", "type"];

/// Words between `pub` and an item's kind.
const MODIFIERS: [&str; 6] = ["crate", "super", "in", "const", "async", "unsafe"];

/// Name of the public item that this line begins.
fn public_item(line: &str) -> Option<&str> {
    let mut words = words(line.trim_start().strip_prefix("pub")?).peekable();
    while words
        .next_if(|word| MODIFIERS.contains(word) && (*word != "const" || line.contains(" fn ")))
        .is_some()
    {}
    let kind = words.next()?;
    KINDS.contains(&kind).then(|| words.next())?
}

/// Whether the line names things without using them.
fn only_names(line: &str) -> bool {
    is_comment(line)
        || line.trim_start().starts_with("pub use")
        || (indent(line) == 0 && line.starts_with("impl"))
}

/// The items of `sources` that no line of production code or of the demo, the benchmarks and the end-to-end
/// tests names but the one that defines them.
fn unused(sources: &[Source], users: &[Source]) -> Vec<String> {
    let mut items: Vec<(&str, &str, usize)> = Vec::new();
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for source in sources {
        let mut is_exported = false;
        for (number, line) in source.production() {
            if let Some(name) = public_item(line).filter(|_| !is_exported) {
                items.push((name, &source.path, number));
            }
            is_exported = line.contains("no_mangle") || (is_exported && is_comment(line));
        }
    }
    let produced = sources.iter().flat_map(Source::production).map(|(_, line)| line);
    let tested = users.iter().flat_map(|source| &source.lines).map(String::as_str);
    for line in produced.chain(tested).filter(|line| !only_names(line)) {
        let defined = public_item(line);
        for word in words(line).collect::<HashSet<_>>() {
            // The definition itself is no use, but a struct's name may well stand in a function's signature.
            *uses.entry(word).or_default() += usize::from(defined != Some(word));
        }
    }
    let lonely = items.iter().filter(|(name, _, _)| uses.get(name).is_none_or(|count| *count == 0));
    lonely.map(|(name, path, number)| format!("{path}:{number}: nobody uses {name}")).collect()
}

#[test]
fn public_items_have_users() -> Result<()> {
    let (produced, others): (Vec<Source>, Vec<Source>) =
        source::all()?.into_iter().partition(Source::is_production);
    let users: Vec<Source> = others.into_iter().filter(|source| source.path.starts_with("tests/")).collect();
    at_most(UNUSED_MAX, "public items without a user", &unused(&produced, &users))
}

#[test]
fn an_item_without_a_user_is_found() {
    let text = "/// Used.\npub struct Used;\nimpl Used {\n    pub(crate) const fn lonely(&self) {}\n    pub fn called() {}\n}\n\
                pub const LONELY: u8 = 1;\n#[unsafe(no_mangle)]\npub extern \"C\" fn exported() {}\n\
                #[cfg(test)]\nmod tests {\n    fn a() {\n        LONELY;\n    }\n}\n";
    let user = "pub use a::LONELY;\nfn b(a: Used) {\n    Used::called();\n}\n";
    let sources = [Source::new("a.rs", text), Source::new("b.rs", user)];
    let complaints = unused(&sources, &[]);
    assert_eq!(complaints, ["a.rs:4: nobody uses lonely", "a.rs:7: nobody uses LONELY"]);
    assert_eq!(unused(&sources, &[Source::new("tests/c.rs", "LONELY; lonely();")]), [""; 0]);
}

//! Those invariants of ARCHITECTURE.md that a text can show.

use super::none;
use super::source::{self, Source, is_comment, words};
use anyhow::{Context, Result, ensure};
use sexton_tests::artifact;
use std::collections::BTreeSet;

/// What the tuner never names: clocks, files, sockets, threads, processes.
const IMPURE: [&str; 10] = [
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::io",
    "Instant",
    "SystemTime",
    "println!",
    "Timestamp::now",
];

/// What the API never names.
const BEHIND_THE_API: [&str; 4] = ["crate::engine", "sexton_execute::", "sexton_inspect::", "sexton_probe::"];

/// What only the listener names: accepting connections, and speaking TLS and HTTP on them.
const LISTENERS: [&str; 4] = ["hyper::", "hyper_util::", "TlsAcceptor", ".accept("];
/// Where the listener is.
const LISTENER: &str = "agent/src/api/listener/";

/// Lines of production code of the files under `folder` that name one of `forbidden`.
fn naming(sources: &[Source], folder: &str, forbidden: &[&str]) -> Vec<String> {
    let inside = sources.iter().filter(|source| source.is_production() && source.path.starts_with(folder));
    let lines = inside.flat_map(|source| source.production().into_iter().map(|line| (&source.path, line)));
    let code = lines.filter(|(_, (_, line))| !is_comment(line));
    let named = code.filter_map(|(path, (number, line))| {
        let found = forbidden.iter().find(|name| line.contains(**name))?;
        Some(format!("{path}:{number}: {found}"))
    });
    named.collect()
}

/// Files of the agent, without the hook, with `unsafe` in them, as ARCHITECTURE.md names them: `probe::abi`.
fn unsafe_files(sources: &[Source]) -> BTreeSet<String> {
    let agent = sources.iter().filter(|source| source.is_production() && source.path.starts_with("agent/"));
    let outside = agent.filter(|source| !source.path.starts_with("agent/hook/"));
    let is_unsafe = |source: &&Source| {
        let mut code = source.production().into_iter().filter(|(_, line)| !is_comment(line));
        code.any(|(_, line)| words(line).any(|word| word == "unsafe"))
    };
    let name = |source: &Source| {
        let path = source.path.trim_start_matches("agent/").trim_end_matches(".rs").trim_end_matches("/mod");
        path.trim_end_matches("/lib").replace("src/", "").replace("/src", "").replace('/', "::")
    };
    outside.filter(is_unsafe).map(name).collect()
}

/// The names in backticks between two phrases of a text, whatever its line breaks.
fn listed(text: &str, begin: &str, end: &str) -> Option<BTreeSet<String>> {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, after) = flat.split_once(begin)?;
    let (list, _) = after.split_once(end)?;
    Some(list.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

#[test]
fn the_tuner_is_pure() -> Result<()> {
    none("the tuner touches the world", &naming(&source::all()?, "tuner/src/", &IMPURE))
}

#[test]
fn the_api_reaches_into_nothing() -> Result<()> {
    none("the API reaches into the engine", &naming(&source::all()?, "agent/src/api/", &BEHIND_THE_API))
}

#[test]
fn who_has_rights_does_not_listen() -> Result<()> {
    let sources: Vec<Source> =
        source::all()?.into_iter().filter(|source| !source.path.starts_with(LISTENER)).collect();
    none("connections are accepted outside of the listener", &naming(&sources, "agent/src/", &LISTENERS))
}

#[test]
fn unsafe_code_is_where_the_architecture_says() -> Result<()> {
    let text = std::fs::read_to_string(artifact::repository().join("ARCHITECTURE.md"))?;
    let told =
        listed(&text, "`unsafe` in the agent is confined to", ")").context("no list of files with unsafe")?;
    let found = unsafe_files(&source::all()?);
    ensure!(told == found, "ARCHITECTURE.md names {told:?}; unsafe is in {found:?}");
    Ok(())
}

#[test]
fn what_breaks_an_invariant_is_found() {
    let sources = [
        Source::new("tuner/src/a.rs", "// std::fs\nuse std::fs::read;\n#[cfg(test)]\nuse std::net;\n"),
        Source::new("agent/probe/src/abi.rs", "fn a() {\n    unsafe { b() }\n}\n"),
        Source::new("agent/src/keeper/mod.rs", "unsafe fn a() {}\n"),
        Source::new("agent/sandbox/src/lib.rs", "unsafe fn a() {}\n"),
        Source::new("agent/hook/src/lib.rs", "unsafe fn a() {}\n"),
        Source::new("agent/src/b.rs", "#![deny(unsafe_op_in_unsafe_fn)] // unsafe_\n"),
    ];
    assert_eq!(naming(&sources, "tuner/src/", &IMPURE), ["tuner/src/a.rs:2: std::fs"]);
    assert_eq!(
        unsafe_files(&sources),
        BTreeSet::from(["keeper", "probe::abi", "sandbox"].map(str::to_owned))
    );
    let told = listed("x `unsafe` is in\nfiles (`a`,\n `b::c`) and `d`", "is in", ")");
    assert_eq!(told, Some(BTreeSet::from(["a", "b::c"].map(str::to_owned))));
}

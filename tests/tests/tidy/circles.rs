//! Circles of files: one that uses another, which uses a third, which uses the first.
//!
//! Two files may use each other (a module and its part); a longer circle means that none of them can be read
//! alone. Who uses whom is read from paths (`crate::`, `super::`, `self::`), through re-exports; a re-export
//! itself and a declaration (`mod`) use nothing.

use super::at_most;
use super::source::{self, Source, is_comment};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const CIRCLES_MAX: usize = 0;

/// A module by its names from the crate's root.
type Module = Vec<String>;
/// Files that each file uses.
type Uses = BTreeMap<Module, BTreeSet<Module>>;

/// The modules of one crate.
struct Crate<'s> {
    files: BTreeMap<Module, &'s Source>,
    /// Names that a module re-exports, with the paths they stand for.
    exports: BTreeMap<Module, Vec<Vec<String>>>,
}

/// Where a crate begins and which module a file is: `agent/src/api/mod.rs` is `api` of `agent/src`.
fn place(path: &str) -> Option<(&str, Module)> {
    let (root, inside) =
        path.rsplit_once("/src/").map(|(root, inside)| (root, inside.strip_suffix(".rs")))?;
    let mut names: Module = inside?.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| ["mod", "lib"].contains(&last.as_str())) {
        names.pop();
    }
    (names.as_slice() != ["main"]).then_some((root, names))
}

/// The statements `use …;` and `pub use …;` of a file, and what is left of it.
fn statements(source: &Source) -> (Vec<(bool, String)>, String) {
    let (mut uses, mut rest) = (Vec::new(), String::new());
    let mut open: Option<(bool, String)> = None;
    for (_, line) in source.production().into_iter().filter(|(_, line)| !is_comment(line)) {
        let code = line.trim();
        let is_export = code.starts_with("pub") && code.contains(" use ");
        if open.is_none() && (code.starts_with("use ") || is_export) {
            let path = code.split_once("use ").map_or("", |(_, path)| path);
            open = Some((is_export, path.to_owned()));
        } else if let Some((_, text)) = &mut open {
            text.push_str(code);
        } else {
            rest.push_str(code);
            rest.push('\n');
        }
        if open.as_ref().is_some_and(|(_, text)| text.ends_with(';')) {
            uses.extend(open.take());
        }
    }
    (uses, rest)
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expand(text: &str) -> Vec<Vec<String>> {
    let text = text.trim().trim_end_matches(';');
    let Some((head, rest)) = text.split_once('{') else {
        let path = text.split(" as ").next().unwrap_or_default();
        return vec![
            path.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect(),
        ];
    };
    let head: Vec<String> =
        head.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    let inside = rest.strip_suffix('}').unwrap_or(rest);
    let mut parts = vec![String::new()];
    let mut depth = 0_usize;
    for character in inside.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(character);
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(part)).map(|tail| head.iter().cloned().chain(tail).collect()).collect()
}

/// Paths such as `crate::text::shown` in code that is no `use`.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let paths = code.split(|character| !is_part(character));
    let paths = paths.filter(|path| path.starts_with("crate::") || path.starts_with("super::"));
    paths.map(|path| path.split("::").map(str::to_owned).filter(|name| !name.is_empty()).collect()).collect()
}

impl<'s> Crate<'s> {
    fn new(files: BTreeMap<Module, &'s Source>) -> Crate<'s> {
        let exports = files.iter().map(|(module, source)| {
            let exported = statements(source).0.into_iter().filter(|(is_export, _)| *is_export);
            (module.clone(), exported.flat_map(|(_, text)| expand(&text)).collect())
        });
        Crate { exports: exports.collect(), files }
    }

    /// The file that `path`, written in `from`, leads to; `None` outside of the crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let mut module = match first.as_str() {
            "crate" => Module::new(),
            "self" => from.clone(),
            "super" => {
                let mut parent = from.clone();
                parent.pop()?;
                while rest.first().is_some_and(|name| name == "super") {
                    parent.pop()?;
                    rest = rest.get(1..)?;
                }
                parent
            }
            _ => {
                let child: Module = from.iter().chain([first]).cloned().collect();
                self.files.contains_key(&child).then_some(child)?
            }
        };
        while let Some((name, tail)) = rest.split_first() {
            let child: Module = module.iter().chain([name]).cloned().collect();
            if !self.files.contains_key(&child) {
                let exports = self.exports.get(&module).into_iter().flatten();
                let exported = exports.filter(|path| path.last() == Some(name)).find(|_| depth > 0);
                let through = exported.and_then(|path| self.resolve(&module, path, depth - 1));
                return Some(through.unwrap_or(module));
            }
            (module, rest) = (child, tail);
        }
        Some(module)
    }

    fn uses(&self) -> Uses {
        /// Re-exports of re-exports that are followed.
        const DEPTH_MAX: usize = 4;
        let mut uses = Uses::new();
        for (module, source) in &self.files {
            let (statements, rest) = statements(source);
            let imports =
                statements.iter().filter(|(is_export, _)| !is_export).flat_map(|(_, text)| expand(text));
            let used =
                imports.chain(inline_paths(&rest)).filter_map(|path| self.resolve(module, &path, DEPTH_MAX));
            uses.insert(module.clone(), used.filter(|used| used != module).collect());
        }
        uses
    }
}

/// For each pair of files of which one uses the other, the way back that goes through a third.
fn circles(uses: &Uses) -> Vec<Vec<Module>> {
    let mut found: BTreeMap<BTreeSet<Module>, Vec<Module>> = BTreeMap::new();
    for (from, used) in uses {
        for to in used {
            if let Some(way) = way_back(uses, to, from) {
                found.entry(way.iter().cloned().collect()).or_insert(way);
            }
        }
    }
    found.into_values().collect()
}

/// The shortest way from `from` to `to` that is longer than a single step.
fn way_back(uses: &Uses, from: &Module, to: &Module) -> Option<Vec<Module>> {
    let mut ways = VecDeque::from([vec![from.clone()]]);
    let mut seen = BTreeSet::from([from.clone()]);
    while let Some(way) = ways.pop_front() {
        for next in way.last().and_then(|last| uses.get(last)).into_iter().flatten() {
            let longer: Vec<Module> = way.iter().chain([next]).cloned().collect();
            if next == to && way.len() > 1 {
                return Some(longer);
            }
            if next != to && seen.insert(next.clone()) {
                ways.push_back(longer);
            }
        }
    }
    None
}

fn complaints(sources: &[Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_production()) {
        if let Some((root, module)) = place(&source.path) {
            crates.entry(root).or_default().insert(module, source);
        }
    }
    let circles = crates.into_iter().flat_map(|(root, files)| {
        let circles = circles(&Crate::new(files).uses());
        circles.into_iter().map(move |circle| {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            format!("{root}: {}", names.join(" > "))
        })
    });
    circles.collect()
}

#[test]
fn no_circle_has_more_than_two_files() -> Result<()> {
    at_most(CIRCLES_MAX, "circles of files", &complaints(&source::all()?))
}

#[test]
fn circles_are_found_through_re_exports() {
    let crate_of = |c: &str| {
        [
            Source::new("x/src/lib.rs", "mod a;\nmod b;\nmod c;\npub use c::{C, D};\n"),
            Source::new("x/src/a.rs", "use super::b::{\n    self, B,\n};\n"),
            Source::new("x/src/b.rs", "use crate::C;\nuse super::a::A;\n"),
            Source::new("x/src/c.rs", c),
        ]
    };
    assert_eq!(complaints(&crate_of("use std::fmt;\nuse crate::b::B;\n")), [""; 0]);
    assert_eq!(complaints(&crate_of("fn f() {\n    crate::a::f();\n}\n")).len(), 1);
    assert_eq!(complaints(&crate_of("#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n")), [""; 0]);
}

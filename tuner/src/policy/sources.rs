//! Where a policy is written: in one text, or in several files that make one policy together, each value in
//! one of them.

use super::PolicyError;
use super::walk::{line_of, locate};
use std::collections::BTreeSet;

/// A file of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// As people name it; empty where there is one text alone.
    pub name: String,
    pub text: String,
}

/// What a file has of the policy.
#[derive(Clone, Debug)]
struct Part {
    file: SourceFile,
    /// Fields that it gives.
    fields: BTreeSet<String>,
    /// How many entries of `targets`.
    targets: usize,
}

/// Where a policy is written.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Part>);

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'s> {
    /// Its name; `None` where there is one text alone.
    pub file: Option<&'s str>,
    pub line: usize,
}

impl Sources {
    /// One text alone.
    pub fn of_text(text: &str) -> Sources {
        let mut sources = Sources::default();
        sources.add(SourceFile { name: String::new(), text: text.to_owned() }, BTreeSet::new(), usize::MAX);
        sources
    }

    /// One more file, with the fields that it gives, and how many targets.
    pub(super) fn add(&mut self, file: SourceFile, fields: BTreeSet<String>, targets: usize) {
        self.0.push(Part { file, fields, targets });
    }

    /// Whether a file gives this field.
    pub(super) fn has(&self, field: &str) -> bool {
        self.0.iter().any(|part| part.fields.contains(field))
    }

    /// How many files there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The file of this number, as in [`PolicyError::file`].
    pub fn file(&self, number: usize) -> Option<&SourceFile> {
        self.0.get(number).map(|part| &part.file)
    }

    /// The number of the file that has the value at `path`, and the value's path in there.
    fn place(&self, path: &str) -> Option<(usize, String)> {
        let field = path.split(['.', '[']).next().unwrap_or_default();
        let index = path.strip_prefix("targets[").and_then(|rest| rest.split_once(']'));
        let Some((index, rest)) = index.and_then(|(index, rest)| Some((index.parse::<usize>().ok()?, rest)))
        else {
            let number = self.0.iter().position(|part| part.fields.contains(field)).unwrap_or(0);
            return Some((number, path.to_owned()));
        };
        let mut before = 0_usize;
        for (number, part) in self.0.iter().enumerate() {
            let own = index.checked_sub(before).filter(|own| *own < part.targets);
            if let Some(own) = own {
                return Some((number, format!("targets[{own}]{rest}")));
            }
            before = before.saturating_add(part.targets);
        }
        None
    }

    /// The error, at the value at `path`, such as `targets[0].match`, or at the nearest value above it that
    /// the policy has.
    pub(super) fn at(&self, error: PolicyError, path: &str) -> PolicyError {
        let Some((number, path)) = self.place(path) else { return error };
        let Some(file) = self.file(number) else { return error };
        let error = PolicyError { file: Some(number), ..error };
        match locate(&file.text, &path) {
            Some(place) => error.at(&file.text, place.index()),
            None => error,
        }
    }

    /// The line of the value at `path`; `None` where the policy has no such value.
    pub(super) fn line_of(&self, path: &str) -> Option<Line<'_>> {
        let (number, path) = self.place(path)?;
        let file = self.file(number)?;
        let line = line_of(&file.text, &path)?;
        Some(Line { file: Some(file.name.as_str()).filter(|name| !name.is_empty()), line })
    }
}

/// Words for a place in another file: `a.yaml, line 3`.
pub(super) fn shown(line: &Line<'_>) -> String {
    match line.file {
        Some(file) => format!("{file}, line {}", line.line),
        None => format!("line {}", line.line),
    }
}

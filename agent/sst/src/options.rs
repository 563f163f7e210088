//! Reads a database's newest OPTIONS file.
//!
//! What must be known before it can be opened: comparator and number of levels of each column family, and
//! whether it tracks its WALs; applying that is the business of `child`. And, as text, the options that the
//! tuner asks for.

use sexton_tuner::options::ColumnFamilyOptions as TunerOptions;
use std::collections::BTreeMap;

/// Largest OPTIONS file that is read: some 10 KiB per column family, a thousand of them, and room.
pub const OPTIONS_BYTES_MAX: u64 = 32 << 20;

/// Longest value of an option that the tuner reads; the longest known is a list of a dozen compressions.
const VALUE_BYTES_MAX: usize = 1024;

/// What the OPTIONS file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseOptions {
    /// `track_and_verify_wals_in_manifest`.
    pub tracks_wals_in_manifest: bool,
    /// By name of the column family.
    pub column_families: BTreeMap<String, ColumnFamilyOptions>,
}

/// What it says of one column family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnFamilyOptions {
    /// `comparator`: its name; `None` where the file does not say.
    pub comparator: Option<String>,
    /// `num_levels`; `None` where the file does not say.
    pub levels: Option<i32>,
    /// Those that the tuner reads, by name, as they stand in the file.
    pub stated: BTreeMap<String, String>,
}

/// The number of an OPTIONS file's name, `OPTIONS-000012`; `None` for any other name, also for the
/// `.dbtmp` that RocksDB writes first.
pub fn options_file_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("OPTIONS-")?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Which section of the file a line belongs to.
enum Section {
    Database,
    ColumnFamily(String),
    Other,
}

impl DatabaseOptions {
    /// Reads the text of an OPTIONS file. Lines that mean nothing here are passed over: what is missing
    /// gets RocksDB's defaults, and RocksDB itself refuses a comparator that does not fit.
    pub fn parse(text: &str) -> DatabaseOptions {
        let mut options = DatabaseOptions::default();
        let mut section = Section::Other;
        for line in text.lines().map(str::trim) {
            if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = section_of(title);
                if let Section::ColumnFamily(name) = &section {
                    options.column_families.entry(name.clone()).or_default();
                }
            } else if let Some((name, value)) = line.split_once('=') {
                options.set(&section, name.trim(), value.trim());
            }
        }
        options
    }

    fn set(&mut self, section: &Section, name: &str, value: &str) {
        match section {
            Section::Database if name == "track_and_verify_wals_in_manifest" => {
                self.tracks_wals_in_manifest = value == "true";
            }
            Section::ColumnFamily(family) => {
                let family = self.column_families.entry(family.clone()).or_default();
                if TunerOptions::names().any(|known| known == name) && value.len() <= VALUE_BYTES_MAX {
                    family.stated.insert(name.to_owned(), value.to_owned());
                }
                match name {
                    "comparator" => family.comparator = comparator_name(value),
                    "num_levels" => family.levels = value.parse().ok(),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

fn section_of(title: &str) -> Section {
    match title.split_once('"') {
        None if title.trim() == "DBOptions" => Section::Database,
        Some((kind, rest)) if kind.trim() == "CFOptions" => match rest.strip_suffix('"') {
            Some(name) => Section::ColumnFamily(unescape(name)),
            None => Section::Other,
        },
        _ => Section::Other,
    }
}

/// The comparator's name: alone, or in the form `{id=name;...}` that an object with options of its own has.
fn comparator_name(value: &str) -> Option<String> {
    let inner = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let name = match inner {
        Some(fields) => fields.split(';').find_map(|field| field.trim().strip_prefix("id="))?.trim(),
        None => value,
    };
    let name = unescape(name);
    (!name.is_empty() && name != "nullptr").then_some(name)
}

/// Undoes RocksDB's escaping: a backslash before `n`, `r` or the character itself.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('n') => plain.push('\n'),
                Some('r') => plain.push('\r'),
                Some(other) => plain.push(other),
                None => {}
            },
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = r#"
# This is a RocksDB option file.
[Version]
  rocksdb_version=11.12.0
[DBOptions]
  max_background_jobs=2
  track_and_verify_wals_in_manifest=true
[CFOptions "default"]
  comparator=leveldb.BytewiseComparator
  num_levels=7
[TableOptions/BlockBasedTable "default"]
  num_levels=99
[CFOptions "rev:index\:1"]
  comparator={id=rev:RocksDB_SE_v3.10;other=1}
  num_levels=40
[CFOptions "bare"]
"#;

    #[test]
    fn reads_what_opening_needs() {
        let options = DatabaseOptions::parse(TEXT);
        assert!(options.tracks_wals_in_manifest);
        let family = |comparator: Option<&str>, levels: Option<i32>| ColumnFamilyOptions {
            comparator: comparator.map(str::to_owned),
            levels,
            stated: levels.map(|levels| ("num_levels".to_owned(), levels.to_string())).into_iter().collect(),
        };
        let expected = [
            ("bare", family(None, None)),
            ("default", family(Some("leveldb.BytewiseComparator"), Some(7))),
            ("rev:index:1", family(Some("rev:RocksDB_SE_v3.10"), Some(40))),
        ];
        let expected = expected.map(|(name, family)| (name.to_owned(), family));
        assert_eq!(options.column_families, BTreeMap::from(expected));
    }

    #[test]
    fn knows_the_names_of_options_files() {
        assert_eq!(options_file_number("OPTIONS-000012"), Some(12));
        assert_eq!(options_file_number("OPTIONS-12345678"), Some(12_345_678));
        for other in ["OPTIONS-000012.dbtmp", "OPTIONS-", "OPTIONS", "OPTIONS-+12", "MANIFEST-000012"] {
            assert_eq!(options_file_number(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_never_panics(
            titles in prop::collection::vec("\\[[A-Za-z ]{0,10}\"?[^\n]{0,8}\"?\\]?", 0..8),
            lines in prop::collection::vec("(comparator|num_levels)?=?[^\n]{0,12}", 0..8),
        ) {
            let sections = titles.iter().zip(&lines);
            let text: String = sections.map(|(title, line)| format!("{title}\n{line}\n")).collect();
            let _ = DatabaseOptions::parse(&text);
        }
    }
}

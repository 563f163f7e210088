//! What a database's newest OPTIONS file says: what RocksDB itself holds for the options in force.

use anyhow::{Context, Result};
use std::path::Path;

/// The value of an option of a column family.
pub fn value(database: &Path, column_family: &str, name: &str) -> Result<String> {
    // RocksDB removes the file before the newest one at any moment.
    let mut read = Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    for _ in 0..10 {
        read = std::fs::read_to_string(database.join(newest(database)?));
        if read.is_ok() {
            break;
        }
    }
    let text = read.context("reading the newest OPTIONS file")?;
    let section = format!("[CFOptions \"{column_family}\"]");
    let lines = text.lines().map(str::trim).skip_while(|line| *line != section).skip(1);
    let mut options = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once('='));
    let found = options.find(|(option, _)| *option == name);
    let (_, value) = found.with_context(|| format!("the OPTIONS file has no {name} of {column_family}"))?;
    Ok(value.to_owned())
}

fn newest(database: &Path) -> Result<String> {
    let number = |name: &str| name.strip_prefix("OPTIONS-")?.parse::<u64>().ok();
    let names = std::fs::read_dir(database).with_context(|| format!("listing {}", database.display()))?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = names.filter(|name| number(name).is_some()).max_by_key(|name| number(name));
    newest.with_context(|| format!("{} has no OPTIONS file", database.display()))
}

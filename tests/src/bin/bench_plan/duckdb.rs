//! The same join in DuckDB: which files operations lost time in, and how much.

use crate::database::Database;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use sexton_tests::artifact;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

/// What `tests/python/duckdb_join.py` prints.
#[derive(Clone, Debug, Deserialize)]
pub struct Peer {
    pub version: String,
    /// The join, median of its repetitions.
    pub seconds: f64,
    /// Pairs of an operation and a file that it may have lost time in.
    pub pairs: u64,
    /// Most memory that it had resident.
    pub resident_bytes: u64,
}

/// Joins all observations with all files.
pub fn measure(database: Database, repetitions: usize) -> Result<Peer> {
    let directory = tempfile::tempdir().context("making a directory for the tables")?;
    write_tables(database, directory.path()).context("writing the tables")?;
    let output = Command::new(artifact::installed("python3", "python3")?)
        .arg(artifact::repository().join("tests/python/duckdb_join.py"))
        .args([directory.path().as_os_str(), repetitions.to_string().as_ref()])
        .env("PYTHONPATH", artifact::tools()?.join("duckdb"))
        .output()
        .context("running Python")?;
    ensure!(
        output.status.success(),
        "DuckDB failed: {}; `make bench-plan` fetches it",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("reading what DuckDB has measured")
}

fn write_tables(database: Database, directory: &Path) -> Result<()> {
    let mut files = BufWriter::new(File::create(directory.join("files.csv"))?);
    for file in database.sst_files() {
        let (smallest, largest) = (file.smallest.escaped(), file.largest.escaped());
        writeln!(files, "{},{},{smallest},{largest},{}", file.number, file.level, file.size_bytes)?;
    }
    files.flush()?;
    let mut operations = BufWriter::new(File::create(directory.join("operations.csv"))?);
    for number in 0..database.observations {
        let seen = database.observation(number);
        writeln!(operations, "{},{}", seen.key.escaped(), seen.seek.tombstones_skipped * 200)?;
    }
    Ok(operations.flush()?)
}

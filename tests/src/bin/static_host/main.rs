//! A program with RocksDB linked into its executable, that does what its standard input says and tells
//! what RocksDB counted: `sexton-static-host`.
//!
//! It makes one or more databases with some column families, deletes part of the keys by plan, and then
//! waits. For each line `list` every thread lists every column family, all kinds of positioning calls, and
//! waits at the barrier again; then one line of JSON says what was counted. It knows nothing of Sexton.
//!
//! `databases` is what is stored and where it is deleted, `worker` the threads that list.

mod databases;
mod worker;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use databases::{Databases, Plan};
use sexton_tests::static_host::{Line, Listed, Step};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use worker::Worker;

/// Lists RocksDB databases step by step, and prints what RocksDB counted in each step.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory in which the databases are made; a database must not be there yet.
    #[arg(long)]
    directory: PathBuf,
    /// Databases, each in a directory of its own below.
    #[arg(long, default_value_t = 1)]
    databases: u32,
    /// Column families in each, `default` among them.
    #[arg(long, default_value_t = 2)]
    column_families: u32,
    /// Keys in each column family.
    #[arg(long, default_value_t = 20_000)]
    keys: u64,
    /// Of a hundred keys in a row, so many of the first are deleted.
    #[arg(long, default_value_t = 75)]
    deleted_percent: u64,
    /// Threads that list.
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// RocksDB's perf level in these threads: 1 counts nothing, 2 counts.
    #[arg(long, default_value_t = 2)]
    perf_level: u8,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.databases > 0 && arguments.column_families > 0, "at least one of each is needed");
    ensure!(arguments.deleted_percent <= 100, "of a hundred keys no more than 100 can be deleted");
    let plan = Plan {
        databases: arguments.databases,
        column_families: arguments.column_families,
        keys: arguments.keys,
        deleted_percent: arguments.deleted_percent,
    };
    let databases = Arc::new(Databases::create(&arguments.directory, plan)?);
    let level = worker::perf_level(arguments.perf_level)?;
    let workers: Vec<Worker> = (0..arguments.threads)
        .map(|number| Worker::start(Arc::clone(&databases), number, level))
        .collect::<Result<_>>()?;
    print(&Line::Ready { pid: std::process::id() })?;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("reading the standard input")?;
        match Step::of_word(line.trim()).with_context(|| format!("{line:?} is no step"))? {
            Step::List => print(&Line::Listed(list(&databases, &workers)?))?,
            Step::Reopen => {
                databases.reopen()?;
                print(&Line::Reopened {})?;
            }
            Step::Quit => break,
        }
    }
    workers.into_iter().try_for_each(Worker::end)
}

/// Has all threads list at the same time, and adds up.
fn list(databases: &Databases, workers: &[Worker]) -> Result<Listed> {
    let skips_before = databases.iterator_skips()?;
    workers.iter().try_for_each(Worker::begin)?;
    let mut listed = Listed::default();
    for worker in workers {
        let done = worker.done()?;
        listed.operations += done.operations;
        listed.tombstones_planned += done.tombstones_planned;
        listed.total = listed.total.plus(done.thread.counters);
        listed.threads.push(done.thread);
    }
    listed.iterator_skips = databases.iterator_skips()?.saturating_sub(skips_before);
    Ok(listed)
}

fn print(line: &Line) -> Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, line).context("writing a line")?;
    output.write_all(b"\n").and_then(|()| output.flush()).context("writing a line")
}

//! Sexton counts what MyRocks counts, exactly.
//!
//! Method: a private MariaDB server with a table of which a long run of rows is deleted. Sessions run queries
//! over it while `sexton observe` has its probes armed, and are idle when the window opens and when it
//! closes. What MyRocks harvested meanwhile from RocksDB's perf contexts, in
//! `information_schema.ROCKSDB_PERF_CONTEXT_GLOBAL`, must be equal, in each of three runs. MyRocks sets the
//! thread's perf context to zero at the beginning of each statement.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Agent, Observer, list, text};
use sexton_tests::mariadb::{Server, Session};
use std::time::Duration;

/// The window is closed when the queries are done; this is for queries that do not end.
const WINDOW_SECONDS: u64 = 300;
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

/// The agent reads a target once a second.
const GAP_LIMIT: Duration = Duration::from_secs(60);

/// Rows of the table; those between the two marks are deleted.
const ROWS: u64 = 100_000;
const FIRST_DELETED: u64 = 30_000;
const LAST_DELETED: u64 = 60_000;
/// Rounds of queries in one run.
const ROUNDS: u64 = 12;

#[test]
fn myrocks_6_29_5() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let mut first = server.connect()?;
    fill(&mut first)?;
    // Takes effect in each session at its next statement.
    first.execute("set global rocksdb_perf_context_level = 2")?;
    for run in 1..=3 {
        let mut staying = server.connect()?;
        let (before, positionings_before) = (first.perf_context()?, first.positionings()?);
        let observer = Observer::start(server.pid(), WINDOW_SECONDS, &[])?;
        query(&mut staying, run)?;
        // A connection, and so a thread, that comes and goes within the window.
        let mut passing = server.connect()?;
        query(&mut passing, run + 10)?;
        passing.close()?;
        query(&mut staying, run + 20)?;
        let observed = observer.close(CLOSE_LIMIT)?;
        let truth = first.perf_context()? - before;
        let positionings = first.positionings()? - positionings_before;
        staying.close()?;
        // A run that met nothing would prove nothing.
        ensure!(truth.tombstones_skipped > 100_000, "run {run} met too few tombstones: {truth:?}");
        ensure!(truth.block_reads > 1_000, "run {run} read too few blocks: {truth:?}");
        truth.check(&observed, positionings).with_context(|| format!("run {run}"))?;
    }
    first.close()?;
    server.stop()
}

/// MyRocks counts nothing unless it is told to. Zeros are no health then, and Sexton says so.
#[test]
fn a_level_that_counts_nothing_is_a_gap() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let mut session = server.connect()?;
    fill(&mut session)?;
    query(&mut session, 1)?;
    let policy = format!("targets: [{{ name: myrocks, match: {{ pid: {} }} }}]\n", server.pid());
    let mut agent = Agent::start(directory.path(), &policy)?;
    agent.wait_for(GAP_LIMIT, "the gap", |agent| {
        let targets = agent.get("/api/v1/targets")?;
        let mut gaps =
            list(&targets, "targets")?.iter().filter_map(|target| list(target, "gaps").ok()).flatten();
        Ok(gaps.any(|gap| text(gap, "/what").ends_with("counts nothing")).then_some(()))
    })?;
    agent.stop()?;
    session.close()?;
    server.stop()
}

fn fill(session: &mut Session) -> Result<()> {
    let statements = [
        "create database d".to_owned(),
        "use d".to_owned(),
        "create table d.t (id int unsigned primary key, number int unsigned, filler char(100), key (number)) \
         engine = rocksdb"
            .to_owned(),
        "set rocksdb_bulk_load = 1, rocksdb_bulk_load_allow_sk = 1".to_owned(),
        format!("insert into d.t select seq, seq * 7919 % 100003, md5(seq) from seq_1_to_{ROWS}"),
        "set rocksdb_bulk_load = 0".to_owned(),
        format!("delete from d.t where id between {FIRST_DELETED} and {LAST_DELETED}"),
        "set global rocksdb_force_flush_memtable_now = 1".to_owned(),
    ];
    for statement in statements {
        session.execute(&statement)?;
    }
    Ok(())
}

/// Ranges on both sides of the deleted rows and across them, upwards and downwards, by primary and by
/// secondary key, and single rows.
fn query(session: &mut Session, seed: u64) -> Result<()> {
    for round in 0..ROUNDS {
        let from = (seed * 7_907 + round * 4_409) % ROWS;
        let statements = [
            format!("select count(*) from d.t where id between {from} and {}", from + 15_000),
            format!("select filler from d.t where id >= {from} order by id limit 10"),
            format!("select filler from d.t where id <= {from} order by id desc limit 10"),
            format!(
                "select id from d.t force index (number) where number >= {from} order by number limit 50"
            ),
            format!("select filler from d.t where id = {from}"),
        ];
        for statement in statements {
            session.execute(&statement)?;
        }
    }
    Ok(())
}

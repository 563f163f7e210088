//! MyRocks is acted on by a statement: a long run of deleted rows hurts its readers, the agent has the column
//! family compacted, once, and the tombstones are gone.
//!
//! Method: a private MariaDB server with users and passwords and a table of which a run of rows is deleted. A
//! session counts rows across the run, again and again. MyRocks' own word on its SST files
//! (`information_schema.ROCKSDB_INDEX_FILE_MAP`) and the table's checksum are the truth; the agent's history
//! is compared with them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, text};
use sexton_tests::mariadb::{Server, Session};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the agent may take to see, plan, act and verify: a cycle is 2 s.
const LOOP_LIMIT: Duration = Duration::from_secs(90);
/// Cycles in which an agent that acts more than once would do so.
const IDLE_CYCLES: Duration = Duration::from_secs(5);

/// Rows of the table; those between the two marks are deleted.
const ROWS: u64 = 100_000;
const FIRST_DELETED: u64 = 20_000;
const LAST_DELETED: u64 = 80_000;

/// What the agent logs in with.
const USER: &str = "sexton";
const PASSWORD: &str = "ticks-of-7-clocks";

/// Root is let in by the server without a password, and the agent is not root there: it is somebody with
/// these grants.
fn policy(mode: &str, server: &Server, password_file: &Path) -> String {
    format!(
        r#"mode: {mode}
targets:
  - name: myrocks
    match: {{ pid: {} }}
    executor: sql
    sql: {{ socket: "{}", user: {USER}, password_file: "{}" }}
loop: {{ interval: 2s, window: 1s, survey: 60s }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 64MiB/s, burst: 1GiB }}
cooldown: 10m
guards: {{ process_uptime_min: 0s }}
"#,
        server.pid(),
        server.socket().display(),
        password_file.display()
    )
}

/// A plan costs the whole column family and shows the line to type; a wrong password pauses the target and
/// says what to do; the right one has the column family compacted once, and its rows are what they were.
#[test]
fn a_column_family_is_compacted_once_and_keeps_its_rows() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let server = Server::start_with_users(directory.path())?;
    let mut session = server.connect()?;
    fill(&mut session)?;
    let tombstones = deletions(&mut session)?;
    ensure!(tombstones > LAST_DELETED - FIRST_DELETED, "only {tombstones} tombstones to begin with");
    let checksum = session.execute("checksum table d.t")?;
    let right = password_file(directory.path(), "right.cnf", PASSWORD)?;
    let wrong = password_file(directory.path(), "wrong.cnf", "guessed")?;

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = scope.spawn(|| read(&server, &is_over));
        let worked = plans_refuses_and_acts(directory.path(), &server, &right, &wrong, tombstones);
        is_over.store(true, Ordering::Relaxed);
        readers.join().map_err(|_| anyhow::anyhow!("the readers panicked"))??;
        worked
    })?;

    ensure!(deletions(&mut session)? == 0, "tombstones are left");
    ensure!(session.execute("checksum table d.t")? == checksum, "the rows are not what they were");
    let log = server.log();
    ensure!(log.matches("Manual compaction of column family: default").count() == 1, "not once: {log}");
    ensure!(!log.contains("unauthenticated"), "the agent leaves aborted connections behind: {log}");
    session.close()?;
    server.stop()
}

fn plans_refuses_and_acts(
    directory: &Path,
    server: &Server,
    right: &Path,
    wrong: &Path,
    tombstones: u64,
) -> Result<()> {
    // Advise: the exact line, and what it costs.
    let mut agent = Agent::start(directory, &policy("advise", server, right))?;
    let step = agent.wait_for(LOOP_LIMIT, "a plan", |agent| {
        let plan = agent.get("/api/v1/plan")?;
        Ok(plan.pointer("/plan/steps").and_then(Value::as_array).and_then(|steps| steps.first().cloned()))
    })?;
    let line = step.pointer("/commands/0").and_then(Value::as_str).unwrap_or_default();
    ensure!(line.starts_with("mariadb ") && line.ends_with(COMPACT), "another command: {step}");
    let size_bytes = data_bytes(directory)?;
    let cost_bytes = count(&step, "/cost_bytes")?;
    ensure!(cost_bytes * 10 >= size_bytes * 9, "{cost_bytes} bytes of {size_bytes}: {step}");
    ensure!(list(&agent.get("/api/v1/actions")?, "actions")?.is_empty(), "it acted");
    agent.stop()?;

    // A password that is wrong: said with what to do, tried again only after a pause, nothing done.
    let mut agent = Agent::start(directory, &policy("act", server, wrong))?;
    let failed = agent.wait_for(LOOP_LIMIT, "an action that fails", |agent| {
        Ok(actions(agent)?.into_iter().find(|action| text(action, "/state") == "failed"))
    })?;
    let outcome = text(&failed, "/outcome");
    ensure!(outcome.contains("ERROR 1045") && outcome.contains("sql.password_file"), "{failed}");
    std::thread::sleep(IDLE_CYCLES);
    let tries = actions(&agent)?.len();
    ensure!(tries <= 3, "the target was not paused: {tries} tries");
    let log = agent.log();
    agent.stop()?;
    ensure!(!log.contains("panicked") && !log.contains("guessed"), "{log}");

    // The right one.
    doctor_agrees(directory, server, right)?;
    let mut agent = Agent::start(directory, &policy("act", server, right))?;
    let done = agent.wait_for(LOOP_LIMIT, "an action that helped", |agent| {
        Ok(actions(agent)?.into_iter().find(|action| text(action, "/state") == "helped"))
    })?;
    ensure!(count(&done, "/deletions_before")? == tombstones, "other tombstones than MyRocks': {done}");
    ensure!(count(&done, "/deletions_after")? == 0, "tombstones left: {done}");
    std::thread::sleep(IDLE_CYCLES);
    let all = actions(&agent)?;
    // The agent before may have ended in the middle of its last try.
    let begun =
        all.iter().filter(|action| text(action, "/state") != "failed" && action["is_earlier"] == false);
    ensure!(begun.count() == 1, "not one action for the column family: {all:?}");
    let log = agent.log();
    agent.stop()?;
    ensure!(!log.contains(PASSWORD), "the password is in the log");
    Ok(())
}

/// End of the line to type.
const COMPACT: &str = "-e \"SET GLOBAL rocksdb_compact_cf = 'default'\"";

/// `sexton doctor --policy` says whether it would work, and changes nothing.
fn doctor_agrees(directory: &Path, server: &Server, right: &Path) -> Result<()> {
    let path = directory.join("doctor.yaml");
    let pid = server.pid().to_string();
    for (password_file, answer, words) in
        [(right, "yes", ""), (Path::new("/nowhere/x.cnf"), "no", "sql.password_file")]
    {
        std::fs::write(&path, policy("act", server, password_file))?;
        let policy_path = path.to_string_lossy();
        let output =
            agent::output(directory, &["doctor", "--pid", &pid, "--json", "--policy", &policy_path])?;
        let report: Value =
            serde_json::from_slice(&output.stdout).context("sexton doctor printed no JSON")?;
        let executors = report.pointer("/targets/0/executors").and_then(Value::as_array).cloned();
        let finding =
            executors.unwrap_or_default().into_iter().find(|finding| text(finding, "/name") == "sql");
        let finding = finding.with_context(|| format!("nothing about sql: {report}"))?;
        ensure!(text(&finding, "/answer") == answer, "{finding}");
        ensure!(text(&finding, "/remedy").contains(words), "{finding}");
    }
    Ok(())
}

fn actions(agent: &Agent) -> Result<Vec<Value>> {
    Ok(list(&agent.get("/api/v1/actions")?, "actions")?.clone())
}

fn fill(session: &mut Session) -> Result<()> {
    let statements = [
        format!("create user '{USER}'@'localhost' identified by '{PASSWORD}'"),
        format!("grant super, process on *.* to '{USER}'@'localhost'"),
        "create database d".to_owned(),
        "use d".to_owned(),
        "create table d.t (id int unsigned primary key, filler char(100)) engine = rocksdb".to_owned(),
        "set rocksdb_bulk_load = 1".to_owned(),
        format!("insert into d.t select seq, md5(seq) from seq_1_to_{ROWS}"),
        "set rocksdb_bulk_load = 0".to_owned(),
        format!("delete from d.t where id between {FIRST_DELETED} and {LAST_DELETED}"),
        "set global rocksdb_force_flush_memtable_now = 1".to_owned(),
        // Takes effect in each session at its next statement.
        "set global rocksdb_perf_context_level = 2".to_owned(),
    ];
    for statement in statements {
        session.execute(&statement)?;
    }
    Ok(())
}

/// Counts rows across the deleted run until it is told to end.
fn read(server: &Server, is_over: &AtomicBool) -> Result<()> {
    let mut session = server.connect()?;
    let from = FIRST_DELETED - 5_000;
    let query = format!("select count(*) from d.t where id between {from} and {}", LAST_DELETED + 5_000);
    let left = [10_000.to_string()];
    while !is_over.load(Ordering::Relaxed) {
        let rows = session.execute(&query)?;
        ensure!(rows == left, "{rows:?} rows, not {left:?}");
    }
    session.close()
}

/// Tombstones in the SST files of column family `default`, as MyRocks counts them.
fn deletions(session: &mut Session) -> Result<u64> {
    let rows = session.execute(
        "select coalesce(sum(entry_deletes + entry_singledeletes), 0) from information_schema.ROCKSDB_INDEX_FILE_MAP \
         where column_family = 0",
    )?;
    rows.first().and_then(|row| row.parse().ok()).with_context(|| format!("no number of deletions: {rows:?}"))
}

/// Bytes of the SST files in the server's directory.
fn data_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory.join("data/#rocksdb")).context("MyRocks' directory")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(".sst") {
            bytes += entry.metadata()?.len();
        }
    }
    ensure!(bytes > 0, "no SST file");
    Ok(bytes)
}

fn password_file(directory: &Path, name: &str, password: &str) -> Result<PathBuf> {
    let path = directory.join(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    writeln!(file, "[client]\npassword={password}")?;
    Ok(path)
}

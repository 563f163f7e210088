//! Of two databases that share SST files by hard links the live one is acted on and its checkpoint is not,
//! unless the policy names it; and what is open only for reading never is.
//!
//! Method: a Python program has a database and a checkpoint of it open (Debian's RocksDB, which makes the
//! checkpoint and compacts nothing by itself), with the hook preloaded, and lists both over the same
//! tombstones. The witness is the file system: an SST file that was rewritten has another name and another
//! inode.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, number, text};
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// Filling takes a second here.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// A sweep that sees which databases are open comes every ten seconds.
const LIMIT: Duration = Duration::from_secs(60);
/// Cycles in which an agent that may act again would act.
const IDLE_CYCLES: Duration = Duration::from_secs(3);

/// The program, its databases, and where they are.
struct Databases {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
    live: PathBuf,
    checkpoint: PathBuf,
}

impl Databases {
    fn start(directory: &Path, access: &str) -> Result<Databases> {
        let directory = directory.join("databases");
        std::fs::create_dir(&directory)?;
        let directory = directory.canonicalize()?;
        let (library, hook) = (artifact::debian_rocksdb()?, artifact::built("libsexton_hook.so")?);
        let mut command = Command::new(artifact::installed("python3", "python3")?);
        command.arg(artifact::repository().join("tests/python/live_and_checkpoint.py"));
        command.arg(&directory).arg(access).arg(&library);
        command.env("LD_PRELOAD", format!("{}:{}", hook.display(), library.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
        lines.until(READY_LIMIT, |line| line == "ready").context("waiting for the databases")?;
        let [live, checkpoint] = ["live.db", "checkpoint.db"].map(|name| directory.join(name));
        ensure!(sst_files(&live)? == sst_files(&checkpoint)?, "the checkpoint does not share all files");
        Ok(Databases { process, stdin, lines, live, checkpoint })
    }

    fn close_live(&mut self) -> Result<()> {
        writeln!(self.stdin, "close").context("having the live database closed")?;
        self.lines.until(READY_LIMIT, |line| line == "closed").context("closing the live database")?;
        Ok(())
    }

    /// A policy that acts, and says `databases` of them.
    fn policy(&self, databases: &str) -> String {
        format!(
            "\
mode: act
targets:
  - name: python
    match: {{ pid: {} }}
    executor: hook
    remedies: [compact]
{databases}
thresholds: {{ tombstones_per_operation: 100, pain: 100us/s, density: 0.05 }}
loop: {{ interval: 1s, window: 500ms, survey: 1s }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 64MiB/s, burst: 4GiB }}
cooldown: 1s
guards: {{ process_uptime_min: 0s }}
keys: shown
",
            self.process.pid()
        )
    }
}

/// Names and inodes of a database's SST files.
fn sst_files(directory: &Path) -> Result<BTreeSet<(String, u64)>> {
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".sst") {
            files.insert((name, entry.metadata()?.ino()));
        }
    }
    ensure!(!files.is_empty(), "{} has no SST files", directory.display());
    Ok(files)
}

/// What was done to a database.
fn actions(agent: &Agent, database: &Path) -> Result<Vec<Value>> {
    let answer = agent.get("/api/v1/actions")?;
    let of_it = |action: &&Value| Path::new(text(action, "/database")) == database;
    Ok(list(&answer, "actions")?.iter().filter(of_it).cloned().collect())
}

fn wait_for_compaction(agent: &mut Agent, database: &Path) -> Result<Value> {
    agent.wait_for(LIMIT, &format!("a compaction of {} that helped", database.display()), |agent| {
        Ok(actions(agent, database)?.into_iter().find(|action| text(action, "/state") == "helped"))
    })
}

/// Waits until the plan refuses a database for this rule, by name.
fn wait_for_refusal(agent: &mut Agent, database: &Path, rule: &str) -> Result<Value> {
    agent.wait_for(LIMIT, &format!("{rule} of {}", database.display()), |agent| {
        let plan = agent.get("/api/v1/plan")?;
        let refusals = plan.pointer("/plan/refusals").and_then(Value::as_array).cloned().unwrap_or_default();
        let is_it = |refusal: &Value| {
            Path::new(text(refusal, "/database")) == database && text(refusal, "/rule") == rule
        };
        Ok(refusals.into_iter().find(is_it))
    })
}

#[test]
fn a_checkpoint_is_compacted_only_where_the_policy_names_it() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let databases = Databases::start(directory.path(), "read_write")?;
    let (live_before, checkpoint_before) = (sst_files(&databases.live)?, sst_files(&databases.checkpoint)?);
    let mut agent = Agent::start(directory.path(), &databases.policy(""))?;
    let compacted = wait_for_compaction(&mut agent, &databases.live)?;
    ensure!(sst_files(&databases.live)?.is_disjoint(&live_before), "the live database has its old files");
    // All that it replaced stays on the disk for the checkpoint's sake, and that was said beforehand.
    let (cost, linked) = (count(&compacted, "/cost_bytes")?, count(&compacted, "/linked_bytes")?);
    ensure!(linked > 0 && linked <= cost, "{linked} of {cost} bytes stay for the links: {compacted}");
    ensure!(text(&compacted, "/reason").contains("hard links elsewhere keep"), "{compacted}");

    let refusal = wait_for_refusal(&mut agent, &databases.checkpoint, "checkpoint")?;
    ensure!(text(&refusal, "/reason").contains("databases.include can name it"), "{refusal}");
    std::thread::sleep(IDLE_CYCLES);
    let done = actions(&agent, &databases.checkpoint)?;
    ensure!(done.is_empty(), "the checkpoint was acted on: {done:?}");
    ensure!(sst_files(&databases.checkpoint)? == checkpoint_before, "the checkpoint has other files");
    let hurts = agent.get("/api/v1/ranges")?;
    let of_checkpoint = |range: &&Value| Path::new(text(range, "/database")) == databases.checkpoint;
    let hurts = list(&hurts, "ranges")?.iter().find(of_checkpoint).context("the checkpoint does not hurt")?;
    ensure!(number(hurts, "/pain_seconds_per_second")? > 0.0, "{hurts}");
    for database in [&databases.live, &databases.checkpoint] {
        ensure!(agent.log().contains(&format!("{} ", database.display())), "{}", agent.log_end());
    }

    let named = databases.policy("    databases: { include: ['*/checkpoint.db'] }");
    std::fs::write(directory.path().join("policy.yaml"), named)?;
    wait_for_compaction(&mut agent, &databases.checkpoint)?;
    ensure!(sst_files(&databases.checkpoint)?.is_disjoint(&checkpoint_before), "it has its old files");
    agent.stop()
}

/// What a read-only instance's readers wait for cannot be told from what those of another database in the
/// process wait for, so the plan names it once it is open alone.
#[test]
fn a_database_that_is_open_for_reading_is_left_alone_even_where_it_is_named() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut databases = Databases::start(directory.path(), "read_only")?;
    let before = sst_files(&databases.checkpoint)?;
    let policy = databases.policy("    databases: { include: ['*/live.db', '*/checkpoint.db'] }");
    let mut agent = Agent::start(directory.path(), &policy)?;
    wait_for_compaction(&mut agent, &databases.live)?;
    databases.close_live()?;
    let refusal = wait_for_refusal(&mut agent, &databases.checkpoint, "read_only_database")?;
    ensure!(text(&refusal, "/reason").contains("only for reading"), "{refusal}");
    std::thread::sleep(IDLE_CYCLES);
    let done = actions(&agent, &databases.checkpoint)?;
    ensure!(done.is_empty(), "the database that is only read was acted on: {done:?}");
    ensure!(sst_files(&databases.checkpoint)? == before, "the database that is only read has other files");
    agent.stop()
}

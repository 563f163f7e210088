//! The loop closes in an unmodified JVM: pain is seen and attributed to the deleted prefix, the plan
//! alone changes nothing, and acting makes the list fast and touches nothing outside the range.
//!
//! Method: a Java program on rocksdbjni lists a healthy prefix, `/vol/a/`, and one behind 249,999
//! tombstones, `/vol/b/`, again and again. Its own latencies, its own RocksDB's word on its SST files, and
//! the directory's contents are the truth; the agent's word is compared with them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, Observer, count, list, number, text};
use sexton_tests::jvm::{self, Program, SstFile};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The program ends by itself after this, whatever happens to the test.
const PROGRAM_SECONDS: u64 = 240;
/// Tombstones that the program leaves.
const TOMBSTONES: u64 = 249_999;
/// The list must become at least this much faster.
const GAIN_WANTED: u64 = 50;
/// How long the agent may take to see, plan, act and verify: a cycle is 2 s.
const LOOP_LIMIT: Duration = Duration::from_secs(90);
/// How long latencies are collected for a median.
const MEASURE: Duration = Duration::from_secs(3);

fn policy(mode: &str, pid: u32) -> String {
    format!(
        r#"mode: {mode}
targets:
  - name: java
    match: {{ pid: {pid} }}
    executor: hook
    column_families:
      - name: keyTable
        prefix: {{ delimiter: "/", count: 3 }}
thresholds: {{ tombstones_per_operation: 1000, block_reads_per_operation: 64, pain: 5ms/s, density: 0.1 }}
loop: {{ interval: 2s, window: 1s, survey: 60s }}
io_budget: {{ rate: 64MiB/s, burst: 1GiB }}
cooldown: 2s
guards: {{ process_uptime_min: 0s }}
range_bytes_max: 256MiB
keys: shown
"#
    )
}

/// The tombstones are met in `Next`, after a seek that finds a live key: a probe of Seek alone would see
/// nothing. The observation must say so, and name the prefix.
#[test]
fn pain_in_next_is_attributed_to_the_deleted_prefix() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let program = Program::start(directory.path(), PROGRAM_SECONDS)?;
    let observed = Observer::start(program.pid(), 3, &["--show-keys"])?.finish(LOOP_LIMIT)?;
    program.end()?;
    // Of lists that only read a block a sample is recorded as well.
    let has_skipped = |seen: &&Value| {
        let skipped = |part| count(seen, part).unwrap_or(0);
        skipped("/seek/tombstones_skipped") + skipped("/scan/tombstones_skipped") > 0
    };
    let observations: Vec<&Value> = list(&observed, "observations")?.iter().filter(has_skipped).collect();
    ensure!(!observations.is_empty(), "nothing painful was observed: {observed}");
    let mut under_way = 0;
    for observation in &observations {
        ensure!(count(observation, "/seek/tombstones_skipped")? == 0, "tombstones in Seek: {observation}");
        let skipped = count(observation, "/scan/tombstones_skipped")?;
        ensure!(skipped <= TOMBSTONES, "charged for another list's tombstones: {observation}");
        under_way += usize::from(skipped < TOMBSTONES);
        ensure!(text(observation, "/key") == "/vol/b/", "not at /vol/b/: {observation}");
        ensure!(text(observation, "/column_family") == "keyTable", "another column family: {observation}");
    }
    // The program has one thread: at most one list is under way when the window closes.
    ensure!(under_way <= 1, "{under_way} lists with fewer than {TOMBSTONES} tombstones: {observed}");
    ensure!(observations.len() >= 5, "too few lists in 3 s to prove anything: {observed}");
    // The lists of /vol/a/ are operations too, and hardly any has a record.
    let (all, recorded) = (count(&observed, "/operations")?, count(&observed, "/operations_recorded")?);
    ensure!(recorded > 0 && all > recorded, "{recorded} of {all} operations are recorded: {observed}");
    Ok(())
}

/// `advise` makes a plan for the prefix and leaves the database exactly as it was.
#[test]
fn advise_plans_and_changes_nothing() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut program = Program::start(directory.path(), PROGRAM_SECONDS)?;
    let files_before = sst_files(directory.path())?;
    let names_before = names(directory.path())?;
    let mut agent = Agent::start(directory.path(), &policy("advise", program.pid()))?;
    let step = agent.wait_for(LOOP_LIMIT, "a plan", |agent| {
        let plan = agent.get("/api/v1/plan")?;
        Ok(plan.pointer("/plan/steps").and_then(Value::as_array).and_then(|steps| steps.first().cloned()))
    })?;
    ensure!(text(&step, "/begin").starts_with("/vol/b/"), "the plan is for another range: {step}");
    ensure!(!text(&step, "/reason").is_empty(), "the step gives no reason: {step}");
    let ranges = agent.get("/api/v1/ranges")?;
    for range in list(&ranges, "ranges")? {
        // The healthy prefix is shown where its lists read blocks, and nothing would be gained there.
        let is_healthy = number(range, "/tombstones_per_seek")? == 0.0;
        ensure!(
            !is_healthy || number(range, "/relief_per_byte")? == 0.0,
            "relief without tombstones: {range}"
        );
        let is_deleted = text(range, "/begin").starts_with("/vol/b/");
        ensure!(is_healthy || is_deleted, "tombstones in another range: {range}");
        ensure!(text(range, "/column_family") == "keyTable", "wrong column family: {range}");
    }
    // Two more cycles with a plan at hand, in which an agent that acts would act.
    std::thread::sleep(Duration::from_secs(5));
    let actions = agent.get("/api/v1/actions")?;
    ensure!(list(&actions, "actions")?.is_empty(), "it acted: {actions}");
    ensure!(program.deletions()? == TOMBSTONES, "the tombstones have changed");
    ensure!(sst_files(directory.path())? == files_before, "the SST files have changed");
    ensure!(names(directory.path())? == names_before, "files have come or gone in the database's directory");
    agent.stop()?;
    program.end()
}

/// `act` compacts the prefix through a hook that is attached to the running JVM: no tombstone left, the
/// list at least 50 times faster with the same result, and no file outside the prefix touched.
#[test]
fn act_relieves_the_prefix_and_leaves_the_rest_alone() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut program = Program::start(directory.path(), PROGRAM_SECONDS)?;
    let lists_before = program.lists(MEASURE)?;
    let files_before = program.files()?;
    let mut agent = Agent::start(directory.path(), &policy("act", program.pid()))?;
    let helped = agent.wait_for(LOOP_LIMIT, "an action that helped", |agent| {
        let actions = agent.get("/api/v1/actions")?;
        Ok(list(&actions, "actions")?.iter().find(|action| text(action, "/state") == "helped").cloned())
    })?;
    // A long range is compacted slice by slice; the target's own RocksDB tells when none is left.
    let deadline = Instant::now() + LOOP_LIMIT;
    while program.deletions()? > 0 && Instant::now() < deadline {}
    let actions = agent.get("/api/v1/actions")?;
    let log_end = agent.log_end();
    agent.stop()?;
    let lists_after = program.lists(MEASURE)?;
    let (files_after, deletions_after) = (program.files()?, program.deletions()?);
    program.end()?;

    ensure!(deletions_after == 0, "{deletions_after} tombstones are left; log:\n{log_end}");
    ensure!(count(&helped, "/deletions_after")? == 0, "the agent saw tombstones left: {helped}");
    ensure!(number(&helped, "/pain_after")? < number(&helped, "/pain_before")? / 10.0, "no relief: {helped}");
    for action in list(&actions, "actions")? {
        ensure!(text(action, "/begin").starts_with("/vol/b/"), "it acted on another range: {action}");
    }
    let before = jvm::median_ns(&lists_before, "/vol/b/").context("no list before")?;
    let after = jvm::median_ns(&lists_after, "/vol/b/").context("no list after")?;
    ensure!(before >= GAIN_WANTED * after, "the list took {before} ns and takes {after} ns");
    let same =
        |lists: &[jvm::List], keys: &str| lists.iter().all(|l| l.prefix != "/vol/b/" || l.keys == keys);
    let keys = &lists_before.iter().find(|l| l.prefix == "/vol/b/").context("no list before")?.keys;
    ensure!(same(&lists_before, keys) && same(&lists_after, keys), "the list returns other keys than before");
    untouched_outside(&files_before, &files_after)
}

/// Files that share no key with `/vol/b/` must still be there, with their numbers.
fn untouched_outside(before: &[SstFile], after: &[SstFile]) -> Result<()> {
    let outside: Vec<&SstFile> = before.iter().filter(|file| file.largest.as_str() < "/vol/b/").collect();
    ensure!(outside.len() >= 3, "too few files lie outside of /vol/b/ to prove anything: {before:?}");
    for file in outside {
        ensure!(after.contains(file), "{file:?} lies outside of /vol/b/ and was rewritten; now {after:?}");
    }
    ensure!(before.iter().any(|file| !after.contains(file)), "no file was rewritten at all");
    Ok(())
}

/// Name, size and modification time of the SST files.
fn sst_files(directory: &Path) -> Result<BTreeMap<String, (u64, SystemTime)>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(jvm::database(directory))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".sst") {
            let metadata = entry.metadata()?;
            files.insert(name, (metadata.len(), metadata.modified()?));
        }
    }
    ensure!(files.len() > 3, "there are only {} SST files", files.len());
    Ok(files)
}

/// All names in the database's directory.
fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(jvm::database(directory))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

//! `sexton doctor` says what works and what does not, why, and what to do about it.
//!
//! Method: the real binary on real processes: a queue workload (RocksDB inside the executable), Debian's
//! `db_bench` (a shared library, perf level off), a process without RocksDB; and as a user without any
//! rights.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, count, list, text};
use sexton_tests::artifact;
use sexton_tests::db_bench::{self, SeekPlan, Seeks};
use sexton_tests::process::{Lines, Process};
use sexton_tests::workload::{COLUMN_FAMILY, PREFIX, Start, Workload};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SECOND_LIMIT: Duration = Duration::from_secs(30);

fn doctor(arguments: &[&str]) -> Result<Output> {
    let directory = tempfile::tempdir()?;
    agent::output(directory.path(), &[&["doctor"], arguments].concat())
}

fn report(output: &Output) -> Result<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
}

/// The finding of this name in a list of them.
fn finding<'a>(findings: &'a [Value], name: &str) -> Result<&'a Value> {
    findings.iter().find(|finding| text(finding, "/name") == name).with_context(|| {
        let names: Vec<&str> = findings.iter().map(|finding| text(finding, "/name")).collect();
        format!("no finding {name:?} among {names:?}")
    })
}

/// Every finding that is not `yes` says why and what to do.
fn check_reasons(findings: &[Value]) -> Result<()> {
    for finding in findings.iter().filter(|finding| text(finding, "/answer") != "yes") {
        for field in ["/reason", "/remedy"] {
            ensure!(text(finding, field).len() > 5, "no {field}: {finding}");
        }
    }
    Ok(())
}

#[test]
fn a_rocksdb_inside_an_executable() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    let mut workload = Workload::start(Start {
        directory: &database,
        keys: 200_000,
        seconds: 120,
        preload: None,
        stderr: Stdio::inherit(),
    })?;
    workload.second(SECOND_LIMIT)?;
    let pid = workload.process.pid().to_string();

    let output = doctor(&["--pid", &pid, "--json"])?;
    let report = report(&output)?;
    ensure!(output.status.success(), "exit status {}: {report}", output.status);
    ensure!(report["ok"] == true, "not ok: {report}");
    ensure!(!text(&report, "/kernel/mechanism").is_empty(), "no mechanism: {report}");
    for findings in [list(&report["kernel"], "findings")?, list(&report, "privileges")?] {
        check_reasons(findings)?;
    }
    let [target] = list(&report, "targets")?.as_slice() else { anyhow::bail!("not one target: {report}") };
    ensure!(target["facts"]["process"]["pid"] == workload.process.pid(), "another process: {target}");
    ensure!(count(target, "/threads/perf_level")? == 2, "another perf level: {target}");
    ensure!(count(target, "/threads/threads_with_counters")? > 0, "no counters were read: {target}");
    ensure!(count(target, "/facts/module/version/major")? == 11, "another version: {target}");
    let probes = list(target, "probes")?;
    let seek = probes.iter().find(|probe| text(probe, "/function") == "Seek").context("no Seek")?;
    ensure!(text(seek, "/kind") == "emulated", "Seek is not probed cheaply: {seek}");
    ensure!((100..100_000).contains(&count(seek, "/price_ns")?), "no price that can be: {seek}");
    ensure!(text(seek, "/mechanism") == text(&report, "/kernel/mechanism"), "another mechanism: {seek}");
    for findings in ["findings", "executors"] {
        check_reasons(list(target, findings)?)?;
    }
    check_database(target, &database)?;
    let executors = list(target, "executors")?;
    ensure!(text(finding(executors, "none")?, "/answer") == "yes", "it cannot even plan: {target}");
    ensure!(text(finding(executors, "hook by attaching")?, "/answer") == "no", "it is no JVM: {target}");

    let words = doctor(&["--pid", &pid])?;
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    for wanted in ["Kernel", "Privileges", "CAP_BPF", COLUMN_FAMILY, "emulated", "Summary", "  ok: "] {
        ensure!(words.contains(wanted), "no {wanted} in:\n{words}");
    }
    for shown in [words, report.to_string()] {
        ensure!(!shown.contains(&format!("{PREFIX}key")), "a key is shown:\n{shown}");
    }
    Ok(())
}

fn check_database(target: &Value, path: &Path) -> Result<()> {
    let [database] = list(target, "databases")?.as_slice() else {
        anyhow::bail!("not one database: {target}")
    };
    ensure!(text(database, "/path") == path.display().to_string(), "another database: {database}");
    let families = list(database, "column_families")?;
    ensure!(families.iter().any(|family| *family == *COLUMN_FAMILY), "no {COLUMN_FAMILY}: {database}");
    ensure!(count(database, "/sst_files")? > 0, "no SST files: {database}");
    Ok(())
}

#[test]
fn all_processes_of_the_node() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    let seeks = Seeks::start_stopped(&database, SeekPlan { reads: 10, nexts: 10, seed: 1 })?;
    let output = doctor(&["--json"])?;
    let report = report(&output)?;
    let targets = list(&report, "targets")?;
    let target = targets
        .iter()
        .find(|target| target["facts"]["process"]["pid"] == seeks.pid())
        .context("db_bench is not found")?;
    let version =
        (count(target, "/facts/module/version/major")?, count(target, "/facts/module/version/minor")?);
    ensure!(version == (7, 8), "another version: {target}");
    ensure!(text(target, "/facts/module/path").contains("librocksdb.so"), "another module: {target}");
    seeks.finish(LIMIT)?;
    Ok(())
}

#[test]
fn a_process_without_rocksdb() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut command = Command::new("sleep");
    command.arg("60");
    let sleeper = Process::start(command)?;
    let pid = sleeper.pid().to_string();
    let output = doctor(&["--pid", &pid, "--json"])?;
    let report = report(&output)?;
    ensure!(output.status.code() == Some(1), "exit status {}", output.status);
    ensure!(report["ok"] == false, "ok: {report}");
    let refused = list(&report, "refused")?.first().context("nothing refused")?;
    ensure!(text(refused, "/reason").contains("no RocksDB inside"), "unclear words: {refused}");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(stderr.lines().filter(|line| line.starts_with("error: ")).count() == 1, "{stderr}");
    Ok(())
}

/// Nobody may do next to nothing, and is told what is missing.
#[test]
fn a_user_without_rights() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    // Where the build lies nobody may be allowed to look.
    let program = directory.path().join("sexton");
    std::fs::copy(artifact::built("sexton")?, &program)?;
    open_to_everybody(directory.path())?;
    let mut command = Command::new(artifact::installed("setpriv", "util-linux")?);
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
    ]);
    command.arg(&program).args(["doctor", "--json"]).current_dir(directory.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut stdout = Lines::of("sexton", process.take_stdout().context("no standard output")?);
    let mut stderr = Lines::of("sexton", process.take_stderr().context("no standard error")?);
    let status = process.wait(LIMIT)?;
    let (stdout, stderr) = (stdout.rest(LIMIT)?.join("\n"), stderr.rest(LIMIT)?.join("\n"));
    let report: Value =
        serde_json::from_str(&stdout).with_context(|| format!("no JSON: {stdout}\n{stderr}"))?;
    ensure!(status.code() == Some(1), "exit status {status}");
    let privileges = list(&report, "privileges")?;
    for name in ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"] {
        let finding = finding(privileges, name)?;
        ensure!(text(finding, "/answer") == "no", "nobody has {name}: {finding}");
        ensure!(text(finding, "/remedy").contains("root"), "no remedy: {finding}");
    }
    // What cannot be tried is not said to be missing.
    let features = list(&report["kernel"], "findings")?;
    ensure!(text(finding(features, "ring buffers")?, "/answer") == "unknown", "it is said to know: {report}");
    check_reasons(features)?;
    ensure!(!stderr.contains("panicked") && !stderr.contains("libbpf:"), "noise: {stderr}");
    Ok(())
}

fn open_to_everybody(directory: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?)
}

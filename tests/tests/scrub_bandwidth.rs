//! `sexton scrub-bandwidth` reads and sets what the data scanners of a DataNode may read, and comes to an end
//! whatever the JVM does.
//!
//! Method: a Java program on RocksDB, with threads that run objects of the names that Ozone's have. What it
//! says of its throttlers is the truth. A real DataNode, whose scanner is measured, is in `make test-ozone`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, list, number, text};
use sexton_tests::process::{Lines, Process, threads_named};
use sexton_tests::{artifact, jvm};
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const SOURCES: [&str; 3] = [
    "scanners/DataTransferThrottler.java",
    "scanners/BackgroundContainerDataScanner.java",
    "scanners/ScannerHost.java",
];
/// The program answers at once, and a JVM starts within seconds.
const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

struct Host {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
    directory: TempDir,
}

impl Host {
    fn start(scanners: u32) -> Result<Host> {
        let directory = tempfile::tempdir()?;
        let jar = artifact::tool(jvm::ROCKSDB_JAR)?;
        jvm::compile(&jar, &SOURCES, directory.path())?;
        let mut command = Command::new(artifact::installed("java", "default-jdk-headless")?);
        command.arg("-Xmx128m").arg(format!("-Djava.io.tmpdir={}", directory.path().display()));
        command.arg("-cp").arg(format!("{}:{}", jar.display(), directory.path().display()));
        command.arg("ScannerHost").arg(directory.path().join("db")).arg(scanners.to_string());
        let errors = std::fs::File::create(directory.path().join("java.log"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("java", process.take_stdout().context("no standard output")?);
        lines.until(LIMIT, |line| line == "ready")?;
        Ok(Host { process, stdin, lines, directory })
    }

    fn ask(&mut self, command: &str) -> Result<String> {
        writeln!(self.stdin, "{command}")?;
        self.lines.next(LIMIT)?.context("the program has ended")
    }

    /// Runs `sexton scrub-bandwidth`; what it prints, or what its error is.
    fn scrub_bandwidth(&self, arguments: &[&str]) -> Result<Result<String, String>> {
        let pid = self.process.pid().to_string();
        let hook = artifact::built("libsexton_hook.so")?;
        let hook = hook.to_str().context("a path that is no text")?;
        let common = ["scrub-bandwidth", "--pid", &pid, "--hook-library", hook];
        let output = agent::output(self.path(), &[&common[..], arguments].concat())?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// The error that was expected.
fn refused(said: Result<String, String>, reason: &str) -> Result<()> {
    let said = said.err().context("it was done")?;
    ensure!(said.contains(reason) && said.contains("help: "), "{said}");
    Ok(())
}

#[test]
fn each_scanner_is_read_and_set() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut host = Host::start(2)?;
    ensure!(host.scrub_bandwidth(&[])? == Ok((5 * MIB).to_string()));
    ensure!(host.scrub_bandwidth(&["2MiB"])? == Ok((2 * MIB).to_string()));
    ensure!(host.ask("bandwidths")? == format!("{0} {0}", 2 * MIB));
    host.ask("differ")?;
    ensure!(host.scrub_bandwidth(&[])? == Ok(format!("{} {}", MIB, 2 * MIB)));
    let told = host.scrub_bandwidth(&["--json"])?.map_err(anyhow::Error::msg)?;
    let told: Value = serde_json::from_str(&told)?;
    let scanners = list(&told, "scanners")?;
    ensure!(scanners.len() == 2, "{told}");
    for (index, scanner) in scanners.iter().enumerate() {
        let name = text(scanner, "/name");
        ensure!(name == format!("ContainerDataScanner(/data/{index}/\u{e4}\u{20ac})"), "{name}");
        ensure!(number(scanner, "/bytes_per_second")? >= MIB as f64, "{told}");
    }
    // Nothing is left of the threads that asked.
    let asking = threads_named(host.process.pid(), "sexton-jni")?;
    ensure!(asking.is_empty(), "{asking:?}");
    Ok(())
}

/// An exception in Java, a monitor that nobody lets go, and a program without scanners: each is an error in
/// time, and the next question is answered again.
#[test]
fn a_machine_that_refuses_or_does_not_answer_is_an_error_in_time() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut host = Host::start(1)?;
    host.ask("refuse")?;
    refused(host.scrub_bandwidth(&["2MiB"])?, "refuses setBandwidth")?;
    host.ask("accept")?;
    ensure!(host.scrub_bandwidth(&["2MiB"])? == Ok((2 * MIB).to_string()));

    ensure!(host.ask("hold")? == "held");
    refused(host.scrub_bandwidth(&["3MiB"])?, "did not answer within 5 s")?;
    refused(host.scrub_bandwidth(&[])?, "has not answered an earlier question")?;
    host.ask("release")?;
    let deadline = std::time::Instant::now() + LIMIT;
    while host.scrub_bandwidth(&[])? != Ok((3 * MIB).to_string()) {
        ensure!(std::time::Instant::now() < deadline, "the question before is not over");
    }

    let nobody = Host::start(0)?;
    refused(nobody.scrub_bandwidth(&[])?, "no data scanner runs here")?;
    Ok(())
}

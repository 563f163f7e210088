//! Running the agent: its binary, its exit codes, its HTTP API.

use crate::process::{Lines, Process};
use crate::{artifact, http, machine, unit_filter};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Opening the agent's probes takes some 10 ms each and loading its programs less than a second; a busy
/// machine is slower.
pub const START_LIMIT: Duration = Duration::from_secs(30);
/// How long the agent may take to end after SIGINT: detaching probes takes tens of milliseconds each.
pub const STOP_LIMIT: Duration = Duration::from_secs(20);
/// How often the API is asked while waiting for something.
const API_POLL: Duration = Duration::from_millis(200);

/// Of the file that tests and benchmarks lock.
const LOCK_NAME: &str = "sexton-tests.lock";

/// The right to load BPF programs on this machine, beside others or alone.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

/// Held by a test: others run at the same time, each on its own targets, files, sockets and ports. Fails with
/// a clear message when the tests do not run as root.
pub fn beside_others() -> Result<Turn> {
    let lock = lock_file()?;
    lock.lock_shared().context("waiting for a benchmark on this machine")?;
    Ok(Turn { _lock: lock })
}

/// Held by a benchmark, which measures time: no test and no other benchmark disturbs it.
pub fn exclusively() -> Result<Turn> {
    let lock = lock_file()?;
    lock.lock().context("waiting for tests on this machine")?;
    Ok(Turn { _lock: lock })
}

fn lock_file() -> Result<File> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the end-to-end tests load BPF programs and look into other processes: run `make test` as root"
    );
    // /run is root's own; where it cannot be written (a kernel under test) nobody else tests either.
    File::create(Path::new("/run").join(LOCK_NAME))
        .or_else(|_| File::create(std::env::temp_dir().join(LOCK_NAME)))
        .context("creating the tests' lock")
}

/// `sexton` with no arguments yet.
pub fn command() -> Result<Command> {
    let mut command = Command::new(artifact::built("sexton")?);
    command.stdin(Stdio::null());
    Ok(command)
}

/// Runs `sexton` with `arguments` in `directory` to its end.
pub fn output(directory: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = command()?;
    command.current_dir(directory).env("TMPDIR", directory).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut stdout = Lines::of("sexton", process.take_stdout().context("no standard output")?);
    let mut stderr = Lines::of("sexton", process.take_stderr().context("no standard error")?);
    let status = process.wait(machine::patience(START_LIMIT)?)?;
    let bytes = |lines: Vec<String>| lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
    let (stdout, stderr) = (bytes(stdout.rest(STOP_LIMIT)?), bytes(stderr.rest(STOP_LIMIT)?));
    Ok(Output { status, stdout, stderr })
}

/// A `sexton observe` that has its probes armed.
#[derive(Debug)]
pub struct Observer {
    pub process: Process,
    stdout: Lines,
    stderr: Lines,
}

impl Observer {
    /// Starts `sexton observe --pid pid --seconds seconds --json` with `extra` arguments and waits until
    /// the probes are armed.
    pub fn start(pid: u32, seconds: u64, extra: &[&str]) -> Result<Observer> {
        let mut command = command()?;
        command.args(["observe", "--pid", &pid.to_string(), "--seconds", &seconds.to_string(), "--json"]);
        command.args(extra).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdout = Lines::of("sexton observe", process.take_stdout().context("no standard output")?);
        let mut stderr = Lines::of("sexton observe", process.take_stderr().context("no standard error")?);
        stderr
            .until(machine::patience(START_LIMIT)?, |line| line.starts_with("observing"))
            .context("waiting for the probes")?;
        Ok(Observer { process, stdout, stderr })
    }

    /// Closes the window now, as Ctrl-C does, and returns the JSON object that was printed.
    pub fn close(self, limit: Duration) -> Result<Value> {
        self.process.signal(Signal::INT)?;
        self.finish(limit)
    }

    /// Waits for the end of the window and returns the JSON object that was printed.
    pub fn finish(mut self, limit: Duration) -> Result<Value> {
        let text = self.stdout.rest(limit)?.join("\n");
        let status = self.process.wait(STOP_LIMIT)?;
        if !status.success() {
            bail!("sexton observe ended with {status}:\n{}", self.stderr.rest(STOP_LIMIT)?.join("\n"));
        }
        serde_json::from_str(&text).with_context(|| format!("sexton observe printed no JSON: {text}"))
    }
}

/// A running `sexton run`.
#[derive(Debug)]
pub struct Agent {
    pub process: Process,
    pub address: SocketAddr,
    log: PathBuf,
}

impl Agent {
    /// Writes `policy` to a file in `directory`, starts `sexton run` with it and waits until the API
    /// answers. What the agent logs goes to a file in `directory`, and so does its state.
    pub fn start(directory: &Path, policy: &str) -> Result<Agent> {
        Agent::start_logging(directory, policy, None)
    }

    /// The same, with another filter for its log.
    pub fn start_logging(directory: &Path, policy: &str, filter: Option<&str>) -> Result<Agent> {
        write_policy(directory, policy)?;
        Agent::launch(directory, &[], filter)?.answering()
    }

    /// As [`Agent::start`], with the policy in the files of another directory.
    pub fn start_in_directory(directory: &Path, policies: &Path) -> Result<Agent> {
        Agent::launch_with(directory, policies, &[], None)?.answering()
    }

    /// As [`Agent::start`], with further arguments; one of them may be another `--hook-library`.
    pub fn start_with(directory: &Path, policy: &str, arguments: &[&str]) -> Result<Agent> {
        write_policy(directory, policy)?;
        Agent::launch(directory, arguments, None)?.answering()
    }

    /// As [`Agent::start`], with the policy and the state that an agent before it has left in `directory`.
    pub fn start_again(directory: &Path) -> Result<Agent> {
        Agent::spawn(directory, &[])?.answering()
    }

    /// As [`Agent::start_again`], with further arguments, and without waiting for anything.
    pub fn spawn(directory: &Path, arguments: &[&str]) -> Result<Agent> {
        Agent::launch(directory, arguments, None)
    }

    fn launch(directory: &Path, arguments: &[&str], filter: Option<&str>) -> Result<Agent> {
        Agent::launch_with(directory, &directory.join("policy.yaml"), arguments, filter)
    }

    fn launch_with(
        directory: &Path,
        policy: &Path,
        arguments: &[&str],
        filter: Option<&str>,
    ) -> Result<Agent> {
        let address = http::free_address()?;
        let log = directory.join("sexton.log");
        let mut command = command()?;
        command.arg("run").arg("--policy").arg(policy);
        command.args(["--listen", &address.to_string()]).arg("--control").arg(directory.join("control.sock"));
        command.arg("--state-directory").arg(directory.join("state")).args(arguments);
        if let Some(filter) = filter {
            command.env("SEXTON_LOG", filter);
        }
        if !arguments.contains(&"--hook-library") {
            command.arg("--hook-library").arg(artifact::built("libsexton_hook.so")?);
        }
        let output =
            File::options().append(true).create(true).open(&log).context("opening the agent's log")?;
        command.stdout(output.try_clone()?).stderr(output);
        unit_filter::install(&mut command);
        Ok(Agent { process: Process::start(command)?, address, log })
    }

    /// Waits until the API answers.
    fn answering(mut self) -> Result<Agent> {
        self.wait_for(START_LIMIT, "the API to answer", |agent| {
            Ok(http::get(agent.address, "/healthz").is_ok().then_some(()))
        })?;
        Ok(self)
    }

    /// The JSON at `path`.
    pub fn get(&self, path: &str) -> Result<Value> {
        http::get_json(self.address, path)
    }

    /// What `/metrics` shows.
    pub fn metrics(&self) -> Result<String> {
        http::get(self.address, "/metrics")
    }

    /// The value of the metric `name` without labels, `None` when it is not exported.
    pub fn metric(&self, name: &str) -> Result<Option<f64>> {
        let text = self.metrics()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.trim().parse().with_context(|| format!("{name} is {value}"))).transpose()
    }

    /// Asks `probe` until it returns something; fails after `limit`, or when the agent ends, with the
    /// end of the agent's log.
    pub fn wait_for<T>(
        &mut self,
        limit: Duration,
        what: &str,
        mut probe: impl FnMut(&Agent) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = probe(self)? {
                return Ok(found);
            }
            if !self.process.is_running()? {
                bail!("sexton ended while waiting for {what}:\n{}", self.log_end());
            }
            if Instant::now() >= deadline {
                bail!("waited {limit:?} in vain for {what}; sexton's log ends:\n{}", self.log_end());
            }
            std::thread::sleep(API_POLL);
        }
    }

    /// Ends the agent as an operator does, and checks that it says it went well.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::INT)?;
        let status = self.process.wait(STOP_LIMIT)?;
        ensure!(status.success(), "sexton ended with {status}:\n{}", self.log_end());
        Ok(())
    }

    /// What the agent has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines of what the agent logged.
    pub fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(40)).copied().collect::<Vec<_>>().join("\n")
    }
}

fn write_policy(directory: &Path, policy: &str) -> Result<()> {
    let mut file = File::create(directory.join("policy.yaml")).context("writing the policy")?;
    file.write_all(policy.as_bytes()).context("writing the policy")
}

/// The list under `name` in one of the API's answers; fails when there is none.
pub fn list<'a>(answer: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    answer.get(name).and_then(Value::as_array).with_context(|| format!("no list `{name}` in {answer}"))
}

/// The number at `pointer` (RFC 6901); fails when there is none.
pub fn number(value: &Value, pointer: &str) -> Result<f64> {
    value
        .pointer(pointer)
        .and_then(Value::as_f64)
        .with_context(|| format!("no number at {pointer} in {value}"))
}

/// The count at `pointer` (RFC 6901); fails when there is none.
pub fn count(value: &Value, pointer: &str) -> Result<u64> {
    value
        .pointer(pointer)
        .and_then(Value::as_u64)
        .with_context(|| format!("no count at {pointer} in {value}"))
}

/// The text at `pointer` (RFC 6901); empty when there is none.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Why a target is shown as unresponsive, if it is.
pub fn why_unresponsive(target: &Value) -> Option<String> {
    let gaps = list(target, "gaps").ok().filter(|_| text(target, "/state") == "unresponsive")?;
    let gap = gaps.iter().find(|gap| text(gap, "/what") == "the target does not respond")?;
    Some(text(gap, "/reason").to_owned())
}

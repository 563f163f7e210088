//! Every mistake ends in one line that says what is wrong and one that says what to do, with the right
//! exit code, and leaves nothing behind.
//!
//! Method: provoke each mistake with the real binary in an empty directory; then look at its output, the
//! directory, the process table and the kernel's BPF objects.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sexton_tests::bpf_objects::BpfObjects;
use sexton_tests::process::{Lines, Process, children, signal};
use sexton_tests::{agent, artifact, http};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The command was understood and failed.
const FAILED: i32 = 1;
/// The command line or the policy is wrong.
const USAGE: i32 = 2;
const LIMIT: Duration = Duration::from_secs(10);

/// Runs `sexton` in an empty directory, and checks that it fails as it should: exit code, one line of
/// cause that contains all of `words`, one of help, and nothing left behind. `words` are what an operator
/// needs to see.
fn fails(arguments: &[&str], code: i32, words: &[&str]) -> Result<()> {
    let empty = tempfile::tempdir()?;
    let before = BpfObjects::now()?;
    let output = agent::output(empty.path(), arguments)?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = format!("`sexton {}` said:\n{stderr}", arguments.join(" "));
    ensure!(output.status.code() == Some(code), "exit status {}, not {code}; {said}", output.status);
    let errors: Vec<&str> = stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    let [error] = errors.as_slice() else {
        anyhow::bail!("not exactly one line `error: ...`; {said}");
    };
    let helps = stderr.lines().filter_map(|line| line.strip_prefix("help: "));
    ensure!(helps.filter(|help| help.len() > 10).count() == 1, "not exactly one line `help: ...`; {said}");
    for word in words {
        ensure!(error.contains(word), "the cause does not mention `{word}`; {said}");
    }
    ensure!(!stderr.contains("panicked"), "it panicked; {said}");
    ensure!(is_empty(empty.path())?, "it left files in its directory; {said}");
    BpfObjects::now()?.since(&before).wait_gone(LIMIT).context(said)
}

fn is_empty(directory: &Path) -> Result<bool> {
    Ok(std::fs::read_dir(directory)?.next().is_none())
}

fn sleeper() -> Result<Process> {
    let mut command = Command::new("sleep");
    command.arg("60");
    Process::start(command)
}

#[test]
fn a_process_without_rocksdb_on_any_kernel() -> Result<()> {
    let _turn = agent::beside_others()?;
    let sleeper = sleeper()?;
    let pid = sleeper.pid().to_string();
    fails(&["observe", "--pid", &pid, "--seconds", "1", "--json"], FAILED, &[&pid, "RocksDB"])?;
    fails(&["targets", "--pid", &pid], FAILED, &[&pid, "RocksDB"])
}

#[test]
fn a_process_that_is_gone_on_any_kernel() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut process = Process::start(Command::new("true"))?;
    let pid = process.pid().to_string();
    process.wait(LIMIT)?;
    fails(&["observe", "--pid", &pid, "--seconds", "1", "--json"], FAILED, &[&pid])?;
    fails(&["targets", "--pid", &pid], FAILED, &[&pid])?;
    fails(&["run", "--pid", &pid, "--listen", "127.0.0.1:0"], FAILED, &[&pid])
}

/// A process that has a damaged file of RocksDB's name mapped: the start of an ELF file and then nothing
/// that makes sense.
#[test]
fn a_damaged_library_on_any_kernel() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    for (name, bytes) in damaged()? {
        let library = directory.path().join("librocksdb.so.7");
        std::fs::write(&library, bytes)?;
        let mut mapper = mapper(&library).with_context(|| format!("case: {name}"))?;
        let pid = mapper.pid().to_string();
        fails(&["targets", "--pid", &pid], FAILED, &["librocksdb.so.7"]).context(name)?;
        let observe = ["observe", "--pid", &pid, "--seconds", "1", "--json"];
        fails(&observe, FAILED, &["librocksdb.so.7"]).context(name)?;
        ensure!(mapper.is_running()?, "{name}: the process has ended");
    }
    Ok(())
}

/// Kinds of damage, each with the file's bytes.
fn damaged() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let whole = std::fs::read(artifact::built("libsexton_hook.so")?)?;
    let mut nonsense = whole.clone();
    // Everything behind the ELF header, section table included, becomes noise.
    for (index, byte) in nonsense.iter_mut().enumerate().skip(64) {
        *byte = u8::try_from(index * 131 % 251).unwrap_or_default();
    }
    let cut = whole.get(..whole.len() / 2).unwrap_or_default().to_vec();
    let header_only = whole.get(..64).unwrap_or_default().to_vec();
    Ok(vec![("cut in half", cut), ("noise behind the header", nonsense), ("the header alone", header_only)])
}

/// A process that maps `library` executable, as the dynamic linker would.
fn mapper(library: &Path) -> Result<Process> {
    let program = "import mmap, sys, time\n\
                   file = open(sys.argv[1], 'rb')\n\
                   mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)\n\
                   print('mapped', flush=True)\n\
                   time.sleep(60)\n";
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.args(["-c", program]).arg(library).stdout(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
    lines.until(LIMIT, |line| line == "mapped")?;
    Ok(process)
}

#[test]
fn a_truncated_policy() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let policy = directory.path().join("truncated.yaml");
    std::fs::write(&policy, "mode: act\ntargets:\n  - name: demo\n    match: { pid: 1")?;
    policy_fails(&policy, USAGE, &["truncated.yaml"])
}

#[test]
fn a_policy_with_an_unknown_field() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let policy = directory.path().join("unknown.yaml");
    std::fs::write(&policy, "mode: advise\ncooldwon: 2s\n")?;
    policy_fails(&policy, USAGE, &["unknown.yaml", "cooldwon"])
}

#[test]
fn a_policy_that_is_not_there() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    policy_fails(&directory.path().join("missing.yaml"), FAILED, &["missing.yaml"])
}

/// The three commands that read a policy agree on it.
fn policy_fails(policy: &Path, code: i32, words: &[&str]) -> Result<()> {
    let path = policy.display().to_string();
    fails(&["policy", "check", &path], code, words)?;
    fails(&["run", "--policy", &path, "--listen", "127.0.0.1:0"], code, words)?;
    fails(&["plan", "--once", "--json", "--policy", &path], code, words)
}

#[test]
fn a_port_that_is_taken_is_no_reason_not_to_watch_on_any_kernel() -> Result<()> {
    let _turn = agent::beside_others()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut command = Command::new(artifact::built("sexton")?);
    command.args(["run", "--state-directory", "none", "--listen", &address.to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut agent = Process::start(command)?;
    let mut log = Lines::of("sexton", agent.take_stderr().context("no standard error")?);
    log.until(LIMIT, |line| line.contains("the port is in use"))?;
    ensure!(agent.is_running()?, "the agent has ended");
    drop(listener);
    log.until(LIMIT, |line| line.contains("serving the HTTP API"))?;
    http::get(address, "/healthz")?;
    agent.signal(Signal::TERM)?;
    ensure!(agent.wait(LIMIT)?.success(), "the agent has failed");
    Ok(())
}

/// Method: a program stands in for the service manager: it listens, and becomes the agent.
#[test]
fn a_socket_that_is_handed_over_is_served_on_any_kernel() -> Result<()> {
    let _turn = agent::beside_others()?;
    let program = "import os, socket, sys\n\
                   listener = socket.create_server(('127.0.0.1', 0))\n\
                   print(listener.getsockname()[1], flush=True)\n\
                   os.dup2(listener.fileno(), 3)\n\
                   os.set_inheritable(3, True)\n\
                   os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n\
                   os.execv(sys.argv[1], sys.argv[1:])\n";
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.args(["-c", program]).arg(artifact::built("sexton")?);
    command.args(["run", "--state-directory", "none", "--listen", "127.0.0.1:1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut agent = Process::start(command)?;
    let mut said = Lines::of("python3", agent.take_stdout().context("no standard output")?);
    let port: u16 = said.until(LIMIT, |_| true)?.trim().parse()?;
    // The kernel takes connections from the start on; the agent answers when it is there.
    http::get(([127, 0, 0, 1], port).into(), "/healthz")?;
    // It is handed over once, and served as long as the agent lives.
    for listener in children(agent.pid())? {
        signal(listener, Signal::KILL)?;
    }
    http::get(([127, 0, 0, 1], port).into(), "/healthz")?;
    agent.signal(Signal::TERM)?;
    ensure!(agent.wait(LIMIT)?.success(), "the agent has failed");
    Ok(())
}

/// As `sexton policy schema | head` does, but every time before the first byte.
#[test]
fn a_reader_that_has_gone_ends_a_command_quietly() -> Result<()> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut command = Command::new(artifact::built("sexton")?);
    let output = command.args(["policy", "schema"]).stdout(writer).stderr(Stdio::piped()).spawn()?;
    let output = output.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(stderr.is_empty(), "it said:\n{stderr}");
    ensure!(output.status.signal() == Some(libc::SIGPIPE), "exit status {}", output.status);
    Ok(())
}

//! What any local user can do to the agent by what they run: files made to be examined for ever, names made
//! to be printed. And what the agent's own commands can do to the host.
//!
//! Method: real processes with real files of that kind, and the real binary, measured by the kernel: the most
//! memory that it had, and the processor time that it took, which a busy machine does not lengthen as it does
//! time by the clock.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Agent, text};
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use sexton_tests::static_host::{PROGRAM, StaticHost};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// What one file may take of the agent.
const MEMORY_KIB_MAX: i64 = 64 << 10;
const PROCESSOR_TIME_MAX: f64 = 1.0;

/// Files that say what is not so, as `files.py` makes them.
const KINDS: [&str; 6] = [
    "more_sections_than_memory",
    "more_programs_than_memory",
    "symbol_tables_of_one_sparse_string_table",
    "a_symbol_table_as_large_as_the_file",
    "relocations_that_share_a_dynsym",
    "vtables_of_endless_code",
];

/// A process that has a file of this kind mapped.
fn mapper(kind: &str, directory: &Path) -> Result<Process> {
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.arg("-c").arg(include_str!("hostile/files.py")).arg(kind).arg(directory.join(kind));
    command.stdout(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
    lines.until(LIMIT, |line| line == "mapped").context(kind.to_owned())?;
    Ok(process)
}

/// What a run of `sexton` took and said.
struct Measured {
    memory_kib: i64,
    processor_time: f64,
    said: String,
}

/// Runs `sexton` and asks the kernel what it took.
fn measured(arguments: &[&str]) -> Result<Measured> {
    let program = "import os, sys\n\
                   pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)\n\
                   _, status, usage = os.wait4(pid, 0)\n\
                   print('usage', usage.ru_maxrss, usage.ru_utime + usage.ru_stime, flush=True)\n";
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.args(["-c", program]).arg(artifact::built("sexton")?).args(arguments);
    let output = command.stdin(Stdio::null()).output().context("running sexton")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let usage = said.lines().find_map(|line| line.strip_prefix("usage ")).context(said.clone())?;
    let (memory, time) = usage.split_once(' ').context("two numbers")?;
    Ok(Measured { memory_kib: memory.parse()?, processor_time: time.parse()?, said: said.clone() })
}

/// Checks that one run took at most what so many hostile files may take beyond another run.
fn within(kind: &str, files: usize, base: &Measured, now: &Measured) -> Result<()> {
    let memory = now.memory_kib - base.memory_kib;
    let time = now.processor_time - base.processor_time;
    eprintln!(
        "{kind}: {memory} KiB, {time:.3} s beyond {} KiB, {:.3} s",
        base.memory_kib, base.processor_time
    );
    ensure!(memory <= MEMORY_KIB_MAX, "{kind}: the agent grew by {memory} KiB\n{}", now.said);
    ensure!(
        time <= PROCESSOR_TIME_MAX * files as f64,
        "{kind}: the agent took {time} s of a processor\n{}",
        now.said
    );
    Ok(())
}

#[test]
fn a_hostile_file_takes_a_bounded_part_of_the_agent_on_any_kernel() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut sleeper = Command::new("sleep");
    sleeper.arg("600");
    let sleeper = Process::start(sleeper)?;
    let alone = measured(&["targets", "--pid", &sleeper.pid().to_string()])?;
    let before = measured(&["targets"])?;
    let mut mappers = Vec::new();
    for kind in KINDS {
        let mut mapper = mapper(kind, directory.path())?;
        let now = measured(&["targets", "--pid", &mapper.pid().to_string()])?;
        ensure!(now.said.contains("no RocksDB") || now.said.contains("takes more"), "{kind}: {}", now.said);
        within(kind, 1, &alone, &now)?;
        ensure!(mapper.is_running()?, "{kind}: the process has ended");
        mappers.push(mapper);
    }
    within("all of them", KINDS.len(), &before, &measured(&["targets"])?)
}

/// A process that has a file mapped as code and says when somebody opens it.
const OPENED: &str = "import ctypes, mmap, os, sys
path = sys.argv[1]
file = open(path, 'rb')
mapped = mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
libc = ctypes.CDLL(None)
opens = libc.inotify_init()
IN_OPEN = 0x20
libc.inotify_add_watch(opens, path.encode(), IN_OPEN)
print('mapped', flush=True)
os.read(opens, 4096)
print('opened', flush=True)
";

#[test]
fn of_a_process_that_no_entry_matches_nothing_is_opened() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("librocksdb.so.7.8");
    std::fs::copy("/usr/lib/x86_64-linux-gnu/librocksdb.so.7.8", &file)?;
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.args(["-c", OPENED]).arg(&file).stdout(Stdio::piped());
    let mut other = Process::start(command)?;
    let mut said = Lines::of("python3", other.take_stdout().context("no standard output")?);
    said.until(LIMIT, |line| line == "mapped")?;
    // Of a greater pid, so that a sweep that has come to it has passed the other one.
    let host = StaticHost::start(&directory.path().join("db"), &[])?;
    let policy = format!(
        "mode: observe\ntargets: [{{ name: x, match: {{ pid: {}, user: root }} }}]\nloop: {{ interval: 1s, window: 1s }}\n",
        host.pid()
    );
    let mut agent = Agent::start(directory.path(), &policy)?;
    agent.wait_for(LIMIT, "the target", |agent| {
        let targets = agent.get("/api/v1/targets")?;
        Ok((!agent::list(&targets, "targets")?.is_empty()).then_some(()))
    })?;
    agent.stop()?;
    ensure!(
        said.until(Duration::from_millis(1), |line| line == "opened").is_err(),
        "the agent opened {file:?}"
    );
    // Without a policy every process is looked into, which is how it is known that it would have been seen.
    agent::output(directory.path(), &["targets"])?;
    said.until(LIMIT, |line| line == "opened").context("`sexton targets` opened nothing")?;
    host.quit()
}

/// A name that clears the screen and begins a line.
const NAME: &str = "evil\u{1b}[2J\nFAKE all is well";

/// Whether a text has lines, and no other control character.
fn is_plain(text: &str) -> bool {
    !text.chars().any(|character| character.is_control() && character != '\n')
}

#[test]
fn a_name_with_control_characters_writes_no_line_and_no_screen() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let hostile = directory.path().join(NAME);
    std::fs::create_dir(&hostile)?;
    let program = hostile.join(NAME);
    std::fs::copy(artifact::built(PROGRAM)?, &program)?;
    let host = StaticHost::start_program(&program, &hostile.join("db"), &[])?;
    let pid = host.pid().to_string();
    let commands: [&[&str]; 4] = [
        &["targets"],
        &["targets", "--pid", &pid],
        &["targets", "--json"],
        &["targets", "--pid", &pid, "--json"],
    ];
    for arguments in commands {
        let output = agent::output(directory.path(), arguments)?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(said.contains("evil\\u{1b}[2J\\nFAKE") || said.contains("evil\\u001b[2J\\nFAKE"), "{said}");
        ensure!(is_plain(&said), "{arguments:?}: {said:?}");
        ensure!(!said.lines().any(|line| line.trim_start().starts_with("FAKE")), "{arguments:?}: {said}");
    }
    let policy = format!(
        "mode: observe\ntargets: [{{ name: x, match: {{ pid: {pid} }} }}]\nloop: {{ interval: 1s, window: 1s }}\n"
    );
    let mut agent = Agent::start_logging(directory.path(), &policy, Some("debug"))?;
    agent.wait_for(LIMIT, "the target", |agent| {
        let targets = agent.get("/api/v1/targets")?;
        Ok((!agent::list(&targets, "targets")?.is_empty()).then_some(()))
    })?;
    let log = agent.log();
    ensure!(log.contains("evil\\u{1b}[2J\\nFAKE"), "the name is not in the log:\n{log}");
    ensure!(is_plain(&log) && !log.lines().any(|line| line.starts_with("FAKE")), "{log:?}");
    agent.stop()?;
    host.quit()
}

#[test]
fn a_command_of_the_policy_has_no_capability() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let host = StaticHost::start(&directory.path().join("db"), &[])?;
    let policy = format!(
        r#"mode: act
targets:
  - name: host
    match: {{ pid: {} }}
    executor: exec
    exec: {{ compact: ["true"] }}
    throttles:
      - name: capabilities
        inside: "in"
        outside: "out"
        command: ["sh", "-c", "id -u; grep -E 'Cap(Prm|Eff|Amb)|NoNewPrivs' /proc/self/status", "{{value}}"]
loop: {{ interval: 1s, window: 1s }}
"#,
        host.pid()
    );
    let mut agent = Agent::start(directory.path(), &policy)?;
    let outcome = agent.wait_for(LIMIT, "the command", |agent| {
        let actions = agent.get("/api/v1/actions")?;
        let ended =
            agent::list(&actions, "actions")?.iter().find(|action| text(action, "/state") != "running");
        Ok(ended.map(|action| text(action, "/outcome").to_owned()))
    })?;
    let none = "0000000000000000";
    let wanted = format!("0 CapPrm: {none} CapEff: {none} CapAmb: {none} NoNewPrivs: 1");
    ensure!(outcome.ends_with(&wanted), "the command said: {outcome}");
    agent.stop()?;
    host.quit()
}

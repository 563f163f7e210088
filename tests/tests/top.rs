//! `sexton top` shows what the agent sees, and gives the terminal back as it was.
//!
//! Method: a queue workload, an agent that watches it, and the view in a real pseudo-terminal, which `script`
//! makes: keys go in through its pipe, the screen comes out of it. A shell inside the terminal notes the
//! terminal's modes before and after, and the exit code.

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, list, number, text};
use sexton_tests::process::Process;
use sexton_tests::workload::{Start, Workload};
use sexton_tests::{artifact, http};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
const ROWS: usize = 40;
const COLUMNS: usize = 120;
const SECOND_LIMIT: Duration = Duration::from_secs(30);
/// Leaves the alternate screen: the last thing a terminal is told.
const LEAVE: &str = "\u{1b}[?1049l";
const ENTER: &str = "\u{1b}[?1049h";

fn workload(directory: &Path) -> Result<Workload> {
    let mut workload = Workload::start(Start {
        directory: &directory.join("db"),
        keys: 200_000,
        seconds: 120,
        preload: None,
        stderr: Stdio::inherit(),
    })?;
    workload.second(SECOND_LIMIT)?;
    Ok(workload)
}

/// An agent that looks at the workload often, and does nothing else. There are lists between two windows: a
/// cycle that sees none has no window, and no ranges.
fn agent(directory: &Path, workload: &Workload) -> Result<Agent> {
    let pid = workload.process.pid();
    let policy = format!(
        "mode: advise\ntargets: [{{ name: queue, match: {{ pid: {pid} }} }}]\n\
         thresholds: {{ tombstones_per_operation: 100, pain: 1us/s }}\n\
         loop: {{ interval: 2s, window: 500ms, survey: 2s }}\n"
    );
    let mut agent = Agent::start(directory, &policy)?;
    agent.wait_for(LIMIT, "a window", |agent| {
        let answer = agent.get("/api/v1/targets")?;
        let windows = list(&answer, "targets")?.first().map(|target| number(target, "/windows"));
        Ok(windows.transpose()?.filter(|windows| *windows > 0.0))
    })?;
    Ok(agent)
}

/// The view in a terminal of its own.
struct View {
    process: Process,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    sent: String,
}

impl View {
    fn start(directory: &Path, agent: &Agent) -> Result<View> {
        let program = artifact::built("sexton")?;
        // Background, so that its pid is known; its input has to be said then. It stays in the terminal's
        // foreground group, as this shell has no job control.
        let inside = format!(
            "stty rows {ROWS} columns {COLUMNS}; stty -g > {0}/before; \
             {1} top --url http://{2} < /dev/tty & echo $! > {0}/pid; wait $!; \
             echo $? > {0}/code; stty -g > {0}/after",
            directory.display(),
            program.display(),
            agent.address,
        );
        let mut command = Command::new(artifact::installed("script", "bsdutils")?);
        command.args(["--quiet", "--flush", "--return", "--command", &inside, "/dev/null"]);
        command.env("TERM", "xterm").env("SHELL", "/bin/sh").current_dir(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = Process::start(command)?;
        let keys = process.take_stdin().context("no standard input")?;
        let mut output = process.take_stdout().context("no standard output")?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let _ = sender.send(bytes.iter().take(count).copied().collect());
            }
        });
        Ok(View { process, keys, output: receiver, sent: String::new() })
    }

    fn press(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes())?;
        Ok(self.keys.flush()?)
    }

    /// Waits until `words` stand on the screen.
    fn until(&mut self, words: &str) -> Result<()> {
        self.wait(words, true)
    }

    /// Waits until they do not.
    fn until_gone(&mut self, words: &str) -> Result<()> {
        self.wait(words, false)
    }

    fn wait(&mut self, words: &str, shown: bool) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while screen(&self.sent).contains(words) != shown {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.sent.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => {
                    anyhow::bail!("{words:?} shown: not {shown} ({error}):\n{}", screen(&self.sent))
                }
            }
        }
        Ok(())
    }

    /// Waits for its end, and checks that the terminal is what it was.
    fn check_end(mut self, directory: &Path) -> Result<()> {
        let status = self.process.wait(LIMIT)?;
        ensure!(status.success(), "script ended with {status}");
        while let Ok(bytes) = self.output.recv_timeout(LIMIT) {
            self.sent.push_str(&String::from_utf8_lossy(&bytes));
        }
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        ensure!(read("code")?.trim() == "0", "it ended with {}", read("code")?);
        ensure!(read("before")? == read("after")?, "the terminal's modes are not what they were");
        let (entered, left) = (self.sent.rfind(ENTER), self.sent.rfind(LEAVE));
        ensure!(entered.is_some() && entered < left, "it did not leave the alternate screen");
        ensure!(!self.sent.contains("panicked"), "it panicked: {}", self.sent.escape_debug());
        Ok(())
    }
}

/// What stands on a terminal that was sent this: characters go where the cursor is, which `ESC [ row ; column
/// H` moves; all other sequences change no character, but the one that clears.
fn screen(sent: &str) -> String {
    let mut cells = vec![vec![' '; COLUMNS]; ROWS];
    let (mut row, mut column) = (0, 0);
    let mut rest = sent;
    while let Some(character) = rest.chars().next() {
        rest = rest.get(character.len_utf8()..).unwrap_or_default();
        if character != '\u{1b}' {
            if let Some(cell) = cells.get_mut(row).and_then(|line: &mut Vec<char>| line.get_mut(column)) {
                *cell = character;
            }
            column += 1;
            continue;
        }
        let end = rest.find(|end: char| end.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (sequence, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        if after.starts_with('H') {
            let mut place = sequence.trim_start_matches('[').split(';').map(|number| number.parse::<usize>());
            let mut next = || place.next().and_then(Result::ok).unwrap_or(1).saturating_sub(1);
            (row, column) = (next(), next());
        } else if after.starts_with('J') {
            cells = vec![vec![' '; COLUMNS]; ROWS];
        }
    }
    cells.into_iter().map(|line| line.into_iter().collect::<String>() + "\n").collect()
}

#[test]
fn a_key_leaves_the_live_view_and_the_terminal_is_what_it_was() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let workload = workload(directory.path())?;
    let agent = agent(directory.path(), &workload)?;
    let mut view = View::start(directory.path(), &agent)?;
    view.until("WORST RANGES")?;
    view.press("s")?;
    view.until("sort by seeks/s")?;
    view.press("?")?;
    view.until("this help")?;
    // Escape closes the help; the p shows that it was not taken for more.
    view.press("\u{1b}")?;
    view.until_gone("this help")?;
    view.press("p")?;
    view.until("PAUSED")?;
    view.press("q")?;
    view.check_end(directory.path())?;
    agent.stop()
}

#[test]
fn a_signal_leaves_in_order_too() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let workload = workload(directory.path())?;
    let agent = agent(directory.path(), &workload)?;
    let mut view = View::start(directory.path(), &agent)?;
    view.until("WORST RANGES")?;
    let pid = std::fs::read_to_string(directory.path().join("pid"))?;
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw).context("no pid")?;
    kill_process(pid, Signal::TERM)?;
    view.check_end(directory.path())?;
    agent.stop()
}

#[test]
fn one_frame_as_text_and_as_json() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let workload = workload(directory.path())?;
    let agent = agent(directory.path(), &workload)?;
    let url = format!("http://{}", agent.address);

    let name = report_of_a_busy_cycle(directory.path(), &url, &workload)?;

    let frame = agent::output(directory.path(), &["top", "--once", "--url", &url])?;
    let frame = String::from_utf8_lossy(&frame.stdout).into_owned();
    for words in [name.as_str(), "SEEKS/s", "keyTable", "WORST RANGES"] {
        ensure!(frame.contains(words), "no {words} in:\n{frame}");
    }
    // Keys are whole only where the policy shows them: the workload's are `/vol1/bucket1/key...`.
    ensure!(!frame.contains("bucket1/key0"), "a whole key is shown:\n{frame}");
    ensure!(!frame.contains('\u{1b}'), "there are escape sequences in it");
    agent.stop()
}

/// The first report that shows the workload at work; returns the target's name.
///
/// Readers that had no turn between two pictures, on a busy machine, are told with the next one.
fn report_of_a_busy_cycle(directory: &Path, url: &str, workload: &Workload) -> Result<String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let report = json(directory, &["top", "--json", "--url", url])?;
        match check_report(&report, workload) {
            Err(error) if Instant::now() > deadline => return Err(error.context(report.to_string())),
            Err(_) => {}
            name => return name,
        }
    }
}

fn check_report(report: &Value, workload: &Workload) -> Result<String> {
    let target = list(report, "targets")?.first().context("no target")?;
    ensure!(number(target, "/pid")? == f64::from(workload.process.pid()), "another process: {target}");
    for rate in ["/tombstones_per_second", "/seeks_per_second", "/tombstones_per_seek"] {
        ensure!(number(target, rate)? > 0.0, "{rate} is not above zero: {target}");
    }
    ensure!(!list(report, "ranges")?.is_empty(), "no range");
    Ok(text(target, "/name").to_owned())
}

fn json(directory: &Path, arguments: &[&str]) -> Result<Value> {
    let output = agent::output(directory, arguments)?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "sexton {} ended with {}:\n{stderr}",
        arguments.join(" "),
        output.status
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("no JSON: {stderr}"))
}

#[test]
fn it_says_how_to_start_an_agent_where_none_is() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = format!("http://{}", http::free_address()?);
    let output = agent::output(directory.path(), &["top", "--once", "--url", &url])?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "exit status {}; {stderr}", output.status);
    ensure!(stderr.contains(&url) && stderr.contains("sexton run"), "it does not say what to do: {stderr}");

    let output = agent::output(directory.path(), &["top", "--url", &url])?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(2), "exit status {}; {stderr}", output.status);
    ensure!(stderr.contains("--once"), "it does not say what to do: {stderr}");
    Ok(())
}

//! The part of the agent that listens has no right, and the part that has rights does not listen.
//!
//! Method: a real agent is asked at all three places where it listens. What the kernel says of its processes
//! is read from `/proc`: whose the listening sockets are, and what the listener may do. Then one of the two
//! is killed.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use sexton_tests::agent::{self, Agent};
use sexton_tests::artifact;
use sexton_tests::process::{children, signal, status_field};
use sexton_tests::tls::{Tls, token};
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// For a process to end after another one has.
const END_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// A user without any right.
const NOBODY: u32 = 65_534;

struct Node {
    directory: TempDir,
    tls: Tls,
    agent: Agent,
}

impl Node {
    fn start() -> Result<Node> {
        let directory = tempfile::tempdir()?;
        let tls = Tls::make(directory.path())?;
        let arguments = tls.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let agent = Agent::start_with(directory.path(), "mode: observe\n", &arguments)?;
        Ok(Node { directory, tls, agent })
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    /// The process that listens, once there is one that is confined.
    fn listener(&mut self) -> Result<u32> {
        let pid = self.agent.process.pid();
        self.agent.wait_for(LIMIT, "a listener", |_| {
            let of_agent = filters(pid)?;
            let is_confined = |child: &u32| filters(*child).is_ok_and(|count| count > of_agent);
            Ok(children(pid)?.into_iter().find(is_confined))
        })
    }

    /// Asks at all three places.
    fn answers_everywhere(&mut self) -> Result<()> {
        let (socket, address) = (self.socket(), self.tls.address);
        self.agent.wait_for(LIMIT, "all listeners to answer", |agent| {
            let read = agent.get("/api/v1/build").is_ok();
            let changed = post(&socket, None)?;
            let header = format!("Authorization: Bearer {}", token("reader"));
            let remote = curl(None, |command| {
                command.arg("--cacert").arg(&self.tls.authority).args(["-H", &header]);
                command.arg(format!("https://{address}/api/v1/build"));
            })?;
            Ok((read && changed == "202" && remote == "200").then_some(()))
        })
    }
}

/// The status of the answer; `000`: there is none.
fn curl(user: Option<u32>, arguments: impl FnOnce(&mut Command)) -> Result<String> {
    let mut command = Command::new(artifact::installed("curl", "curl")?);
    command.args(["-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}"]);
    arguments(&mut command);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let Output { stdout, .. } = command.output().context("running curl")?;
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

fn post(socket: &Path, user: Option<u32>) -> Result<String> {
    curl(user, |command| {
        command.arg("--unix-socket").arg(socket).args(["-X", "POST", "-H", "Content-Type: application/json"]);
        command.arg("http://localhost/api/v1/cycle");
    })
}

/// How many filters of system calls a process has: the agent of a test has one to begin with.
fn filters(pid: u32) -> Result<u32> {
    status_field(pid, "Seccomp_filters")?.parse().context("the kernel counts no filters")
}

/// Inodes of the sockets that listen in this network, for TCP and on unix sockets.
fn listening() -> Result<BTreeSet<u64>> {
    let mut inodes = BTreeSet::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // TCP_LISTEN
            if words.get(3) == Some(&"0A") {
                inodes.extend(words.get(9).and_then(|word| word.parse::<u64>().ok()));
            }
        }
    }
    for line in std::fs::read_to_string("/proc/net/unix")?.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // __SO_ACCEPTCON
        if words.get(3) == Some(&"00010000") {
            inodes.extend(words.get(6).and_then(|word| word.parse::<u64>().ok()));
        }
    }
    Ok(inodes)
}

/// How many of them a process has.
fn listening_of(pid: u32) -> Result<usize> {
    let listening = listening()?;
    let mut count = 0;
    for descriptor in std::fs::read_dir(format!("/proc/{pid}/fd")).context("descriptors")? {
        let Ok(target) = std::fs::read_link(descriptor?.path()) else { continue };
        let target = target.display().to_string();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        count +=
            usize::from(inode.and_then(|word| word.parse().ok()).is_some_and(|it| listening.contains(&it)));
    }
    Ok(count)
}

fn until_gone(pid: u32) -> Result<()> {
    let until = Instant::now() + END_LIMIT;
    while status_field(pid, "State").is_ok_and(|state| !state.starts_with(['Z', 'X'])) {
        if Instant::now() > until {
            bail!("process {pid} lives on");
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

#[test]
fn who_listens_may_nothing_and_who_may_something_does_not_listen() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut node = Node::start()?;
    node.answers_everywhere()?;
    let (agent, listener) = (node.agent.process.pid(), node.listener()?);
    ensure!(listening_of(listener)? == 3, "the listener has {} listening sockets", listening_of(listener)?);
    ensure!(listening_of(agent)? == 0, "the agent listens itself");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let value = status_field(listener, set)?;
        ensure!(value.bytes().all(|digit| digit == b'0'), "{set} {value}");
    }
    ensure!(filters(listener)? > filters(agent)?, "the listener may make every system call");
    for (name, wanted) in [("NoNewPrivs", "1"), ("Threads", "1")] {
        let value = status_field(listener, name)?;
        ensure!(value == wanted, "{name} {value}");
    }
    for name in ["Uid", "Gid"] {
        let value = status_field(listener, name)?;
        ensure!(value.split_whitespace().all(|id| id == NOBODY.to_string()), "{name} {value}");
    }
    ensure!(status_field(listener, "Groups")?.is_empty(), "it has further groups");
    for descriptor in std::fs::read_dir(format!("/proc/{listener}/fd"))? {
        let Ok(target) = std::fs::read_link(descriptor?.path()) else { continue };
        let target = target.display().to_string();
        let is_own = ["socket:[", "anon_inode:[event", "/dev/null"].iter().any(|own| target.starts_with(own));
        ensure!(is_own, "it has {target}");
    }
    // Who may nothing reads nothing of its memory either: the key of the certificate is there.
    let read = Command::new("cat").arg(format!("/proc/{listener}/maps")).uid(NOBODY).gid(NOBODY).output()?;
    ensure!(!read.status.success(), "another process of nobody's reads its memory");
    node.agent.stop()?;
    until_gone(listener)
}

#[test]
fn a_listener_that_was_killed_comes_back() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut node = Node::start()?;
    for _ in 0..2 {
        node.answers_everywhere()?;
        let killed = node.listener()?;
        signal(killed, Signal::KILL)?;
        until_gone(killed)?;
        node.answers_everywhere()?;
        ensure!(node.listener()? != killed, "it is still there");
    }
    ensure!(
        node.agent.log().contains("another one is started"),
        "nothing is logged:\n{}",
        node.agent.log_end()
    );
    node.agent.stop()
}

#[test]
fn a_listener_ends_with_its_agent() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut node = Node::start()?;
    node.answers_everywhere()?;
    let listener = node.listener()?;
    node.agent.process.signal(Signal::KILL)?;
    until_gone(listener)
}

/// The file's mode keeps other users out. Where somebody has given it away, the agent asks the kernel who
/// asks.
#[test]
fn another_user_may_not_ask_for_changes() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut node = Node::start()?;
    node.answers_everywhere()?;
    std::fs::set_permissions(node.directory.path(), Permissions::from_mode(0o755))?;
    let socket = node.socket();
    let refused = post(&socket, Some(NOBODY))?;
    ensure!(refused == "000", "nobody was answered with {refused}");
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
    let refused = post(&socket, Some(NOBODY))?;
    ensure!(refused == "403", "nobody was answered with {refused}");
    let taken = post(&socket, None)?;
    ensure!(taken == "202", "root was answered with {taken}");
    node.agent.stop()
}

//! A real etcd, Debian's, on the loopback interface and in a directory of the test's; locks are taken there
//! with its own client.

use crate::process::Process;
use crate::{artifact, http};
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// A running server.
#[derive(Debug)]
pub struct Etcd {
    // Killed when it is dropped.
    _process: Process,
    address: SocketAddr,
}

fn program(name: &str, package: &str) -> Result<PathBuf> {
    artifact::installed(name, package).or_else(|_| artifact::tool(&format!("etcd/usr/bin/{name}")))
}

impl Etcd {
    /// Starts it with its data in `directory`, and waits until it answers.
    pub fn start(directory: &Path) -> Result<Etcd> {
        std::fs::create_dir_all(directory)?;
        let (address, peers) = (http::free_address()?, http::free_address()?);
        let (client_url, peer_url) = (format!("http://{address}"), format!("http://{peers}"));
        let mut command = Command::new(program("etcd", "etcd-server")?);
        command.arg("--data-dir").arg(directory.join("data")).stdin(Stdio::null());
        command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.args(["--initial-cluster", &format!("default={peer_url}")]);
        let output = File::create(directory.join("etcd.log")).context("opening etcd's log")?;
        command.stdout(output.try_clone()?).stderr(output);
        let server = Etcd { _process: Process::start(command)?, address };
        let deadline = Instant::now() + START_LIMIT;
        while let Err(error) = server.keys() {
            ensure!(Instant::now() < deadline, "etcd does not answer within {START_LIMIT:?}: {error:#}");
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    /// The client, which talks to this server.
    fn client(&self) -> Result<Vec<String>> {
        let client = program("etcdctl", "etcd-client")?.to_string_lossy().into_owned();
        Ok(vec![client, format!("--endpoints=http://{}", self.address)])
    }

    /// The command that takes a lock and holds it until it is ended, or has not reached the server for so
    /// long.
    pub fn lock_command(&self, name: &str, time_to_live_s: u32) -> Result<Vec<String>> {
        let lock = ["lock".to_owned(), format!("--ttl={time_to_live_s}"), name.to_owned()];
        Ok(self.client()?.into_iter().chain(lock).collect())
    }

    /// Names of all that it knows: each lock that is held or waited for is one.
    pub fn keys(&self) -> Result<Vec<String>> {
        let client = self.client()?;
        let [program, endpoint] = client.as_slice() else { bail!("{client:?}") };
        let mut command = Command::new(program);
        command.args([
            endpoint,
            "--dial-timeout=1s",
            "--command-timeout=2s",
            "get",
            "--prefix",
            "--keys-only",
            "",
        ]);
        let output = command.stdin(Stdio::null()).output().context("starting etcdctl")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).context("what etcdctl prints")?;
        Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Processes that talk to it.
    pub fn clients(&self) -> Result<Vec<u32>> {
        let endpoint = self.address.to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").context("reading /proc")? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words);
            if words.contains("etcdctl") && words.contains(&endpoint) {
                found.push(pid);
            }
        }
        Ok(found)
    }
}

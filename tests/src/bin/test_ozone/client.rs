//! A program on Ozone's own client, `tests/ozone/OzoneLoad.java`, which does what it is told line by line.

use crate::cluster::Cluster;
use anyhow::{Context, Result, bail, ensure};
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use std::io::Write;
use std::process::{ChildStdin, Command};
use std::time::Duration;

/// How long one command may take: creating all keys of a bucket takes a minute.
const ANSWER_LIMIT: Duration = Duration::from_secs(600);

pub struct Client {
    _process: Process,
    stdin: ChildStdin,
    lines: Lines,
}

/// What lists came to.
pub struct Listed {
    pub mean_us: u64,
    /// Names of the keys, separated by commas.
    pub keys: String,
}

impl Client {
    /// Compiles it, starts it, and waits until it has a connection.
    pub fn start(cluster: &Cluster) -> Result<Client> {
        let classes = cluster.base().join("classes");
        std::fs::create_dir(&classes)?;
        let mut command = Command::new(artifact::installed("javac", "default-jdk-headless")?);
        command
            .arg("-nowarn")
            .arg("-cp")
            .arg(format!("{}/*", artifact::tools()?.join("ozone/lib").display()));
        command.arg("-d").arg(&classes).arg(artifact::repository().join("tests/ozone/OzoneLoad.java"));
        let compiled = command.output().context("starting javac")?;
        ensure!(compiled.status.success(), "javac: {}", String::from_utf8_lossy(&compiled.stderr));
        let mut process = cluster.client(&classes, "OzoneLoad")?;
        let stdin = process.take_stdin().context("no standard input")?;
        let lines = Lines::of("OzoneLoad", process.take_stdout().context("no standard output")?);
        let mut client = Client { _process: process, stdin, lines };
        client.answer("its start")?;
        Ok(client)
    }

    /// Has it do something; what it answers.
    pub fn ask(&mut self, command: &str) -> Result<String> {
        writeln!(self.stdin, "{command}").with_context(|| format!("asking for {command:?}"))?;
        self.answer(command)
    }

    /// Lists the first keys below a prefix so often.
    pub fn list(&mut self, bucket: &str, prefix: &str, times: u32) -> Result<Listed> {
        let answer = self.ask(&format!("list {bucket} {prefix} {times}"))?;
        let (mean, keys) = answer.split_once(' ').with_context(|| format!("a list answered {answer:?}"))?;
        Ok(Listed { mean_us: mean.parse().context("a list's time")?, keys: keys.to_owned() })
    }

    fn answer(&mut self, what: &str) -> Result<String> {
        let is_answer = |line: &str| line.starts_with("done ") || line.starts_with("failed ");
        let line = self.lines.until(ANSWER_LIMIT, is_answer).with_context(|| what.to_owned())?;
        match line.split_once(' ') {
            Some(("done", answer)) => Ok(answer.to_owned()),
            _ => bail!("{what}: {line}"),
        }
    }
}

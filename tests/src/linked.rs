//! Programs that link the hook: the examples in `agent/hook/examples`, as hosts for it.

use crate::artifact;
use crate::process::{Lines, Process};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// Compiling, or filling the database, takes a second or two here.
const LIMIT: Duration = Duration::from_secs(120);

/// Tombstones that a program leaves.
pub const TOMBSTONES: u64 = 19_900;

/// A running program with one database that it has registered.
#[derive(Debug)]
pub struct Program {
    process: Process,
    stdin: ChildStdin,
}

impl Program {
    /// The C example, compiled into `directory`, with its database in there.
    pub fn in_c(directory: &Path) -> Result<Program> {
        let program = directory.join("linked");
        let example = artifact::repository().join("agent/hook");
        let library = artifact::built("libsexton_hook.so")?;
        let folder = library.parent().context("the hook lies in no directory")?;
        let mut command = Command::new(artifact::installed("gcc", "gcc")?);
        command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(example.join("include"));
        command.arg(example.join("examples/linked.c")).arg("-o").arg(&program);
        command.arg("-L").arg(folder).args(["-lsexton_hook", "-lrocksdb"]);
        let status = Process::start(command)?.wait(LIMIT)?;
        ensure!(status.success(), "compiling linked.c ended with {status}: run `make setup`");
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", folder).arg(directory.join("db"));
        Program::start(directory, command)
    }

    /// The Rust example, with its database in `directory`.
    pub fn in_rust(directory: &Path) -> Result<Program> {
        let mut command = Command::new(artifact::built("examples/linked")?);
        command.arg(directory.join("db"));
        Program::start(directory, command)
    }

    /// The same; a thread of the program's own has panicked with `message`, and its standard error is in
    /// `errors`.
    pub fn in_rust_after_a_panic(directory: &Path, message: &str, errors: &Path) -> Result<Program> {
        let mut command = Command::new(artifact::built("examples/linked")?);
        command.arg(directory.join("db")).arg(message);
        command.stderr(File::create(errors).context("creating a file for standard error")?);
        Program::start(directory, command)
    }

    fn start(directory: &Path, mut command: Command) -> Result<Program> {
        command.env("SEXTON_HOOK_LOG", directory.join("hook.log"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("linked", process.take_stdout().context("no standard output")?);
        lines.until(LIMIT, |line| line == "ready").context("waiting for the database")?;
        Ok(Program { process, stdin })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn is_running(&mut self) -> Result<bool> {
        self.process.is_running()
    }

    /// Lets the program close its database, and checks that it found its keys and says that all went well.
    pub fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.process.wait(LIMIT)?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(())
    }
}

//! A C program on musl that opens RocksDB's Java library late: `tests/c/musl_host.c`.

use crate::process::{Lines, Process};
use crate::truth::{self, Truth};
use crate::{artifact, python_readers};
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// The newest one here whose C++ library is old enough for Debian's musl.
const JAVA_VERSION: &str = "7.7.3";
/// Each step takes a second at most here.
const LIMIT: Duration = Duration::from_secs(60);
/// The hook and its few crates take 20 s of a processor.
const BUILD_LIMIT: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct MuslHost {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
}

/// What the program says after it has listed, in sums since it began.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Perf level of its first thread.
    pub perf_level: u64,
    /// What its perf contexts counted.
    pub truth: Truth,
    pub positionings: u64,
}

impl MuslHost {
    /// Compiles and starts the program in the empty `directory`, with this perf level, 0 for RocksDB's own
    /// default, and waits until it has filled its database.
    pub fn start(directory: &Path, perf_level: u8) -> Result<MuslHost> {
        MuslHost::preloading(directory, perf_level, None)
    }

    /// The same with the hook for musl in it. RocksDB is preloaded as well: the hook looks for it when it
    /// starts.
    pub fn start_with_hook(directory: &Path) -> Result<MuslHost> {
        MuslHost::preloading(directory, 0, Some(&hook()?))
    }

    fn preloading(directory: &Path, perf_level: u8, hook: Option<&Path>) -> Result<MuslHost> {
        let program = directory.join("musl_host");
        let mut compile = Command::new(artifact::installed("musl-gcc", "musl-tools")?);
        compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        compile.arg(artifact::repository().join("tests/c/musl_host.c"));
        ensure!(Process::start(compile)?.wait(LIMIT)?.success(), "musl-gcc failed: run `make setup`");
        let library =
            python_readers::java_library_named("librocksdbjni-linux64-musl.so", JAVA_VERSION, directory)?;
        let libraries = artifact::tool("musl/libstdc++.so.6")?;
        let mut command = Command::new(program);
        if let Some(hook) = hook {
            command.env("LD_PRELOAD", format!("{} {}", library.display(), hook.display()));
        }
        command.arg(library).arg(directory.join("db")).arg(perf_level.to_string());
        command.env("LD_LIBRARY_PATH", libraries.parent().context("it lies in no directory")?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("musl_host", process.take_stdout().context("no standard output")?);
        lines.until(LIMIT, |line| line == "ready").context("waiting for the database")?;
        Ok(MuslHost { process, stdin, lines })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn list(&mut self) -> Result<Listed> {
        writeln!(self.stdin, "list").context("letting the program list")?;
        let line = self.lines.until(LIMIT, |line| line.starts_with("truth "))?;
        let parsed = line.strip_prefix("truth ").and_then(|words| words.split_once(' '));
        let parsed = parsed.and_then(|(level, rest)| Some((level.parse().ok()?, truth::parse(rest)?)));
        let (perf_level, (truth, positionings)) = parsed.with_context(|| format!("not the truth: {line}"))?;
        Ok(Listed { perf_level, truth, positionings })
    }

    /// Lets the program end, and checks that it says it went well.
    pub fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.process.wait(LIMIT)?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(())
    }
}

/// Builds the hook for musl, as the package does, beside what is built for glibc.
fn hook() -> Result<PathBuf> {
    const TARGET: &str = "x86_64-unknown-linux-musl";
    let built = artifact::built("sexton")?;
    let directory = built.parent().and_then(Path::parent).context("it lies in no target directory")?;
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--release", "--locked", "--package", "sexton-hook", "--target", TARGET]);
    build.arg("--target-dir").arg(directory).current_dir(artifact::repository());
    build.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER", "musl-gcc");
    build.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS", "-C target-feature=-crt-static");
    ensure!(
        Process::start(build)?.wait(BUILD_LIMIT)?.success(),
        "the hook for musl is not built: run `make setup` (rustup target add {TARGET})"
    );
    Ok(directory.join(TARGET).join("release/libsexton_hook.so"))
}

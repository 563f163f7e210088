//! Runs the end-to-end tests that are tagged for it under other kernels, each in a virtual machine, and
//! prints a table: kernel by test, and what each kernel lacks.
//!
//! The kernels are Debian's, unpacked by `tests/kernels/setup.sh`; the guest's root is this machine's,
//! read-only. Nothing is built here: the test programs come as cargo's JSON messages on standard input
//! (`cargo test --no-run --message-format=json`). This file puts the parts together; what is run stands in
//! [`suite`], how a guest is run in [`guest`], what a guest says in [`answer`], the table in [`table`].

mod answer;
mod guest;
mod suite;
mod table;

use answer::{Answer, Outcome};
use anyhow::{Context, Result, ensure};
use clap::Parser;
use sexton_probe::KernelFeatures;
use sexton_tests::artifact;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use suite::Suite;

/// Tests under other kernels.
#[derive(Debug, Parser)]
enum Arguments {
    /// Runs the tests under other kernels and reports a table.
    Run(Run),
    /// Prints what the running kernel has, as JSON; used inside the guests.
    Features,
}

/// What to run, and where.
#[derive(Debug, clap::Args)]
struct Run {
    /// Series of kernels that `tests/kernels/setup.sh` has unpacked, for example 6.12; repeat for more.
    #[arg(long = "kernel", required = true)]
    kernels: Vec<String>,
    /// Run the tests whose name contains this.
    #[arg(long, default_value = "any_kernel")]
    filter: String,
    /// Where the guests' output is kept.
    #[arg(long)]
    logs: PathBuf,
}

fn main() -> ExitCode {
    let done = match Arguments::parse() {
        Arguments::Run(arguments) => run(&arguments),
        Arguments::Features => print_features(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print_features() -> Result<bool> {
    println!("{}", serde_json::to_string(&KernelFeatures::probe()).context("the kernel's features")?);
    Ok(true)
}

/// Whether everything passed on every kernel.
fn run(arguments: &Run) -> Result<bool> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "guests are shown this machine's files as root sees them: run `make test-kernels` as root"
    );
    let suite = Suite::read(BufReader::new(std::io::stdin()), &arguments.filter)?;
    ensure!(!suite.tests.is_empty(), "no test has `{}` in its name", arguments.filter);
    std::fs::create_dir_all(&arguments.logs)
        .with_context(|| format!("creating {}", arguments.logs.display()))?;
    // The guest finds its script under the same path, so this must be an absolute one.
    let logs = arguments.logs.canonicalize().context("the directory for logs")?;
    let mut answers = Vec::new();
    for kernel in &arguments.kernels {
        answers.push(test(kernel, &suite, &logs)?);
    }
    let mut stdout = std::io::stdout().lock();
    write!(stdout, "\n{}", table::render(&suite.tests, &answers)).context("printing the table")?;
    writeln!(stdout, "The guests' output is in {}.", logs.display()).context("printing the table")?;
    Ok(answers.iter().all(|answer| answer.passed(&suite.tests)))
}

/// Runs the suite under one kernel, with a line for each test as it ends.
fn test(kernel: &str, suite: &Suite, logs: &std::path::Path) -> Result<Answer> {
    let kernels = artifact::tools()?.join("kernels");
    let started = Instant::now();
    let mut answer = Answer::new(kernel);
    let (mut guest, first) = guest::boot(&kernels.join(kernel), &suite.script()?, &logs.join(kernel))?;
    println!("{kernel}: {} has booted after {} s", guest.release, started.elapsed().as_secs());
    let mut next = Some(first);
    while let Some(line) = next {
        if let Some((test, outcome)) = answer.hear(&line) {
            println!("{kernel}: {test}: {outcome}");
        }
        next = guest.next()?;
    }
    let missing = suite.tests.iter().filter(|test| answer.outcome(test) == Outcome::NotRun).count();
    if missing > 0 {
        println!("{kernel}: {missing} tests were not run; the guest's last words:\n{}", guest.last_words());
    }
    println!("{kernel}: {} s", started.elapsed().as_secs());
    Ok(answer)
}

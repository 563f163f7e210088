//! `sexton policy explain`: what a policy would do on this node now, and where it says so.

use crate::command::print_json;
use crate::discovery::discover;
use crate::failure::Failure;
use crate::text::{print_line, shown};
use crate::{node, policy_file};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use sexton_inspect::error::InspectError;
use sexton_inspect::facts::Target;
use sexton_inspect::inspect::Inspector;
use sexton_tuner::policy::{Explanation, Policy, Source, Statement, explain, explain_database};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Columns of a statement; where it comes from stands behind it.
const STATEMENT_COLUMNS: usize = 88;

/// Arguments of `sexton policy explain`.
#[derive(Args, Debug)]
pub struct ExplainArguments {
    /// Policy file, or a directory whose `*.yaml` are one policy.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// At another time than now, such as 2026-12-24T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// A policy and what it comes to here.
#[derive(Serialize)]
struct OnThisNode {
    at: Timestamp,
    #[serde(flatten)]
    explanation: Explanation,
    /// Processes that it matches, and have a RocksDB that can be read.
    processes: Vec<Met>,
}

/// A process that the policy matches.
#[derive(Serialize)]
struct Met {
    process: String,
    /// The entry that decides about it.
    target: String,
    databases: Vec<MetDatabase>,
}

#[derive(Serialize)]
struct MetDatabase {
    directory: String,
    /// What the policy says of it.
    text: String,
}

/// Explains; nothing is attached, and nothing is opened of a process that the policy does not match.
/// Errors: a policy that cannot be read or is none.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    let (policy, sources) = policy_file::load_with_sources(&arguments.file)?;
    let at = arguments.at.unwrap_or_else(Timestamp::now);
    let explanation = explain(&sources, &policy, at, node::number());
    let explained = OnThisNode { at, explanation, processes: processes(policy) };
    if arguments.json {
        return print_json(&explained);
    }
    print_text(&arguments.file, &explained);
    Ok(())
}

/// Those on this node.
fn processes(policy: Policy) -> Vec<Met> {
    let policy = Arc::new(policy);
    let of_inspector = Arc::clone(&policy);
    let make = move || {
        let mut inspector = Inspector::new();
        inspector.follow_policy(Arc::clone(&of_inspector));
        (inspector, ())
    };
    let found = discover(make, |(), target| target.clone());
    let met = found.into_iter().filter_map(|result| match result {
        Ok(target) => met(&policy, &target),
        Err(InspectError::NotMatched { is_cut: false, .. }) => None,
        Err(error) => {
            eprintln!("warning: {}", shown(&error.to_string()));
            None
        }
    });
    met.collect()
}

fn met(policy: &Policy, target: &Target) -> Option<Met> {
    let entry = policy.target_for(&target.candidate())?;
    let databases = target.databases.iter().map(|database| {
        let directory = database.path.display().to_string();
        let text = match database.is_read_only {
            true => "is left alone: it is open for reading only".to_owned(),
            false => explain_database(entry, &directory),
        };
        MetDatabase { directory, text }
    });
    Some(Met { process: target.name.clone(), target: entry.name.clone(), databases: databases.collect() })
}

fn print_text(file: &Path, explained: &OnThisNode) {
    let OnThisNode { at, explanation, processes } = explained;
    print_line(format_args!("{} at {at}", file.display()));
    explanation.node.iter().for_each(print_statement);
    for target in &explanation.targets {
        println!();
        print_line(format_args!("{}:", target.name));
        target.statements.iter().for_each(print_statement);
        let of_it: Vec<&Met> = processes.iter().filter(|met| met.target == target.name).collect();
        if of_it.is_empty() {
            print_line("  on this node: no process that can be read");
        }
        for met in of_it {
            print_line(format_args!("  on this node: {}", met.process));
            for MetDatabase { directory, text } in &met.databases {
                print_line(format_args!("    {directory} {text}"));
            }
        }
    }
}

fn print_statement(statement: &Statement) {
    let Statement { text, source } = statement;
    let source = match source {
        Source::Default => "default".to_owned(),
        Source::Line(line) => format!("line {line}"),
        Source::File { file, line } => format!("{file}, line {line}"),
        Source::Period { name, line: Some(line), file: Some(file) } => {
            format!("{file}, line {line}, period {name}")
        }
        Source::Period { name, line: Some(line), file: None } => format!("line {line}, period {name}"),
        Source::Period { name, line: None, .. } => format!("period {name}"),
    };
    print_line(format_args!("  {text:STATEMENT_COLUMNS$}  {source}"));
}

//! The API is what its own document says.
//!
//! Method: an outside validator reads the document. Then schemathesis makes up requests from it, asks a real
//! agent that has a target with pain, and holds each answer against the document: status, media type, schema.
//! None may be the server's fault.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sexton_tests::agent::{self, Agent, list, text};
use sexton_tests::artifact;
use sexton_tests::workload::{Start, Workload};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Requests made up for each operation; `make test-api` asks for more.
const EXAMPLES: &str = "60";

/// One of the fetched Python programs; fails with all it said unless it succeeds.
fn python(module: &str, arguments: &[&str]) -> Result<String> {
    let tools = artifact::tools()?.join("python");
    ensure!(tools.is_dir(), "{} is missing: run `make setup`", tools.display());
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command
        .env("PYTHONPATH", &tools)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-m", module])
        .args(arguments);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {module}"))?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{module} ended with {}:\n{said}", output.status);
    Ok(said)
}

#[test]
fn a_validator_finds_nothing_in_the_document() -> Result<()> {
    let document = artifact::repository().join("agent/openapi.json");
    python("openapi_spec_validator", &["--schema", "3.1.0", &document.to_string_lossy()])?;
    Ok(())
}

/// The document, its path parameters half of the time what the agent has: nobody guesses a range's id.
fn with_what_there_is(agent: &Agent) -> Result<Value> {
    let document = artifact::repository().join("agent/openapi.json");
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(document)?)?;
    let ranges = agent.get("/api/v1/ranges?sort=pain&limit=1")?;
    let known = [
        ("/paths/~1api~1v1~1ranges~1{id}/get/parameters/0/schema", text(&ranges, "/ranges/0/id")),
        ("/paths/~1api~1v1~1targets~1{name}/get/parameters/0/schema", text(&ranges, "/ranges/0/target")),
    ];
    for (pointer, value) in known {
        let schema = document.pointer_mut(pointer).with_context(|| format!("no {pointer}"))?;
        *schema = json!({"anyOf": [{"const": value}, schema.take()]});
    }
    Ok(document)
}

#[test]
fn a_running_agent_answers_as_the_document_says() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let mut workload = Workload::start_with(
        Start {
            directory: &directory.path().join("db"),
            keys: 100_000,
            seconds: 600,
            preload: None,
            stderr: Stdio::inherit(),
        },
        &["--disable-auto-compactions", "--write-buffer-bytes=4194304"],
        &[],
    )?;
    workload.second(LIMIT)?;
    let policy = format!(
        "mode: advise\ntargets: [{{ name: queue, match: {{ pid: {} }} }}]\n\
         thresholds: {{ tombstones_per_operation: 100, pain: 1ms/s, density: 0.0 }}\n\
         loop: {{ interval: 500ms, window: 300ms, survey: 500ms }}\nprobes: {{ budget: 50% }}\n",
        workload.process.pid()
    );
    let mut agent = Agent::start(directory.path(), &policy)?;
    agent.wait_for(LIMIT, "ranges", |agent| {
        let ranges = agent.get("/api/v1/ranges")?;
        Ok((!list(&ranges, "ranges")?.is_empty()).then_some(()))
    })?;
    let document = directory.path().join("openapi.json");
    std::fs::write(&document, with_what_there_is(&agent)?.to_string())?;
    let examples = std::env::var("SEXTON_API_EXAMPLES").unwrap_or_else(|_| EXAMPLES.to_owned());
    let said = python(
        "schemathesis.cli",
        &[
            "run",
            &document.to_string_lossy(),
            &format!("--base-url=http://{}", agent.address),
            "--experimental=openapi-3.1",
            "--checks=all",
            // It never ends by itself.
            "--exclude-path=/api/v1/events/stream",
            &format!("--hypothesis-max-examples={examples}"),
            "--hypothesis-database=none",
            "--request-timeout=10000",
        ],
    )?;
    println!("{said}");
    agent.wait_for(LIMIT, "an answer after all that", |agent| Ok(agent.get("/healthz").ok()))?;
    agent.stop()
}

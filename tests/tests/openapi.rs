//! The API is what its own document says.
//!
//! Method: an outside validator reads the document. Then schemathesis makes up requests from it, asks a real
//! agent that has a target with pain, and holds each answer against the document: status, media type, schema.
//! None may be the server's fault. It asks on the loopback interface, and over TLS as callers with different
//! scopes.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sexton_tests::agent::{self, Agent, list, text};
use sexton_tests::artifact;
use sexton_tests::tls::{Tls, token};
use sexton_tests::workload::Workload;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
/// Requests made up for each operation; `make test-api` asks for more.
const EXAMPLES: &str = "40";
/// The same as a caller without a token, each of whom is refused.
const REFUSED_EXAMPLES: &str = "3";
/// Requests that have to be made at least, on each of the two listeners.
const REQUESTS_MIN: &str = "100";

/// Gives requests for changes, half of the time, the id and the time that they need over TLS.
const HOOKS: &str = r#"
import datetime, random, uuid
import schemathesis

@schemathesis.hook
def before_call(context, case):
    if case.method.upper() == "POST" and random.random() < 0.5:
        headers = case.headers if case.headers is not None else {}
        headers["Sexton-Request-Id"] = uuid.uuid4().hex
        headers["Sexton-Request-Time"] = datetime.datetime.now(datetime.timezone.utc).isoformat()
        case.headers = headers
"#;

/// Asks what its last argument says over TLS, and prints status and code of each answer.
const ASK: &str = r#"
import http.client, json, ssl, sys
authority, address, requests = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
context = ssl.create_default_context(cafile=authority)
said = []
for method, path, headers in requests:
    connection = http.client.HTTPSConnection(address, context=context, timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    kind = answer.getheader("Content-Type", "")
    said.append([answer.status, json.loads(body).get("code", "") if "json" in kind else ""])
    connection.close()
print(json.dumps(said))
"#;

/// One of the fetched Python programs; fails with all it said unless it succeeds.
fn python(arguments: &[&str], hooks: Option<&Path>) -> Result<String> {
    let tools = artifact::tools()?.join("python");
    ensure!(tools.is_dir(), "{} is missing: run `make setup`", tools.display());
    let mut path = tools.clone().into_os_string();
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    if let Some(hooks) = hooks {
        path.push(":");
        path.push(hooks);
        command.env("SCHEMATHESIS_HOOKS", "hooks");
    }
    command
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HYPOTHESIS_STORAGE_DIRECTORY", tools.join("hypothesis"))
        .args(arguments);
    let output = command.stdin(Stdio::null()).output().context("running Python")?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "Python ended with {}:\n{said}", output.status);
    Ok(said)
}

#[test]
fn a_validator_finds_nothing_in_the_document() -> Result<()> {
    let document = artifact::repository().join("agent/openapi.json");
    let document = document.to_string_lossy();
    python(&["-m", "openapi_spec_validator", "--schema", "3.1.0", &document], None)?;
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

/// An agent with a target in pain, and the document.
struct Stage {
    directory: TempDir,
    _workload: Workload,
    agent: Agent,
    tls: Tls,
}

impl Stage {
    fn set() -> Result<Stage> {
        let directory = tempfile::tempdir()?;
        let workload = Workload::hurting(&directory.path().join("db"))?;
        let policy = format!(
            "mode: advise\ntargets: [{{ name: queue, match: {{ pid: {} }} }}]\n\
             thresholds: {{ tombstones_per_operation: 100, pain: 1ms/s, density: 0.0 }}\n\
             loop: {{ interval: 500ms, window: 300ms, survey: 500ms }}\nprobes: {{ budget: 50% }}\nkeys: shown\n",
            workload.process.pid()
        );
        let tls = Tls::make(directory.path())?;
        let arguments = tls.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut agent = Agent::start_with(directory.path(), &policy, &arguments)?;
        agent.wait_for(LIMIT, "ranges", |agent| {
            let ranges = agent.get("/api/v1/ranges")?;
            Ok((!list(&ranges, "ranges")?.is_empty()).then_some(()))
        })?;
        let document = with_what_there_is(&agent)?.to_string();
        std::fs::write(directory.path().join("openapi.json"), document)?;
        std::fs::write(directory.path().join("hooks.py"), HOOKS)?;
        Ok(Stage { directory, _workload: workload, agent, tls })
    }

    /// Has schemathesis ask; gives how many requests it has made.
    fn hold_against_document(&self, base: &str, examples: &str, more: &[&str]) -> Result<u64> {
        let document = self.directory.path().join("openapi.json");
        let (document, base) = (document.to_string_lossy(), format!("--base-url={base}"));
        let examples = format!("--hypothesis-max-examples={examples}");
        let mut arguments = vec![
            "-m",
            "schemathesis.cli",
            "run",
            &document,
            &base,
            "--experimental=openapi-3.1",
            "--checks=all",
            // Who may ask is tested here by callers of its own; without TLS nobody is asked who he is.
            "--exclude-checks=ignored_auth",
            "--generation-with-security-parameters=false",
            // It never ends by itself.
            "--exclude-path=/api/v1/events/stream",
            &examples,
            "--hypothesis-database=none",
            // How long it takes to make up a request, and to be answered, says how busy the machine is.
            "--hypothesis-suppress-health-check=all",
            "--hypothesis-deadline=120000",
            "--request-timeout=60000",
        ];
        arguments.extend(more);
        let said = python(&arguments, Some(self.directory.path()))?;
        println!("{said}");
        let line = said.lines().find(|line| line.trim_start().starts_with("not_a_server_error"));
        let words = line.context("schemathesis has not counted its requests")?.split_whitespace();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let [passed, all] = numbers.as_slice() else { anyhow::bail!("no two numbers in {line:?}") };
        ensure!(passed == all, "{passed} of {all} requests were answered well");
        Ok(*all)
    }

    /// The same over TLS; `None`: as nobody.
    fn hold_over_tls(&self, caller: Option<&str>, examples: &str) -> Result<u64> {
        let base = format!("https://{}", self.tls.address);
        let verify = format!("--request-tls-verify={}", self.tls.authority.display());
        let header = format!("--header=Authorization: Bearer {}", token(caller.unwrap_or("nobody")));
        // Below the rate at which the agent puts an address off.
        self.hold_against_document(&base, examples, &[&verify, &header, "--rate-limit=90/s"])
    }

    /// Status and code of the answers to requests over TLS, one after the other.
    fn ask(&self, requests: &Value) -> Result<Vec<(u64, String)>> {
        let (authority, address) = (self.tls.authority.to_string_lossy(), self.tls.address.to_string());
        let said = python(&["-c", ASK, &authority, &address, &requests.to_string()], None)?;
        serde_json::from_str(&said).with_context(|| format!("no answers in {said}"))
    }
}

fn examples() -> String {
    std::env::var("SEXTON_API_EXAMPLES").unwrap_or_else(|_| EXAMPLES.to_owned())
}

/// Fails where it were fewer requests than `make test-api` wants.
fn ensure_enough(requests: u64) -> Result<()> {
    let least = std::env::var("SEXTON_API_REQUESTS_MIN").unwrap_or_else(|_| REQUESTS_MIN.to_owned());
    let least: u64 = least.parse().context("SEXTON_API_REQUESTS_MIN")?;
    println!("{requests} requests were held against the document");
    ensure!(requests >= least, "only {requests} requests, wanted {least}");
    Ok(())
}

#[test]
fn a_running_agent_answers_as_the_document_says() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut stage = Stage::set()?;
    let base = format!("http://{}", stage.agent.address);
    ensure_enough(stage.hold_against_document(&base, &examples(), &[])?)?;
    stage.agent.wait_for(LIMIT, "an answer after all that", |agent| Ok(agent.get("/healthz").ok()))?;
    stage.agent.stop()
}

#[test]
fn callers_over_tls_are_answered_as_the_document_says() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut stage = Stage::set()?;
    let owner = stage.hold_over_tls(Some("owner"), &examples())?;
    let reader = stage.hold_over_tls(Some("reader"), &examples())?;
    let actor = stage.hold_over_tls(Some("actor"), REFUSED_EXAMPLES)?;
    let nobody = stage.hold_over_tls(None, REFUSED_EXAMPLES)?;
    ensure_enough(owner + reader + actor + nobody)?;
    stage.agent.wait_for(LIMIT, "an answer after all that", |agent| Ok(agent.get("/healthz").ok()))?;
    stage.agent.stop()
}

#[test]
fn who_may_not_ask_over_tls_is_refused_and_a_change_is_made_once() -> Result<()> {
    let _turn = agent::beside_others()?;
    let stage = Stage::set()?;
    let by = |name: &str| format!("Bearer {}", token(name));
    let plan = "/api/v1/plan";
    let now = jiff::Timestamp::now().to_string();
    let change = json!({
        "Authorization": by("actor"), "Content-Type": "application/json",
        "Sexton-Request-Id": "0123456789abcdef", "Sexton-Request-Time": now,
    });
    let without_id = json!({"Authorization": by("actor"), "Content-Type": "application/json"});
    let of_reader = json!({"Authorization": by("reader"), "Content-Type": "application/json"});
    let said = stage.ask(&json!([
        ["GET", plan, {}],
        ["GET", plan, {"Authorization": by("nobody")}],
        ["GET", plan, {"Authorization": by("actor")}],
        ["GET", plan, {"Authorization": by("reader")}],
        ["GET", plan, {"Authorization": by("reader"), "Host": "evil.example"}],
        ["GET", plan, {"Authorization": by("reader"), "Origin": "https://evil.example"}],
        ["POST", "/api/v1/cycle", of_reader],
        ["POST", "/api/v1/cycle", without_id],
        ["POST", "/api/v1/cycle", change],
        ["POST", "/api/v1/cycle", change],
    ]))?;
    let expected = [
        (401, "unknown_caller"),
        (401, "unknown_caller"),
        (403, "scope_missing"),
        (200, ""),
        (403, "host_not_in_certificate"),
        (403, "cross_origin"),
        (403, "scope_missing"),
        (400, "request_id_required"),
        (202, ""),
        (409, "request_replayed"),
    ];
    let expected: Vec<(u64, String)> =
        expected.iter().map(|(status, code)| (*status, (*code).to_owned())).collect();
    ensure!(said == expected, "{said:?} instead of {expected:?}");
    stage.agent.stop()
}

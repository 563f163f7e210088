//! The example policies, the script for Ozone and the Prometheus rules that come with the project are right.
//!
//! Method: the real `sexton policy check` on each policy, the script's own tests, and `promtool`'s own check
//! and unit tests on the rules. A policy is explained beside a real process that it matches.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{Agent, list, text};
use sexton_tests::workload::Workload;
use sexton_tests::{agent, artifact};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn policies() -> Result<Vec<PathBuf>> {
    let directory = artifact::repository().join("policies");
    let mut policies = Vec::new();
    for entry in std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            policies.push(path);
        }
    }
    ensure!(!policies.is_empty(), "there is no policy in {}", directory.display());
    Ok(policies)
}

#[test]
fn every_example_policy_is_valid() -> Result<()> {
    for policy in policies()? {
        let output = agent::command()?.args(["policy", "check"]).arg(&policy).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}\n{said}", policy.display(), output.status);
    }
    Ok(())
}

#[test]
fn a_policy_is_explained_for_the_processes_of_this_node() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    let workload = Workload::small(&database)?;
    let pid = workload.process.pid();
    let policy = format!(
        "mode: act\ntargets:\n  - name: queue\n    match: {{ pid: {pid} }}\n    databases: {{ exclude: [\"*/db\"] }}\n"
    );
    std::fs::write(directory.path().join("policy.yaml"), policy)?;
    let explain = |more: &[&str]| -> Result<String> {
        let arguments = [&["policy", "explain", "policy.yaml"], more].concat();
        let output = agent::output(directory.path(), &arguments)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let told: serde_json::Value = serde_json::from_str(&explain(&["--json"])?)?;
    let [process] = list(&told, "processes")?.as_slice() else { anyhow::bail!("not one process: {told}") };
    ensure!(text(process, "/target") == "queue" && text(process, "/process").ends_with(&format!("-{pid}")));
    let [found] = list(process, "databases")?.as_slice() else { anyhow::bail!("not one database: {told}") };
    ensure!(Path::new(text(found, "/directory")) == database.canonicalize()?, "{told}");
    ensure!(text(found, "/text") == "is left alone: */db excludes it", "{told}");
    let said = explain(&[])?;
    let has = |words: &str, line: &str| said.lines().any(|of| of.contains(words) && of.ends_with(line));
    ensure!(has("plans are carried out", "line 1") && has("ranked by margin", "default"), "{said}");
    ensure!(said.contains(&format!("on this node: sexton-queue-workload-{pid}")), "{said}");
    Ok(())
}

/// What node and programs say in files of their own is one policy: checked, explained with the file of each
/// line, and read again by a running agent whichever file changes.
#[test]
fn a_directory_of_policies_is_one_policy() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let policies = folder.path().join("policies");
    std::fs::create_dir(&policies)?;
    let write = |name: &str, text: &str| std::fs::write(policies.join(name), text);
    write("10-node.yaml", "loop: { interval: 500ms, window: 100ms }\n")?;
    write("20-om.yaml", "targets:\n  - { name: om, match: { executable: om } }\n")?;
    let sexton = |arguments: &[&str]| agent::output(folder.path(), arguments);
    let explained = sexton(&["policy", "explain", "policies"])?;
    let said = String::from_utf8(explained.stdout)?;
    let has = |words: &str, place: &str| said.lines().any(|of| of.contains(words) && of.ends_with(place));
    ensure!(has("looked at every 500ms", "10-node.yaml, line 1"), "{said}");
    ensure!(has("runs om", "20-om.yaml, line 2") && has("ranked by margin", "default"), "{said}");

    let mut agent = Agent::start_in_directory(folder.path(), &policies)?;
    let names = |agent: &Agent| -> Result<Vec<String>> {
        let policy = agent.get("/api/v1/policy")?;
        let targets = policy.pointer("/policy/targets").and_then(serde_json::Value::as_array).cloned();
        Ok(targets.unwrap_or_default().iter().map(|target| text(target, "/name").to_owned()).collect())
    };
    let limit = Duration::from_secs(20);
    agent.wait_for(limit, "the first file", |agent| Ok((names(agent)? == ["om"]).then_some(())))?;
    write("30-scm.yaml", "targets: [{ name: scm, match: { executable: scm } }]\n")?;
    agent.wait_for(limit, "the second file", |agent| Ok((names(agent)? == ["om", "scm"]).then_some(())))?;

    write("30-scm.yaml", "\ntargets: [{ name: om, match: { executable: scm } }]\n")?;
    let refused = sexton(&["policy", "check", "policies"])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(2), "{said}");
    ensure!(said.contains("policies/30-scm.yaml:2:19: ") && said.contains("20-om.yaml, line 2"), "{said}");
    agent.wait_for(limit, "the trouble", |agent| {
        Ok(agent.log().contains("20-om.yaml, line 2").then_some(()))
    })?;
    ensure!(names(&agent)? == ["om", "scm"], "what is no policy has come into force");
    std::fs::remove_file(policies.join("30-scm.yaml"))?;
    agent.wait_for(limit, "the first file alone", |agent| Ok((names(agent)? == ["om"]).then_some(())))?;
    agent.stop()
}

/// The script that sets Ozone's properties, against stand-ins for its command and its web page.
#[test]
fn the_script_for_ozone_passes_its_own_tests() -> Result<()> {
    let script = artifact::repository().join("deploy/ozone/ozone-reconfigure-test.sh");
    let output = Command::new("bash").arg(&script).output()?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{} ended with {}:\n{said}", script.display(), output.status);
    Ok(())
}

#[test]
fn the_prometheus_rules_pass_promtool() -> Result<()> {
    let script = artifact::repository().join("deploy/prometheus/check.sh");
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":");
    path.push(artifact::tools()?.join("prometheus/usr/bin"));
    let output = Command::new("bash").arg(&script).env("PATH", path).output()?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{} ended with {}:\n{said}", script.display(), output.status);
    Ok(())
}

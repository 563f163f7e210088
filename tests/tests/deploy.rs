//! What is deployed goes together: pages and manifests that are made of something else are up to date,
//! Kubernetes takes the manifests, and what the package lists is there.
//!
//! Method: the files as they are committed. `BLESS=1` writes anew what is generated. The manifests are held
//! against Kubernetes' own JSON schemas, unknown fields refused; the rules in them are those that promtool
//! has checked.

use anyhow::{Context, Result, bail, ensure};
use sexton_tests::{artifact, policy_reference};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest and the newest Kubernetes whose schemas the manifests are held against: AppArmor profiles
/// became fields in 1.30.
const KUBERNETES: [&str; 2] = ["1.30", "1.37"];

fn deployed(name: &str) -> PathBuf {
    artifact::repository().join("deploy").join(name)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn is_up_to_date(path: &Path, wanted: &str) -> Result<()> {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, wanted)?;
    }
    ensure!(read(path)? == wanted, "run this test with BLESS=1 and commit {}", path.display());
    Ok(())
}

/// `text` as the value of a key in YAML, as it is.
fn indented(text: &str, columns: usize) -> String {
    let line = |line: &str| match line.is_empty() {
        true => "\n".to_owned(),
        false => format!("{}{line}\n", " ".repeat(columns)),
    };
    text.lines().map(line).collect()
}

#[test]
fn the_policy_reference_says_what_the_schema_says() -> Result<()> {
    let schema = serde_json::from_str(&sexton_tuner::policy::schema())?;
    is_up_to_date(&deployed("docs/policy-reference.md"), &policy_reference::page(&schema))
}

#[test]
fn a_cluster_gets_the_rules_that_promtool_has_checked() -> Result<()> {
    let rules = read(&deployed("prometheus/rules.yml"))?;
    let groups = rules.find("groups:\n").context("no groups in the rules")?;
    let groups = rules.get(groups..).unwrap_or_default();
    let wanted = format!(
        "# Made of deploy/prometheus/rules.yml by tests/tests/deploy.rs.\n\
         apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: sexton\nspec:\n{}",
        indented(groups, 2)
    );
    is_up_to_date(&deployed("kubernetes/base/prometheus-rule.yaml"), &wanted)
}

#[test]
fn a_cluster_gets_the_default_policy() -> Result<()> {
    let policy = read(&artifact::repository().join("policies/default.yaml"))?;
    let wanted = format!(
        "# Made of policies/default.yaml by tests/tests/deploy.rs.\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: sexton-policy\ndata:\n  policy.yaml: |\n{}",
        indented(&policy, 4)
    );
    is_up_to_date(&deployed("kubernetes/base/config-map.yaml"), &wanted)
}

/// Says what is wrong with manifests; of what has no schema there (the Prometheus operator's objects) only
/// what every object has.
const CHECK_MANIFESTS: &str = r#"
import json, sys, yaml, kubernetes_validate
versions, files = sys.argv[1].split(","), sys.argv[2:]
checked, wrong, labels, ports, monitors = 0, [], [], set(), []
for file in files:
    for manifest in yaml.safe_load_all(open(file)):
        if manifest["kind"] == "Kustomization" or manifest["kind"] == "Component":
            continue
        if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
            if set(manifest) != {"apiVersion", "kind", "metadata", "spec"}:
                wrong.append(f"{file}: {sorted(manifest)}")
            if manifest["kind"] == "ServiceMonitor":
                monitors.append(manifest["spec"])
            continue
        if manifest["kind"] == "Service":
            labels.append(manifest["metadata"]["labels"])
            ports |= {port["name"] for port in manifest["spec"]["ports"]}
        for version in versions:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
                checked += 1
            except kubernetes_validate.ValidationError as error:
                wrong.append(f"{file}: {version}: {'.'.join(map(str, error.path))}: {error.message}")
for monitor in monitors:
    wanted = monitor["selector"]["matchLabels"].items()
    if not any(wanted <= known.items() for known in labels):
        wrong.append(f"no Service has {dict(wanted)}")
    wrong += [f"no Service has port {end['port']}" for end in monitor["endpoints"] if end["port"] not in ports]
print(json.dumps({"checked": checked, "monitors": len(monitors), "wrong": wrong}))
"#;

/// The answer of [`CHECK_MANIFESTS`] on `files`.
fn check_manifests(files: &[PathBuf]) -> Result<serde_json::Value> {
    let libraries = artifact::tools()?.join("python");
    ensure!(
        libraries.join("kubernetes_validate").is_dir(),
        "{} has no kubernetes_validate: run `make setup`",
        libraries.display()
    );
    let python = artifact::installed("python3", "python3")?;
    let mut command = Command::new(python);
    command.env("PYTHONPATH", libraries).args(["-c", CHECK_MANIFESTS, &KUBERNETES.join(",")]).args(files);
    let output = command.output().context("starting python3")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("the answer of the check")
}

fn manifests() -> Result<Vec<PathBuf>> {
    manifests_of("kubernetes/base")
}

fn manifests_of(directory: &str) -> Result<Vec<PathBuf>> {
    let directory = deployed(directory);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

#[test]
fn kubernetes_takes_the_manifests() -> Result<()> {
    let lease = manifests_of("kubernetes/components/lease")?.into_iter();
    let lease = lease.filter(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    let answer = check_manifests(&manifests()?.into_iter().chain(lease).collect::<Vec<_>>())?;
    let wrong = answer.get("wrong").and_then(serde_json::Value::as_array).context("no list")?;
    ensure!(wrong.is_empty(), "{wrong:#?}");
    let count = |name: &str| answer.get(name).and_then(serde_json::Value::as_u64).unwrap_or_default();
    ensure!(count("checked") >= 20 && count("monitors") == 1, "too little was checked: {answer}");
    Ok(())
}

#[test]
fn a_manifest_with_a_field_that_kubernetes_does_not_know_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let daemon_set = read(&deployed("kubernetes/base/daemon-set.yaml"))?;
    let wrong = folder.path().join("daemon-set.yaml");
    std::fs::write(&wrong, daemon_set.replace("hostPID:", "hostPid:"))?;
    let answer = check_manifests(&[wrong])?.to_string();
    ensure!(answer.contains("hostPid"), "{answer}");
    Ok(())
}

/// The kustomization names every file, so none is checked that is not deployed.
#[test]
fn the_kustomization_has_every_manifest() -> Result<()> {
    let kustomization = read(&deployed("kubernetes/base/kustomization.yaml"))?;
    for file in manifests()? {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_named = kustomization.lines().any(|line| line.trim() == format!("- {name}"));
        ensure!(is_named || name == "kustomization.yaml", "{name} is not among the resources");
    }
    Ok(())
}

/// The lock that a policy names in the component's own words is what the component has, and its script is
/// one.
#[test]
fn the_component_of_the_lease_goes_together() -> Result<()> {
    let file = |name: &str| deployed(&format!("kubernetes/components/lease/{name}"));
    let kustomization = read(&file("kustomization.yaml"))?;
    for name in ["lease.yaml", "role.yaml"] {
        ensure!(kustomization.lines().any(|line| line.trim() == format!("- {name}")), "{name} is not named");
    }
    let line = kustomization.lines().find_map(|line| line.strip_prefix("#   guards: "));
    let policy = format!("guards: {}\n", line.context("no policy is shown")?);
    let policy = sexton_tuner::Policy::parse(&policy)?;
    let run = policy.guards.hold.context("no lock is shown")?.run;
    let [_, script, lease] = run.as_slice() else { bail!("{run:?}") };
    let script = Path::new(script).file_name().context("no script is shown")?;
    ensure!(
        kustomization.contains(&format!("files: [{}]", script.to_string_lossy())),
        "{script:?} is not named"
    );
    for (name, key) in [("lease.yaml", "name: "), ("role.yaml", "resourceNames: [")] {
        ensure!(read(&file(name))?.contains(&format!("{key}{lease}")), "{name} is about another Lease");
    }
    let bash = Command::new("bash").arg("-n").arg(file(&script.to_string_lossy())).output()?;
    ensure!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
    Ok(())
}

/// The agent has the same capabilities in a container as in the service.
#[test]
fn a_pod_has_the_capabilities_of_the_service() -> Result<()> {
    let capabilities = |text: &str, key: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim).filter_map(|line| line.strip_prefix(key));
        let names = lines.flat_map(|line| line.split([' ', ',', '[', ']', ':']).map(str::to_owned));
        names.filter(|name| !name.is_empty() && name != "ALL").collect()
    };
    let service = capabilities(&read(&deployed("systemd/sexton.service"))?, "CapabilityBoundingSet=");
    let service: Vec<&str> = service.iter().filter_map(|name| name.strip_prefix("CAP_")).collect();
    ensure!(!service.is_empty(), "the service has no capabilities");
    let pod = capabilities(&read(&deployed("kubernetes/base/daemon-set.yaml"))?, "add: ");
    ensure!(pod == service, "{pod:?} in the pod, {service:?} in the service");
    let acting =
        capabilities(&read(&deployed("systemd/sexton.service.d/act.conf"))?, "CapabilityBoundingSet=");
    let more = capabilities(&read(&deployed("kubernetes/components/act/kustomization.yaml"))?, "value: ");
    let wanted =
        acting.iter().filter_map(|name| name.strip_prefix("CAP_")).filter(|name| !service.contains(name));
    ensure!(wanted.eq(more.iter().map(String::as_str)), "{more:?} in the component, {acting:?} in act.conf");
    Ok(())
}

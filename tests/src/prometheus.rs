//! A real Prometheus, Debian's, that scrapes one address and evaluates the project's rules with time running
//! faster.

use crate::process::Process;
use crate::{artifact, http};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An hour of the rules is so many seconds here: whoever waits ten minutes waits two seconds.
pub const RULES_HOUR: Duration = Duration::from_secs(12);
/// The same for rules that compare with the day before.
pub const RULES_HOUR_SHORT: Duration = Duration::from_millis(1_200);
/// How often it scrapes and evaluates.
const INTERVAL: &str = "500ms";
const START_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(200);

/// Prometheus' own program: `prometheus` or `promtool`.
pub fn program(name: &str) -> Result<PathBuf> {
    artifact::installed(name, "prometheus").or_else(|_| artifact::tool(&format!("prometheus/usr/bin/{name}")))
}

/// A running server.
#[derive(Debug)]
pub struct Prometheus {
    // Killed when it is dropped.
    _process: Process,
    address: SocketAddr,
    log: PathBuf,
}

impl Prometheus {
    /// Starts it in `directory`, scraping `target`, with `rules` at a pace at which their hours are `hour`.
    pub fn start(directory: &Path, target: SocketAddr, rules: &str, hour: Duration) -> Result<Prometheus> {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("rules.yml"), hastened(rules, hour)?)?;
        let configuration = format!(
            "global: {{ scrape_interval: {INTERVAL}, scrape_timeout: {INTERVAL}, evaluation_interval: {INTERVAL} }}\n\
             rule_files: [rules.yml]\n\
             scrape_configs: [{{ job_name: sexton, static_configs: [{{ targets: ['{target}'] }}] }}]\n"
        );
        std::fs::write(directory.join("prometheus.yml"), configuration)?;
        let address = http::free_address()?;
        let log = directory.join("prometheus.log");
        let mut command = Command::new(program("prometheus")?);
        command.current_dir(directory).stdin(Stdio::null());
        command.args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--query.lookback-delta=2s",
        ]);
        command.arg(format!("--web.listen-address={address}"));
        let output = File::create(&log).context("opening Prometheus' log")?;
        command.stdout(output.try_clone()?).stderr(output);
        let server = Prometheus { _process: Process::start(command)?, address, log };
        server.until(START_LIMIT, "Prometheus to scrape", |server| {
            let is_up = |value: &Value| value.pointer("/value/1").and_then(Value::as_str) == Some("1");
            Ok(server.query("up").is_ok_and(|series| series.iter().any(is_up)))
        })?;
        Ok(server)
    }

    /// The series that `expression` gives now; fails on what is no expression.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let path = format!("/api/v1/query?query={}", percent_encoded(expression));
        let (status, body) = http::request(self.address, &path)?;
        let answer: Value = serde_json::from_str(&body).with_context(|| format!("no JSON: {body}"))?;
        match answer.pointer("/data/result").and_then(Value::as_array) {
            Some(series) if status == 200 => Ok(series.clone()),
            _ => bail!("{expression}: {status}: {body}"),
        }
    }

    /// Targets (or instances, for alerts about agents) for which the alert fires.
    pub fn firing(&self, alert: &str) -> Result<Vec<String>> {
        let series = self.query(&format!("ALERTS{{alertstate=\"firing\", alertname=\"{alert}\"}}"))?;
        let label = |series: &Value, name: &str| Some(series.get("metric")?.get(name)?.as_str()?.to_owned());
        Ok(series.iter().filter_map(|it| label(it, "target").or_else(|| label(it, "instance"))).collect())
    }

    /// Waits until the alert fires for something whose name contains `subject`.
    pub fn until_firing(&self, limit: Duration, alert: &str, subject: &str) -> Result<()> {
        self.until(limit, &format!("{alert} to fire for {subject:?}"), |server| {
            Ok(server.firing(alert)?.iter().any(|it| it.contains(subject)))
        })
    }

    /// Waits until the alert does not fire for it.
    pub fn until_clear(&self, limit: Duration, alert: &str, subject: &str) -> Result<()> {
        self.until(limit, &format!("{alert} to clear for {subject:?}"), |server| {
            Ok(!server.firing(alert)?.iter().any(|it| it.contains(subject)))
        })
    }

    fn until(&self, limit: Duration, what: &str, is_so: impl Fn(&Prometheus) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !is_so(self)? {
            if Instant::now() >= deadline {
                let alerts = self.query("ALERTS").unwrap_or_default();
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let end = log.lines().rev().take(5).collect::<Vec<_>>().join("\n");
                bail!("waited {limit:?} in vain for {what}; alerts: {alerts:?}; the log's end:\n{end}");
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

/// The rules with each span of time (`for: 10m`, `[1h]`, `offset 1d`) as much shorter. Numbers that are
/// compared with are left as they are.
fn hastened(rules: &str, hour: Duration) -> Result<String> {
    let mut text = String::new();
    let mut rest = rules;
    while let Some((at, mark)) =
        ["for: ", "[", "offset "].iter().filter_map(|mark| Some((rest.find(mark)?, *mark))).min()
    {
        let (before, after) = rest.split_at(at + mark.len());
        text.push_str(before);
        let digits = after.find(|character: char| !character.is_ascii_digit()).unwrap_or(after.len());
        let (number, unit_and_rest) = after.split_at(digits);
        let seconds = match unit_and_rest.chars().next() {
            Some('d') => 86_400,
            Some('h') => 3_600,
            Some('m') => 60,
            Some('s') => 1,
            _ => 0,
        };
        rest = after;
        if digits > 0 && seconds > 0 {
            let span: u64 = number.parse().context("a span of the rules")?;
            text.push_str(&format!("{}ms", u128::from(span * seconds) * hour.as_millis() / 3_600));
            rest = unit_and_rest.get(1..).unwrap_or_default();
        }
    }
    text.push_str(rest);
    Ok(text)
}

fn percent_encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_hastened_and_nothing_else() -> Result<()> {
        let rules = "expr: rate(a[15m]) > 300 and b:avg1h offset 1d\nfor: 10m\n";
        assert_eq!(
            hastened(rules, RULES_HOUR)?,
            "expr: rate(a[3000ms]) > 300 and b:avg1h offset 288000ms\nfor: 2000ms\n"
        );
        assert_eq!(percent_encoded("a{b=\"1\"}"), "a%7Bb%3D%221%22%7D");
        Ok(())
    }
}

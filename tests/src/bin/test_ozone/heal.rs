//! Lists in buckets of both layouts, healed inside the Ozone Manager.

use crate::client::Client;
use crate::phases::Phases;
use crate::{DELETED, Figures, daemon};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sexton_tests::agent::{list, text};
use std::time::{Duration, Instant};

/// Lists of which entries are counted.
const LISTS: u32 = 10;
/// Lists that are made before each of these looks: some seconds of them.
const LISTS_BETWEEN: u32 = 100;
/// How long healing may take: some seconds after the hook is in.
const LIMIT: Duration = Duration::from_secs(240);
/// How many times fewer entries lists have to step over.
const RELIEF_MIN: f64 = 50.0;

/// What lists cost.
struct Cost {
    /// Entries stepped over by all lists of one bucket, as RocksDB counts them.
    skipped: f64,
    mean_us: u64,
}

fn cost(client: &mut Client, bucket: &str) -> Result<Cost> {
    std::thread::sleep(daemon::METRICS_AGE);
    let before = daemon::skipped()?;
    let listed = client.list(bucket, "directory/", LISTS)?;
    // A bucket with directories lists them too.
    let mut keys = listed.keys.split(',').filter(|name| !name.ends_with('/'));
    ensure!(
        keys.next() == Some(format!("directory/key{DELETED:08}").as_str()),
        "{bucket} lists {}",
        listed.keys
    );
    // The key deleting service has iterators too, which count: a list over nothing skips some.
    std::thread::sleep(daemon::METRICS_AGE);
    let skipped = daemon::skipped()?.saturating_sub(before);
    Ok(Cost { skipped: (skipped as f64 / f64::from(LISTS)).max(1.0), mean_us: listed.mean_us })
}

/// What lists cost in each bucket without an agent.
pub struct Before([(&'static str, Cost); 2]);

/// To be called before there is one.
pub fn measure(client: &mut Client) -> Result<Before> {
    Ok(Before([("obs", cost(client, "obs")?), ("fso", cost(client, "fso")?)]))
}

/// Goes on listing until both are healed.
pub fn run(
    Before(before): Before,
    phases: &mut Phases<'_>,
    client: &mut Client,
    figures: &mut Figures,
) -> Result<()> {
    let begin = Instant::now();
    for (bucket, before) in before {
        let after = loop {
            // Readers go on, so that there is something to see.
            client.list(bucket, "directory/", LISTS_BETWEEN)?;
            let now = cost(client, bucket)?;
            if before.skipped / now.skipped >= RELIEF_MIN {
                break now;
            }
            let is_late = begin.elapsed() >= LIMIT;
            ensure!(
                !is_late,
                "lists of {bucket} stepped over {} entries and step over {} still; the agent did {:?}",
                before.skipped,
                now.skipped,
                in_short(&phases.agent.get("/api/v1/actions")?)?
            );
        };
        phases.say(&format!(
            "lists of {bucket} are healed: {:.0} entries stepped over each, {:.0} now; {} us, {} us now",
            before.skipped, after.skipped, before.mean_us, after.mean_us
        ));
        figures.insert(format!("{bucket}_list_skipped_entries_ratio"), json!(before.skipped / after.skipped));
        figures.insert(
            format!("{bucket}_list_mean_ratio"),
            json!(before.mean_us as f64 / after.mean_us.max(1) as f64),
        );
    }
    figures.insert("seconds_to_healed".into(), json!(begin.elapsed().as_secs_f64()));
    only_the_live_database(&phases.agent.get("/api/v1/actions")?)
}

/// Every compaction was of the live database.
fn only_the_live_database(actions: &Value) -> Result<()> {
    let compactions =
        list(actions, "actions")?.iter().filter(|action| text(action, "/action") != "set_throttle");
    let mut count = 0;
    for action in compactions {
        let database = text(action, "/database");
        ensure!(
            database.ends_with(".db") && !database.contains("db.snapshots"),
            "it was acted on {database}: {action}"
        );
        count += 1;
    }
    (count > 0).then_some(()).context("lists were healed by nobody")
}

/// What an agent did, and what came of it.
fn in_short(actions: &Value) -> Result<Vec<String>> {
    let words = |action| ["/action", "/subject", "/state"].map(|field| text(action, field)).join(" ");
    Ok(list(actions, "actions")?.iter().map(words).collect())
}

//! Apache Ozone 2.2.0, unmodified: its three daemons as one node would run them, and Sexton beside them with
//! the policy that is shipped for them.
//!
//! What is to be shown: lists are healed inside the Ozone Manager; deleting and scrubbing go through peak,
//! off-peak, pressure and peak again, as the daemons themselves tell it; what an administrator changes is
//! noticed; an agent that is killed in any of these phases leaves nothing behind; snapshots stay what they
//! are.
//!
//! No clock is faked: periods of the schedule are laid around the real time. Where the daemons run stands in
//! [`cluster`], what they say of themselves in [`daemon`], what clients do in [`client`], the policy in
//! [`policy`]. It is run in a network namespace of its own (`make test-ozone`), since Ozone listens on all
//! addresses.

mod client;
mod cluster;
mod daemon;
mod heal;
mod phases;
mod policy;
mod snapshots;

use anyhow::{Context, Result, ensure};
use client::Client;
use cluster::Cluster;
use serde_json::{Map, Value, json};
use sexton_tests::agent;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Figures of the last line, by name.
type Figures = Map<String, Value>;

fn main() -> ExitCode {
    match run() {
        Ok(figures) => {
            println!("{}", Value::Object(figures));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Figures> {
    let start = Instant::now();
    let say = |what: &str| println!("{:>4} s  {what}", start.elapsed().as_secs());
    let _turn = agent::beside_others()?;
    ensure!(
        is_alone(),
        "run it by `make test-ozone`, in a network namespace of its own: Ozone listens on all addresses"
    );
    // Its own user has to come to what lies in there.
    let directory = tempfile::Builder::new().prefix("sexton-ozone").tempdir()?;
    cluster::open_for_all(directory.path())?;
    say("starting Storage Container Manager, Ozone Manager and DataNode");
    let mut cluster = Cluster::start(directory.path())?;
    let mut client = Client::start(&cluster)?;
    say("filling buckets");
    fill(&cluster, &mut client)?;
    let taken = snapshots::take(&mut client, &cluster)?;
    let before = heal::measure(&mut client)?;

    let mut figures = Figures::new();
    client.ask("bucket timed OBJECT_STORE")?;
    let create_p99_us: u64 = client.ask("create timed 0 1000 1")?.parse()?;
    figures.insert("create_p99_alone_us".into(), json!(create_p99_us));
    say("an agent with the shipped policy, in mode act");
    let mut phases = phases::Phases::start(&mut cluster, &say)?;
    heal::run(before, &mut phases, &mut client, &mut figures)?;
    phases.run(&mut client, &mut figures)?;
    say("snapshots");
    taken.check(&mut client, &phases)?;
    phases.end(&mut figures)?;
    figures.insert("snapshot_differences_equal".into(), json!(true));
    figures.insert("seconds".into(), json!(start.elapsed().as_secs()));
    Ok(figures)
}

/// Keys in the buckets that lists are healed in, and how many of them are deleted, from the first one on.
pub const KEYS: u32 = 24_000;
pub const DELETED: u32 = 20_000;

/// Keys with content, and bytes of each: what the scanner reads takes it longer than a phase.
const STORED_KEYS: u32 = 50;
const STORED_BYTES: u32 = 4 << 20;

/// Fills the buckets.
fn fill(cluster: &Cluster, client: &mut Client) -> Result<()> {
    client.ask("bucket stored OBJECT_STORE")?;
    client.ask(&format!("create stored 0 {STORED_KEYS} {STORED_BYTES}"))?;
    cluster.close_containers()?;
    for (bucket, layout) in [("fso", "FILE_SYSTEM_OPTIMIZED"), ("obs", "OBJECT_STORE")] {
        client.ask(&format!("bucket {bucket} {layout}"))?;
        client.ask(&format!("create {bucket} 0 {KEYS}"))?;
        client.ask(&format!("delete {bucket} 0 {DELETED}"))?;
    }
    Ok(())
}

/// Whether this network namespace has nothing but its loopback interface.
fn is_alone() -> bool {
    let interfaces = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    interfaces.lines().skip(2).all(|line| line.trim_start().starts_with("lo:"))
}

/// Writes a program's text where Ozone's user can run it.
fn write_program(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

//! Ozone's snapshots: what differs between two of them, and the files of their checkpoints.

use crate::client::Client;
use crate::cluster::Cluster;
use crate::phases::Phases;
use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Keys in the bucket, and how many are deleted between the snapshots.
const KEYS: u32 = 3_000;
const DELETED: u32 = 1_000;
/// Lists in the older snapshot while the agent acts.
const LISTS: u32 = 50;

/// Two snapshots, as they were before any agent was there.
pub struct Taken {
    difference: String,
    checkpoints: PathBuf,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// Makes the bucket and its snapshots.
pub fn take(client: &mut Client, cluster: &Cluster) -> Result<Taken> {
    client.ask("bucket snapped FILE_SYSTEM_OPTIMIZED")?;
    client.ask(&format!("create snapped 0 {KEYS}"))?;
    client.ask("snapshot snapped before")?;
    client.ask(&format!("delete snapped 0 {DELETED}"))?;
    client.ask("snapshot snapped after")?;
    let difference = client.ask("diff snapped before after")?;
    ensure!(difference.contains(&format!("DELETE={DELETED}")), "the snapshots differ by {difference}");
    // The snapshot's database is opened once before its files are looked at.
    client.list("snapped", ".snapshot/before/directory/", 1)?;
    let checkpoints = cluster.base().join("data/om/db.snapshots/checkpointState");
    let files = hashes(&checkpoints)?;
    ensure!(!files.is_empty(), "no SST file below {}", checkpoints.display());
    Ok(Taken { difference, checkpoints, files })
}

impl Taken {
    /// Lists in a snapshot beside the agent, and looks whether all is as it was.
    pub fn check(&self, client: &mut Client, phases: &Phases<'_>) -> Result<()> {
        let listed = client.list("snapped", ".snapshot/before/directory/", LISTS)?;
        ensure!(listed.keys.contains("key00000000"), "the older snapshot lists {}", listed.keys);
        let files = hashes(&self.checkpoints)?;
        ensure!(files == self.files, "SST files of snapshots' checkpoints are not what they were");
        let difference = client.ask("diff snapped before after")?;
        ensure!(
            difference == self.difference,
            "the snapshots differed by {} and differ by {difference}",
            self.difference
        );
        phases.say(
            "snapshots differ by what they differed by; their checkpoints' files are the same to the byte",
        );
        Ok(())
    }
}

/// SST files below a directory, with what is in them.
fn hashes(directory: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(hashes(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "sst") {
            let hash = Sha256::digest(std::fs::read(&path)?).to_vec();
            found.insert(path, hash);
        }
    }
    Ok(found)
}

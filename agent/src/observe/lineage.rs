//! What is known of the hard links between open databases, brought to the evidence before each plan.

use super::roster::Roster;
use sexton_tuner::lineage::{Lineage, Links, lineages};
use std::collections::BTreeMap;

/// Says of each database that there is evidence of whose its files are, by the links of all databases that
/// are open in any target.
pub fn tell_lineages(roster: &mut Roster) {
    let known: Vec<&Links> = roster.watched.iter().flat_map(|watched| watched.links.values()).collect();
    let mut told = lineages(&known).into_iter();
    // In the order in which they were collected.
    for watched in &mut roster.watched {
        watched.checkpoints.retain(&watched.links);
        let mut of_databases = BTreeMap::new();
        for (links, lineage) in watched.links.values().zip(told.by_ref()) {
            let settled = watched.checkpoints.settle(links.inode, lineage);
            of_databases.insert(links.directory.as_str(), settled);
        }
        for evidence in &mut watched.evidence {
            evidence.lineage = of_databases.remove(evidence.database.as_str()).unwrap_or_else(unread);
        }
    }
}

fn unread() -> Lineage {
    Lineage::Unknown { reason: "its directory cannot be read".to_owned() }
}

//! What is known of the hard links between open databases, brought to the evidence before each plan.

use super::roster::Roster;
use sexton_tuner::lineage::{Inode, Lineage, Links, lineages};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Databases of a target that were found to be checkpoints, with the reason.
///
/// It is remembered for as long as the directory is open in the target: when the other database compacts, or
/// is closed, nothing may tell of it any more.
#[derive(Debug, Default)]
pub struct Checkpoints(BTreeMap<Inode, String>);

impl Checkpoints {
    /// What was known before goes before what is known now.
    fn settle(&mut self, inode: Inode, now: Lineage) -> Lineage {
        if let Lineage::Derived { reason } = &now {
            self.0.insert(inode, reason.clone());
            return now;
        }
        self.0.get(&inode).map_or(now, |reason| Lineage::Derived { reason: reason.clone() })
    }

    /// Forgets directories that are not open any more: another one may get the same inode.
    fn retain(&mut self, open: &BTreeMap<PathBuf, Links>) {
        self.0.retain(|inode, _| open.values().any(|links| links.inode == *inode));
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_a_checkpoint_stays_one_while_its_directory_is_open() {
        let mut checkpoints = Checkpoints::default();
        let inode = Inode { device: 1, number: 7 };
        let derived = Lineage::Derived { reason: "so".to_owned() };
        assert_eq!(checkpoints.settle(inode, Lineage::Own), Lineage::Own);
        assert_eq!(checkpoints.settle(inode, derived.clone()), derived);
        let open = [(PathBuf::from("/db"), Links { inode, ..Links::default() })].into();
        checkpoints.retain(&open);
        assert_eq!(checkpoints.settle(inode, Lineage::Own), derived);
        checkpoints.retain(&BTreeMap::new());
        assert_eq!(checkpoints.settle(inode, Lineage::Own), Lineage::Own);
    }
}

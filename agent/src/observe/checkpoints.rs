//! Which databases of a target were found to be checkpoints.

use sexton_tuner::lineage::{Inode, Lineage, Links};
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
    pub fn settle(&mut self, inode: Inode, now: Lineage) -> Lineage {
        if let Lineage::Derived { reason } = &now {
            self.0.insert(inode, reason.clone());
            return now;
        }
        self.0.get(&inode).map_or(now, |reason| Lineage::Derived { reason: reason.clone() })
    }

    /// Forgets directories that are not open any more: another one may get the same inode.
    pub fn retain(&mut self, open: &BTreeMap<PathBuf, Links>) {
        self.0.retain(|inode, _| open.values().any(|links| links.inode == *inode));
    }
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

//! What guards have said of one target.

use crate::snapshot::GuardView;
use sexton_inspect::facts::Gap;
use sexton_tuner::guard::{Guard, GuardRefusal};
use std::collections::BTreeMap;

/// What guards have said of one target.
#[derive(Clone, Debug, Default)]
pub struct GuardRecord {
    /// How often each has objected, and its last reason.
    objections: BTreeMap<Guard, (u64, String)>,
    /// Who objects now: nothing is begun.
    standing: Option<Guard>,
    /// Whose answer is waited for: nothing is begun either.
    awaited: Option<Guard>,
    /// Who cannot object, for want of a reading.
    unread: Vec<Guard>,
}

impl GuardRecord {
    /// Nothing objects, and these guards could not be asked.
    pub fn clear(&mut self, unread: Vec<Guard>) {
        (self.standing, self.awaited) = (None, None);
        self.unread = unread;
    }

    /// Somebody objects; gives whether that is news.
    pub fn note(&mut self, refusal: &GuardRefusal) -> bool {
        self.awaited = None;
        let (count, reason) = self.objections.entry(refusal.guard).or_default();
        *count += 1;
        reason.clone_from(&refusal.reason);
        self.standing.replace(refusal.guard) != Some(refusal.guard)
    }

    /// Nothing is begun until this guard has been heard; counted only where it comes to object.
    pub fn wait(&mut self, guard: Guard, reason: &str) {
        let (_, known) = self.objections.entry(guard).or_default();
        known.clear();
        known.push_str(reason);
        self.awaited = Some(guard);
    }

    /// As the outside sees it.
    pub fn view(&self) -> Vec<GuardView> {
        let view = |(guard, (refusals, reason)): (&Guard, &(u64, String))| GuardView {
            guard: guard.name().to_owned(),
            objects: self.standing == Some(*guard) || self.awaited == Some(*guard),
            refusals: *refusals,
            reason: reason.clone(),
        };
        self.objections.iter().map(view).collect()
    }

    /// What the guards cannot see.
    pub fn gap(&self) -> Option<Gap> {
        if self.unread.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.unread.iter().map(|guard| guard.name()).collect();
        Some(Gap {
            what: format!("{} guards cannot read the target", names.len()),
            reason: format!("nothing tells what these go by: {}", names.join(", ")),
            remedy: "executor: hook asks RocksDB itself; else keep the I/O budget small".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn objections_are_counted_and_told_when_they_are_new() {
        let mut record = GuardRecord::default();
        let refusal = |guard| GuardRefusal { guard, reason: format!("{guard:?}") };
        assert!(record.note(&refusal(Guard::Level0Files)));
        assert!(!record.note(&refusal(Guard::Level0Files)));
        assert!(record.note(&refusal(Guard::FlushPending)));
        let view = record.view();
        let shown: Vec<_> =
            view.iter().map(|view| (view.guard.as_str(), view.refusals, view.objects)).collect();
        assert_eq!(shown, [("level0_files", 2, false), ("flush_pending", 1, true)]);
        record.wait(Guard::Hold, "it is waited for");
        let shown = record.view().into_iter().find(|view| view.guard == "hold").unwrap();
        assert!(shown.objects && shown.refusals == 0 && shown.reason == "it is waited for");
        assert!(record.note(&refusal(Guard::Hold)), "waiting is no objection");
        record.clear(vec![Guard::DiskSpace]);
        assert!(record.view().iter().all(|view| !view.objects));
        assert!(record.gap().unwrap().reason.contains("disk_space"));
        assert!(record.note(&refusal(Guard::FlushPending)), "it had stopped objecting");
    }
}

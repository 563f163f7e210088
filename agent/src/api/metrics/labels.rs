//! The label `target`: what a target is called by, whatever its process id, so that a restart breaks no
//! series.
//!
//! A target is known to its metrics by its [`TargetView::series`]. Of several that live at once and have the
//! same, each but the first has a number behind it, and keeps it.

use crate::snapshot::{Snapshot, TargetState, TargetView};
use std::collections::BTreeMap;

/// Names that are remembered: counts of actions of targets that are gone go on counting under their label.
/// Beyond it those that no snapshot mentions are forgotten.
const NAMES_MAX: usize = 1024;

/// Label of a target that was forgotten.
const FORGOTTEN: &str = "other";

/// The labels given so far, by the targets' names.
#[derive(Debug, Default)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Gives a label to each target that has none yet.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        if self.0.len() > NAMES_MAX {
            self.0.retain(|name, _| snapshot.targets.iter().any(|target| target.name == *name));
        }
        for target in &snapshot.targets {
            if !self.0.contains_key(&target.name) {
                let label = self.free(target, snapshot);
                self.0.insert(target.name.clone(), label);
            }
        }
    }

    /// Label of the target with this name.
    pub fn of(&self, name: &str) -> &str {
        self.0.get(name).map_or(FORGOTTEN, String::as_str)
    }

    /// The targets to show, by label: of several with the same one the living.
    pub fn shown<'s>(&self, snapshot: &'s Snapshot) -> BTreeMap<&str, &'s TargetView> {
        let mut shown: BTreeMap<&str, &TargetView> = BTreeMap::new();
        for target in &snapshot.targets {
            let place = shown.entry(self.of(&target.name)).or_insert(target);
            if place.state == TargetState::Lost {
                *place = target;
            }
        }
        shown
    }

    fn free(&self, target: &TargetView, snapshot: &Snapshot) -> String {
        let living = snapshot.targets.iter().filter(|other| other.state != TargetState::Lost);
        let taken: Vec<&String> = living.filter_map(|other| self.0.get(&other.name)).collect();
        let series = if target.series.is_empty() { &target.name } else { &target.series };
        let mut label = series.clone();
        // More numbers than labels are never needed.
        for number in 2..=taken.len() + 1 {
            if !taken.contains(&&label) {
                break;
            }
            label = format!("{series}-{number}");
        }
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(targets: &[(&str, TargetState)]) -> Snapshot {
        let view = |(name, state): &(&str, TargetState)| TargetView {
            name: (*name).to_owned(),
            series: "om".to_owned(),
            state: *state,
            ..TargetView::default()
        };
        Snapshot { targets: targets.iter().map(view).collect(), ..Snapshot::default() }
    }

    use TargetState::{Lost, Watching};

    #[test]
    fn a_restart_goes_on_under_the_same_label() {
        let mut labels = Labels::default();
        labels.observe(&snapshot(&[("om-1", Watching)]));
        let restarted = snapshot(&[("om-1", Lost), ("om-2", Watching)]);
        labels.observe(&restarted);
        assert_eq!((labels.of("om-1"), labels.of("om-2")), ("om", "om"));
        let shown = labels.shown(&restarted);
        assert_eq!(shown.len(), 1);
        assert_eq!(shown.get("om").map(|target| target.name.as_str()), Some("om-2"));
    }

    #[test]
    fn several_at_once_are_told_apart_and_keep_their_labels() {
        let mut labels = Labels::default();
        labels.observe(&snapshot(&[("om-1", Watching), ("om-2", Watching), ("om-3", Watching)]));
        assert_eq!((labels.of("om-1"), labels.of("om-2"), labels.of("om-3")), ("om", "om-2", "om-3"));
        labels.observe(&snapshot(&[("om-1", Watching), ("om-3", Watching), ("om-4", Watching)]));
        assert_eq!((labels.of("om-3"), labels.of("om-4")), ("om-3", "om-2"));
        labels.observe(&snapshot(&[("om-3", Watching), ("om-5", Watching)]));
        assert_eq!((labels.of("om-5"), labels.of("om-9")), ("om", FORGOTTEN));
    }
}

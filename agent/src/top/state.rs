//! What the screen shows and how keys change it. Pure: no clock, no terminal.

use super::client::Snapshot;
use super::rates::History;
use super::row::{Report, Row};
use crate::snapshot::{RangeView, TargetState};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use strum::IntoEnumIterator;

/// What the targets are ordered by, the greatest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Sort {
    #[default]
    Pain,
    #[strum(to_string = "seeks/s")]
    Seeks,
    #[strum(to_string = "tombstones/seek")]
    Tombstones,
    #[strum(to_string = "misses/seek")]
    Misses,
    /// Name, in order of the alphabet.
    Name,
}

impl Sort {
    fn next(self) -> Sort {
        Sort::iter().cycle().skip_while(|sort| *sort != self).nth(1).unwrap_or_default()
    }
}

/// Everything a frame is made of.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub source: String,
    /// The order of the targets.
    pub sort: Sort,
    /// Whether new snapshots are let pass.
    pub paused: bool,
    /// Whether the help is shown.
    pub help: bool,
    /// Whether it is time to leave.
    pub quit: bool,
    /// Why the last snapshot could not be had; what is shown is older.
    pub trouble: Option<String>,
    snapshot: Snapshot,
    history: History,
    /// The selected target's name; it stays selected wherever it moves.
    selected: Option<String>,
}

impl State {
    /// Nothing seen yet of `source`.
    pub fn new(source: String) -> State {
        State { source, ..State::default() }
    }

    /// A new snapshot; while paused it passes by unseen.
    pub fn take(&mut self, snapshot: Snapshot) {
        self.trouble = None;
        if self.paused {
            return;
        }
        self.history.take(&snapshot);
        self.snapshot = snapshot;
        let is_there = |name: &String| self.snapshot.targets.iter().any(|target| target.name == *name);
        if !self.selected.as_ref().is_some_and(is_there) {
            self.selected = self.rows().first().map(|row| row.name.clone());
        }
    }

    pub fn press(&mut self, key: impl Into<KeyEvent>) {
        let key: KeyEvent = key.into();
        match key.code {
            // In raw mode Ctrl-C is a key like others.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => self.quit = true,
            KeyCode::Char('q') => self.quit = true,
            // Escape closes what is open first.
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => self.quit = true,
            KeyCode::Up => self.select(-1),
            KeyCode::Down => self.select(1),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('?') => self.help = !self.help,
            _ => {}
        }
    }

    fn select(&mut self, step: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let next = self.selected_index(&rows).saturating_add_signed(step).min(last);
        self.selected = rows.get(next).map(|row| row.name.clone());
    }

    /// Where the selected target stands in `rows`.
    pub fn selected_index(&self, rows: &[Row]) -> usize {
        rows.iter().position(|row| Some(&row.name) == self.selected.as_ref()).unwrap_or_default()
    }

    /// When the snapshot was made, RFC 3339; empty before the first.
    pub fn at(&self) -> &str {
        &self.snapshot.at
    }

    /// Loops that the agent has completed.
    pub fn cycles(&self) -> u64 {
        self.snapshot.cycles
    }

    /// The lines of the table, in order; targets that are gone come last.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self
            .snapshot
            .targets
            .iter()
            .map(|target| Row::new(target, self.history.rates(&target.name)))
            .collect();
        let value = |row: &Row| match self.sort {
            Sort::Pain => row.pain_seconds_per_second,
            Sort::Seeks => row.rates.seeks_per_second.unwrap_or(-1.0),
            Sort::Tombstones => row.rates.tombstones_per_seek.unwrap_or(-1.0),
            Sort::Misses => row.rates.misses_per_seek.unwrap_or(-1.0),
            Sort::Name => 0.0,
        };
        rows.sort_by(|one, two| {
            let gone = |row: &Row| row.state == TargetState::Lost;
            gone(one)
                .cmp(&gone(two))
                .then_with(|| value(two).total_cmp(&value(one)))
                .then_with(|| one.name.cmp(&two.name))
        });
        rows
    }

    /// Ranges of the selected target, worst first.
    pub fn ranges(&self) -> Vec<&RangeView> {
        let of_selected = |range: &&RangeView| Some(&range.target) == self.selected.as_ref();
        let mut ranges: Vec<&RangeView> = self.snapshot.ranges.iter().filter(of_selected).collect();
        ranges.sort_by(|one, two| two.pain_seconds_per_second.total_cmp(&one.pain_seconds_per_second));
        ranges
    }

    pub fn report(&self) -> Report {
        Report {
            at: self.snapshot.at.clone(),
            cycles: self.snapshot.cycles,
            source: self.source.clone(),
            targets: self.rows(),
            ranges: self.snapshot.ranges.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::TargetView;

    fn state(targets: &[(&str, f64, TargetState)]) -> State {
        let targets = targets.iter().map(|(name, pain, state)| TargetView {
            name: (*name).to_owned(),
            pain_seconds_per_second: *pain,
            state: *state,
            ..TargetView::default()
        });
        let mut state = State::new("http://127.0.0.1:9776".into());
        state.take(Snapshot {
            at: "2026-01-01T00:00:00Z".into(),
            cycles: 7,
            targets: targets.collect(),
            ranges: Vec::new(),
        });
        state
    }

    fn names(state: &State) -> Vec<String> {
        state.rows().into_iter().map(|row| row.name).collect()
    }

    use TargetState::{Lost, Watching};

    #[test]
    fn the_worst_comes_first_and_what_is_gone_last() {
        let mut state = state(&[("a", 0.1, Watching), ("b", 9.0, Lost), ("c", 0.7, Watching)]);
        assert_eq!(names(&state), ["c", "a", "b"]);
        for _ in 0..4 {
            state.press(KeyCode::Char('s'));
        }
        assert_eq!(state.sort, Sort::Name);
        assert_eq!(names(&state), ["a", "c", "b"]);
    }

    #[test]
    fn the_selection_stays_with_its_target_and_within_the_table() {
        let mut state = state(&[("a", 0.3, Watching), ("b", 0.2, Watching)]);
        let selected = |state: &State| state.selected_index(&state.rows());
        assert_eq!(selected(&state), 0);
        for (key, index) in
            [(KeyCode::Up, 0), (KeyCode::Down, 1), (KeyCode::Down, 1), (KeyCode::Up, 0), (KeyCode::Down, 1)]
        {
            state.press(key);
            assert_eq!(selected(&state), index);
        }
        let mut snapshot = state.snapshot.clone();
        snapshot.targets.reverse();
        snapshot.targets.iter_mut().for_each(|target| target.pain_seconds_per_second = 0.0);
        state.take(snapshot);
        assert_eq!(state.selected.as_deref(), Some("b"));
        state.take(Snapshot::default());
        state.press(KeyCode::Down);
        assert_eq!(state.selected, None);
    }

    #[test]
    fn a_pause_keeps_the_snapshot() {
        let mut state = state(&[("a", 0.3, Watching)]);
        state.press(KeyCode::Char('p'));
        state.take(Snapshot::default());
        assert_eq!(names(&state), ["a"]);
        state.press(KeyCode::Char('p'));
        state.take(Snapshot::default());
        assert!(names(&state).is_empty());
    }

    #[test]
    fn keys_that_leave() {
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [KeyCode::Char('q').into(), KeyCode::Esc.into(), interrupt] {
            let mut state = State::default();
            state.press(key);
            assert!(state.quit);
        }
        let mut state = State::default();
        state.press(KeyCode::Char('?'));
        state.press(KeyCode::Esc);
        assert!(!state.help && !state.quit);
    }
}

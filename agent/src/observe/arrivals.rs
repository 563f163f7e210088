//! Processes that come and go, and what the scout has found in them.

use super::Observer;
use super::roster::{Gone, Look};
use super::windows;
use crate::discovery::Looked;
use crate::session::PROBE_LIMIT;
use sexton_inspect::facts::ProcessId;
use std::time::Duration;

/// Processes looked into before others have their turn again.
const LOOKS_AT_ONCE: usize = 16;

impl Observer {
    /// Begins a cycle: the node is searched where that is due or wanted `at_once`, and the targets show that
    /// they are there. Gives whether the search is waited for.
    pub fn begin_cycle(&mut self, at_once: bool) -> bool {
        let at_once = at_once | self.follower.take_incomplete();
        for process in self.roster.ended() {
            self.end(&process);
        }
        if self.roster.is_sweep_due(at_once) {
            let watched = self.roster.watched.iter().map(|watched| watched.target.id).collect();
            self.scout.sweep(self.roster.pids(), watched);
        }
        self.signals.ask(&self.roster.watched, &self.post);
        for watched in &mut self.roster.watched {
            if !watched.awaits_evidence {
                watched.ask(&self.post, "looking at its files", PROBE_LIMIT, |session| session.probe(false));
            }
        }
        at_once
    }

    /// Whether the whole node is being searched.
    pub fn is_sweeping(&self) -> bool {
        self.scout.is_sweeping()
    }

    /// The node has been searched.
    pub fn note_swept(&mut self, took: Duration) {
        self.scout.note_swept();
        self.roster.note_swept(took);
    }

    /// A process was looked into; gives whether that brings a target.
    pub fn take_looked(&mut self, looked: Looked) -> bool {
        let (pid, took, is_sweep) = (looked.pid, looked.took, looked.is_sweep);
        self.scout.note_looked(pid);
        match self.roster.take_looked(looked, &self.policy, &mut self.sentinel) {
            Look::Nothing if is_sweep => false,
            Look::Nothing => {
                self.follower.found_nothing(took);
                false
            }
            Look::Gone => {
                self.follower.settled(pid);
                false
            }
            Look::Found { is_new, has_databases } => {
                if has_databases {
                    self.follower.settled(pid);
                }
                is_new
            }
        }
    }

    /// Has processes looked into whose look is due.
    pub fn look_into_new(&mut self) {
        for _ in 0..LOOKS_AT_ONCE {
            let Some(pid) = self.follower.due() else { break };
            self.scout.look(pid);
        }
    }

    /// Lets go of targets that have ended or changed since the last time; gives whether there were any.
    pub fn let_go(&mut self) -> bool {
        let news = self.follower.take(|pid| self.roster.wants(pid));
        let mut any = false;
        for process in &news.ended {
            any |= self.end(process);
        }
        for process in &news.replaced {
            any |= self.roster.replace(process, &mut self.sentinel);
        }
        any
    }

    /// Lets go of the targets of a process that has ended, with what they counted last and what their windows
    /// saw. Gives whether there were any.
    fn end(&mut self, process: &ProcessId) -> bool {
        self.end_windows_of(process);
        self.roster.end(process, &mut self.sentinel)
    }

    /// Targets that have gone since the last time; nothing is left of them in the kernel.
    pub fn take_gone(&mut self) -> Vec<Gone> {
        let mut gone = self.roster.take_gone();
        for gone in &mut gone {
            if let Some(window) = gone.window.take() {
                windows::abandon(&mut self.windows, window, &gone.lease);
            }
        }
        gone
    }
}

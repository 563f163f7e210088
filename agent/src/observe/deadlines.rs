//! What has missed its deadline is given up, and tried again.

use super::Observer;
use super::watched::Watched;
use super::windows;
use sexton_journal::EventKind;
use std::time::Instant;

impl Observer {
    /// Whether targets give no answers, and are tried again now and then.
    pub fn has_trouble(&self) -> bool {
        let mut watched = self.roster.watched.iter();
        watched.any(|watched| watched.worker.trouble().is_some() || watched.prober.trouble().is_some())
    }

    /// When the next request has to be done.
    pub fn deadline(&self) -> Option<Instant> {
        let of_target =
            |watched: &Watched| watched.worker.deadline().into_iter().chain(watched.prober.deadline()).min();
        self.roster.watched.iter().filter_map(of_target).chain(self.scout.deadline()).min()
    }

    /// Gives up what has missed its deadline, and tries those again that have; gives what there is to tell of
    /// it.
    pub fn give_up_late(&mut self) -> Vec<EventKind> {
        let now = Instant::now();
        let hanging = self.scout.expire(now);
        let mut news = Vec::new();
        for watched in &mut self.roster.watched {
            let pid = watched.target.process.pid;
            if Some(pid) == hanging && watched.worker.trouble().is_none() {
                watched.worker.suspend("its program's files cannot be read");
            }
            watched.worker.expire(now);
            if watched.prober.expire(now) {
                let reason = watched.prober.trouble().map(|trouble| trouble.reason.clone());
                if let Some(reason) = reason.filter(|_| watched.worker.trouble().is_none()) {
                    watched.worker.suspend(&reason);
                }
                windows::give_up_probes(&mut self.windows, watched);
            }
            watched.probe(&self.post);
            watched.awaits_evidence &= watched.worker.trouble().is_none();
            news.extend(watched.tell_unresponsive());
        }
        news
    }
}

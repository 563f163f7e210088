//! Carrying out what the ledger decides: effects go to the journal and to the targets' sessions, and what
//! these say goes back to the ledger as events.

use super::Actor;
use super::place::{note_value, watched_of};
use crate::observe::Observer;
use crate::session::{Answer, FILES_LIMIT, Session};
use sexton_journal::clock;
use sexton_tuner::run::{ActionId, Effect, Event, KeptState, Measurement, Outcome, Record, SettingRecord};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

impl Actor {
    /// Tells the ledger what has happened to an action, and carries out what it makes of it.
    pub fn hear(&mut self, observer: &mut Observer, id: ActionId, event: Event<'_>) {
        let effects = self.ledger.step(id, event, &observer.policy, clock::now());
        self.carry_out(observer, effects.into_iter().map(|effect| (id, effect)));
    }

    /// Carries effects out in their order; what follows from one goes before those after it.
    pub fn carry_out(
        &mut self,
        observer: &mut Observer,
        effects: impl IntoIterator<Item = (ActionId, Effect)>,
    ) {
        let mut due: VecDeque<(ActionId, Effect)> = effects.into_iter().collect();
        while let Some((id, effect)) = due.pop_front() {
            let Some(event) = self.carry_out_one(observer, id, effect) else { continue };
            let next = self.ledger.step(id, event, &observer.policy, clock::now());
            next.into_iter().rev().for_each(|effect| due.push_front((id, effect)));
        }
    }

    /// Carries one out; gives what is known of it at once.
    fn carry_out_one(
        &mut self,
        observer: &mut Observer,
        id: ActionId,
        effect: Effect,
    ) -> Option<Event<'static>> {
        match effect {
            Effect::WriteAhead { is_first, setting, forget } => {
                let action = self.ledger.action(id)?;
                let is_written = self.journal.write_ahead(action, is_first, setting.as_deref(), forget);
                self.has_changed = true;
                Some(Event::Written(is_written))
            }
            Effect::Start(part) => self.start(observer, id, &part),
            Effect::Cancel => {
                self.cancel(observer, id);
                None
            }
            Effect::ReadFiles => self.read_files(observer, id),
            Effect::Measure => self.measure(observer, id),
            Effect::Record(record) => {
                self.record(observer, id, &record);
                None
            }
            Effect::Refuse(_) => {
                self.forget(observer, id);
                None
            }
            Effect::Objection(refusal) => {
                let target = self.ledger.action(id)?.kind.target().to_owned();
                self.note_objection(observer, &target, &refusal);
                None
            }
            // A hook is asked once there is one; a job that runs on unseen is the ledger's to know.
            Effect::AskAfter(_) | Effect::Orphan => None,
        }
    }

    fn record(&mut self, observer: &mut Observer, id: ActionId, record: &Record) {
        let action = self.ledger.action(id);
        self.journal.record(action, record, self.ledger.budget(), self.ledger.daily());
        self.has_changed |= !record.news.is_empty();
        if let SettingRecord::Put(kept) = &record.setting
            && kept.state == KeptState::InForce
            && let Some(watched) = watched_of(observer, kept)
        {
            note_value(watched, kept, &kept.wanted);
        }
        let Some(end) =
            self.ledger.action(id).filter(|_| self.is_under_way(id)).and_then(|it| it.state.end())
        else {
            return;
        };
        if let Outcome::Aborted(_) = end.outcome
            && let Some(action) = self.ledger.action(id)
        {
            self.left_alone.insert(action.kind.target().to_owned());
        }
        self.forget(observer, id);
    }

    fn is_under_way(&self, id: ActionId) -> bool {
        self.acting.iter().any(|acting| acting.id == id)
    }

    /// An action has ended, or has not begun.
    pub fn forget(&mut self, observer: &mut Observer, id: ActionId) {
        self.take_part(observer, id);
        self.acting.retain(|acting| acting.id != id);
        (self.has_changed, self.has_ended) = (true, true);
    }

    fn read_files(&mut self, observer: &mut Observer, id: ActionId) -> Option<Event<'static>> {
        let database = PathBuf::from(self.ledger.action(id)?.kind.database()?);
        let read = move |session: &mut Session| {
            let files = session.read_files(&database);
            Answer::Files { action: id, files }
        };
        let is_asked = self.ask_target_of(observer, id, "reading the live files of a database", read);
        (!is_asked).then_some(Event::Files(None))
    }

    fn measure(&mut self, observer: &mut Observer, id: ActionId) -> Option<Event<'static>> {
        let acting = self.acting.iter().find(|acting| acting.id == id);
        let baseline = acting.map(|acting| Arc::clone(&acting.baseline));
        let is_asked = baseline.is_some_and(|baseline| {
            let measure = move |session: &mut Session| {
                let measured = session.measure(&baseline);
                Answer::Measured { action: id, measured }
            };
            self.ask_target_of(observer, id, "measuring what an action has changed", measure)
        });
        (!is_asked).then(|| Event::Measured(Measurement::default()))
    }

    fn ask_target_of(
        &mut self,
        observer: &mut Observer,
        id: ActionId,
        what: &'static str,
        work: impl FnOnce(&mut Session) -> Answer + Send + 'static,
    ) -> bool {
        let target = self.acting.iter().find(|acting| acting.id == id).map(|acting| acting.target);
        let Observer { roster, post, .. } = observer;
        let watched = target.and_then(|target| roster.get_mut(target));
        watched.is_some_and(|watched| watched.ask(post, what, FILES_LIMIT, work))
    }
}

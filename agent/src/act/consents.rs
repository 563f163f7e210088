//! What the commands of the guards are asked before actions in databases, and what they have said: for each
//! database that something is wanted of, and for each action under way.
//!
//! A lock belongs to one action: it is given back when that is over, or does not begin.

use super::Actor;
use super::inquiry::Purpose;
use crate::guard_commands::{Asked, GuardCommands};
use crate::inbox::Post;
use crate::observe::{Observer, Watched};
use sexton_execute::{GuardCommand, Question, Said};
use sexton_journal::clock;
use sexton_tuner::guard::{Guard, GuardRefusal};
use sexton_tuner::policy::GuardPolicy;
use sexton_tuner::run::consent::{Answer, Consent, Next};
use sexton_tuner::run::{ActionId, ActionKind, Event};
use std::time::Duration;

/// How long the agent's end may be put off by commands that give their locks back: they are killed after
/// five seconds.
const RELEASE_LIMIT: Duration = Duration::from_secs(6);

/// What was asked, and what was said.
pub struct Consents {
    commands: GuardCommands,
    asked: Vec<Asking>,
}

/// What was asked for one action.
struct Asking {
    target: String,
    database: String,
    /// The action that has begun with it; `None`: none has yet.
    action: Option<ActionId>,
    consent: Consent,
    hold: Option<Asked>,
    command: Option<Asked>,
}

impl Asking {
    fn is_for(&self, kind: &ActionKind) -> bool {
        self.action.is_none()
            && self.target == kind.target()
            && Some(self.database.as_str()) == kind.database()
    }

    /// The answer of the command of this number.
    fn answer(&mut self, number: u64) -> Option<&mut Answer> {
        let is_it = |asked: &Option<Asked>| asked.as_ref().is_some_and(|asked| asked.number == number);
        match (is_it(&self.hold), is_it(&self.command)) {
            (true, _) => Some(&mut self.consent.hold),
            (_, true) => Some(&mut self.consent.command),
            _ => None,
        }
    }
}

impl Consents {
    /// Whose commands speak there.
    pub fn new(post: Post) -> Consents {
        Consents { commands: GuardCommands::new(post), asked: Vec::new() }
    }

    /// Whether any command runs.
    pub fn are_any(&self) -> bool {
        !self.asked.is_empty() || self.commands.are_any()
    }

    /// What has been said of an action that is wanted.
    pub fn of(&self, kind: &ActionKind) -> Consent {
        let asking = self.asked.iter().find(|asking| asking.is_for(kind));
        asking.map(|asking| asking.consent.clone()).unwrap_or_default()
    }

    /// What was asked for an action that is wanted belongs to it, now that it begins.
    pub fn begin(&mut self, kind: &ActionKind, id: ActionId) {
        let asking = self.asked.iter_mut().find(|asking| asking.is_for(kind));
        asking.into_iter().for_each(|asking| asking.action = Some(id));
    }

    /// An action that was wanted does not begin now.
    pub fn release(&mut self, kind: &ActionKind) {
        self.asked.retain(|asking| !asking.is_for(kind));
    }

    /// Nothing begins now.
    pub fn release_unused(&mut self) {
        self.asked.retain(|asking| asking.action.is_some());
    }

    /// Takes in what a command has said.
    pub fn take(&mut self, number: u64, said: Said) {
        let Some(answer) = self.asked.iter_mut().find_map(|asking| asking.answer(number)) else { return };
        match said {
            Said::Given => *answer = Answer::Given,
            Said::Refused(reason) => *answer = Answer::Refused(reason),
            Said::Ended => {}
        }
    }

    /// Asks what has to be asked before an action, and gives what is to be done next.
    fn next(&mut self, watched: &Watched, kind: &ActionKind, guards: &GuardPolicy) -> Next {
        let (Some(database), now) = (kind.database(), clock::now()) else { return Next::Begin };
        let at = self.asked.iter().position(|asking| asking.is_for(kind));
        let next = match at.and_then(|at| self.asked.get(at)) {
            Some(asking) => asking.consent.next(guards, now),
            None => Consent::default().next(guards, now),
        };
        let (question, run) = match (&next, &guards.hold, &guards.command) {
            (Next::AskHold, Some(hold), _) => (Question::Hold, &hold.run),
            (Next::AskCommand, _, Some(command)) => {
                (Question::MayBegin { limit: command.timeout.duration() }, &command.run)
            }
            _ => return next,
        };
        let asked = self.commands.ask(GuardCommand {
            question,
            run: run.clone(),
            entry: watched.entry.name.clone(),
            path: database.to_owned(),
            pid: watched.target.process.pid,
            user: watched.entry.commands_user.clone(),
        });
        let asked = match asked {
            Ok(asked) => asked,
            Err(reason) => {
                let guard = if question == Question::Hold { Guard::Hold } else { Guard::Command };
                return Next::Refuse(GuardRefusal { guard, reason });
            }
        };
        if at.is_none() {
            let (target, database) = (kind.target().to_owned(), database.to_owned());
            let (action, consent) = (None, Consent::default());
            self.asked.push(Asking { target, database, action, consent, hold: None, command: None });
        }
        let asking = self.asked.iter_mut().find(|asking| asking.is_for(kind));
        let waiting = Answer::Waiting { since: now };
        match (asking, question) {
            (Some(asking), Question::Hold) => (asking.hold, asking.consent.hold) = (Some(asked), waiting),
            (Some(asking), _) => (asking.command, asking.consent.command) = (Some(asked), waiting),
            (None, _) => {}
        }
        self.of(kind).next(guards, now)
    }
}

impl Actor {
    /// Asks the commands of the guards what is not known yet; gives whether an action may begin as far as
    /// these are concerned. One that waits stays wanted; one that is refused is left to a later plan.
    pub fn has_consent(&mut self, observer: &mut Observer, kind: &ActionKind) -> bool {
        let Some(watched) = observer.roster.named(kind.target()) else { return false };
        match self.consents.next(watched, kind, &observer.policy.guards) {
            Next::Begin => return true,
            Next::Refuse(refusal) => {
                self.ledger.note_refused(watched.target.process, &refusal, clock::now());
                self.consents.release(kind);
                self.note_rejection(observer, kind.clone(), refusal.into(), false);
            }
            Next::Wait { .. } | Next::AskHold | Next::AskCommand => {
                if let Some(watched) = observer.roster.named_mut(kind.target()) {
                    watched.guards.wait(Guard::Hold, "its lock is waited for, or its command is asked");
                }
                self.queue.push_back(kind.clone());
            }
        }
        false
    }

    /// A command has said something: what waits for it may go on.
    pub fn take_said(&mut self, number: u64, said: Said) {
        self.consents.take(number, said);
        self.has_ended = true;
    }

    /// Tells the actions whose lock is lost, and gives back the locks that nothing needs any more.
    pub fn follow_consents(&mut self, observer: &mut Observer) {
        let guards = &observer.policy.guards;
        let lost = self.consents.asked.iter().filter(|asking| asking.consent.lost(guards).is_some());
        let lost: Vec<(ActionId, Consent)> =
            lost.filter_map(|asking| Some((asking.action?, asking.consent.clone()))).collect();
        for (id, consent) in lost {
            self.hear(observer, id, Event::Consent(&consent));
        }
        let Actor { consents, queue, inquiries, acting, ledger, .. } = self;
        consents.asked.retain(|asking| match asking.action {
            // A job that nobody hears of any more may run on.
            Some(id) => {
                acting.iter().any(|acting| acting.id == id)
                    || ledger.orphans().iter().any(|orphan| orphan.action == id)
            }
            None => {
                let inquired = inquiries.iter().filter_map(|inquiry| match &inquiry.purpose {
                    Purpose::Begin(kind) => Some(&**kind),
                    Purpose::GoOn(_) => None,
                });
                queue.iter().chain(inquired).any(|kind| asking.is_for(kind))
            }
        });
    }

    /// The agent ends: no lock is needed any more.
    pub fn release_all(&mut self) {
        self.consents.asked.clear();
    }

    /// Whether the agent's end, which has taken so long, is put off by locks that are given back.
    pub fn awaits_released(&self, since: Duration) -> bool {
        self.consents.are_any() && since < RELEASE_LIMIT
    }
}

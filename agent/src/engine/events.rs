//! What other threads have done goes to whom it concerns.

use super::{Engine, Phase};
use crate::inbox::Event;
use crate::session::Answer;
use crate::session::probes::ProbeNews;
use sexton_inspect::facts::TargetId;
use sexton_tuner::run::Event as Happened;

impl Engine {
    /// Takes in what another thread has done; gives whether it changes what is shown.
    pub(super) fn handle(&mut self, event: Event) -> bool {
        let Engine { observer, actor, .. } = self;
        match event {
            Event::Looked(looked) => observer.take_looked(looked),
            Event::Swept(took) => {
                observer.note_swept(took);
                false
            }
            Event::Commanded { number, result } => {
                actor.take_commanded(observer, number, result);
                true
            }
            Event::GuardSaid { number, said } => {
                actor.take_said(number, said);
                true
            }
            Event::Sensed { target, sensed } => {
                observer.signals.take(target, sensed);
                false
            }
            Event::Probed(probed) => {
                let opens = matches!(probed.what, ProbeNews::Attached(_));
                let is_sampling = self.phase == Phase::Sampling;
                if let Some(seen) = observer.take_probed(probed, is_sampling, &actor.acted_on()) {
                    actor.take_slice_window(&seen);
                }
                opens
            }
            Event::Answered { target, generation, answer } => {
                let watched = observer.roster.get(target);
                if watched.is_some_and(|watched| watched.worker.is_current(generation)) {
                    self.take_answer(target, answer);
                }
                false
            }
        }
    }

    fn take_answer(&mut self, id: TargetId, answer: Answer) {
        let Engine { observer, actor, .. } = self;
        let Some(watched) = observer.roster.get_mut(id) else { return };
        match answer {
            Answer::StandsStill(why) => watched.worker.suspend(why),
            Answer::HookSilent(why) => {
                watched.worker.suspend(&why);
                watched.is_hook_silent = true;
            }
            Answer::Present { is_hook_asked } => watched.note_present(is_hook_asked),
            Answer::Nothing => {}
            Answer::Evidence(read) => observer.take_evidence(id, *read),
            Answer::Sighted(sighted) => observer.take_sighted(id, sighted),
            Answer::JobBegun(number) => actor.note_begun(number),
            Answer::Job(report) => actor.take_report(observer, *report),
            Answer::Before { inquiry, before } => actor.take_before(inquiry, *before),
            Answer::Running { inquiry, running } => actor.take_running(inquiry, id, running),
            Answer::Orphans(running) => actor.take_orphans(id, &running),
            Answer::Files { action, files } => {
                actor.hear(observer, action, Happened::Files(files.as_deref()))
            }
            Answer::Measured { action, measured } => {
                actor.hear(observer, action, Happened::Measured(measured))
            }
            Answer::Recalled { action, status } => actor.take_recalled(observer, action, status),
            Answer::Pinned(read) => actor.lift_pins(observer, id, &read),
            Answer::LostSettings(lost) => actor.take_lost(observer, lost),
            Answer::Restored { kept, value } => actor.take_restored(observer, &kept, &value),
        }
    }
}

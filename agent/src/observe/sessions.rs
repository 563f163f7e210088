//! How the sessions of targets are made.

use crate::inbox::{Event, Post};
use crate::session::Session;
use crate::session::probes::Prober;
use crate::worker::{LeftBehind, Worker};
use sexton_inspect::facts::Target;
use std::path::PathBuf;

/// Makes sessions, each on its worker's thread.
pub struct Sessions {
    /// The hook's library, where it was named.
    pub hook_library: Option<PathBuf>,
    /// Where they report to.
    pub post: Post,
    /// Threads that were left behind, of all workers.
    pub left_behind: LeftBehind,
}

impl Sessions {
    /// A worker for a target.
    pub fn worker(&self, target: &Target) -> Worker<Session> {
        let name = format!("sexton-{}", target.process.pid);
        Worker::new(name, self.left_behind.clone(), self.making(target))
    }

    /// A worker for a target's probes.
    pub fn prober(&self, target: &Target) -> Worker<Prober> {
        let name = format!("probes-{}", target.process.pid);
        Worker::new(name, self.left_behind.clone(), |_| Prober)
    }

    /// How its session is made.
    pub fn making(&self, target: &Target) -> impl Fn(u64) -> Session + Send + Sync + 'static {
        let (target, library, post) = (target.clone(), self.hook_library.clone(), self.post.clone());
        move |generation| {
            let (post, target_id) = (post.clone(), target.id);
            let report = move |answer| post.send(Event::Answered { target: target_id, generation, answer });
            Session::new(target.clone(), library.clone(), Box::new(report))
        }
    }
}

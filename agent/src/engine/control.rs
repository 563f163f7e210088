//! The engine's only ways in and out: commands come in, snapshots go out, and it can be told to stop.

use crate::act::Cancelled;
use crate::snapshot::{Command, Snapshot};
use sexton_tuner::run::ActionId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{mpsc, watch};
use tracing::info;

pub struct Control {
    publisher: Option<watch::Sender<Arc<Snapshot>>>,
    commands: Option<mpsc::Receiver<Command>>,
    stop: Arc<AtomicBool>,
    cancelled: Cancelled,
    cycle_now: bool,
    reload: bool,
}

impl Control {
    pub fn new(
        publisher: watch::Sender<Arc<Snapshot>>,
        commands: mpsc::Receiver<Command>,
        stop: Arc<AtomicBool>,
    ) -> Control {
        Control {
            publisher: Some(publisher),
            commands: Some(commands),
            stop,
            cancelled: Cancelled::default(),
            cycle_now: false,
            reload: false,
        }
    }

    /// No outside at all: for a single cycle.
    pub fn detached() -> Control {
        Control {
            publisher: None,
            commands: None,
            stop: Arc::default(),
            cancelled: Cancelled::default(),
            cycle_now: false,
            reload: false,
        }
    }

    /// Whether the engine was told to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Replaces what the outside sees.
    pub fn publish(&self, snapshot: Snapshot) {
        if let Some(publisher) = &self.publisher {
            publisher.send_replace(Arc::new(snapshot));
        }
    }

    /// Whether somebody has asked to cancel what runs since the last time.
    pub fn take_cancelled(&mut self) -> Cancelled {
        std::mem::take(&mut self.cancelled)
    }

    pub fn take_commands(&mut self) {
        while let Some(command) = self.commands.as_mut().and_then(|commands| commands.try_recv().ok()) {
            info!(?command, "asked");
            match command {
                Command::CancelAction => self.cancelled.all = true,
                Command::CancelOneAction { id } => self.cancelled.ids.push(ActionId(id)),
                Command::RunCycleNow => self.cycle_now = true,
                Command::ReloadPolicy => (self.reload, self.cycle_now) = (true, true),
            }
        }
    }

    /// Whether somebody has asked for the policy to be read again since the last time.
    pub fn take_reload(&mut self) -> bool {
        std::mem::take(&mut self.reload)
    }

    /// Whether somebody has asked for a cycle since the last time.
    pub fn take_cycle_now(&mut self) -> bool {
        std::mem::take(&mut self.cycle_now)
    }
}

//! Processes that come and go, as the kernel tells them. What to do about them is the engine's business.

use super::ProbeError;
use super::abi::{
    Record, SEXTON_PROCESS_EXEC, SEXTON_PROCESS_EXIT, SEXTON_PROCESS_FORK, sexton_process_event,
};
use super::object::BpfObject;
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};
use sexton_inspect::facts::ProcessId;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Nanoseconds of a clock tick in `/proc/PID/stat`: `USER_HZ` is 100 on every x86-64 kernel.
const TICK_NS: u64 = 10_000_000;

/// What happened to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessChange {
    /// It has another program now.
    Exec,
    /// It began as a copy of another process, with memory of its own.
    Fork,
    /// Its last thread has ended.
    Exit,
}

/// One process that came, changed or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    pub process: ProcessId,
    pub change: ProcessChange,
}

type EventQueue = Arc<Mutex<Vec<ProcessEvent>>>;

/// Listens for processes of the whole machine that exec, fork and exit.
pub struct ProcessEvents {
    _object: Object,
    _links: [Link; 3],
    lost: MapHandle,
    ring: RingBuffer<'static>,
    queue: EventQueue,
    lost_before: u64,
}

impl ProcessEvents {
    /// Loads the programs and begins to listen.
    pub fn load() -> Result<ProcessEvents, ProbeError> {
        let kind = BpfObject::Process;
        let object = kind.load(kind.open()?)?;
        let links = [
            attach(&object, "sexton_process_exec", "the exec tracepoint")?,
            attach(&object, "sexton_process_fork", "the fork tracepoint")?,
            attach(&object, "sexton_process_exit", "the exit tracepoint")?,
        ];
        let queue = EventQueue::default();
        let received = Arc::clone(&queue);
        let events = kind.map(&object, "sexton_process_events")?;
        let mut ring = RingBufferBuilder::new();
        ring.add(&events, move |bytes| {
            received.lock().unwrap_or_else(PoisonError::into_inner).extend(event(bytes));
            0
        })
        .map_err(|source| kind.load_error(source))?;
        Ok(ProcessEvents {
            ring: ring.build().map_err(|source| kind.load_error(source))?,
            lost: kind.map(&object, "sexton_process_events_lost")?,
            _object: object,
            _links: links,
            queue,
            lost_before: 0,
        })
    }

    /// Waits until something has happened, at most for `limit`, which is rounded down to milliseconds. A
    /// signal ends the waiting, too.
    pub fn wait(&mut self, limit: Duration) -> Result<(), ProbeError> {
        match self.ring.poll(limit) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(ring_error(error)),
            _ => Ok(()),
        }
    }

    /// What has happened since the last call, in the order it happened.
    pub fn take(&mut self) -> Result<Vec<ProcessEvent>, ProbeError> {
        self.ring.consume().map_err(ring_error)?;
        Ok(std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// How many events did not fit into the ring buffer since the last call.
    pub fn take_lost(&mut self) -> Result<u64, ProbeError> {
        let lost = self.lost.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(|source| {
            ProbeError::Access { what: "the count of lost process events", source: source.into() }
        })?;
        let lost = lost.and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?))).unwrap_or(0);
        Ok(lost - std::mem::replace(&mut self.lost_before, lost))
    }
}

fn attach(object: &Object, program: &str, what: &'static str) -> Result<Link, ProbeError> {
    let program = BpfObject::Process.program(object, program)?;
    program.attach().map_err(|source| ProbeError::Attach { what, pid: 0, source: source.into() })
}

fn ring_error(source: libbpf_rs::Error) -> ProbeError {
    ProbeError::Access { what: "the ring of process events", source: source.into() }
}

/// `None` for bytes that are no event.
fn event(bytes: &[u8]) -> Option<ProcessEvent> {
    let raw = sexton_process_event::from_bytes(bytes)?;
    let change = match raw.change {
        SEXTON_PROCESS_EXEC => ProcessChange::Exec,
        SEXTON_PROCESS_FORK => ProcessChange::Fork,
        SEXTON_PROCESS_EXIT => ProcessChange::Exit,
        _ => return None,
    };
    let start_time_ticks = raw.start_boot_ns / TICK_NS;
    Some(ProcessEvent { process: ProcessId { pid: raw.process_id, start_time_ticks }, change })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(change: u32) -> Vec<u8> {
        sexton_process_event { start_boot_ns: 12_345_678_901, process_id: 7, change }.as_bytes().to_vec()
    }

    #[test]
    fn an_event_names_its_process_as_proc_does() {
        let process = ProcessId { pid: 7, start_time_ticks: 1234 };
        let exit = ProcessEvent { process, change: ProcessChange::Exit };
        assert_eq!(event(&bytes(SEXTON_PROCESS_EXIT)), Some(exit));
    }

    #[test]
    fn bytes_that_are_no_event_are_none() {
        assert_eq!(event(&bytes(3)), None);
        assert_eq!(event(bytes(SEXTON_PROCESS_EXIT).get(..15).unwrap_or_default()), None);
        assert_eq!(event(&[]), None);
    }
}

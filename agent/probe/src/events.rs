//! Processes that come and go, as the kernel tells them. What to do about them is the engine's business.

use super::ProbeError;
use super::abi::{
    Record, SEXTON_PROCESS_EXEC, SEXTON_PROCESS_EXIT, SEXTON_PROCESS_FORK, sexton_process_event,
};
use super::object::BpfObject;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};
use sexton_inspect::facts::ProcessId;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
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

    /// Can be read as soon as something has happened.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring buffer's own, which is open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
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

/// Waits until one of the descriptors can be read, at most for `limit`, which is rounded up to milliseconds.
/// A signal ends the waiting, too.
///
/// # Errors What the system gives.
pub fn wait_for(descriptors: &[BorrowedFd<'_>], limit: Duration) -> io::Result<()> {
    let readable =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = descriptors.iter().map(readable).collect();
    let limit_ms = i32::try_from(limit.as_micros().div_ceil(1_000)).unwrap_or(i32::MAX);
    // SAFETY: the array has as many entries as is said and lives through the call; the descriptors are
    // borrowed.
    let result = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit_ms) };
    let error = io::Error::last_os_error();
    if result < 0 && error.kind() != io::ErrorKind::Interrupted { Err(error) } else { Ok(()) }
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

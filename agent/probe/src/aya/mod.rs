//! aya as a loader: the same objects by an implementation that shares no code with libbpf.
//!
//! aya 0.14 has neither uprobe-multi nor session links, and cannot bind a task iterator to a process: its
//! sentinel walks all threads of the node, and the program passes over those of others.

#[cfg(test)]
mod btf;
#[cfg(test)]
mod object_tests;
mod table;

use super::ProbeError;
use super::error::LoaderError;
use super::loader::{Attachment, Loaded, Passes, Ring, Table, Take, UprobePoint, Uprobes};
use super::object::BpfObject;
use aya::maps::{MapData, RingBuf};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{BtfTracePoint, Iter, ProbeKind, Program, ProgramError, ProgramInfo, UProbe};
use aya::{Btf, Ebpf, EbpfLoader};
use std::borrow::Cow;
use std::cell::RefCell;
use std::error::Error;
use std::io::Read;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the sentinel's tracepoint is called.
const THREAD_END: &str = "sched_process_exit";

/// Reads an object and brings the wanted programs into the kernel.
pub fn load(kind: BpfObject, wanted: &dyn Fn(&str) -> bool) -> Result<Arc<dyn Loaded>, ProbeError> {
    let failed = |error: &dyn Error| kind.load_error(said(error));
    let mut object = EbpfLoader::new().load(kind.bytes()).map_err(|error| failed(&error))?;
    let btf = Btf::from_sys_fs().map_err(|error| failed(&error))?;
    for (_, program) in object.programs_mut().filter(|(name, _)| wanted(name)) {
        load_program(program, &btf).map_err(|error| failed(&error))?;
    }
    Ok(Arc::new(AyaObject { kind, object: Arc::new(Mutex::new(object)) }))
}

fn load_program(program: &mut Program, btf: &Btf) -> Result<(), ProgramError> {
    match program {
        Program::UProbe(uprobe) => uprobe.load(),
        Program::Iter(iterator) => iterator.load("task", btf),
        Program::BtfTracePoint(tracepoint) => tracepoint.load(THREAD_END, btf),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

/// An object in the kernel.
struct AyaObject {
    kind: BpfObject,
    object: SharedObject,
}

/// aya attaches by exclusive references. Nothing that may block on a target is done under this lock.
type SharedObject = Arc<Mutex<Ebpf>>;

impl AyaObject {
    fn map(&self, name: &'static str) -> Result<aya::maps::Map, ProbeError> {
        let map = locked(&self.object).take_map(name);
        map.ok_or_else(|| self.kind.load_error(LoaderError::Aya(format!("it has no map {name}"))))
    }
}

impl Loaded for AyaObject {
    fn table(&self, name: &'static str) -> Result<Arc<dyn Table>, ProbeError> {
        table::table(name, self.map(name)?).map_err(|error| self.kind.load_error(said(&error)))
    }

    fn ring(&self, name: &'static str, take: Take) -> Result<Box<dyn Ring>, ProbeError> {
        let ring = RingBuf::try_from(self.map(name)?).map_err(|error| self.kind.load_error(said(&error)))?;
        Ok(Box::new(AyaRing { ring: RefCell::new(ring), take: RefCell::new(take) }))
    }

    fn attach_uprobes(&self, probes: &Uprobes<'_>) -> Result<Attachment, ProbeError> {
        let attached = attach_uprobes(&self.object, probes);
        Ok(Box::new(attached.map_err(|error| probes.error(said(&error)))?))
    }

    fn attach_tracepoint(&self, program: &'static str) -> Result<Attachment, ProbeError> {
        let attached = with_program(&self.object, program, |program: &mut BtfTracePoint| {
            let id = program.attach()?;
            program.take_link(id)
        });
        let link = attached.map_err(|error| ProbeError::Attach {
            what: "the thread-end tracepoint",
            pid: 0,
            source: said(&error),
        })?;
        Ok(Box::new(link))
    }

    fn attach_iterator(&self, program: &'static str, _: u32) -> Result<Arc<dyn Passes>, ProbeError> {
        Ok(Arc::new(AyaPasses { object: Arc::clone(&self.object), program }))
    }
}

fn attach_uprobes(object: &SharedObject, probes: &Uprobes<'_>) -> Result<Vec<UProbeLink>, ProgramError> {
    // A process id of 0 would mean ourselves.
    let process = NonZeroU32::new(probes.process_id).ok_or(ProgramError::NotAttached)?;
    let mut program = uprobe(object, probes)?;
    let attach = |point: &UprobePoint| {
        let location = UProbeAttachLocation::AbsoluteOffset(point.file_offset);
        let point = UProbeAttachPoint { location, cookie: point.cookie };
        let id = program.attach(point, probes.module, UProbeScope::OneProcess(process))?;
        program.take_link(id)
    };
    probes.points.iter().map(attach).collect()
}

/// The program once more, for the calling thread alone: attaching may block, and the object is everybody's.
fn uprobe(object: &SharedObject, probes: &Uprobes<'_>) -> Result<UProbe, ProgramError> {
    let info: ProgramInfo = locked(object).program(probes.program).ok_or(ProgramError::NotLoaded)?.info()?;
    let kind = if probes.retprobe { ProbeKind::Return } else { ProbeKind::Entry };
    // SAFETY: the programs of our objects that are attached here have been loaded as uprobes; the kernel's
    // type, which aya compares, has kprobes in it too, and there are none.
    unsafe { UProbe::from_program_info(info, Cow::Owned(probes.program.to_owned()), kind) }
}

/// Does something with a program of the object.
fn with_program<P, T>(
    object: &SharedObject,
    name: &str,
    act: impl FnOnce(&mut P) -> Result<T, ProgramError>,
) -> Result<T, ProgramError>
where
    for<'object> &'object mut P: TryFrom<&'object mut Program, Error = ProgramError>,
{
    act(locked(object).program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()?)
}

/// A ring buffer and who is given its records.
struct AyaRing {
    ring: RefCell<RingBuf<MapData>>,
    take: RefCell<Take>,
}

impl Ring for AyaRing {
    fn consume(&self) -> Result<(), LoaderError> {
        let (mut ring, mut take) = (self.ring.borrow_mut(), self.take.borrow_mut());
        while let Some(record) = ring.next() {
            take(&record);
        }
        Ok(())
    }
}

/// A task iterator; each pass has a link of its own, for aya uses it up in reading.
struct AyaPasses {
    object: SharedObject,
    program: &'static str,
}

impl Passes for AyaPasses {
    fn pass(&self, bytes_max: u64) -> Result<Vec<u8>, LoaderError> {
        let link = with_program(&self.object, self.program, |program: &mut Iter| {
            let id = program.attach()?;
            program.take_link(id)
        });
        let file = link.map_err(|error| said(&error))?.into_file().map_err(|error| said(&error))?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes).map_err(|error| said(&error))?;
        Ok(bytes)
    }
}

/// What a mutex guards, whatever became of those who had it before.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error and its causes in one line: aya keeps what matters, what the kernel said, in the causes.
fn said(error: &dyn Error) -> LoaderError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    LoaderError::Aya(text)
}

//! libbpf as a loader: every mechanism, and task iterators bound to one process.

use super::error::LoaderError;
use super::loader::{Attachment, Loaded, Passes, Ring, Table, Take, UprobePoint, Uprobes};
use super::object::{BpfObject, want_programs};
use super::raw_link::attach_to_process;
use super::{Mechanism, ProbeError};
use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, MapHandle, Object, ProgramAttachType, ProgramMut, RingBuffer,
    RingBufferBuilder, UprobeMultiOpts, UprobeOpts,
};
use std::io::Read;
use std::sync::Arc;

/// Reads an object and brings the wanted programs into the kernel, made for `mechanism`.
pub fn load(
    kind: BpfObject,
    mechanism: Option<Mechanism>,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Arc<dyn Loaded>, ProbeError> {
    let mut open = kind.open()?;
    want_programs(&mut open, wanted);
    if mechanism == Some(Mechanism::Multi) {
        for mut program in open.progs_mut() {
            program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        }
    }
    Ok(Arc::new(LibbpfObject { kind, mechanism, object: kind.load(open)? }))
}

/// An object in the kernel.
struct LibbpfObject {
    kind: BpfObject,
    mechanism: Option<Mechanism>,
    object: Object,
}

impl Loaded for LibbpfObject {
    fn table(&self, name: &'static str) -> Result<Arc<dyn Table>, ProbeError> {
        Ok(Arc::new(self.kind.map(&self.object, name)?))
    }

    fn ring(&self, name: &'static str, mut take: Take) -> Result<Box<dyn Ring>, ProbeError> {
        let failed = |source: libbpf_rs::Error| self.kind.load_error(source);
        let map = self.kind.map(&self.object, name)?;
        let mut ring = RingBufferBuilder::new();
        ring.add(&map, move |bytes| {
            take(bytes);
            0
        })
        .map_err(failed)?;
        Ok(Box::new(ring.build().map_err(failed)?))
    }

    fn attach_uprobes(&self, probes: &Uprobes<'_>) -> Result<Attachment, ProbeError> {
        let program = self.kind.program(&self.object, probes.program)?;
        let links = match self.mechanism {
            Some(Mechanism::Session) => attach_all(&program, probes, true).map(|link| vec![link]),
            Some(Mechanism::Multi) => attach_all(&program, probes, false).map(|link| vec![link]),
            _ => attach_each(&program, probes),
        };
        Ok(Box::new(links.map_err(|source| probes.error(source))?))
    }

    fn attach_tracepoint(&self, program: &'static str) -> Result<Attachment, ProbeError> {
        let what = "the thread-end tracepoint";
        let link = self.kind.program(&self.object, program)?.attach();
        Ok(Box::new(link.map_err(|source| ProbeError::Attach { what, pid: 0, source: source.into() })?))
    }

    fn attach_iterator(&self, program: &'static str, process_id: u32) -> Result<Arc<dyn Passes>, ProbeError> {
        let program = self.kind.program(&self.object, program)?;
        Ok(Arc::new(attach_to_process(&program, process_id)?))
    }
}

/// One link for all points.
fn attach_all(
    program: &ProgramMut<'_>,
    probes: &Uprobes<'_>,
    session: bool,
) -> Result<Link, libbpf_rs::Error> {
    let options = UprobeMultiOpts {
        offsets: probes.points.iter().map(|point| point.file_offset as usize).collect(),
        cookies: probes.points.iter().map(|point| point.cookie.unwrap_or(0)).collect(),
        retprobe: probes.retprobe,
        session,
        ..Default::default()
    };
    program.attach_uprobe_multi_with_opts(probes.process_id as i32, probes.module, "", options)
}

/// A link of its own for each point.
fn attach_each(program: &ProgramMut<'_>, probes: &Uprobes<'_>) -> Result<Vec<Link>, libbpf_rs::Error> {
    let attach = |point: &UprobePoint| {
        let cookie = point.cookie.unwrap_or(0);
        let options = UprobeOpts { cookie, retprobe: probes.retprobe, ..Default::default() };
        let offset = point.file_offset as usize;
        program.attach_uprobe_with_opts(probes.process_id as i32, probes.module, offset, options)
    };
    probes.points.iter().map(attach).collect()
}

impl Table for MapHandle {
    fn update(&self, key: &[u8], value: &[u8], only_new: bool) -> Result<(), LoaderError> {
        let flags = if only_new { MapFlags::NO_EXIST } else { MapFlags::ANY };
        Ok(MapCore::update(self, key, value, flags)?)
    }

    fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LoaderError> {
        Ok(MapCore::lookup(self, key, MapFlags::ANY)?)
    }

    fn lookup_per_cpu(&self, key: &[u8]) -> Result<Vec<Vec<u8>>, LoaderError> {
        Ok(MapCore::lookup_percpu(self, key, MapFlags::ANY)?.unwrap_or_default())
    }

    fn delete(&self, key: &[u8]) -> Result<(), LoaderError> {
        Ok(MapCore::delete(self, key)?)
    }

    fn keys(&self, most: usize) -> Result<Vec<Vec<u8>>, LoaderError> {
        Ok(MapCore::keys(self).take(most).collect())
    }
}

impl Ring for RingBuffer<'static> {
    fn consume(&self) -> Result<(), LoaderError> {
        Ok(RingBuffer::consume(self)?)
    }
}

impl Passes for Link {
    fn pass(&self, bytes_max: u64) -> Result<Vec<u8>, LoaderError> {
        let mut bytes = Vec::new();
        Iter::new(self)?.take(bytes_max).read_to_end(&mut bytes).map_err(libbpf_rs::Error::from)?;
        Ok(bytes)
    }
}

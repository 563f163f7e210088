//! The compiled BPF objects, built into the agent, and what is in them by name.

use super::ProbeError;
use super::error::LoaderError;
use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, OpenObject, ProgramMut};
use std::io;

/// ELF readers want their input aligned; `include_bytes` promises nothing.
#[repr(C, align(32))]
struct Aligned<Bytes: ?Sized>(Bytes);

macro_rules! built {
    ($name:literal) => {{
        static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name)));
        &OBJECT.0
    }};
}

/// One of the objects compiled from `bpf/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum BpfObject {
    /// `sentinel.bpf.c`.
    Sentinel,
    /// `seek.bpf.c`: the window's programs as uprobes and uretprobes.
    Seek,
    /// `session.bpf.c`: the window's program as a uprobe session.
    Session,
    /// `process.bpf.c`: processes that come and go.
    Process,
    /// `features.bpf.c`: programs that only ask what the kernel has.
    Features,
}

impl BpfObject {
    /// The name of its source, without `.bpf.c`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    pub fn bytes(self) -> &'static [u8] {
        match self {
            BpfObject::Sentinel => built!("sentinel.bpf.o"),
            BpfObject::Seek => built!("seek.bpf.o"),
            BpfObject::Session => built!("session.bpf.o"),
            BpfObject::Process => built!("process.bpf.o"),
            BpfObject::Features => built!("features.bpf.o"),
        }
    }

    /// Reads it with libbpf; nothing is in the kernel yet. Programs whose section begins with `?` have to be
    /// wanted by [`want_programs`] to be loaded.
    pub fn open(self) -> Result<OpenObject, ProbeError> {
        ObjectBuilder::default().open_memory(self.bytes()).map_err(|source| self.load_error(source))
    }

    /// Brings an open object into the kernel.
    pub fn load(self, open: OpenObject) -> Result<Object, ProbeError> {
        open.load().map_err(|source| self.load_error(source))
    }

    /// The map `name` of this object, with a descriptor of its own.
    pub fn map(self, object: &Object, name: &'static str) -> Result<MapHandle, ProbeError> {
        let found = object.maps().find(|map| map.name() == name);
        let map = found.ok_or_else(|| self.load_error(missing(name)))?;
        MapHandle::try_from(&map).map_err(|source| self.load_error(source))
    }

    /// The program `name` of this object.
    pub fn program<'object>(
        self,
        object: &'object Object,
        name: &str,
    ) -> Result<ProgramMut<'object>, ProbeError> {
        let found = object.progs_mut().find(|program| program.name() == name);
        found.ok_or_else(|| self.load_error(missing(name)))
    }

    pub fn load_error(self, source: impl Into<LoaderError>) -> ProbeError {
        ProbeError::Load { object: self.name(), source: source.into() }
    }
}

/// Has the programs loaded that `wanted` names.
pub fn want_programs(open: &mut OpenObject, wanted: impl Fn(&str) -> bool) {
    for mut program in open.progs_mut() {
        let is_wanted = program.name().to_str().is_some_and(&wanted);
        program.set_autoload(is_wanted);
    }
}

/// Names are given in `bpf/` and used here: one that is not there is a mistake of ours.
fn missing(name: &str) -> libbpf_rs::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("it has no {name}")).into()
}

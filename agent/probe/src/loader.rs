//! Who brings the BPF objects into the kernel, and what the probes need of them.
//!
//! There are two loaders that share no code: libbpf, the reference, which knows every mechanism, and aya,
//! which knows perf uprobes. Both read the same objects; a test holds what they count against each other.
//! What the numbers in the maps mean is known neither here nor there.

use super::error::LoaderError;
use super::object::BpfObject;
use super::{KernelFeatures, Mechanism, ProbeError, aya, libbpf};
use serde::Serialize;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;

/// Who loads the programs, attaches them and reads their maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Loader {
    /// libbpf, by `libbpf-rs`.
    #[default]
    Libbpf,
    /// aya, in Rust alone: perf uprobes only, and a sentinel that walks all threads of the node.
    Aya,
}

impl Loader {
    /// Reads `object` and brings those of its programs into the kernel that `wanted` names, made for
    /// `mechanism` where it has probes.
    pub fn load(
        self,
        object: BpfObject,
        mechanism: Option<Mechanism>,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Arc<dyn Loaded>, ProbeError> {
        match self {
            Loader::Libbpf => libbpf::load(object, mechanism, wanted),
            Loader::Aya => aya::load(object, wanted),
        }
    }

    /// The mechanisms it can arm, best first.
    pub fn mechanisms(self) -> &'static [Mechanism] {
        match self {
            Loader::Libbpf => &Mechanism::ALL,
            Loader::Aya => &[Mechanism::PerfCookie, Mechanism::Perf],
        }
    }

    /// The mechanism to arm probes with: the one that is wanted, where loader and kernel have it, else the
    /// best.
    pub fn mechanism(
        self,
        wanted: Option<Mechanism>,
        features: &KernelFeatures,
    ) -> Result<Mechanism, ProbeError> {
        match wanted {
            None => Mechanism::choose_among(self.mechanisms(), features),
            Some(mechanism) if self.mechanisms().contains(&mechanism) => mechanism.check(features),
            Some(mechanism) => {
                let can: Vec<&str> = self.mechanisms().iter().map(|can| can.describe()).collect();
                let (loader, what) = (self.name(), mechanism.describe());
                Err(ProbeError::Loader { loader, what, can: can.join(", ") })
            }
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Loader::Libbpf => "libbpf",
            Loader::Aya => "aya",
        }
    }
}

/// An object whose programs are in the kernel. With it everything goes. Threads share it: what may block on
/// one target is called in a thread of that target's own.
pub trait Loaded: Send + Sync {
    /// The map `name`.
    ///
    /// # Errors
    /// [`ProbeError::Load`] where the object has no such map.
    fn table(&self, name: &'static str) -> Result<Arc<dyn Table>, ProbeError>;

    /// The ring buffer `name`; each of its records is given to `take`.
    ///
    /// # Errors
    /// [`ProbeError::Load`] where the object has no such ring buffer.
    fn ring(&self, name: &'static str, take: Take) -> Result<Box<dyn Ring>, ProbeError>;

    /// Puts probes into a process. May block for as long as the module's file cannot be read, or the process'
    /// address space is locked.
    fn attach_uprobes(&self, probes: &Uprobes<'_>) -> Result<Attachment, ProbeError>;

    /// Attaches a program to the tracepoint that its section names.
    fn attach_tracepoint(&self, program: &'static str) -> Result<Attachment, ProbeError>;

    /// Attaches a task iterator, to one process where loader and kernel can; otherwise it walks all threads.
    fn attach_iterator(&self, program: &'static str, process_id: u32) -> Result<Arc<dyn Passes>, ProbeError>;
}

/// Who is given the records of a ring buffer.
pub type Take = Box<dyn FnMut(&[u8]) + Send>;

/// What is attached as long as this is there. Dropping it may block as attaching may.
pub type Attachment = Box<dyn Any + Send>;

/// Probes of one program in one process.
#[derive(Clone, Copy, Debug)]
pub struct Uprobes<'a> {
    pub program: &'a str,
    /// Whether it runs at the functions' returns.
    pub retprobe: bool,
    pub process_id: u32,
    /// The module's file, as the agent can open it.
    pub module: &'a Path,
    /// Where, and what the probe carries to say so.
    pub points: &'a [UprobePoint],
}

impl Uprobes<'_> {
    /// Why they could not be attached.
    pub(super) fn error(&self, source: impl Into<LoaderError>) -> ProbeError {
        let what = if self.retprobe { "return probes" } else { "entry probes" };
        ProbeError::Attach { what, pid: self.process_id, source: source.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UprobePoint {
    /// Offset of the instruction in the module's file.
    pub file_offset: u64,
    /// Attach cookie; `None` where the mechanism has none.
    pub cookie: Option<u64>,
}

/// A map. Keys and values are bytes of the sizes that the object gives.
pub trait Table: Send + Sync {
    /// Writes an entry; with `only_new`, fails where the key is there already.
    fn update(&self, key: &[u8], value: &[u8], only_new: bool) -> Result<(), LoaderError>;

    /// The value of a key.
    ///
    /// # Errors
    /// What the kernel said; a key that is not there is no error.
    fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LoaderError>;

    /// The values of a key, one for each CPU; none where the map is not per CPU.
    fn lookup_per_cpu(&self, key: &[u8]) -> Result<Vec<Vec<u8>>, LoaderError>;

    /// Removes an entry.
    ///
    /// # Errors
    /// What the kernel said, also where there is no such key.
    fn delete(&self, key: &[u8]) -> Result<(), LoaderError>;

    /// All keys there are now.
    fn keys(&self) -> Result<Vec<Vec<u8>>, LoaderError>;
}

pub trait Ring: Send {
    /// Gives what has come in since the last time to whoever asked for it.
    fn consume(&self) -> Result<(), LoaderError>;
}

/// An iterator that can be run again and again, by several threads at once.
pub trait Passes: Send + Sync {
    /// What one pass wrote, at most `bytes_max` of it. It reads the target's memory, so it may block.
    fn pass(&self, bytes_max: u64) -> Result<Vec<u8>, LoaderError>;
}

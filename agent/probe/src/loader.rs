//! Who brings the BPF objects into the kernel, and what the probes need of them.
//!
//! There are two loaders that share no code: libbpf, the reference, which knows every mechanism, and aya,
//! which knows perf uprobes. Both read the same objects; a test holds what they count against each other.
//! What the numbers in the maps mean is known neither here nor there.

use super::abi::Record;
use super::error::LoaderError;
use super::object::BpfObject;
use super::{KernelFeatures, Mechanism, ProbeError, aya, libbpf};
use serde::Serialize;
use std::any::Any;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Who loads the programs, attaches them and reads their maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "snake_case")]
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

    /// The mechanism to attach probes with: the one that is wanted, where loader and kernel have it, else the
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
        self.into()
    }
}

/// An object whose programs are in the kernel. With it everything goes. Threads share it: what may block on
/// one target is called in a thread of that target's own.
pub trait Loaded: Send + Sync {
    /// The map `name`.
    /// Errors: [`ProbeError::Load`] where the object has no such map.
    fn table(&self, name: &'static str) -> Result<Arc<dyn Table>, ProbeError>;

    /// The ring buffer `name`; each of its records is given to `take`.
    /// Errors: [`ProbeError::Load`] where the object has no such ring buffer.
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

/// A map of the kernel by its name, with records for keys and values.
#[derive(Clone)]
pub struct Map {
    name: &'static str,
    table: Arc<dyn Table>,
}

impl Map {
    /// The map `name` of an object.
    pub fn of(object: &dyn Loaded, name: &'static str) -> Result<Map, ProbeError> {
        Ok(Map { name, table: object.table(name)? })
    }

    fn failed(&self, source: LoaderError) -> ProbeError {
        ProbeError::Access { what: self.name, source }
    }

    /// Writes the entry of a slot or a process.
    pub fn write(&self, key: u32, value: &impl Record) -> Result<(), ProbeError> {
        self.table.update(&key.to_ne_bytes(), value.as_bytes(), false).map_err(|source| self.failed(source))
    }

    /// Writes an entry that must not be there yet.
    pub fn add(&self, key: u32, value: &impl Record) -> Result<(), ProbeError> {
        self.table.update(&key.to_ne_bytes(), value.as_bytes(), true).map_err(|source| self.failed(source))
    }

    pub fn read<V: Record>(&self, key: u32) -> Result<Option<V>, ProbeError> {
        let bytes = self.table.lookup(&key.to_ne_bytes()).map_err(|source| self.failed(source))?;
        Ok(bytes.as_deref().and_then(V::from_bytes))
    }

    /// The values of a key, one for each CPU.
    pub fn read_per_cpu<V: Record>(&self, key: u32) -> Result<Vec<V>, ProbeError> {
        let values = self.table.lookup_per_cpu(&key.to_ne_bytes()).map_err(|source| self.failed(source))?;
        Ok(values.iter().filter_map(|bytes| V::from_bytes(bytes)).collect())
    }

    /// All entries, each once. While others insert and remove, the kernel begins a walk anew where the entry
    /// has gone that it stood at, so a walk may never end by itself: it takes no more steps than there can be
    /// entries, and those that it does not come to are left out.
    pub fn entries<K: Record, V: Record>(&self, most: u32) -> Result<Vec<(K, V)>, ProbeError> {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        for key in self.table.keys(most as usize).map_err(|source| self.failed(source))? {
            if seen.contains(&key) {
                continue;
            }
            let value = self.table.lookup(&key).map_err(|source| self.failed(source))?;
            // An entry that went between the two calls is no longer wanted.
            entries.extend(value.and_then(|value| Some((K::from_bytes(&key)?, V::from_bytes(&value)?))));
            seen.insert(key);
        }
        Ok(entries)
    }

    /// Removes an entry. One that cannot be removed is not there.
    pub fn remove(&self, key: &impl Record) {
        let _ = self.table.delete(key.as_bytes());
    }
}

/// A map as a loader has it. Keys and values are bytes of the sizes that the object gives. What a kind of map
/// does not do, or nobody asks of it, fails.
pub trait Table: Send + Sync {
    /// Writes an entry; with `only_new`, fails where the key is there already.
    fn update(&self, _key: &[u8], _value: &[u8], _only_new: bool) -> Result<(), LoaderError> {
        Err(unsupported())
    }

    /// The value of a key.
    /// Errors: what the kernel said; a key that is not there is no error.
    fn lookup(&self, _key: &[u8]) -> Result<Option<Vec<u8>>, LoaderError> {
        Err(unsupported())
    }

    /// The values of a key, one for each CPU.
    fn lookup_per_cpu(&self, _key: &[u8]) -> Result<Vec<Vec<u8>>, LoaderError> {
        Err(unsupported())
    }

    /// Removes an entry.
    /// Errors: what the kernel said, also where there is no such key.
    fn delete(&self, _key: &[u8]) -> Result<(), LoaderError> {
        Err(unsupported())
    }

    /// The keys that a walk of at most so many steps comes to.
    fn keys(&self, _most: usize) -> Result<Vec<Vec<u8>>, LoaderError> {
        Err(unsupported())
    }
}

fn unsupported() -> LoaderError {
    libbpf_rs::Error::from(std::io::Error::from(std::io::ErrorKind::Unsupported)).into()
}

pub trait Ring: Send {
    /// Gives what has come in since the last time to whoever asked for it.
    fn consume(&self) -> Result<(), LoaderError>;
}

/// An iterator that can be run again and again, by several threads at once.
pub trait Passes: Send + Sync {
    /// What one pass wrote, at most `bytes_max` of it.
    fn pass(&self, bytes_max: u64) -> Result<Vec<u8>, LoaderError>;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use libbpf_rs::{MapHandle, MapType, libbpf_sys};
    use std::sync::atomic::{AtomicBool, Ordering};

    const ENTRIES_MAX: u32 = 4096;

    /// A table whose walk comes to the same three keys again and again.
    struct Circle;

    impl Table for Circle {
        fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LoaderError> {
            Ok(Some(key.to_vec()))
        }

        fn keys(&self, most: usize) -> Result<Vec<Vec<u8>>, LoaderError> {
            Ok((0..3u64).cycle().take(most).map(|key| key.to_ne_bytes().to_vec()).collect())
        }
    }

    #[test]
    fn an_entry_that_a_walk_comes_to_twice_counts_once() {
        let map = Map { name: "circle", table: Arc::new(Circle) };
        assert_eq!(map.entries::<u64, u64>(ENTRIES_MAX).unwrap(), [(0, 0), (1, 1), (2, 2)]);
    }

    /// As while another target's readers open and close iterators: where the entry has gone at which a walk
    /// stands, the kernel begins with the first one. Only root has a table in the kernel.
    #[test]
    fn a_walk_ends_while_entries_come_and_go_and_finds_those_that_stay() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let handle =
            MapHandle::create(MapType::Hash, Some("sexton_churn"), 8, 8, ENTRIES_MAX, &options).unwrap();
        let map = Map { name: "sexton_churn", table: Arc::new(handle) };
        let write = |key: u64| map.table.update(&key.to_ne_bytes(), &key.to_ne_bytes(), false);
        (0..100).for_each(|key| write(key).unwrap());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for churner in 1..=3u64 {
                let (stop, map) = (&stop, &map);
                scope.spawn(move || {
                    let mut key = churner << 32;
                    while !stop.load(Ordering::Relaxed) {
                        key += 1;
                        map.table.update(&key.to_ne_bytes(), &key.to_ne_bytes(), false).unwrap();
                        map.remove(&(key - 32));
                    }
                });
            }
            for _ in 0..200 {
                let entries = map.entries::<u64, u64>(ENTRIES_MAX).unwrap();
                let mut keys: Vec<u64> = entries.iter().map(|(key, _)| *key).collect();
                keys.sort_unstable();
                assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "an entry is there twice");
                assert!(entries.len() <= ENTRIES_MAX as usize);
            }
            stop.store(true, Ordering::Relaxed);
        });
        let left = map.entries::<u64, u64>(ENTRIES_MAX).unwrap();
        assert_eq!(left.iter().filter(|(key, _)| *key < 100).count(), 100);
    }
}

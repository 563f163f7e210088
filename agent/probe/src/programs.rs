//! The window's programs in the kernel: loaded for one mechanism, their maps, and arming them.
//!
//! What the numbers in the maps mean is the window's business.

use super::abi::{
    Record, sexton_file, sexton_file_id, sexton_iterator_id, sexton_learnt, sexton_operation, sexton_process,
    sexton_recipe, sexton_spending, sexton_thread, sexton_thread_id, sexton_totals,
};
use super::loader::{Attachment, Loaded, Loader, LoaderError, Ring, Table, UprobePoint, Uprobes};
use super::object::BpfObject;
use super::site::{PlacedSite, Site};
use super::{Mechanism, ProbeError, Slot};
use std::path::Path;
use std::rc::Rc;

/// The programs and their maps. With it everything goes: the kernel holds nothing that is not open here.
pub struct Programs {
    mechanism: Mechanism,
    object: Box<dyn Loaded>,
    recipes: Rc<dyn Table>,
    threads: Rc<dyn Table>,
    operations: Rc<dyn Table>,
    identities: Rc<dyn Table>,
    learnt_offsets: Rc<dyn Table>,
    files: Rc<dyn Table>,
    totals: Rc<dyn Table>,
    granted: Rc<dyn Table>,
    spending: Rc<dyn Table>,
    /// Slots by process, where probes carry no cookies.
    processes: Option<Rc<dyn Table>>,
    ring: Box<dyn Ring>,
}

/// Probes in a target. Dropping it takes them away.
pub struct Armed {
    slot: Slot,
    process_id: u32,
    attachments: Vec<Attachment>,
    recipes: Rc<dyn Table>,
    processes: Option<Rc<dyn Table>>,
}

impl Programs {
    /// Loads the programs for `mechanism`; nothing is armed. `take` is given each record of a painful
    /// operation, while [`Programs::poll`] runs.
    ///
    /// # Errors
    /// [`ProbeError::Load`].
    pub fn load(
        loader: Loader,
        mechanism: Mechanism,
        take: impl FnMut(&[u8]) + 'static,
    ) -> Result<Programs, ProbeError> {
        let kind = match mechanism {
            Mechanism::Session => BpfObject::Session,
            _ => BpfObject::Seek,
        };
        // By name: what the running kernel cannot take is not even offered.
        let object = loader.load(kind, Some(mechanism), &|name| match mechanism {
            Mechanism::Session => true,
            Mechanism::Multi | Mechanism::PerfCookie => name == "sexton_entry" || name == "sexton_return",
            Mechanism::Perf => name.starts_with("sexton_entry_") || name.starts_with("sexton_return_"),
        })?;
        let has_cookies = mechanism != Mechanism::Perf;
        Ok(Programs {
            mechanism,
            recipes: object.table("sexton_armed")?,
            threads: object.table("sexton_threads")?,
            operations: object.table("sexton_operations")?,
            identities: object.table("sexton_identities")?,
            learnt_offsets: object.table("sexton_learnt_offsets")?,
            files: object.table("sexton_files")?,
            totals: object.table("sexton_totals")?,
            processes: if has_cookies { None } else { Some(object.table("sexton_processes")?) },
            ring: object.ring("sexton_records", Box::new(take))?,
            granted: object.table("sexton_granted")?,
            spending: object.table("sexton_spending")?,
            object,
        })
    }

    /// How they are armed.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Puts probes into the process of the recipe. They all begin to work at the same moment, when the last is
    /// in its place.
    ///
    /// # Errors
    /// [`ProbeError::Attach`], [`ProbeError::Access`], [`ProbeError::NoSites`].
    pub fn arm(
        &self,
        slot: Slot,
        recipe: &sexton_recipe,
        module: &Path,
        sites: &[PlacedSite],
    ) -> Result<Armed, ProbeError> {
        let process_id = recipe.process_id;
        let mut armed = Armed {
            slot,
            process_id,
            attachments: Vec::new(),
            recipes: Rc::clone(&self.recipes),
            processes: None,
        };
        if let Some(processes) = &self.processes {
            claim_process(&**processes, process_id, slot)?;
            armed.processes = Some(Rc::clone(processes));
        }
        let place = Place { slot, process_id, module };
        let returning = with_return(sites);
        match self.mechanism {
            Mechanism::Session => {
                armed.attachments.push(self.attach("sexton_session", &place, sites, false)?)
            }
            Mechanism::Multi | Mechanism::PerfCookie => {
                armed.attachments.push(self.attach("sexton_return", &place, &returning, true)?);
                armed.attachments.push(self.attach("sexton_entry", &place, sites, false)?);
            }
            Mechanism::Perf => {
                for site in &returning {
                    let program = format!("sexton_return_{}", site.site.program_suffix());
                    armed.attachments.push(self.attach(&program, &place, &[*site], true)?);
                }
                for site in sites {
                    let program = format!("sexton_entry_{}", site.site.program_suffix());
                    armed.attachments.push(self.attach(&program, &place, &[*site], false)?);
                }
            }
        }
        self.write_recipe(slot, recipe)?;
        Ok(armed)
    }

    fn attach(
        &self,
        program: &str,
        place: &Place<'_>,
        sites: &[PlacedSite],
        retprobe: bool,
    ) -> Result<Attachment, ProbeError> {
        let has_cookies = self.mechanism != Mechanism::Perf;
        let point = |site: &PlacedSite| UprobePoint {
            file_offset: site.file_offset,
            cookie: has_cookies.then(|| site.site.cookie(place.slot)),
        };
        self.object.attach_uprobes(&Uprobes {
            program,
            retprobe,
            process_id: place.process_id,
            module: place.module,
            points: &sites.iter().map(point).collect::<Vec<_>>(),
        })
    }

    /// Replaces an armed slot's recipe by another one for the same process.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn write_recipe(&self, slot: Slot, recipe: &sexton_recipe) -> Result<(), ProbeError> {
        self.recipes
            .update(&slot.to_ne_bytes(), recipe.as_bytes(), false)
            .map_err(|source| access("the recipes", source))
    }

    /// Sets what a slot has been granted since its window opened; it must never fall while probes are armed.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn set_granted(&self, slot: Slot, granted_ns: u64) -> Result<(), ProbeError> {
        self.granted
            .update(&slot.to_ne_bytes(), &granted_ns.to_ne_bytes(), false)
            .map_err(|source| access("the credits", source))
    }

    /// What a slot has spent of its credit, and its last pause.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn spending(&self, slot: Slot) -> Result<sexton_spending, ProbeError> {
        let bytes =
            self.spending.lookup(&slot.to_ne_bytes()).map_err(|source| access("the spending", source))?;
        Ok(bytes.as_deref().and_then(sexton_spending::from_bytes).unwrap_or_default())
    }

    /// Nothing spent, no pause: before probes are armed.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn reset_spending(&self, slot: Slot) -> Result<(), ProbeError> {
        self.spending
            .update(&slot.to_ne_bytes(), sexton_spending::default().as_bytes(), false)
            .map_err(|source| access("the spending", source))
    }

    /// Takes the records that have come in since the last time.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn poll(&self) -> Result<(), ProbeError> {
        self.ring.consume().map_err(|source| access("the ring of operations", source))
    }

    /// What was counted in a slot since the programs were loaded, summed over all CPUs.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn totals(&self, slot: Slot) -> Result<sexton_totals, ProbeError> {
        let per_cpu =
            self.totals.lookup_per_cpu(&slot.to_ne_bytes()).map_err(|source| access("the totals", source))?;
        Ok(per_cpu
            .into_iter()
            .filter_map(|bytes| sexton_totals::from_bytes(&bytes))
            .fold(sexton_totals::default(), |sum, cpu| sum.combine(cpu, u64::wrapping_add)))
    }

    /// The accounts of a slot's threads, by thread id.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn threads(&self, slot: Slot) -> Result<Vec<(u32, sexton_thread)>, ProbeError> {
        let entries = entries(&*self.threads, "the map of threads")?;
        Ok(entries
            .into_iter()
            .filter_map(|(key, value)| {
                let id = sexton_thread_id::from_bytes(&key).filter(|id| id.slot == slot)?;
                Some((id.thread_id, sexton_thread::from_bytes(&value)?))
            })
            .collect())
    }

    /// The operations of a slot that have not ended.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn operations(&self, slot: Slot) -> Result<Vec<sexton_operation>, ProbeError> {
        let entries = entries(&*self.operations, "the map of operations")?;
        Ok(entries
            .into_iter()
            .filter_map(|(_, value)| sexton_operation::from_bytes(&value))
            .filter(|operation| operation.slot == slot)
            .collect())
    }

    /// What was read from a slot's files, by the address of their `RandomAccessFileReader`.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn files(&self, slot: Slot) -> Result<Vec<(u64, sexton_file)>, ProbeError> {
        let entries = entries(&*self.files, "the map of files")?;
        Ok(entries
            .into_iter()
            .filter_map(|(key, value)| {
                let id = sexton_file_id::from_bytes(&key).filter(|id| id.slot == slot)?;
                Some((id.file, sexton_file::from_bytes(&value)?))
            })
            .collect())
    }

    /// Removes every account of a slot: the next window begins anew.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn forget(&self, slot: Slot) -> Result<(), ProbeError> {
        // Absent is as good as removed.
        for (thread_id, _) in self.threads(slot)? {
            let _ = self.threads.delete(sexton_thread_id { thread_id, slot }.as_bytes());
        }
        for operation in self.operations(slot)? {
            let id = sexton_iterator_id { iterator: operation.iterator, slot, padding: 0 };
            let _ = self.operations.delete(id.as_bytes());
        }
        for (file, _) in self.files(slot)? {
            let _ = self.files.delete(sexton_file_id { file, slot, padding: 0 }.as_bytes());
        }
        for (key, _) in entries(&*self.identities, "the map of identities")? {
            if sexton_iterator_id::from_bytes(&key).is_some_and(|id| id.slot == slot) {
                let _ = self.identities.delete(&key);
            }
        }
        Ok(())
    }

    /// Forgets the offsets that were learnt in a slot: another target has it now.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn forget_learnt_offsets(&self, slot: Slot) -> Result<(), ProbeError> {
        self.learnt_offsets
            .update(&slot.to_ne_bytes(), sexton_learnt::default().as_bytes(), false)
            .map_err(|source| access("the learnt offsets", source))
    }
}

impl Armed {
    /// Whether the probes are still there.
    pub fn is_armed(&self) -> bool {
        !self.attachments.is_empty()
    }

    /// Takes the probes away: first they all stop working at the same moment, then they go.
    pub fn disarm(&mut self) {
        // A slot that cannot be written has no process to be armed for: there is nothing to say.
        let nobody = sexton_recipe::default();
        let _ = self.recipes.update(&self.slot.to_ne_bytes(), nobody.as_bytes(), false);
        if let Some(processes) = self.processes.take() {
            let _ = processes.delete(&self.process_id.to_ne_bytes());
        }
        self.attachments.clear();
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// Where probes go.
struct Place<'a> {
    slot: Slot,
    process_id: u32,
    module: &'a Path,
}

fn with_return(sites: &[PlacedSite]) -> Vec<PlacedSite> {
    sites.iter().filter(|site| Site::has_return(site.site)).copied().collect()
}

/// Without cookies a process can have one slot.
fn claim_process(processes: &dyn Table, pid: u32, slot: Slot) -> Result<(), ProbeError> {
    let mut process = sexton_process { count: 1, ..Default::default() };
    process.slots[0] = slot;
    processes.update(&pid.to_ne_bytes(), process.as_bytes(), true).map_err(|_| ProbeError::NoSites {
        pid,
        reason: "this kernel's probes carry no cookies: one RocksDB copy in a process can be armed at a time",
    })
}

fn access(what: &'static str, source: LoaderError) -> ProbeError {
    ProbeError::Access { what, source }
}

/// Key and value of a map's entry, as bytes.
type Entry = (Vec<u8>, Vec<u8>);

/// All entries of a map.
fn entries(map: &dyn Table, what: &'static str) -> Result<Vec<Entry>, ProbeError> {
    let mut entries = Vec::new();
    for key in map.keys().map_err(|source| access(what, source))? {
        let value = map.lookup(&key).map_err(|source| access(what, source))?;
        // An entry that went between the two calls is no longer wanted.
        entries.extend(value.map(|value| (key, value)));
    }
    Ok(entries)
}

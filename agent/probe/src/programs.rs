//! The window's programs in the kernel: loaded for one mechanism, their maps, and putting them into a
//! process.
//!
//! What the numbers in the maps mean is the window's business.

use super::abi::{
    SEXTON_FAMILIES_MAX, SEXTON_FILES_MAX, SEXTON_ITERATORS_MAX, SEXTON_THREADS_MAX, sexton_family,
    sexton_family_id, sexton_file, sexton_file_id, sexton_identity, sexton_iterator_id, sexton_learnt,
    sexton_operation, sexton_process, sexton_recipe, sexton_spending, sexton_thread, sexton_thread_id,
    sexton_totals,
};
use super::haste::Haste;
use super::loader::{Attachment, Loaded, Loader, Map, Ring, UprobePoint, Uprobes};
use super::object::BpfObject;
use super::site::{PlacedSite, Site};
use super::{Mechanism, ProbeError, Slot};
use std::path::PathBuf;
use std::sync::Arc;

/// The programs and their maps. With it everything goes: the kernel holds nothing that is not open here.
pub struct Programs {
    mechanism: Mechanism,
    object: Arc<dyn Loaded>,
    recipes: Map,
    threads: Map,
    operations: Map,
    identities: Map,
    learnt_offsets: Map,
    files: Map,
    families: Map,
    totals: Map,
    granted: Map,
    spending: Map,
    /// Slots by process, where probes carry no cookies.
    processes: Option<Map>,
    ring: Box<dyn Ring>,
}

/// A slot that is one process', and the probes in it. Dropping it takes them away, which may block.
pub struct Probes {
    slot: Slot,
    process_id: u32,
    attachments: Vec<Attachment>,
    recipes: Map,
    processes: Option<Map>,
}

/// Where probes go, and what they run.
pub struct Placement {
    object: Arc<dyn Loaded>,
    mechanism: Mechanism,
    slot: Slot,
    process_id: u32,
    module: PathBuf,
    sites: Vec<PlacedSite>,
}

impl Programs {
    /// Loads the programs for `mechanism`; nothing is armed. `take` is given each record of an
    /// operation, while [`Programs::poll`] runs.
    pub fn load(
        loader: Loader,
        mechanism: Mechanism,
        take: impl FnMut(&[u8]) + Send + 'static,
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
        let map = |name| Map::of(&*object, name);
        Ok(Programs {
            mechanism,
            recipes: map("sexton_armed")?,
            threads: map("sexton_threads")?,
            operations: map("sexton_operations")?,
            identities: map("sexton_identities")?,
            learnt_offsets: map("sexton_learnt_offsets")?,
            files: map("sexton_files")?,
            families: map("sexton_families")?,
            totals: map("sexton_totals")?,
            processes: if has_cookies { None } else { Some(map("sexton_processes")?) },
            ring: object.ring("sexton_records", Box::new(take))?,
            granted: map("sexton_granted")?,
            spending: map("sexton_spending")?,
            object,
        })
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Claims a slot for a process, in which there is no probe yet, and says where its probes go. The
    /// programs skip what they meet there until [`Programs::write_recipe`].
    pub fn claim(
        &self,
        slot: Slot,
        process_id: u32,
        module: PathBuf,
        sites: Vec<PlacedSite>,
    ) -> Result<(Probes, Placement), ProbeError> {
        if let Some(processes) = &self.processes {
            claim_process(processes, process_id, slot)?;
        }
        let probes = Probes {
            slot,
            process_id,
            attachments: Vec::new(),
            recipes: self.recipes.clone(),
            processes: self.processes.clone(),
        };
        let (object, mechanism) = (Arc::clone(&self.object), self.mechanism);
        Ok((probes, Placement { object, mechanism, slot, process_id, module, sites }))
    }

    /// Writes a slot's recipe: from now on the programs follow what they meet in its process.
    pub fn write_recipe(&self, slot: Slot, recipe: &sexton_recipe) -> Result<(), ProbeError> {
        self.recipes.write(slot, recipe)
    }

    /// Sets what a slot has been granted since its window opened; it must never fall while probes are armed.
    pub fn set_granted(&self, slot: Slot, granted_ns: u64) -> Result<(), ProbeError> {
        self.granted.write(slot, &granted_ns)
    }

    /// What a slot has spent of its credit, and its last pause.
    pub fn spending(&self, slot: Slot) -> Result<sexton_spending, ProbeError> {
        Ok(self.spending.read(slot)?.unwrap_or_default())
    }

    /// Nothing spent, no pause: before probes are armed.
    pub fn reset_spending(&self, slot: Slot) -> Result<(), ProbeError> {
        self.spending.write(slot, &sexton_spending::default())
    }

    /// Takes the records that have come in since the last time.
    pub fn poll(&self) -> Result<(), ProbeError> {
        let what = "the ring of operations";
        self.ring.consume().map_err(|source| ProbeError::Access { what, source })
    }

    /// What was counted in a slot since the programs were loaded, summed over all CPUs.
    pub fn totals(&self, slot: Slot) -> Result<sexton_totals, ProbeError> {
        let per_cpu = self.totals.read_per_cpu(slot)?.into_iter();
        Ok(per_cpu.fold(sexton_totals::default(), |sum, cpu| sum.combine(cpu, u64::wrapping_add)))
    }

    /// The accounts of a slot's threads, by thread id.
    pub fn threads(&self, slot: Slot) -> Result<Vec<(u32, sexton_thread)>, ProbeError> {
        let entries = self.threads.entries::<sexton_thread_id, _>(SEXTON_THREADS_MAX)?.into_iter();
        Ok(entries.filter(|(id, _)| id.slot == slot).map(|(id, thread)| (id.thread_id, thread)).collect())
    }

    /// The operations of a slot that have not ended.
    pub fn operations(&self, slot: Slot) -> Result<Vec<sexton_operation>, ProbeError> {
        let entries = self
            .operations
            .entries::<sexton_iterator_id, sexton_operation>(SEXTON_ITERATORS_MAX)?
            .into_iter();
        Ok(entries.map(|(_, operation)| operation).filter(|operation| operation.slot == slot).collect())
    }

    /// What was read from a slot's files, by the address of their `RandomAccessFileReader`.
    pub fn files(&self, slot: Slot) -> Result<Vec<(u64, sexton_file)>, ProbeError> {
        let entries = self.files.entries::<sexton_file_id, _>(SEXTON_FILES_MAX)?.into_iter();
        Ok(entries.filter(|(id, _)| id.slot == slot).map(|(id, file)| (id.file, file)).collect())
    }

    /// What a slot's operations have waited for, by the address of their `ColumnFamilyData`.
    pub fn families(&self, slot: Slot) -> Result<Vec<(u64, sexton_family)>, ProbeError> {
        let entries = self.families.entries::<sexton_family_id, _>(SEXTON_FAMILIES_MAX)?.into_iter();
        let of_slot = entries.filter(|(id, _)| id.slot == slot);
        Ok(of_slot.map(|(id, family)| (id.column_family_data, family)).collect())
    }

    /// Removes every account of a slot: the next window begins anew.
    pub fn forget(&self, slot: Slot) -> Result<(), ProbeError> {
        for (thread_id, _) in self.threads(slot)? {
            self.threads.remove(&sexton_thread_id { thread_id, slot });
        }
        for operation in self.operations(slot)? {
            self.operations.remove(&sexton_iterator_id { iterator: operation.iterator, slot, padding: 0 });
        }
        for (file, _) in self.files(slot)? {
            self.files.remove(&sexton_file_id { file, slot, padding: 0 });
        }
        for (column_family_data, _) in self.families(slot)? {
            self.families.remove(&sexton_family_id { column_family_data, slot, padding: 0 });
        }
        let identities =
            self.identities.entries::<sexton_iterator_id, sexton_identity>(SEXTON_ITERATORS_MAX)?;
        identities.iter().filter(|(id, _)| id.slot == slot).for_each(|(id, _)| self.identities.remove(id));
        Ok(())
    }

    /// Forgets the offsets that were learnt in a slot: another target has it now.
    pub fn forget_learnt_offsets(&self, slot: Slot) -> Result<(), ProbeError> {
        self.learnt_offsets.write(slot, &sexton_learnt::default())
    }
}

impl Probes {
    /// Puts probes at all sites of a placement. It may block for ever: on the module's file, or on the
    /// process' memory.
    pub fn attach(&mut self, placement: &Placement) -> Result<(), ProbeError> {
        let _haste = Haste::begin();
        let sites = &placement.sites;
        let returning: Vec<PlacedSite> =
            sites.iter().filter(|site| Site::has_return(site.site)).copied().collect();
        match placement.mechanism {
            Mechanism::Session => self.attach_program(placement, "sexton_session", sites, false),
            Mechanism::Multi | Mechanism::PerfCookie => {
                self.attach_program(placement, "sexton_return", &returning, true)?;
                self.attach_program(placement, "sexton_entry", sites, false)
            }
            Mechanism::Perf => {
                for site in &returning {
                    let program = format!("sexton_return_{}", site.site.program_suffix());
                    self.attach_program(placement, &program, &[*site], true)?;
                }
                for site in sites {
                    let program = format!("sexton_entry_{}", site.site.program_suffix());
                    self.attach_program(placement, &program, &[*site], false)?;
                }
                Ok(())
            }
        }
    }

    fn attach_program(
        &mut self,
        placement: &Placement,
        program: &str,
        sites: &[PlacedSite],
        retprobe: bool,
    ) -> Result<(), ProbeError> {
        let has_cookies = placement.mechanism != Mechanism::Perf;
        let point = |site: &PlacedSite| UprobePoint {
            file_offset: site.file_offset,
            cookie: has_cookies.then(|| site.site.cookie(placement.slot)),
        };
        self.attachments.push(placement.object.attach_uprobes(&Uprobes {
            program,
            retprobe,
            process_id: placement.process_id,
            module: &placement.module,
            points: &sites.iter().map(point).collect::<Vec<_>>(),
        })?);
        Ok(())
    }

    /// All probes stop working at the same moment. They still have to be taken away.
    pub fn stop(&self) {
        // A slot that cannot be written has no process to be armed for: there is nothing to say.
        let _ = self.recipes.write(self.slot, &sexton_recipe::default());
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let _haste = Haste::begin();
        self.attachments.clear();
        // Now the process can be another slot's.
        if let Some(processes) = self.processes.take() {
            processes.remove(&self.process_id);
        }
    }
}

/// Without cookies a process can have one slot.
fn claim_process(processes: &Map, pid: u32, slot: Slot) -> Result<(), ProbeError> {
    let mut process = sexton_process { count: 1, ..Default::default() };
    process.slots[0] = slot;
    processes.add(pid, &process).map_err(|_| ProbeError::NoSites {
        pid,
        reason: "this kernel's probes carry no cookies: one RocksDB copy in a process can be armed at a time",
    })
}

//! Windows: probes armed for a short time, and who is charged for what was counted meanwhile.
//!
//! The order of opening and closing is what makes the sums exact. The sentinel reads before the probes are
//! armed and after they are gone, so that everything the probes saw lies between these two readings. It
//! reads once more just before they go: what a thread counted since its last event up to then belongs
//! to the operation that is still open, and to no later one. What comes between that reading and the
//! last one stays unattributed.

use super::abi::{
    Record, SEXTON_KEY_BYTES_MAX, SEXTON_SEEK, SEXTON_SEEK_FOR_PREV, SEXTON_SEEK_TO_FIRST,
    SEXTON_SEEK_TO_LAST, SEXTON_SITE_ITERATOR_END, SEXTON_SITE_NEW_ITERATOR, sexton_counters,
    sexton_iterator_id, sexton_operation, sexton_recipe, sexton_thread, sexton_totals,
};
use super::recipe::{Thresholds, recipe};
use super::skeleton::{SeekSkel, SeekSkelBuilder, object_room};
use super::{ProbeError, SentinelReading, Slot};
use crate::target::facts::{ProbeSite, ProbeSites, Target};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, ProgramAttachType, RingBuffer, RingBufferBuilder, UprobeMultiOpts};
use sexton_tuner::evidence::{Counters, Observation, SeekKind, Window};
use sexton_tuner::key::Key;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// Painful operations kept of one window: more than a ranking needs, and an end to the memory. The
/// others are counted as lost, and the tuner scales by that.
pub const OPERATIONS_KEPT_MAX: usize = 50_000;

type RecordQueue = Rc<RefCell<Records>>;

#[derive(Default)]
struct Records {
    operations: Vec<sexton_operation>,
    dropped: u64,
}

/// The seek programs, loaded once and armed as often as needed.
pub struct Windows {
    skeleton: SeekSkel<'static>,
    ring: RingBuffer<'static>,
    records: RecordQueue,
}

/// A window that is open on one target. Dropping it takes the probes away.
pub struct OpenWindow {
    pid: u32,
    slot: Slot,
    recipe: sexton_recipe,
    opened: Instant,
    armed_ns: u64,
    opening: Counters,
    totals_before: sexton_totals,
    links: Vec<Link>,
}

/// A painful operation with the addresses that say whose it is.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Address of the `DBImpl`; 0 when the iterator's creation was not seen.
    pub database: u64,
    /// Address of the `ColumnFamilyHandleImpl`; 0 when the creation was not seen.
    pub column_family_handle: u64,
    /// Address of the `ColumnFamilyData`; 0 when not known.
    pub column_family_data: u64,
    /// What was observed; its column family is still to be filled in from the addresses.
    pub observation: Observation,
}

/// What a window saw.
#[derive(Clone, Debug)]
pub struct WindowResult {
    /// Painful operations, in the order they ended, at most [`OPERATIONS_KEPT_MAX`].
    pub operations: Vec<Operation>,
    /// Sums.
    pub window: Window,
    /// Counted in threads the probes saw, but outside any known operation.
    pub unowned: Counters,
    /// How often a probe fired.
    pub hits: u64,
    /// How often a counter or a key could not be read.
    pub read_failures: u64,
    /// How often a map was full.
    pub map_full: u64,
}

impl WindowResult {
    /// What the sentinel counted and no operation was charged for.
    pub fn unattributed(&self) -> Counters {
        self.window.total.minus(self.window.attributed)
    }
}

impl Windows {
    /// Loads the programs; nothing is armed yet.
    ///
    /// # Errors
    /// [`ProbeError::Load`].
    pub fn load() -> Result<Windows, ProbeError> {
        let load_error = |source| ProbeError::Load { object: "seek", source };
        let mut open = SeekSkelBuilder::default().open(object_room()).map_err(load_error)?;
        open.progs.sexton_entry.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        open.progs.sexton_return.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        let skeleton = open.load().map_err(load_error)?;
        let records = RecordQueue::default();
        let queue = Rc::clone(&records);
        let mut ring = RingBufferBuilder::new();
        ring.add(&skeleton.maps.sexton_records, move |bytes| {
            queue.borrow_mut().take(bytes);
            0
        })
        .map_err(load_error)?;
        let ring = ring.build().map_err(load_error)?;
        Ok(Windows { skeleton, ring, records })
    }

    /// Arms the probes. `opening` is the sentinel's reading from just before.
    ///
    /// # Errors
    /// [`ProbeError::NoSites`], [`ProbeError::Attach`], [`ProbeError::Access`], [`ProbeError::Layout`].
    pub fn open(
        &mut self,
        target: &Target,
        slot: Slot,
        thresholds: Thresholds,
        opening: &SentinelReading,
    ) -> Result<OpenWindow, ProbeError> {
        let pid = target.process.pid;
        let recipe = recipe(target, slot, thresholds)?;
        let (entries, returns) = sites(&target.module.sites);
        if !target.module.sites.has_a_seek() {
            return Err(ProbeError::NoSites { pid, reason: "no function of DBIter was found" });
        }
        self.forget(pid)?;
        let totals_before = self.totals(slot)?;
        self.skeleton
            .maps
            .sexton_armed
            .update(&pid.to_ne_bytes(), recipe.as_bytes(), MapFlags::ANY)
            .map_err(|source| ProbeError::Access { what: "the map of armed processes", source })?;
        let module = &target.module.path_from_agent;
        // Returns first: a return without its entry is ignored, an entry without its return would wait.
        let returns = attach(&self.skeleton.progs.sexton_return, pid, module, &returns, true)?;
        let entries = attach(&self.skeleton.progs.sexton_entry, pid, module, &entries, false)?;
        Ok(OpenWindow {
            pid,
            slot,
            recipe,
            opened: Instant::now(),
            armed_ns: 0,
            opening: opening.total,
            totals_before,
            links: vec![entries, returns],
        })
    }

    /// Takes what has come in so far, so that the ring buffer does not run full in a long window.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn poll(&mut self) -> Result<(), ProbeError> {
        self.ring.consume().map_err(|source| ProbeError::Access { what: "the ring of operations", source })
    }

    /// Takes the accounts that the window left behind. `settling` is the sentinel's reading from just
    /// before the probes were taken away ([`OpenWindow::disarm`]), `closing` that from after it.
    ///
    /// # Errors
    /// [`ProbeError::Access`].
    pub fn collect(
        &mut self,
        mut window: OpenWindow,
        settling: &SentinelReading,
        closing: &SentinelReading,
    ) -> Result<WindowResult, ProbeError> {
        let duration_ns = window.disarm();
        let closed_ns = monotonic_ns();
        self.poll()?;
        let totals = self.totals(window.slot)?.combine(window.totals_before, u64::wrapping_sub);
        let mut open = self.open_operations(window.pid)?;
        let settled = self.settle(window.pid, &mut open, settling)?;
        let mut records = self.records.borrow_mut().take_of(window.pid);
        let ended_painful = totals.operations_painful;
        let mut still_open_painful = 0;
        let operations_open = open.len() as u64;
        for mut operation in open.into_values() {
            operation.end_ns = closed_ns;
            if is_painful(&operation, &window.recipe) {
                still_open_painful += 1;
                records.operations.push(operation);
            }
        }
        self.forget(window.pid)?;
        Ok(WindowResult {
            window: Window {
                duration_ns,
                operations: totals.operations + operations_open,
                operations_painful: ended_painful + still_open_painful,
                records_lost: totals.records_lost + records.dropped,
                attributed: Counters::from(totals.attributed).plus(settled),
                total: closing.total.minus(window.opening),
            },
            unowned: totals.unowned.into(),
            hits: totals.hits,
            read_failures: totals.read_failures,
            map_full: totals.map_full,
            operations: records.operations.iter().map(operation).collect(),
        })
    }

    /// Charges what was counted after each thread's last event, up to the settling reading. A thread that
    /// has had an event since that reading has its boundary behind it: nothing is left to charge.
    fn settle(
        &self,
        pid: u32,
        open: &mut HashMap<u64, sexton_operation>,
        settling: &SentinelReading,
    ) -> Result<Counters, ProbeError> {
        let mut settled = Counters::default();
        for (thread_id, thread) in self.threads(pid)? {
            let Some(now) = settling.by_thread.get(&(thread_id, thread.start_boot_ns)) else { continue };
            let delta = now.minus(thread.boundary.into());
            let in_seek = thread.active != 0;
            let charged = if in_seek { thread.active } else { thread.owner };
            let Some(operation) = open.get_mut(&charged) else { continue };
            let part = if in_seek { &mut operation.seek } else { &mut operation.scan };
            *part = raw(Counters::from(*part).plus(delta));
            settled = settled.plus(delta);
        }
        Ok(settled)
    }

    fn threads(&self, pid: u32) -> Result<Vec<(u32, sexton_thread)>, ProbeError> {
        let entries = entries(&self.skeleton.maps.sexton_threads, "the map of threads")?;
        Ok(entries
            .into_iter()
            .filter_map(|(key, value)| {
                let thread = sexton_thread::from_bytes(&value)?;
                (thread.process_id == pid).then_some((u32::from_ne_bytes(key.try_into().ok()?), thread))
            })
            .collect())
    }

    fn open_operations(&self, pid: u32) -> Result<HashMap<u64, sexton_operation>, ProbeError> {
        let entries = entries(&self.skeleton.maps.sexton_operations, "the map of operations")?;
        Ok(entries
            .into_iter()
            .filter_map(|(_, value)| sexton_operation::from_bytes(&value))
            .filter(|operation| operation.process_id == pid)
            .map(|operation| (operation.iterator, operation))
            .collect())
    }

    fn totals(&self, slot: Slot) -> Result<sexton_totals, ProbeError> {
        let per_cpu = self
            .skeleton
            .maps
            .sexton_totals
            .lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| ProbeError::Access { what: "the totals", source })?;
        Ok(per_cpu
            .into_iter()
            .flatten()
            .filter_map(|bytes| sexton_totals::from_bytes(&bytes))
            .fold(sexton_totals::default(), |sum, cpu| sum.combine(cpu, u64::wrapping_add)))
    }

    /// Removes every account of a process: the next window begins anew.
    fn forget(&mut self, pid: u32) -> Result<(), ProbeError> {
        let maps = &self.skeleton.maps;
        // Absent is as good as removed, here and below.
        let _ = maps.sexton_armed.delete(&pid.to_ne_bytes());
        for (thread_id, _) in self.threads(pid)? {
            let _ = maps.sexton_threads.delete(&thread_id.to_ne_bytes());
        }
        for iterator in self.open_operations(pid)?.into_keys() {
            let id = sexton_iterator_id { iterator, process_id: pid, padding: 0 };
            let _ = maps.sexton_operations.delete(id.as_bytes());
        }
        for (key, _) in entries(&maps.sexton_identities, "the map of identities")? {
            if sexton_iterator_id::from_bytes(&key).is_some_and(|id| id.process_id == pid) {
                let _ = maps.sexton_identities.delete(&key);
            }
        }
        self.poll()?;
        self.records.borrow_mut().take_of(pid);
        Ok(())
    }
}

impl OpenWindow {
    /// Takes the probes away and gives how long they were armed, in nanoseconds. The first call counts.
    pub fn disarm(&mut self) -> u64 {
        if !self.links.is_empty() {
            self.links.clear();
            self.armed_ns = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        self.armed_ns
    }
}

impl Records {
    fn take(&mut self, bytes: &[u8]) {
        let Some(operation) = sexton_operation::from_bytes(bytes) else { return };
        if self.operations.len() < OPERATIONS_KEPT_MAX {
            self.operations.push(operation);
        } else {
            self.dropped += 1;
        }
    }

    /// The records of one process; those of others stay.
    fn take_of(&mut self, pid: u32) -> Records {
        let all = std::mem::take(&mut self.operations);
        let (ours, others) = all.into_iter().partition(|operation| operation.process_id == pid);
        self.operations = others;
        Records { operations: ours, dropped: std::mem::take(&mut self.dropped) }
    }
}

impl ProbeSites {
    /// Whether at least one positioning call can be probed.
    pub fn has_a_seek(&self) -> bool {
        [&self.seek, &self.seek_for_prev, &self.seek_to_first, &self.seek_to_last]
            .iter()
            .any(|site| site.is_some())
    }
}

/// Sites with the cookie that tells the program which it is.
type Sites<'a> = Vec<(&'a ProbeSite, u64)>;

/// Entry sites and return sites, as far as they were found.
fn sites(sites: &ProbeSites) -> (Sites<'_>, Sites<'_>) {
    let with_return = [
        (&sites.seek, SEXTON_SEEK),
        (&sites.seek_for_prev, SEXTON_SEEK_FOR_PREV),
        (&sites.seek_to_first, SEXTON_SEEK_TO_FIRST),
        (&sites.seek_to_last, SEXTON_SEEK_TO_LAST),
        (&sites.new_iterator, SEXTON_SITE_NEW_ITERATOR),
    ];
    let found = with_return.iter().filter_map(|(site, cookie)| Some((site.as_ref()?, u64::from(*cookie))));
    let returns: Sites<'_> = found.collect();
    let end = sites.iterator_destructor.as_ref().map(|site| (site, u64::from(SEXTON_SITE_ITERATOR_END)));
    let entries = returns.iter().copied().chain(end).collect();
    (entries, returns)
}

fn attach(
    program: &libbpf_rs::ProgramMut<'_>,
    pid: u32,
    module: &Path,
    sites: &Sites<'_>,
    retprobe: bool,
) -> Result<Link, ProbeError> {
    let options = UprobeMultiOpts {
        offsets: sites.iter().map(|(site, _)| site.file_offset as usize).collect(),
        cookies: sites.iter().map(|(_, cookie)| *cookie).collect(),
        retprobe,
        ..Default::default()
    };
    let what = if retprobe { "return probes" } else { "entry probes" };
    program
        .attach_uprobe_multi_with_opts(pid as i32, module, "", options)
        .map_err(|source| ProbeError::Attach { what, pid, source })
}

/// Key and value of a map's entry, as bytes.
type Entry = (Vec<u8>, Vec<u8>);

/// All entries of a map.
fn entries(map: &impl MapCore, what: &'static str) -> Result<Vec<Entry>, ProbeError> {
    let mut entries = Vec::new();
    for key in map.keys() {
        let value = map.lookup(&key, MapFlags::ANY).map_err(|source| ProbeError::Access { what, source })?;
        // An entry that went between the two calls is no longer wanted.
        entries.extend(value.map(|value| (key, value)));
    }
    Ok(entries)
}

fn is_painful(operation: &sexton_operation, recipe: &sexton_recipe) -> bool {
    let total = Counters::from(operation.seek).plus(operation.scan.into());
    total.tombstones_skipped >= recipe.tombstones_painful || total.block_reads >= recipe.block_reads_painful
}

fn raw(counters: Counters) -> sexton_counters {
    sexton_counters {
        tombstones_skipped: counters.tombstones_skipped,
        keys_skipped: counters.keys_skipped,
        block_reads: counters.block_reads,
        block_read_bytes: counters.block_read_bytes,
        block_cache_hits: counters.block_cache_hits,
    }
}

fn operation(raw: &sexton_operation) -> Operation {
    Operation {
        database: raw.database,
        column_family_handle: raw.column_family_handle,
        column_family_data: raw.column_family_data,
        observation: Observation {
            column_family: None,
            kind: match raw.kind {
                SEXTON_SEEK_FOR_PREV => SeekKind::SeekForPrev,
                SEXTON_SEEK_TO_FIRST => SeekKind::SeekToFirst,
                SEXTON_SEEK_TO_LAST => SeekKind::SeekToLast,
                _ => SeekKind::Seek,
            },
            key: key(&raw.key, raw.key_bytes),
            end_key: (raw.end_key_bytes > 0).then(|| key(&raw.end_key, raw.end_key_bytes)),
            seek: raw.seek.into(),
            scan: raw.scan.into(),
            // Still inside the call when the window closed: the whole time so far was the seek's.
            seek_latency_ns: latest(raw.return_ns, raw.end_ns).saturating_sub(raw.start_ns),
            scan_elapsed_ns: if raw.return_ns == 0 { 0 } else { raw.end_ns.saturating_sub(raw.return_ns) },
        },
    }
}

/// The valid bytes of a key's room.
fn key(room: &[u8], bytes: u32) -> Key {
    let bytes = bytes.min(SEXTON_KEY_BYTES_MAX) as usize;
    Key::new(room.get(..bytes).unwrap_or_default())
}

/// The clock of `bpf_ktime_get_ns`.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The return's time, or the end's where the call had not returned.
fn latest(return_ns: u64, end_ns: u64) -> u64 {
    if return_ns == 0 { end_ns } else { return_ns }
}

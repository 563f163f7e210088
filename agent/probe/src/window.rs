//! Windows: probes armed for a short time, and who is charged for what was counted meanwhile.
//!
//! The order of opening and closing is what makes the sums exact. The sentinel reads before the probes are
//! armed and after they are gone, so that everything the probes saw lies between these two readings. It
//! reads once more just before they go: what a thread counted since its last event up to then belongs
//! to the operation that is still open, and to no later one. What comes between that reading and the
//! last one stays unattributed.
//!
//! A window's credit can run out. The programs then skip, and what they skipped is charged to nobody; an
//! operation that began before such a pause is settled no more.
//!
//! Putting probes into a process and taking them away may block for ever, on the module's file or on the
//! process' memory. So a window is opened and closed in steps: those that may block ([`Unattached::attach`],
//! [`Closing::close`], [`Stopped::detach`]) take what can be sent to another thread, and the others are
//! quick. Nothing is granted, and nothing is followed, before the last probe is in its place.
//!
//! Where there is no sentinel the total is what the probes counted, and what a window leaves open is charged
//! up to its last event only.

use super::abi::{
    Record, SEXTON_FETCH_FILE_UNKNOWN, SEXTON_TOMBSTONES_PER_RESEEK, SEXTON_WEIGHT_MAX, sexton_family,
    sexton_file, sexton_operation, sexton_recipe, sexton_totals,
};
use super::account::ThreadKey;
use super::operation::Operation;
use super::programs::{Placement, Probes, Programs};
use super::recipe::{Thresholds, recipe};
use super::settle::settle;
use super::site::{PlacedSite, ProbeHits, placed_sites};
use super::{Credit, Loader, Mechanism, ProbeError, SentinelReading, Slot, Totals, TotalsBy, TotalsReader};
use sexton_inspect::facts::{Target, TargetId};
use sexton_inspect::identity::Addresses;
use sexton_tuner::evidence::{BlockFetches, Counters, Window};
use sexton_tuner::latency::{Latencies, LatencyHistogram};
use sexton_tuner::sampling::{RECORDS_MANY, Sampling};
use sexton_tuner::waits::{Spread, Waits};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Recorded operations kept of one window: more than a ranking needs, and an end to the memory. The
/// others are counted as lost, and the tuner scales by that.
pub const OPERATIONS_KEPT_MAX: usize = 50_000;

type RecordQueue = Arc<Mutex<Records>>;

#[derive(Default)]
struct Records {
    operations: Vec<sexton_operation>,
    dropped: u64,
}

/// The window's programs, loaded once and armed as often as needed.
pub struct Windows {
    programs: Programs,
    records: RecordQueue,
    /// For whom each slot's offsets were learnt.
    learnt_for: HashMap<Slot, Learner>,
    /// Where the `BlockFetcher` of each slot's target has its file.
    file_offsets: HashMap<Slot, u32>,
    /// How small an operation of each slot's target may be to be recorded.
    sampling: HashMap<Slot, Sampling>,
}

/// A target and where its module lies: after an exec of the same program only the latter differs.
type Learner = (TargetId, u64);

/// A window whose probes are not in the target yet.
pub struct Unattached {
    prepared: Prepared,
    probes: Probes,
    placement: Placement,
}

/// A window whose probes are all in the target, and skip.
pub struct Attached {
    prepared: Prepared,
    probes: Probes,
}

/// A window that is open on one target. Dropping it takes the probes away, which may block.
pub struct OpenWindow {
    prepared: Prepared,
    opened: Instant,
    armed_ns: u64,
    opening: Opening,
    /// Records after which the size was last changed from which on operations are recorded.
    records_at_change: u64,
    /// `None` once they have been stopped.
    probes: Option<Probes>,
}

/// Probes of a window that closes, which work until [`Closing::close`]. Dropping it takes them away, which
/// may block.
pub struct Closing {
    probes: Option<Probes>,
    opened: Instant,
}

/// What was read while a window's probes were taken away.
#[derive(Debug)]
pub struct Closed {
    /// From just before they were stopped.
    pub settling: Totals,
    /// From after they had gone.
    pub closing: Totals,
    armed_ns: u64,
}

/// Probes that have stopped working and are still in the target. Dropping it takes them away, which may
/// block.
pub struct Stopped {
    _probes: Option<Probes>,
}

/// What stood in the target's counters just before its window opened, and when.
struct Opening {
    standing: Counters,
    at: Instant,
}

/// What is known of a window before it opens.
struct Prepared {
    slot: Slot,
    recipe: sexton_recipe,
    /// What the recipe's were scaled from.
    thresholds: Thresholds,
    sites: Vec<PlacedSite>,
    granted_ns: u64,
    totals_before: sexton_totals,
}

/// What was read from one file in a window, by whatever thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFetches {
    /// Address of the file's `RandomAccessFileReader`: it has the name. 0 is all files together, as long as
    /// it was not known how to tell them apart.
    pub file: u64,
    pub fetches: BlockFetches,
    /// Reads by latency: the bucket at index n counts those that took from 2^n to 2^(n+1) ns.
    pub latency_histogram: Vec<u64>,
}

/// What the operations of one column family waited for in a window, recorded or not.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyWaits {
    /// Database and handle are 0 when no iterator's creation was seen, and all are where nothing is known.
    pub addresses: Addresses,
    pub waits: Waits,
}

#[derive(Clone, Debug)]
pub struct WindowResult {
    /// How the probes were armed.
    pub mechanism: Mechanism,
    /// Recorded operations, in the order they ended, at most [`OPERATIONS_KEPT_MAX`].
    pub operations: Vec<Operation>,
    /// Files that blocks were read from.
    pub files: Vec<FileFetches>,
    /// What operations waited for, by column family.
    pub families: Vec<FamilyWaits>,
    pub window: Window,
    /// Who counted the window's total.
    pub totals_by: TotalsBy,
    /// Counted in threads the probes saw, but outside any known operation.
    pub unowned: Counters,
    /// What operations waited for, recorded or not.
    pub latencies: Latencies,
    /// How often the probes fired.
    pub probe_cost: ProbeHits,
    /// The threads that ran into them.
    pub threads: Vec<ThreadKey>,
    /// How often a counter or a key could not be read.
    pub read_failures: u64,
    /// How often a map was full.
    pub map_full: u64,
}

impl WindowResult {
    /// What was counted in all and no operation was charged for.
    pub fn unattributed(&self) -> Counters {
        self.window.total.minus(self.window.attributed)
    }
}

impl Windows {
    /// Loads the programs; nothing is armed yet.
    pub fn load(mechanism: Mechanism) -> Result<Windows, ProbeError> {
        Windows::load_with(Loader::default(), mechanism)
    }

    /// As [`Windows::load`], by the loader that is named.
    pub fn load_with(loader: Loader, mechanism: Mechanism) -> Result<Windows, ProbeError> {
        let records = RecordQueue::default();
        let queue = Arc::clone(&records);
        let programs = Programs::load(loader, mechanism, move |bytes| locked(&queue).take(bytes))?;
        let (learnt_for, file_offsets, sampling) = (HashMap::new(), HashMap::new(), HashMap::new());
        Ok(Windows { programs, records, learnt_for, file_offsets, sampling })
    }

    pub fn mechanism(&self) -> Mechanism {
        self.programs.mechanism()
    }

    /// Prepares a window, whose probes are to be followed as far as the credit goes. This and what follows
    /// holds for one window of a slot at a time, until its [`Stopped`] is gone.
    pub fn prepare(
        &mut self,
        target: &Target,
        slot: Slot,
        thresholds: Thresholds,
        credit: &Credit,
    ) -> Result<Unattached, ProbeError> {
        let pid = target.process.pid;
        let sites = placed_sites(&target.module.sites);
        if !target.module.sites.has_a_seek() {
            return Err(ProbeError::NoSites { pid, reason: "no function of DBIter was found" });
        }
        self.keep_learnt_offsets_of(target, slot)?;
        let mut recipe = recipe(target, thresholds, credit)?;
        if let Some(offset) = self.file_offsets.get(&slot) {
            recipe.fetch_file_offset = *offset;
        }
        let module = target.module.path_from_agent.clone();
        self.prepare_at(slot, recipe, module, sites, credit.granted_ns)
    }

    /// Prepares a window at these sites of a module, whatever it is.
    pub(super) fn prepare_at(
        &mut self,
        slot: Slot,
        mut recipe: sexton_recipe,
        module: PathBuf,
        sites: Vec<PlacedSite>,
        granted_ns: u64,
    ) -> Result<Unattached, ProbeError> {
        let thresholds = Thresholds::of(&recipe);
        let sampling = self.sampling.get(&slot).copied().unwrap_or_default();
        thresholds.scaled(sampling).put_into(&mut recipe);
        self.forget(slot)?;
        let totals_before = self.programs.totals(slot)?;
        let (probes, placement) = self.programs.claim(slot, recipe.process_id, module, sites.clone())?;
        let prepared = Prepared { slot, recipe, thresholds, sites, granted_ns, totals_before };
        Ok(Unattached { prepared, probes, placement })
    }

    /// Opens a window whose probes are all in their places: the credit is granted now, and all sites are
    /// followed from the same moment on. `opening` is the sentinel's reading from just before.
    pub fn arm(&mut self, attached: Attached, opening: &SentinelReading) -> Result<OpenWindow, ProbeError> {
        self.arm_from(attached, opening.standing, opening.at)
    }

    pub(super) fn arm_from(
        &mut self,
        attached: Attached,
        standing: Counters,
        at: Instant,
    ) -> Result<OpenWindow, ProbeError> {
        let Attached { prepared, probes } = attached;
        self.programs.reset_spending(prepared.slot)?;
        self.programs.set_granted(prepared.slot, prepared.granted_ns)?;
        self.programs.write_recipe(prepared.slot, &prepared.recipe)?;
        Ok(OpenWindow {
            prepared,
            opened: Instant::now(),
            armed_ns: 0,
            opening: Opening { standing, at },
            records_at_change: 0,
            probes: Some(probes),
        })
    }

    /// Prepares a window, puts its probes into the target and opens it, all in the calling thread.
    /// Errors: [`ProbeError::Attach`], and those of [`Windows::prepare`].
    pub fn open(
        &mut self,
        target: &Target,
        slot: Slot,
        thresholds: Thresholds,
        credit: &Credit,
        opening: &SentinelReading,
    ) -> Result<OpenWindow, ProbeError> {
        let attached = self.prepare(target, slot, thresholds, credit)?.attach()?;
        self.arm(attached, opening)
    }

    /// Takes what has come in so far, so that the ring buffer does not run full in a long window.
    pub fn poll(&mut self) -> Result<(), ProbeError> {
        self.programs.poll()
    }

    /// As [`Windows::hits`]. Of an open window that has had many records fewer are taken from now on.
    pub fn count(&mut self, window: &mut OpenWindow) -> Result<ProbeHits, ProbeError> {
        let totals = self.totals_since(&window.prepared)?;
        self.limit_records(window, totals.operations_recorded)?;
        Ok(ProbeHits::from_totals(&window.prepared.sites, &totals))
    }

    fn limit_records(&mut self, window: &mut OpenWindow, records: u64) -> Result<(), ProbeError> {
        let OpenWindow { prepared, records_at_change, probes, .. } = window;
        if probes.is_none() || records.saturating_sub(*records_at_change) < RECORDS_MANY {
            return Ok(());
        }
        *records_at_change = records;
        let sampling = self.sampling.entry(prepared.slot).or_default();
        sampling.raise();
        prepared.thresholds.scaled(*sampling).put_into(&mut prepared.recipe);
        self.programs.write_recipe(prepared.slot, &prepared.recipe)
    }

    /// Grants an open window `more_ns` nanoseconds of probe cost.
    pub fn grant(&mut self, window: &mut OpenWindow, more_ns: u64) -> Result<(), ProbeError> {
        let granted_ns = window.prepared.granted_ns.saturating_add(more_ns);
        self.programs.set_granted(window.prepared.slot, granted_ns)?;
        window.prepared.granted_ns = granted_ns;
        Ok(())
    }

    /// What is left of an open window's credit, in nanoseconds, by the prices it was opened with; 0 where the
    /// programs skip.
    pub fn credit_ns(&self, window: &OpenWindow) -> Result<u64, ProbeError> {
        let spent_ns = self.programs.spending(window.prepared.slot)?.spent_ns;
        Ok(window.prepared.granted_ns.saturating_sub(spent_ns))
    }

    /// How often the probes of an open window have fired so far, those firings included that were skipped
    /// while the probes were put in.
    pub fn hits(&self, window: &OpenWindow) -> Result<ProbeHits, ProbeError> {
        self.hits_since(&window.prepared)
    }

    /// How often the probes of a window that is not open yet have fired: what they cost is spent before its
    /// credit is granted.
    pub fn hits_before_opening(&self, attached: &Attached) -> Result<ProbeHits, ProbeError> {
        self.hits_since(&attached.prepared)
    }

    fn hits_since(&self, prepared: &Prepared) -> Result<ProbeHits, ProbeError> {
        Ok(ProbeHits::from_totals(&prepared.sites, &self.totals_since(prepared)?))
    }

    /// What the programs have counted since a window was prepared.
    fn totals_since(&self, prepared: &Prepared) -> Result<sexton_totals, ProbeError> {
        Ok(self.programs.totals(prepared.slot)?.combine(prepared.totals_before, u64::wrapping_sub))
    }

    /// What operations have waited for so far in an open window.
    pub fn latencies(&self, window: &OpenWindow) -> Result<Latencies, ProbeError> {
        Ok(latencies(&self.totals_since(&window.prepared)?))
    }

    /// Where the target's `BlockFetcher` has its file is not known at first. As soon as one was seen, this
    /// gives the words it begins with; `None` before that, and where it is known.
    pub fn unknown_fetcher(&self, window: &OpenWindow) -> Result<Option<Vec<u64>>, ProbeError> {
        if window.prepared.recipe.fetch_file_offset != SEXTON_FETCH_FILE_UNKNOWN || window.probes.is_none() {
            return Ok(None);
        }
        let files = self.programs.files(window.prepared.slot)?;
        Ok(files.iter().find(|(file, _)| *file == 0).map(|(_, unknown)| unknown.fetcher.to_vec()))
    }

    /// At this byte of a `BlockFetcher` stands its file. From now on reads are told by file, in this window
    /// and in the target's later ones.
    pub fn set_file_offset(&mut self, window: &mut OpenWindow, offset: u32) -> Result<(), ProbeError> {
        window.prepared.recipe.fetch_file_offset = offset;
        self.file_offsets.insert(window.prepared.slot, offset);
        match window.probes {
            Some(_) => self.programs.write_recipe(window.prepared.slot, &window.prepared.recipe),
            None => Ok(()),
        }
    }

    /// Gives the words of an unknown fetcher to `find`, which says at which byte the file stands.
    pub fn learn_file_offset(
        &mut self,
        window: &mut OpenWindow,
        find: impl FnOnce(&[u64]) -> Option<u32>,
    ) -> Result<(), ProbeError> {
        let found = self.unknown_fetcher(window)?.and_then(|fetcher| find(&fetcher));
        found.map_or(Ok(()), |offset| self.set_file_offset(window, offset))
    }

    /// At which byte of its `BlockFetcher` the target in this slot has its file: in its later windows reads
    /// are told by file.
    pub fn note_file_offset(&mut self, slot: Slot, offset: u32) {
        self.file_offsets.insert(slot, offset);
    }

    /// The files that blocks have been read from so far in an open window.
    pub fn files(&self, window: &OpenWindow) -> Result<Vec<FileFetches>, ProbeError> {
        Ok(self.programs.files(window.prepared.slot)?.into_iter().map(FileFetches::from_entry).collect())
    }

    /// Takes the accounts that the window left behind, after its probes have gone: what they are hit before
    /// that is part of its cost. `settling` is the sentinel's reading from just before the probes were
    /// stopped ([`OpenWindow::stop`]), `closing` that from after it.
    pub fn collect(
        &mut self,
        mut window: OpenWindow,
        settling: &SentinelReading,
        closing: &SentinelReading,
    ) -> Result<WindowResult, ProbeError> {
        let duration_ns = window.disarm();
        // Those that were handed over stop here.
        self.programs.write_recipe(window.prepared.slot, &sexton_recipe::default())?;
        let closed_ns = monotonic_ns();
        self.poll()?;
        let totals = self.totals_since(&window.prepared)?;
        let pause = self.programs.spending(window.prepared.slot)?.pause;
        let mut open = self.open_operations(window.prepared.slot)?;
        let threads = self.programs.threads(window.prepared.slot)?;
        let settled = settle(&threads, pause, &mut open, (settling, closing));
        let mut records = locked(&self.records).take_of(window.prepared.slot);
        let mut operations_recorded = totals.operations_recorded;
        let operations_open = open.len() as u64;
        let still_open = recorded_of_open(open, &window.prepared.recipe, (pause, closed_ns));
        operations_recorded += still_open.len() as u64;
        records.operations.extend(still_open);
        let files = self.files(&window)?;
        let families = self.programs.families(window.prepared.slot)?.into_iter();
        let families = families.map(FamilyWaits::from_entry).collect();
        self.forget(window.prepared.slot)?;
        self.sampling.entry(window.prepared.slot).or_default().note_window(operations_recorded);
        let attributed = Counters::from(totals.attributed).plus(settled.attributed);
        let by_probes = attributed.plus(totals.unowned.into());
        let paused = settled.paused.plus(totals.paused.into());
        let standing = settling.standing.plus(totals.discarded.into());
        let while_open = match closing.totals_by {
            TotalsBy::Sentinel => window.share_of_time_open(standing, settling.at, duration_ns),
            TotalsBy::Windows => by_probes,
        };
        let operations: Vec<Operation> = records.operations.iter().map(Operation::from_record).collect();
        Ok(WindowResult {
            mechanism: self.mechanism(),
            files,
            families,
            window: Window {
                duration_ns,
                operations: totals.operations + operations_open,
                operations_recorded,
                records_lost: totals.records_lost + records.dropped,
                attributed,
                recorded: recorded(&operations),
                followed: while_open.minus(paused).at_least(attributed),
                total: match closing.totals_by {
                    // What the probes counted was counted, even where a thread ended unread.
                    TotalsBy::Sentinel => closing
                        .standing
                        .plus(totals.discarded.into())
                        .minus(window.opening.standing)
                        .at_least(by_probes),
                    TotalsBy::Windows => by_probes,
                },
                block_reads_timed: totals.block_reads_timed,
                operations_estimated: totals.operations_estimated,
            },
            totals_by: closing.totals_by,
            unowned: totals.unowned.into(),
            latencies: latencies(&totals),
            probe_cost: ProbeHits::from_totals(&window.prepared.sites, &totals),
            threads: threads.into_iter().map(|(id, thread)| (id, thread.start_boot_ns)).collect(),
            read_failures: totals.read_failures,
            map_full: totals.map_full,
            operations,
        })
    }

    /// Takes away the probes and the accounts of a window of which nothing is wanted.
    pub fn abandon(&mut self, mut window: OpenWindow) -> Result<(), ProbeError> {
        // Those that were handed over stop here.
        self.programs.write_recipe(window.prepared.slot, &sexton_recipe::default())?;
        window.disarm();
        self.forget(window.prepared.slot)
    }

    fn open_operations(&self, slot: Slot) -> Result<HashMap<u64, sexton_operation>, ProbeError> {
        let operations = self.programs.operations(slot)?;
        Ok(operations.into_iter().map(|operation| (operation.iterator, operation)).collect())
    }

    /// Removes every account of a slot: the next window begins anew.
    fn forget(&mut self, slot: Slot) -> Result<(), ProbeError> {
        self.programs.forget(slot)?;
        self.poll()?;
        locked(&self.records).take_of(slot);
        Ok(())
    }

    /// What was learnt of a target holds for its later windows, and for no other target.
    fn keep_learnt_offsets_of(&mut self, target: &Target, slot: Slot) -> Result<(), ProbeError> {
        let learner = (target.id, target.module.load_bias);
        if self.learnt_for.get(&slot) != Some(&learner) {
            self.programs.forget_learnt_offsets(slot)?;
            self.file_offsets.remove(&slot);
            self.sampling.remove(&slot);
            self.learnt_for.insert(slot, learner);
        }
        Ok(())
    }
}

impl FamilyWaits {
    fn from_entry((column_family_data, counted): (u64, sexton_family)) -> FamilyWaits {
        let sexton_family { database, column_family_handle, .. } = counted;
        FamilyWaits {
            addresses: Addresses { database, column_family_handle, column_family_data },
            waits: Waits {
                seeks: Spread::new(&counted.seek_histogram, counted.seek_ns),
                lists: Spread::new(&counted.list_histogram, counted.list_ns),
                block_reads: Spread::new(&counted.block_read_histogram, counted.block_read_ns),
                tombstones: Spread::new(&counted.tombstone_histogram, counted.tombstones),
            },
        }
    }
}

impl FileFetches {
    fn from_entry((file, counted): (u64, sexton_file)) -> FileFetches {
        let used = counted.histogram.iter().rposition(|reads| *reads > 0).map_or(0, |last| last + 1);
        FileFetches {
            file,
            fetches: counted.fetches.into(),
            latency_histogram: counted.histogram.into_iter().take(used).collect(),
        }
    }
}

impl Unattached {
    /// Puts the probes into the target. It may block for ever. What is hit meanwhile is skipped, and is part
    /// of the window's [`Windows::hits`].
    pub fn attach(mut self) -> Result<Attached, ProbeError> {
        self.probes.attach(&self.placement)?;
        Ok(Attached { prepared: self.prepared, probes: self.probes })
    }
}

impl OpenWindow {
    pub fn slot(&self) -> Slot {
        self.prepared.slot
    }

    /// What was counted while the programs followed. The readings lie some time before and after that: what
    /// was counted between them is shared out by time.
    fn share_of_time_open(&self, standing: Counters, at: Instant, open_ns: u64) -> Counters {
        let between_ns = at.saturating_duration_since(self.opening.at).as_nanos();
        standing.minus(self.opening.standing).share(u128::from(open_ns), between_ns)
    }

    /// The programs follow nothing any more. The first call counts, and gives the probes.
    pub fn stop(&mut self) -> Stopped {
        let probes = self.probes.take();
        if let Some(probes) = &probes {
            probes.stop();
            self.armed_ns = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        Stopped { _probes: probes }
    }

    /// Hands the probes over to whoever takes them away. The programs follow on until that is done, or until
    /// the accounts are collected: of a process that has ended nothing more need be heard.
    pub fn hand_over(&mut self) -> Closing {
        self.armed_ns = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Closing { probes: self.probes.take(), opened: self.opened }
    }

    /// The probes that were handed over have been taken away.
    pub fn note_closed(&mut self, closed: &Closed) {
        self.armed_ns = closed.armed_ns;
    }

    /// Stops the programs and takes the probes away in the calling thread; gives how long they were followed,
    /// in nanoseconds.
    pub fn disarm(&mut self) -> u64 {
        self.stop().detach();
        self.armed_ns
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        self.stop().detach();
    }
}

impl Closing {
    /// Takes the probes away, with the readings that tell what they saw. It may block for ever.
    ///
    /// # Errors
    /// When the totals cannot be read; the probes are taken away all the same.
    pub fn close(self, reader: &TotalsReader) -> Result<Closed, ProbeError> {
        let Closing { probes, opened } = self;
        let settling = reader.read()?;
        if let Some(probes) = &probes {
            probes.stop();
        }
        let armed_ns = u64::try_from(opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        drop(probes);
        Ok(Closed { settling, closing: reader.read()?, armed_ns })
    }
}

impl Stopped {
    /// Takes the probes away. It may block for ever.
    pub fn detach(self) {}
}

/// What a mutex guards, whatever became of those who had it before.
fn locked(records: &Mutex<Records>) -> MutexGuard<'_, Records> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The records of one slot; those of others stay.
    fn take_of(&mut self, slot: Slot) -> Records {
        let all = std::mem::take(&mut self.operations);
        let (ours, others) = all.into_iter().partition(|operation| operation.slot == slot);
        self.operations = others;
        Records { operations: ours, dropped: std::mem::take(&mut self.dropped) }
    }
}

fn latencies(totals: &sexton_totals) -> Latencies {
    Latencies {
        seeks: LatencyHistogram::new(&totals.seek_histogram),
        block_reads: LatencyHistogram::new(&totals.block_read_histogram),
    }
}

/// The operations that are still open and that are recorded.
fn recorded_of_open(
    open: HashMap<u64, sexton_operation>,
    recipe: &sexton_recipe,
    (pause, closed_ns): (u64, u64),
) -> Vec<sexton_operation> {
    let ended = open.into_values().map(|operation| sexton_operation {
        // One from before the last pause ended nobody knows when.
        end_ns: if operation.pause == pause { closed_ns } else { operation.return_ns },
        ..operation
    });
    ended.filter_map(|mut operation| is_chosen(&mut operation, recipe).then_some(operation)).collect()
}

/// Whether an operation that is still open is recorded, as the programs decide it of those that end; it is
/// told how many it stands for.
fn is_chosen(operation: &mut sexton_operation, recipe: &sexton_recipe) -> bool {
    let total = Counters::from(operation.seek).plus(operation.scan.into());
    // How often it was moved is not known, and so not how many older versions it has stepped over.
    let tombstones = total.tombstones_skipped
        + total.merge_operands
        + total.range_deletion_reseeks * u64::from(SEXTON_TOMBSTONES_PER_RESEEK);
    let of_tombstones = recipe.tombstones_per_record.checked_div(tombstones);
    let of_reads = recipe.block_reads_per_record.checked_div(total.block_reads);
    let Some(weight) = of_tombstones.into_iter().chain(of_reads).min() else {
        operation.weight = 1;
        return recipe.tombstones_per_record == 0;
    };
    // A hasher has keys of its own each time: a number that nothing else depends on.
    let number = || RandomState::new().build_hasher().finish();
    operation.weight = u32::try_from(weight.max(1)).unwrap_or(u32::MAX);
    weight <= 1 || weight <= u64::from(SEXTON_WEIGHT_MAX) && number() % weight == 0
}

/// What the records stand for.
fn recorded(operations: &[Operation]) -> Counters {
    operations
        .iter()
        .map(|operation| operation.observation.weighted())
        .fold(Counters::default(), Counters::plus)
}

/// The clock of `bpf_ktime_get_ns`.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

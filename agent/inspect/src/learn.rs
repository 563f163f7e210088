//! What the code of RocksDB tells of itself where no symbol and no table does.
//!
//! - Each positioning or moving method of `DBIter` begins by adding `num_internal_keys_skipped_` to a
//!   statistic and setting it to zero: the only member that is treated so.
//! - `DBIter::FindNextUserEntryInternal` increments three neighbours of `perf_context`, by one each:
//!   `internal_key_skipped_count`, `internal_delete_skipped_count`, `internal_recent_skipped_count`. Before
//!   that it asks whether `perf_level` is over one.
//!
//! Everything is refused where it is ambiguous.

use super::elf::ElfHeaders;
use super::prologue::{ACCESSOR_BYTES, member_pair_load};
use super::source::Source;
use super::trace::{Access, INSTRUCTION_BYTES_MAX, TlsBase, TlsPlace, Trace, trace};
use super::vtables::Vtable;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// How many calls away from `DBIter`'s methods counting is looked for: `Next`, `FindNextUserEntry`,
/// `FindNextUserEntryInternal`.
const CALL_DEPTH_MAX: usize = 3;

/// Functions that are looked through; a method of `DBIter` calls some twenty.
const FUNCTIONS_MAX: usize = 256;

/// Slots of the methods that move an `Iterator`: `SeekToFirst`, `SeekToLast`, `Seek`, `SeekForPrev`, `Next`,
/// `Prev`.
const MOVING_SLOTS: std::ops::RangeInclusive<usize> = 3..=8;

/// Functions called for the same object that are looked into for one method; `DBIter`'s call some ten.
const CALLS_ON_OBJECT_MAX: usize = 16;

/// Slots in which `Iterator::key()` can be.
const KEY_SLOTS: std::ops::Range<usize> = 9..14;

/// Of these six, so many have to look alike; a compiler may have written one or the other differently.
const ALIKE_MIN: usize = 4;

/// Where RocksDB counts, from its code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountingCode {
    /// `rocksdb::perf_context`.
    pub perf_context: TlsPlace,
    /// `rocksdb::perf_level`; `None` where it does not show.
    pub perf_level: Option<TlsPlace>,
    /// Offset of `internal_key_skipped_count` in `perf_context`; several where more neighbours are counted.
    pub internal_key_skipped_count: BTreeSet<u32>,
}

/// Work of one step of following a function's code.
const STEP_WORK: u64 = 384;

/// Work of looking at one thing that was seen of a function, and memory of keeping it.
const ACCESS_WORK: u64 = 64;
const ACCESS_BYTES: u64 = 64;

/// Memory of a function beside what was seen of it.
const TRACE_BYTES: u64 = 256;

/// Reads functions of one file, each once. What that takes is taken from the file's allowance; where it does
/// not suffice, nothing is seen of a function, and whoever began has to ask the allowance in the end.
pub(super) struct Reader<'a, 'f> {
    source: &'a Source<'f>,
    headers: &'a ElfHeaders,
    traces: BTreeMap<u64, Trace>,
    /// What is seen of a function that is not read.
    nothing: Trace,
}

impl<'a, 'f> Reader<'a, 'f> {
    /// A reader of a file's code.
    pub fn new(source: &'a Source<'f>, headers: &'a ElfHeaders) -> Reader<'a, 'f> {
        Reader { source, headers, traces: BTreeMap::new(), nothing: Trace::default() }
    }

    /// What was seen of a function.
    pub fn trace(&mut self, entry: u64) -> &Trace {
        if !self.traces.contains_key(&entry) && self.take(TRACE_BYTES, 0) {
            let trace = self.follow(entry);
            let calls = trace.calls.len() + trace.calls_on_object.len();
            let seen = (trace.accesses.len() + calls + trace.jumps.len()) as u64;
            if self.take(seen * ACCESS_BYTES, trace.steps * STEP_WORK) {
                self.traces.insert(entry, trace);
            }
        }
        self.traces.get(&entry).unwrap_or(&self.nothing)
    }

    fn follow(&self, entry: u64) -> Trace {
        // One instruction after the other lies in the same page.
        let last: Cell<(u64, &[u8])> = Cell::new((0, &[]));
        trace(entry, |address| {
            let (page, bytes) = last.get();
            let here = address.checked_sub(page).and_then(|into| bytes.get(usize::try_from(into).ok()?..));
            if let Some(here) = here.filter(|here| here.len() >= INSTRUCTION_BYTES_MAX) {
                return Some(here);
            }
            let (page, bytes) = self.headers.code_page(self.source, address)?;
            last.set((page, bytes));
            bytes.get(usize::try_from(address - page).ok()?..)
        })
    }

    /// Takes work from the file's allowance, for so many things that are looked at. `false`: there is not so
    /// much left.
    pub fn look_at(&self, count: usize) -> bool {
        self.take(0, count as u64 * ACCESS_WORK)
    }

    fn take(&self, memory_bytes: u64, work_bytes: u64) -> bool {
        let allowance = self.source.allowance();
        allowance.take_memory(memory_bytes).and_then(|()| allowance.take_work(work_bytes)).is_ok()
    }

    /// The offset of the pointer and the length that a small method returns as a `Slice`, from its code of
    /// `size` bytes; 0 where only the code itself says where it ends.
    pub fn slice_member(&mut self, method: u64, size: u64) -> Option<u32> {
        let length = if size == 0 { self.trace(method).extent } else { size };
        let code = self.headers.bytes_at(self.source, method, length.min(ACCESSOR_BYTES as u64))?;
        member_pair_load(code)
    }

    /// `Iterator::key()` in a vtable of `DBIter`: the first of the methods behind those that move it which
    /// returns a member that is a `Slice`. `value()` comes after it; since 9.x others stand before it.
    pub fn key_method(&mut self, vtable: &Vtable) -> Option<u64> {
        let methods = vtable.slots.get(KEY_SLOTS)?;
        methods.iter().copied().find(|&method| self.slice_member(method, 0).is_some())
    }

    /// The offset of `DBIter::num_internal_keys_skipped_`, from methods that begin by taking stock of it:
    /// the one offset that all of those agree on in which it shows.
    pub fn keys_skipped_offset(&mut self, methods: &[u64]) -> Option<u32> {
        let candidates = methods.iter().map(|&method| self.taken_stock_by(method));
        let shown: Vec<BTreeSet<u32>> = candidates.filter(|offsets| !offsets.is_empty()).collect();
        let (first, rest) = shown.split_first()?;
        let mut common = first.iter().filter(|offset| rest.iter().all(|offsets| offsets.contains(offset)));
        let offset = common.next()?;
        common.next().is_none().then_some(*offset)
    }

    /// The offset of `DBIter::local_stats_.skip_count_`, which `num_internal_keys_skipped_` is added to: the
    /// one member that all of these methods agree on in which it shows.
    pub fn skip_count_offset(&mut self, methods: &[u64]) -> Option<u32> {
        let skipped = self.keys_skipped_offset(methods)?;
        let mut grown = BTreeSet::new();
        for &method in methods {
            for function in self.stock_takers(method) {
                grown.extend(self.trace(function).accesses.iter().filter_map(|access| match access {
                    Access::MemberAdded { to, added } if *added == skipped => Some(*to),
                    _ => None,
                }));
            }
        }
        the_only(grown.into_iter())
    }

    /// Where RocksDB counts skipped keys, from the code that can be reached from these methods. Only offsets
    /// that some version has are believed.
    pub fn counting_code(&mut self, methods: &[u64], known_offsets: &[u32]) -> Option<CountingCode> {
        let mut found = BTreeSet::new();
        let mut levels = BTreeSet::new();
        for function in self.reachable(methods) {
            let seen = self.trace(function).accesses.len();
            if !self.look_at(seen.saturating_mul(known_offsets.len())) {
                return None;
            }
            let trace = self.trace(function);
            let here = counted(trace, known_offsets);
            if !here.is_empty() {
                levels.extend(asked(trace));
            }
            found.extend(here);
        }
        let (base, _) = *found.first()?;
        if found.iter().any(|(other, _)| *other != base) {
            return None;
        }
        let perf_context = TlsPlace { base, offset: 0 };
        levels.remove(&perf_context);
        let perf_level = levels.pop_first().filter(|_| levels.is_empty());
        let internal_key_skipped_count = found.into_iter().map(|(_, offset)| offset).collect();
        Some(CountingCode { perf_context, perf_level, internal_key_skipped_count })
    }

    /// The vtables of `DBIter` and of `ArenaWrappedDBIter` among these, each only where no other is like it:
    /// most methods of the one take stock of one and the same member, most methods of the other go on to
    /// the one's method of the same slot.
    pub fn iterator_vtables<'v>(&mut self, vtables: &'v [Vtable]) -> [Option<&'v Vtable>; 2] {
        let db_iter = the_only(vtables.iter().filter(|vtable| self.is_db_iter(vtable)));
        let arena_wrapped = db_iter.and_then(|db_iter| {
            the_only(vtables.iter().filter(|vtable| *vtable != db_iter && self.wraps(vtable, db_iter)))
        });
        [db_iter, arena_wrapped]
    }

    fn is_db_iter(&mut self, vtable: &Vtable) -> bool {
        let Some(methods) = vtable.slots.get(MOVING_SLOTS) else { return false };
        // One method tells most of the other classes.
        let is_possible = methods.last().is_some_and(|&last| !self.taken_stock_of(last).is_empty());
        let takes_stock = |&&method: &&u64| !self.taken_stock_by(method).is_empty();
        is_possible
            && methods.iter().filter(takes_stock).count() >= ALIKE_MIN
            && self.keys_skipped_offset(methods).is_some()
    }

    /// Members that a method added to another one and set to zero.
    fn taken_stock_of(&mut self, method: u64) -> BTreeSet<u32> {
        let seen = self.trace(method).accesses.len();
        if self.look_at(1 + seen) { taken_stock_of(self.trace(method)) } else { BTreeSet::new() }
    }

    /// The function that takes stock for a method: itself, else those that it calls for the same object, as
    /// clang compiles what several methods begin with.
    fn stock_takers(&mut self, method: u64) -> Vec<u64> {
        if !self.taken_stock_of(method).is_empty() {
            return vec![method];
        }
        self.trace(method).calls_on_object.iter().copied().take(CALLS_ON_OBJECT_MAX).collect()
    }

    /// Members that a method, or what it calls for the same object, added to another one and set to zero.
    fn taken_stock_by(&mut self, method: u64) -> BTreeSet<u32> {
        let functions = self.stock_takers(method);
        functions.into_iter().flat_map(|function| self.taken_stock_of(function)).collect()
    }

    fn wraps(&mut self, vtable: &Vtable, wrapped: &Vtable) -> bool {
        let (Some(methods), Some(targets)) =
            (vtable.slots.get(MOVING_SLOTS), wrapped.slots.get(MOVING_SLOTS))
        else {
            return false;
        };
        let goes_on = |(&method, target): (&u64, &u64)| {
            if !self.look_at(1) {
                return false;
            }
            let trace = self.trace(method);
            method != *target && (trace.calls.contains(target) || trace.jumps.contains(target))
        };
        methods.iter().zip(targets).map(goes_on).filter(|goes_on| *goes_on).count() >= ALIKE_MIN
    }

    fn reachable(&mut self, roots: &[u64]) -> BTreeSet<u64> {
        let mut reached: BTreeSet<u64> = roots.iter().copied().collect();
        let mut last = reached.clone();
        for _ in 0..CALL_DEPTH_MAX {
            let mut next = BTreeSet::new();
            let room = FUNCTIONS_MAX.saturating_sub(reached.len());
            for function in last {
                next.extend(self.trace(function).calls.iter().filter(|call| !reached.contains(call)));
                while next.len() > room {
                    next.pop_last();
                }
            }
            reached.extend(&next);
            last = next;
        }
        reached
    }
}

/// The only item, if there is just one.
fn the_only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

/// Members that were added to another one and set to zero.
fn taken_stock_of(trace: &Trace) -> BTreeSet<u32> {
    let zeroed = |offset: &u32| trace.accesses.contains(&Access::MemberZeroed(*offset));
    let added = trace.accesses.iter().filter_map(|access| match access {
        Access::MemberAdded { added, .. } => Some(*added),
        _ => None,
    });
    added.filter(zeroed).collect()
}

/// Thread-local variables of which three neighbours, at a known offset, are incremented by one function.
fn counted(trace: &Trace, known_offsets: &[u32]) -> BTreeSet<(TlsBase, u32)> {
    let incremented: BTreeSet<TlsPlace> = trace
        .accesses
        .iter()
        .filter_map(|access| match access {
            Access::TlsIncremented(place) => Some(*place),
            _ => None,
        })
        .collect();
    let is_run = |base, first: u32| {
        [0, 8, 16]
            .iter()
            .all(|after| incremented.contains(&TlsPlace { base, offset: i64::from(first) + after }))
    };
    let bases: BTreeSet<TlsBase> = incremented.iter().map(|place| place.base).collect();
    let all = bases.into_iter().flat_map(|base| known_offsets.iter().map(move |&offset| (base, offset)));
    all.filter(|&(base, offset)| is_run(base, offset)).collect()
}

/// Thread-local bytes that were compared with one.
fn asked(trace: &Trace) -> impl Iterator<Item = TlsPlace> {
    trace.accesses.iter().filter_map(|access| match access {
        Access::TlsByteComparedWithOne(place) => Some(*place),
        _ => None,
    })
}

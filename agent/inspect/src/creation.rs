//! Finding `DBImpl::NewIterator` without symbols, from what it creates.
//!
//! Of the functions in a database's vtable the first that leads to the creation of an `ArenaWrappedDBIter` is
//! `NewIterator`; `NewIterators` comes soon behind it. Without the classes' names `DBImpl` is told from
//! the classes derived from it by having most functions in common with the others, and from the databases
//! that wrap one by having many more functions.

use super::learn::Reader;
use super::trace::Access;
use super::vtables::Vtable;
use std::collections::BTreeSet;

/// Functions that a vtable of `DBImpl` has at least; 6.x has 130, 11.12 has 197.
pub(super) const DATABASE_SLOTS_MIN: usize = 100;

/// Slots that are looked into; `NewIterator` has moved from 40 to 60.
const SLOTS_MAX: usize = 96;

/// Calls from `NewIterator` to where the iterator is made: `NewIteratorImpl`, `NewArenaWrappedDbIterator`,
/// and the constructor.
const CALL_DEPTH_MAX: usize = 3;

/// Functions looked into from one slot; creating an iterator calls some dozens.
const FUNCTIONS_MAX: usize = 96;

/// Databases that may create it: `DBImpl`, those derived from it, and those that wrap one are some twenty.
const DATABASES_MAX: usize = 64;

/// Slots from `NewIterator` to the functions that make several; since 11.x the first of these only calls the
/// second.
const NEW_ITERATORS_AFTER: std::ops::RangeInclusive<usize> = 2..=3;

/// `DBImpl::NewIterator`, given the vtable of `DBImpl` or all that could be it, and that of what it creates.
pub(super) fn new_iterator(
    reader: &mut Reader<'_, '_>,
    databases: &[Vtable],
    created: &Vtable,
) -> Option<u64> {
    let mut found: Vec<(&Vtable, u64)> = databases
        .iter()
        .filter(|vtable| vtable.slots.len() >= DATABASE_SLOTS_MIN)
        .filter_map(|vtable| Some((vtable, first_that_creates(reader, vtable, created)?)))
        .take(DATABASES_MAX)
        .collect();
    let most = found.iter().map(|(vtable, _)| vtable.slots.len()).max()?;
    found.retain(|(vtable, _)| vtable.slots.len() * 10 >= most * 9);
    let alike = |vtable: &Vtable| {
        let others = found.iter().map(|(other, _)| *other).filter(|other| other.address != vtable.address);
        others.map(|other| in_common(vtable, other)).sum::<usize>()
    };
    let best = found.iter().map(|(vtable, _)| alike(vtable)).max()?;
    let functions: BTreeSet<u64> =
        found.iter().filter(|(vtable, _)| alike(vtable) == best).map(|(_, function)| *function).collect();
    functions.first().copied().filter(|_| functions.len() == 1)
}

fn in_common(one: &Vtable, other: &Vtable) -> usize {
    one.slots.iter().zip(&other.slots).filter(|(a, b)| a == b).count()
}

/// The first function behind the destructors that leads to the creation, if the one where `NewIterators` is
/// does so, too.
fn first_that_creates(reader: &mut Reader<'_, '_>, database: &Vtable, created: &Vtable) -> Option<u64> {
    let slot = (2..SLOTS_MAX).find(|&slot| {
        database.slots.get(slot).is_some_and(|&function| leads_to(reader, function, created))
    })?;
    let is_followed = NEW_ITERATORS_AFTER.into_iter().any(|after| {
        database.slots.get(slot + after).is_some_and(|&function| leads_to(reader, function, created))
    });
    is_followed.then(|| database.slots.get(slot).copied())?
}

/// Whether a function, or one that it calls, takes the vtable's address. A linker may leave the addition of
/// the two words before the first slot to the code.
fn leads_to(reader: &mut Reader<'_, '_>, function: u64, created: &Vtable) -> bool {
    let addresses = [created.address, created.address.wrapping_sub(16)];
    let mut seen = BTreeSet::from([function]);
    let mut last = vec![function];
    for depth in 0..=CALL_DEPTH_MAX {
        let mut next = Vec::new();
        for function in last {
            let called = reader.trace(function).calls.len();
            if !reader.look_at(1 + called) {
                return false;
            }
            let trace = reader.trace(function);
            if addresses.iter().any(|&address| trace.accesses.contains(&Access::AddressTaken(address))) {
                return true;
            }
            let calls = trace.calls.iter().copied().filter(|_| depth < CALL_DEPTH_MAX);
            next.extend(calls.filter(|call| seen.len() < FUNCTIONS_MAX && seen.insert(*call)));
        }
        last = next;
    }
    false
}

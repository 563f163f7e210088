//! Finding the vtables of a file without symbols: a class's by its name, or all that could be one.
//!
//! A class with virtual functions has, unless it was built with `-fno-rtti`, its mangled name among the
//! read-only data, a typeinfo that points to the name, and a vtable that points to the typeinfo. Pointers
//! are in relocations or, where the linker could fill them in, in the data itself. What the functions are
//! for is the business of `symbols`, telling one class from another by its code that of `learn`.

use super::elf::{ElfError, ElfHeaders, WordRelocations};
use super::scan;
use super::source::Source;
use sexton_rocksdb_layout::virtual_table;
use std::collections::{BTreeMap, BTreeSet};

/// Places of one name that are looked into: it may also be the end of a longer one.
const NAMES_MAX: usize = 16;

/// Pointers to names and typeinfos that are looked into; there are some dozens.
const POINTERS_MAX: usize = 256;

/// Virtual functions that are read of one class; `DBImpl` has some 250.
const SLOTS_MAX: u64 = 512;

/// Vtables of a file without RTTI; a program with RocksDB inside has some 2,000.
const VTABLES_MAX: usize = 65_536;

/// Pointers to code that are looked through for vtables: those of some hundred megabytes of code.
const CODE_POINTERS_MAX: usize = 768 << 10;

/// Memory of a pointer to code: in the list of all, and in its vtable.
const CODE_POINTER_BYTES: u64 = 32;

/// Memory and work of a word that is looked up by its address.
const WORD_BYTES: u64 = 32;
const WORD_WORK: u64 = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vtable {
    /// What an object's first word points to: the first slot.
    pub address: u64,
    /// The functions, in the order of their slots.
    pub slots: Vec<u64>,
}

/// The vtable of each of these classes, `None` where it was not found or where there is more than one. The
/// names are mangled: `N7rocksdb6DBIterE`.
/// Errors: [`ElfError`] when a part of the file cannot be read.
pub fn of_classes(
    source: &Source<'_>,
    headers: &ElfHeaders,
    classes: &[&str],
) -> Result<Vec<Option<Vtable>>, ElfError> {
    let mut names = BTreeMap::new();
    for (class, name) in classes.iter().enumerate() {
        names.extend(name_addresses(source, headers, name)?.into_iter().map(|address| (address, class)));
    }
    if names.is_empty() {
        return Ok(vec![None; classes.len()]);
    }
    let words = Words { source, headers, relocations: headers.word_relocations(source)? };
    // The typeinfo's second word points to the name.
    let typeinfos: BTreeMap<u64, usize> = words
        .pointers_to(&names)?
        .into_iter()
        .filter_map(|(place, class)| Some((place.checked_sub(8)?, class)))
        .collect();
    let pointers = words.pointers_to(&typeinfos)?;
    let mut found = vec![Vec::new(); classes.len()];
    let around: Vec<_> =
        pointers.iter().map(|(place, _)| (place.saturating_sub(8), 16 + 8 * SLOTS_MAX)).collect();
    let words = words.at(&around)?;
    for (place, class) in pointers {
        if let (Some(vtable), Some(found)) = (vtable_at(headers, &words, place), found.get_mut(class)) {
            found.push(vtable);
        }
    }
    Ok(found.into_iter().map(|mut found| found.pop().filter(|_| found.is_empty())).collect())
}

/// All vtables of classes without RTTI that have at least `slots_min` functions: two words of zero, then
/// pointers to code.
pub fn without_rtti(
    source: &Source<'_>,
    headers: &ElfHeaders,
    slots_min: usize,
) -> Result<Vec<Vtable>, ElfError> {
    let words = Words { source, headers, relocations: headers.word_relocations(source)? };
    let pointers = words.pointers_to_code()?;
    let mut runs: Vec<Vtable> = Vec::new();
    let mut end = None;
    for (place, function) in pointers {
        match runs.last_mut().filter(|_| end == Some(place)) {
            Some(run) => run.slots.push(function),
            None => runs.push(Vtable { address: place, slots: vec![function] }),
        }
        end = place.checked_add(8);
        // Only the last run can still grow.
        if let [.., before, _] = runs.as_slice()
            && before.slots.len() < slots_min
        {
            runs.swap_remove(runs.len() - 2);
        }
    }
    runs.retain(|run| run.slots.len() >= slots_min);
    runs.truncate(VTABLES_MAX);
    let fronts: Vec<_> = runs
        .iter()
        .map(|run| (run.address.saturating_sub(virtual_table::HEADER_BYTES), virtual_table::HEADER_BYTES))
        .collect();
    let words = words.at(&fronts)?;
    let is_zero = |address: Option<u64>| address.and_then(|address| words.get(&address)) == Some(&0);
    runs.retain(|run| is_zero(run.address.checked_sub(8)) && is_zero(run.address.checked_sub(16)));
    Ok(runs)
}

/// The vtable whose pointer to the typeinfo is at `place`: before that pointer is the offset to the top of
/// the object, which is zero, behind it are functions.
fn vtable_at(headers: &ElfHeaders, words: &BTreeMap<u64, u64>, place: u64) -> Option<Vtable> {
    let before = place.checked_sub(8)?;
    let address = place.checked_add(8)?;
    if words.get(&before).copied().unwrap_or_default() != 0 {
        return None;
    }
    let slots: Vec<u64> = (0..SLOTS_MAX)
        .map_while(|slot| words.get(&address.checked_add(8 * slot)?).copied())
        .take_while(|&function| headers.is_code(function))
        .collect();
    (!slots.is_empty()).then_some(Vtable { address, slots })
}

/// Addresses of a type's name: with its terminating NUL, and whatever before it.
fn name_addresses(source: &Source<'_>, headers: &ElfHeaders, name: &str) -> Result<Vec<u64>, ElfError> {
    let text = [name.as_bytes(), b"\0"].concat();
    let mut found = Vec::new();
    for (offset, size) in headers.read_only_data() {
        let room = NAMES_MAX.saturating_sub(found.len());
        let offsets = scan::find_all(source, offset, size, &text, room)?;
        found.extend(offsets.into_iter().filter_map(|offset| headers.address_of(offset)));
    }
    Ok(found)
}

/// The pointers of a file as they are once it is loaded, less the load bias.
struct Words<'a, 'f> {
    source: &'a Source<'f>,
    headers: &'a ElfHeaders,
    relocations: WordRelocations,
}

impl Words<'_, '_> {
    /// Places that point to one of the wanted addresses, with what is wanted there.
    fn pointers_to(&self, wanted: &BTreeMap<u64, usize>) -> Result<Vec<(u64, usize)>, ElfError> {
        let mut found = BTreeSet::new();
        let Some((&first, &last)) = wanted.keys().next().zip(wanted.keys().next_back()) else {
            return Ok(Vec::new());
        };
        let is_near = |_, value| (first..=last).contains(&value);
        let mut visit = |place, value| {
            if let Some(class) = wanted.get(&value) {
                found.insert((place, *class));
            }
            found.len() < POINTERS_MAX
        };
        self.relocations.each(self.source, is_near, &mut visit)?;
        for (offset, address, size) in self.headers.data_segments() {
            scan_words(self.source, offset, address, size, is_near, &mut visit)?;
        }
        Ok(found.into_iter().collect())
    }

    /// All pointers to code, in the order of their places.
    fn pointers_to_code(&self) -> Result<Vec<(u64, u64)>, ElfError> {
        let mut found = Vec::new();
        let is_code = |_, value| self.headers.is_code(value);
        let allowance = self.source.allowance();
        let mut visit = |place, value| {
            let is_granted = allowance.take_memory(CODE_POINTER_BYTES).is_ok();
            if is_granted {
                found.push((place, value));
            }
            is_granted && found.len() < CODE_POINTERS_MAX
        };
        self.relocations.each(self.source, is_code, &mut visit)?;
        for (offset, address, size) in self.headers.data_segments() {
            scan_words(self.source, offset, address, size, is_code, &mut visit)?;
        }
        allowance.check()?;
        found.sort_unstable();
        found.dedup_by_key(|(place, _)| *place);
        Ok(found)
    }

    /// The words in some ranges of addresses, given with their sizes.
    fn at(&self, ranges: &[(u64, u64)]) -> Result<BTreeMap<u64, u64>, ElfError> {
        let mut words = BTreeMap::new();
        for &(start, size) in ranges {
            let Some((offset, rest)) = self.headers.file_offset_of(start) else { continue };
            let size = rest.min(size);
            self.source.allowance().take_memory(size / 8 * WORD_BYTES)?;
            let all = |_, _| true;
            scan_words(self.source, offset, start, size, all, |place, value| {
                words.insert(place, value);
                true
            })?;
        }
        let Some((&first, &last)) = words.keys().next().zip(words.keys().next_back()) else {
            return Ok(words);
        };
        let is_near = |place, _| (first..=last).contains(&place);
        self.relocations.each(self.source, is_near, |place, value| {
            if let Some(word) = words.get_mut(&place) {
                *word = value;
            }
            true
        })?;
        Ok(words)
    }
}

/// Gives each aligned word of a part of the file of which `is_wanted` says so, with its address.
fn scan_words(
    source: &Source<'_>,
    offset: u64,
    address: u64,
    size: u64,
    is_wanted: impl Fn(u64, u64) -> bool,
    mut visit: impl FnMut(u64, u64) -> bool,
) -> Result<(), ElfError> {
    let skipped = address.wrapping_neg() % 8;
    let (Some(offset), Some(size)) = (offset.checked_add(skipped), size.checked_sub(skipped)) else {
        return Ok(());
    };
    scan::chunks(source, offset, size & !7, 0, |at, chunk| {
        let (words, _) = chunk.as_chunks::<8>();
        let first = address.wrapping_add(skipped).wrapping_add(at - offset);
        for (word, number) in words.iter().zip(0u64..) {
            let (place, value) = (first.wrapping_add(8 * number), u64::from_le_bytes(*word));
            if is_wanted(place, value) {
                source.allowance().take_work(WORD_WORK)?;
                if !visit(place, value) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    })
}

//! A column family's files on one ruler, and those whose index blocks were read in their parts.

use crate::facts::evidence::SstFile;
use crate::facts::index_marks::IndexMarks;
use crate::lsm::contents::{Contents, contents};
use crate::lsm::ruler::{Mark, Marks, Ruler, running, within};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most files of a column family whose index marks are used: 65,536 parts, as many as there are files in a
/// large database. Whoever reads index blocks chooses fewer, those that operations cross.
const FILES_PARTED_MAX: usize = 1024;

/// Index marks of a database's files, by their number.
pub type IndexMarksByFile = BTreeMap<u64, IndexMarks>;

/// A part of a file: where it lies on the ruler, and what it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) place: (f64, f64),
    pub(crate) contents: Contents,
}

/// Files, and where they lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) ruler: Arc<Ruler>,
    /// Of each file, in the order in which they were given.
    pub(crate) places: Vec<(f64, f64)>,
    /// Parts of some files, by their place in that order.
    pub(crate) parts: BTreeMap<usize, Vec<Part>>,
}

impl Layout {
    /// Of files, with what is known of their index blocks. Further spans tell more of the order of keys, and
    /// nothing of what lies there.
    pub(crate) fn of<'f>(
        files: &[&'f SstFile],
        marks: &'f IndexMarksByFile,
        further: impl IntoIterator<Item = (Mark<'f>, Mark<'f>)>,
    ) -> Layout {
        let mut spans: Vec<(Mark<'f>, Mark<'f>)> = files.iter().map(|file| Mark::around(file)).collect();
        let mut parted = Vec::new();
        // Nearly always there are none, and a million files.
        for (place, file) in files.iter().enumerate().filter(|_| !marks.is_empty()) {
            let Some(marks) = marks.get(&file.number) else { continue };
            let parts = parts(file, marks);
            if parts.len() > 1 && parted.len() < FILES_PARTED_MAX {
                parted.push(Parted {
                    place,
                    first: spans.len(),
                    bytes: parts.iter().map(|part| part.1).collect(),
                });
                spans.extend(parts.into_iter().map(|part| part.0));
            }
        }
        spans.extend(further);
        let (order, numbers) = Marks::of(&spans);
        drop(spans);
        let mut entries: Vec<f64> = files.iter().map(|file| file.entries.max(1) as f64).collect();
        entries.resize(numbers.len(), 0.0);
        for file in &parted {
            let of_file = entries.get_mut(file.place).map_or(0.0, std::mem::take);
            file.spread(&mut entries, of_file);
        }
        let mut densities = order.densities(&numbers, &entries);
        let mut held = BTreeMap::new();
        if !parted.is_empty() {
            let sums = running(densities.iter().copied());
            for one in &parted {
                let Some(file) = files.get(one.place) else { continue };
                let contents = contents(file, &one.parts(&numbers, &entries, &sums));
                held.insert(one.place, contents);
            }
            for one in &parted {
                let contents = held.get(&one.place).into_iter().flatten();
                entries
                    .iter_mut()
                    .skip(one.first)
                    .zip(contents)
                    .for_each(|(entries, part)| *entries = part.entries());
            }
            densities = order.densities(&numbers, &entries);
        }
        let lengths = running(densities);
        let at = |number: usize| lengths.get(number).copied().unwrap_or(0.0);
        let places: Vec<(f64, f64)> = numbers.iter().map(|(first, last)| (at(*first), at(*last))).collect();
        let parts = parted.iter().filter_map(|one| {
            let places = places.get(one.first..)?.iter();
            let parts = places.zip(held.get(&one.place)?);
            Some((
                one.place,
                parts.map(|(place, contents)| Part { place: *place, contents: *contents }).collect(),
            ))
        });
        let parts = parts.collect();
        let places = places.into_iter().take(files.len()).collect();
        Layout { ruler: Arc::new(Ruler::new(order, lengths)), places, parts }
    }
}

/// A file in parts.
struct Parted {
    /// Which of the files it is.
    place: usize,
    /// Which of the spans is its first part.
    first: usize,
    bytes: Vec<u64>,
}

impl Parted {
    /// Shares the file's entries out by bytes.
    fn spread(&self, entries: &mut [f64], of_file: f64) {
        let all = self.bytes.iter().sum::<u64>().max(1) as f64;
        let own = entries.iter_mut().skip(self.first).zip(&self.bytes);
        own.for_each(|(entries, bytes)| *entries = of_file * *bytes as f64 / all);
    }

    /// Bytes of each part, and entries that other files have there.
    fn parts(&self, numbers: &[(usize, usize)], entries: &[f64], sums: &[f64]) -> Vec<(u64, f64)> {
        let own = numbers.iter().zip(entries).skip(self.first).zip(&self.bytes);
        own.map(|((span, own), bytes)| (*bytes, (within(sums, *span) - own).max(0.0))).collect()
    }
}

/// A file's parts, from mark to mark, and the bytes of each. Marks that are not in order, not inside of the
/// file's keys or behind its end are left out.
fn parts<'f>(file: &'f SstFile, marks: &'f IndexMarks) -> Vec<((Mark<'f>, Mark<'f>), u64)> {
    let (low, high) = Mark::around(file);
    let mut parts = Vec::new();
    let (mut begin, mut before) = (low, 0);
    for mark in marks.iter() {
        let end = Mark::behind(&mark.key);
        if end > begin && end < high && mark.bytes_before > before && mark.bytes_before < file.size_bytes {
            parts.push(((begin, end), mark.bytes_before - before));
            (begin, before) = (end, mark.bytes_before);
        }
    }
    parts.push(((begin, high), file.size_bytes - before));
    parts
}

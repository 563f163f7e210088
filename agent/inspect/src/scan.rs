//! Searching parts of a file, a chunk at a time, so that no file is ever in memory as a whole.

use super::elf_error::ElfError;
use super::source::Source;
use memchr::memmem::Finder;

/// Bytes read at once; a multiple of every table entry's size that is read here.
pub(super) const CHUNK_BYTES: usize = 3 << 19;

/// Work of a hit, beside reading the bytes: a search that hits at every eighth byte is slower than one that
/// never does.
const HIT_WORK: u64 = 192;

/// Gives `visit` the bytes of a part of the file, chunk by chunk, with the chunk's offset in the file. Each
/// chunk repeats the last `overlap` bytes of the one before it. `visit` says whether to go on.
/// Errors: what reading gives, what `visit` gives; [`ElfError::Malformed`] when the part is not inside the
/// file.
pub(super) fn chunks(
    source: &Source<'_>,
    offset: u64,
    size: u64,
    overlap: usize,
    mut visit: impl FnMut(u64, &[u8]) -> Result<bool, ElfError>,
) -> Result<(), ElfError> {
    let mut buffer = vec![0u8; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES))];
    let mut done = 0u64;
    while size > done {
        let length = usize::try_from(size - done).unwrap_or(usize::MAX).min(buffer.len());
        let Some(chunk) = buffer.get_mut(..length) else { break };
        let at = offset.checked_add(done).ok_or_else(|| ElfError::outside(offset, size))?;
        source.read_exact_at(chunk, at)?;
        if !visit(at, chunk)? || length as u64 == size - done {
            break;
        }
        done += (length - overlap.min(length - 1)) as u64;
    }
    Ok(())
}

/// Gives `visit` each entry of a table, `SIZE` bytes each, until it says no; bytes behind the last whole one
/// are left out.
pub(super) fn entries<const SIZE: usize>(
    source: &Source<'_>,
    offset: u64,
    size: u64,
    mut visit: impl FnMut(&[u8; SIZE]) -> Result<bool, ElfError>,
) -> Result<(), ElfError> {
    chunks(source, offset, size - size % SIZE as u64, 0, |_, chunk| {
        let (entries, _) = chunk.as_chunks::<SIZE>();
        for entry in entries {
            if !visit(entry)? {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Where a text stands first.
pub(super) fn find(
    source: &Source<'_>,
    offset: u64,
    size: u64,
    text: &[u8],
) -> Result<Option<u64>, ElfError> {
    Ok(find_all(source, offset, size, text, 1)?.first().copied())
}

/// Where a text stands, at most so many times.
pub(super) fn find_all(
    source: &Source<'_>,
    offset: u64,
    size: u64,
    text: &[u8],
    count_max: usize,
) -> Result<Vec<u64>, ElfError> {
    let mut found = Vec::new();
    if count_max == 0 {
        return Ok(found);
    }
    hits(source, offset, size, text, text.len(), |at, _| {
        found.push(at);
        found.len() < count_max
    })?;
    Ok(found)
}

/// Gives `visit` each place of a text with what stands there, up to `length` bytes, fewer at the end of the
/// part, until it says no. A place may be given twice.
pub(super) fn hits(
    source: &Source<'_>,
    offset: u64,
    size: u64,
    text: &[u8],
    length: usize,
    mut visit: impl FnMut(u64, &[u8]) -> bool,
) -> Result<(), ElfError> {
    let finder = Finder::new(text);
    chunks(source, offset, size, length.saturating_sub(1), |at, chunk| {
        for position in finder.find_iter(chunk) {
            source.allowance().take_work(HIT_WORK)?;
            let rest = chunk.get(position..).unwrap_or_default();
            if !visit(at + position as u64, rest.get(..length).unwrap_or(rest)) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Ranges `(offset, size)` without what they have in common: each byte is in one of them once.
pub(super) fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (offset, size) in ranges {
        match merged.last_mut().filter(|(start, length)| offset < start.saturating_add(*length)) {
            Some((start, length)) => *length = (*length).max(offset.saturating_add(size) - *start),
            None => merged.push((offset, size)),
        }
    }
    merged
}

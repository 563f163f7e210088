//! Searching parts of a file, a chunk at a time, so that no file is ever in memory as a whole.

use memchr::memmem::Finder;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes read at once; a multiple of every table entry's size that is read here.
pub(super) const CHUNK_BYTES: usize = 3 << 19;

/// Gives `visit` the bytes of a part of the file, chunk by chunk, with the chunk's offset in the file. Each
/// chunk repeats the last `overlap` bytes of the one before it. `visit` says whether to go on.
///
/// # Errors
/// What reading gives; `UnexpectedEof` when the part is not inside the file.
pub(super) fn chunks(
    file: &File,
    offset: u64,
    size: u64,
    overlap: usize,
    mut visit: impl FnMut(u64, &[u8]) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0u8; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES))];
    let mut done = 0u64;
    while size > done {
        let length = usize::try_from(size - done).unwrap_or(usize::MAX).min(buffer.len());
        let Some(chunk) = buffer.get_mut(..length) else { break };
        let at = offset.checked_add(done).ok_or(io::ErrorKind::UnexpectedEof)?;
        file.read_exact_at(chunk, at)?;
        if !visit(at, chunk) || length as u64 == size - done {
            break;
        }
        done += (length - overlap.min(length - 1)) as u64;
    }
    Ok(())
}

/// Where a text stands first.
///
/// # Errors
/// As [`chunks`].
pub(super) fn find(file: &File, offset: u64, size: u64, text: &[u8]) -> io::Result<Option<u64>> {
    Ok(find_all(file, offset, size, text, 1)?.first().copied())
}

/// Where a text stands, at most so many times.
///
/// # Errors
/// As [`chunks`].
pub(super) fn find_all(
    file: &File,
    offset: u64,
    size: u64,
    text: &[u8],
    count_max: usize,
) -> io::Result<Vec<u64>> {
    let finder = Finder::new(text);
    let mut found = Vec::new();
    chunks(file, offset, size, text.len().saturating_sub(1), |at, chunk| {
        let room = count_max.saturating_sub(found.len());
        found.extend(finder.find_iter(chunk).take(room).map(|position| at + position as u64));
        found.len() < count_max
    })?;
    Ok(found)
}

//! The list of live SST files, cut into frames.

use crate::rocksdb::{LiveFile, LiveFiles};
use sexton_hook_protocol::{
    COLUMN_FAMILY_NAME_BYTES_MAX, FrameError, KeyBytes, PAGE_BYTES_MAX, PAGE_FILES_MAX, Response, SstFile,
};

/// Hands all files to `send`, page by page; there is always a last one.
pub fn send_all(
    files: &LiveFiles,
    mut send: impl FnMut(&Response) -> Result<(), FrameError>,
) -> Result<(), FrameError> {
    let mut page = Vec::new();
    let mut page_bytes = 0;
    for file in files.iter() {
        let Some(entry) = entry(&file) else { continue };
        // Hexadecimal keys, a name that may need escapes, and field names with numbers.
        let largest = 2 * (entry.smallest.as_bytes().len() + entry.largest.as_bytes().len());
        page_bytes += largest + 6 * entry.column_family.len() + 320;
        page.push(entry);
        if page.len() >= PAGE_FILES_MAX || page_bytes >= PAGE_BYTES_MAX {
            send(&Response::SstFiles { files: std::mem::take(&mut page), last: false })?;
            page_bytes = 0;
        }
    }
    send(&Response::SstFiles { files: page, last: true })
}

/// A file as it is sent; `None` where its name holds no number or its column family's is too long.
fn entry(file: &LiveFile<'_>) -> Option<SstFile> {
    if file.column_family.len() > COLUMN_FAMILY_NAME_BYTES_MAX {
        return None;
    }
    Some(SstFile {
        number: number(file.name)?,
        column_family: String::from_utf8_lossy(file.column_family).into_owned(),
        level: u32::try_from(file.level).ok()?,
        size_bytes: file.size_bytes as u64,
        entries: file.entries,
        deletions: file.deletions,
        smallest: KeyBytes::floor(file.smallest),
        largest: KeyBytes::ceiling(file.largest),
        smallest_sequence: file.sequences.map(|(smallest, _)| smallest),
        largest_sequence: file.sequences.map(|(_, largest)| largest),
    })
}

/// The number of a file of this name, `/000123.sst`.
pub fn number(name: &[u8]) -> Option<u64> {
    let digits = name.rsplit(|byte| *byte == b'/').next()?;
    let digits = digits.strip_suffix(b".sst").unwrap_or(digits);
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn file_names_of_all_versions() {
        let mut file = LiveFile {
            name: b"/000123.sst",
            column_family: b"keyTable",
            level: 6,
            size_bytes: 1,
            entries: 2,
            deletions: 1,
            smallest: b"a",
            largest: b"b",
            sequences: Some((7, 9)),
        };
        assert_eq!(entry(&file).unwrap().number, 123);
        file.name = b"000124.sst";
        assert_eq!(entry(&file).unwrap().number, 124);
        file.level = -1;
        assert_eq!(entry(&file), None);
        (file.level, file.name) = (0, b"CURRENT");
        assert_eq!(entry(&file), None);
    }
}

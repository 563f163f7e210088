//! Reads the table properties of one SST file: how many entries and deletions it holds.
//!
//! RocksDB loads these statistics for some twenty files when it opens a database and reports zero for
//! all others, so they are read here, from the end of the file: footer, metaindex block, properties
//! block. Only block-based tables are read, the format that every version of RocksDB writes by default;
//! the two meta blocks are never compressed. Pure: bytes come in through [`ReadAt`]. Opening files and
//! remembering what was read is the business of `complete`.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Ends every block-based table since RocksDB 2.8.
const MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
/// Ends a block-based table in the form that LevelDB had.
const MAGIC_LEGACY: u64 = 0xdb47_7524_8b80_fb57;
/// Stands where format versions before 6 have the metaindex block's handle.
const MAGIC_EXTENDED: [u8; 4] = [0x3e, 0x00, 0x7a, 0x00];
/// Footer of the legacy form: two block handles, padded, and the magic number.
const FOOTER_BYTES_LEGACY: usize = 48;
/// Footer since format version 1: checksum type, 40 bytes, format version, magic number.
const FOOTER_BYTES: usize = 53;
/// What blocks are verified by where the footer does not say: CRC32C.
const CHECKSUM_LEGACY: u8 = 1;
/// Compression type and checksum, after every block.
const BLOCK_TRAILER_BYTES: u64 = 5;
/// Newest format version whose footer is known here.
const FORMAT_VERSION_MAX: u32 = 8;
/// Greatest meta block that is read. Property collectors put their own data there (TiKV's are the
/// largest known, some hundred kilobytes); more than this is damage or an attack.
pub const META_BLOCK_BYTES_MAX: u64 = 4 << 20;
/// Entries of a meta block that are looked at; RocksDB itself writes some 60 properties.
const META_BLOCK_ENTRIES_MAX: usize = 4096;
/// Bytes that are kept of the names of property collectors: a dozen.
const COLLECTORS_BYTES_MAX: usize = 1024;
/// Longest column family name that is kept.
const COLUMN_FAMILY_NAME_BYTES_MAX: usize = 1024;

/// What the properties block says of one SST file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableProperties {
    /// `rocksdb.num.entries`: all entries, deletions included.
    pub entries: u64,
    /// `rocksdb.deleted.keys`: tombstones, range tombstones included.
    pub deletions: u64,
    /// `rocksdb.merge.operands`.
    pub merge_operands: u64,
    /// `rocksdb.num.range-deletions`.
    pub range_deletions: u64,
    /// `rocksdb.raw.key.size` and `rocksdb.raw.value.size` together.
    #[serde(default)]
    pub raw_bytes: u64,
    /// `rocksdb.file.creation.time`, else `rocksdb.creation.time`, seconds since the epoch; 0 where it has
    /// neither.
    #[serde(default)]
    pub created_unix_s: u64,
    /// `rocksdb.property.collectors`, cut where it is long.
    #[serde(default)]
    pub collectors: String,
    /// `rocksdb.column.family.id`; `None` where it is missing or the writer did not know it.
    pub column_family_id: Option<u64>,
    /// `rocksdb.column.family.name`; `None` where it is missing or empty.
    pub column_family: Option<String>,
}

/// Why a file's properties could not be read.
#[derive(Debug, Error)]
pub enum PropertiesError {
    #[error("cannot read {length} bytes at offset {offset}: {source}")]
    Read { offset: u64, length: u64, source: std::io::Error },
    #[error("damaged at offset {offset}: {what}")]
    Damaged { offset: u64, what: &'static str },
    #[error("not a block-based table that can be read: {what} {value:#x}")]
    Unsupported { what: &'static str, value: u64 },
}

/// Bytes at an offset: a file, or a slice in tests.
pub trait ReadAt {
    /// Exactly `length` bytes from `offset`; fewer is an error of kind `UnexpectedEof`.
    fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Vec<u8>>;
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        let begin = usize::try_from(offset).ok();
        let end = begin.and_then(|begin| begin.checked_add(length));
        let bytes = begin.zip(end).and_then(|(begin, end)| self.get(begin..end));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }
}

/// Where a block lies in the file, without its trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHandle {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Reads the properties of the SST file of `size_bytes` behind `file`.
/// Errors: [`PropertiesError`] when reading fails, the bytes are damaged, or it is another kind of table.
pub fn read(file: &(impl ReadAt + ?Sized), size_bytes: u64) -> Result<TableProperties, PropertiesError> {
    let metaindex = meta_block(file, size_bytes, Footer::read(file, size_bytes)?.metaindex)?;
    let mut properties_handle = None;
    for_each_entry(&metaindex, |name, value| {
        // Up to RocksDB 2.6 the block was called `rocksdb.stats`.
        if name == b"rocksdb.properties" || name == b"rocksdb.stats" {
            properties_handle = Some(value.to_vec());
        }
    })?;
    let encoded = properties_handle
        .ok_or(PropertiesError::Damaged { offset: metaindex.offset, what: "no properties block" })?;
    let handle = BlockHandle::decode(&mut encoded.as_slice())
        .ok_or(PropertiesError::Damaged { offset: metaindex.offset, what: "properties block's handle" })?;
    let block = meta_block(file, size_bytes, handle)?;
    let properties = decode_properties(&block)?;
    if properties.deletions.saturating_sub(properties.range_deletions) > properties.entries {
        return Err(PropertiesError::Damaged { offset: block.offset, what: "more deletions than entries" });
    }
    Ok(properties)
}

fn decode_properties(block: &Block) -> Result<TableProperties, PropertiesError> {
    let mut properties = TableProperties::default();
    let mut entries_seen = false;
    let mut damaged = false;
    let mut created = 0;
    for_each_entry(block, |name, value| {
        let mut number = || {
            let decoded = take_varint64(&mut &*value);
            damaged |= decoded.is_none();
            decoded.unwrap_or_default()
        };
        match name {
            b"rocksdb.num.entries" => {
                properties.entries = number();
                entries_seen = true;
            }
            b"rocksdb.deleted.keys" => properties.deletions = number(),
            b"rocksdb.merge.operands" => properties.merge_operands = number(),
            b"rocksdb.num.range-deletions" => properties.range_deletions = number(),
            b"rocksdb.raw.key.size" | b"rocksdb.raw.value.size" => {
                properties.raw_bytes = properties.raw_bytes.saturating_add(number());
            }
            b"rocksdb.file.creation.time" => {
                properties.created_unix_s = Some(number()).filter(|at| *at > 0).unwrap_or(created);
            }
            // In the order of their names, so before the other.
            b"rocksdb.creation.time" => {
                created = number();
                properties.created_unix_s = created;
            }
            b"rocksdb.property.collectors" => {
                let kept = value.get(..COLLECTORS_BYTES_MAX).unwrap_or(value);
                properties.collectors = String::from_utf8_lossy(kept).into_owned();
            }
            b"rocksdb.column.family.id" => {
                // RocksDB writes INT32_MAX where the writer knew no column family.
                properties.column_family_id = Some(number()).filter(|id| *id != u64::from(u32::MAX >> 1));
            }
            b"rocksdb.column.family.name" if value.len() <= COLUMN_FAMILY_NAME_BYTES_MAX => {
                let name = String::from_utf8_lossy(value).into_owned();
                properties.column_family = Some(name).filter(|name| !name.is_empty());
            }
            _ => {}
        }
    })?;
    if damaged || !entries_seen {
        return Err(PropertiesError::Damaged { offset: block.offset, what: "property values" });
    }
    Ok(properties)
}

/// What a file's last bytes say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Footer {
    pub(super) version: u32,
    pub(super) metaindex: BlockHandle,
    /// `None` where the metaindex block has it.
    pub(super) index: Option<BlockHandle>,
    /// Type of the blocks' checksums.
    pub(super) checksum: u8,
    /// Goes into the checksums of the file; 0: nothing does.
    base: u32,
}

impl Footer {
    /// For all format versions.
    pub(super) fn read(file: &(impl ReadAt + ?Sized), size_bytes: u64) -> Result<Footer, PropertiesError> {
        read_footer(file, size_bytes)
    }

    /// What is added to the checksum of a block: it would not fit anywhere else.
    pub(super) fn modifier(&self, offset: u64) -> u32 {
        let folded = (offset as u32).wrapping_add((offset >> 32) as u32);
        if self.base == 0 { 0 } else { self.base ^ folded }
    }

    /// Format versions before 6: both handles, one behind the other.
    fn of_handles(mut handles: &[u8], version: u32, checksum: u8) -> Option<Footer> {
        let metaindex = BlockHandle::decode(&mut handles)?;
        let index = BlockHandle::decode(&mut handles);
        Some(Footer { version, metaindex, index, checksum, base: 0 })
    }
}

fn read_footer(file: &(impl ReadAt + ?Sized), size_bytes: u64) -> Result<Footer, PropertiesError> {
    let too_short = PropertiesError::Damaged { offset: 0, what: "too short to be an SST file" };
    let legacy_offset = size_bytes.checked_sub(FOOTER_BYTES_LEGACY as u64).ok_or(too_short)?;
    let legacy = read_exact(file, legacy_offset, FOOTER_BYTES_LEGACY as u64)?;
    let damaged = |what| PropertiesError::Damaged { offset: legacy_offset, what };
    let magic = legacy.last_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)).unwrap_or_default();
    if magic == MAGIC_LEGACY {
        return Footer::of_handles(&legacy, 0, CHECKSUM_LEGACY).ok_or(damaged("metaindex handle"));
    }
    if magic != MAGIC {
        return Err(PropertiesError::Unsupported { what: "magic number", value: magic });
    }
    let offset = size_bytes.checked_sub(FOOTER_BYTES as u64).ok_or(damaged("too short for its footer"))?;
    let footer = read_exact(file, offset, FOOTER_BYTES as u64)?;
    let version = u32_at(&footer, FOOTER_BYTES - 12).ok_or(damaged("format version"))?;
    let handles = footer.get(1..41).ok_or(damaged("block handles"))?;
    let checksum = footer.first().copied().unwrap_or_default();
    match version {
        0..6 => Footer::of_handles(handles, version, checksum).ok_or(damaged("metaindex handle")),
        6..=FORMAT_VERSION_MAX => {
            let what = "metaindex size";
            let metaindex = metaindex_before_footer(handles, version, offset);
            let metaindex = metaindex.ok_or(PropertiesError::Damaged { offset, what })?;
            let base = u32_at(handles, 8).unwrap_or_default();
            Ok(Footer { version, metaindex, index: None, checksum, base })
        }
        _ => Err(PropertiesError::Unsupported { what: "format version", value: u64::from(version) }),
    }
}

/// Since format version 6 the footer gives only the size of the metaindex block, which lies directly
/// before the footer; since version 8 with a gap of so many bytes as the upper half says.
fn metaindex_before_footer(handles: &[u8], version: u32, footer_offset: u64) -> Option<BlockHandle> {
    if handles.get(..4)? != MAGIC_EXTENDED {
        return None;
    }
    let packed = u32_at(handles, 12)?;
    let (size, gap) = if version >= 8 { (packed & 0xffff, packed >> 16) } else { (packed, 0) };
    let behind = BLOCK_TRAILER_BYTES + u64::from(gap) + u64::from(size);
    Some(BlockHandle { offset: footer_offset.checked_sub(behind)?, size: u64::from(size) })
}

/// A meta block's bytes without its trailer, and where they lay.
pub(super) struct Block {
    pub(super) offset: u64,
    bytes: Vec<u8>,
}

pub(super) fn meta_block(
    file: &(impl ReadAt + ?Sized),
    size_bytes: u64,
    handle: BlockHandle,
) -> Result<Block, PropertiesError> {
    let damaged = |what| PropertiesError::Damaged { offset: handle.offset, what };
    if handle.size > META_BLOCK_BYTES_MAX {
        return Err(damaged("meta block larger than any known"));
    }
    let length = handle.size + BLOCK_TRAILER_BYTES;
    if handle.offset.checked_add(length).is_none_or(|end| end > size_bytes) {
        return Err(damaged("block reaches beyond the end of the file"));
    }
    let mut bytes = read_exact(file, handle.offset, length)?;
    let content_bytes = bytes.len() - BLOCK_TRAILER_BYTES as usize;
    match bytes.get(content_bytes) {
        Some(0) => {}
        _ => return Err(damaged("meta block is compressed")),
    }
    bytes.truncate(content_bytes);
    Ok(Block { offset: handle.offset, bytes })
}

pub(super) fn read_exact(
    file: &(impl ReadAt + ?Sized),
    offset: u64,
    length: u64,
) -> Result<Vec<u8>, PropertiesError> {
    let failed = |source| PropertiesError::Read { offset, length, source };
    let wanted = usize::try_from(length).map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
    let bytes = file.read_at(offset, wanted).map_err(failed)?;
    if bytes.len() == wanted { Ok(bytes) } else { Err(failed(std::io::ErrorKind::UnexpectedEof.into())) }
}

/// Calls `visit` with key and value of each entry of a block; keys share prefixes with the one before.
pub(super) fn for_each_entry(
    block: &Block,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), PropertiesError> {
    let damaged = |what| PropertiesError::Damaged { offset: block.offset, what };
    let restarts = block.bytes.len().checked_sub(4).and_then(|at| u32_at(&block.bytes, at));
    let rest = restarts.and_then(|restarts| entries_of(&block.bytes, restarts));
    let mut rest = rest.ok_or(damaged("restart points"))?;
    let mut key = Vec::new();
    for _ in 0..META_BLOCK_ENTRIES_MAX {
        if rest.is_empty() {
            return Ok(());
        }
        let value = take_entry(&mut rest, &mut key).ok_or(damaged("block entry"))?;
        visit(&key, value);
    }
    Err(damaged("more entries in a meta block than any known"))
}

/// The part of a block before its restart points: it ends with their offsets and their number.
pub(super) fn entries_of(block: &[u8], restarts: u32) -> Option<&[u8]> {
    let restarts = usize::try_from(restarts).ok()?;
    let tail = restarts.checked_mul(4)?.checked_add(4)?;
    block.get(..block.len().checked_sub(tail)?)
}

/// Takes one entry off `rest`: lengths of the shared and of the new part of the key, length of the
/// value, then the bytes. Leaves the whole key in `key` and returns the value.
fn take_entry<'bytes>(rest: &mut &'bytes [u8], key: &mut Vec<u8>) -> Option<&'bytes [u8]> {
    let shared = usize::try_from(take_varint64(rest)?).ok()?;
    let unshared = usize::try_from(take_varint64(rest)?).ok()?;
    let value_bytes = usize::try_from(take_varint64(rest)?).ok()?;
    take_key(rest, key, shared, unshared)?;
    take_bytes(rest, value_bytes)
}

/// Takes the own part of a key that shares its beginning with the one before.
pub(super) fn take_key(rest: &mut &[u8], key: &mut Vec<u8>, shared: usize, own: usize) -> Option<()> {
    if shared > key.len() {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(take_bytes(rest, own)?);
    Some(())
}

pub(super) fn take_bytes<'bytes>(rest: &mut &'bytes [u8], length: usize) -> Option<&'bytes [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

pub(super) fn take_varint64(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *take_bytes(rest, 1)?.first()?;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
}

impl BlockHandle {
    /// Behind its trailer.
    pub(super) fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)?.checked_add(BLOCK_TRAILER_BYTES)
    }

    pub(super) fn decode(rest: &mut &[u8]) -> Option<BlockHandle> {
        Some(BlockHandle { offset: take_varint64(rest)?, size: take_varint64(rest)? })
    }
}

#[cfg(test)]
mod tests;

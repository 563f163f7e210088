//! Reads the index block of one SST file: between which keys its data blocks end.
//!
//! Known are the indexes that RocksDB writes: of one block (binary or hash search, with first keys or
//! without) and of two levels, in format versions 2 to 7, with whole internal keys or user keys alone, and
//! values in full or as differences. Of all keys few are kept (`IndexMarks`). Pure: bytes come in through
//! [`ReadAt`].

use super::codec::{self, Unreadable};
use super::properties::{
    Block, BlockHandle, Footer, PropertiesError, ReadAt, entries_of, for_each_entry, meta_block, read_exact,
    take_bytes, take_key, take_varint64, u32_at,
};
use sexton_tuner::index_marks::{IndexMarks, Thinning};

/// Greatest index block that is read, stored or uncompressed: that of a file of several GiB with blocks of 4
/// KiB.
const INDEX_BLOCK_BYTES_MAX: u64 = 32 << 20;

/// Bytes that the parts of one file's index may have together, uncompressed.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// Sequence number and type behind a user key.
const FOOTER_BYTES: usize = 8;

/// Newest format version whose index is known here: the next one writes other entries.
const FORMAT_VERSION_MAX: u32 = 7;

/// `IndexType`.
const TWO_LEVELS: u32 = 2;
const WITH_FIRST_KEY: u32 = 3;

/// Set in the number of restart points where keys are spread evenly: a hint for searching.
const UNIFORM_KEYS: u32 = 1 << 29;
/// The other bits above that number: entries of another form.
const OTHER_FORMS: u32 = 0xd << 28;

/// How entries are written.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    has_two_levels: bool,
    has_first_key: bool,
    is_user_key: bool,
    is_delta: bool,
}

/// What the index of a file tells, and how many bytes were read for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Read {
    pub(super) marks: IndexMarks,
    pub(super) bytes: u64,
}

/// Reads the index of the SST file of `size_bytes` behind `file`.
/// Errors: [`PropertiesError`] when reading fails, the bytes are damaged, or the index is of another form.
pub(super) fn read(file: &(impl ReadAt + ?Sized), size_bytes: u64) -> Result<Read, PropertiesError> {
    let footer = Footer::read(file, size_bytes)?;
    if footer.version > FORMAT_VERSION_MAX {
        let value = u64::from(footer.version);
        return Err(PropertiesError::Unsupported { what: "index of format version", value });
    }
    let metaindex = meta_block(file, size_bytes, footer.metaindex)?;
    let (mut index, mut properties) = (footer.index, None);
    for_each_entry(&metaindex, |name, mut value| match name {
        b"rocksdb.index" => index = BlockHandle::decode(&mut value),
        b"rocksdb.properties" => properties = BlockHandle::decode(&mut value),
        _ => {}
    })?;
    let missing = |what| PropertiesError::Damaged { offset: metaindex.offset, what };
    let index = index.ok_or(missing("no index block"))?;
    let properties = meta_block(file, size_bytes, properties.ok_or(missing("no properties block"))?)?;
    let form = Form::of(&properties)?;
    let mut walk = Walk {
        file,
        size_bytes,
        footer,
        form,
        thinning: Thinning::default(),
        last: Vec::new(),
        end: 0,
        bytes: 0,
    };
    walk.block(index, form.has_two_levels)?;
    Ok(Read { marks: walk.thinning.marks(), bytes: walk.bytes })
}

impl Form {
    fn of(properties: &Block) -> Result<Form, PropertiesError> {
        let mut form = Form::default();
        let mut kind = Some(0);
        for_each_entry(properties, |name, mut value| {
            let mut is_set = || take_varint64(&mut value).is_some_and(|number| number != 0);
            match name {
                b"rocksdb.index.key.is.user.key" => form.is_user_key = is_set(),
                b"rocksdb.index.value.is.delta.encoded" => form.is_delta = is_set(),
                b"rocksdb.block.based.table.index.type" => kind = u32_at(value, 0),
                _ => {}
            }
        })?;
        let kind = kind.ok_or(PropertiesError::Damaged { offset: properties.offset, what: "index type" })?;
        if kind > WITH_FIRST_KEY {
            return Err(PropertiesError::Unsupported { what: "index type", value: u64::from(kind) });
        }
        Ok(Form { has_two_levels: kind == TWO_LEVELS, has_first_key: kind == WITH_FIRST_KEY, ..form })
    }
}

/// An index while it is read.
struct Walk<'f, F: ?Sized> {
    file: &'f F,
    size_bytes: u64,
    footer: Footer,
    form: Form,
    thinning: Thinning,
    /// The last user key, and where the block before it ended.
    last: Vec<u8>,
    end: u64,
    /// Of index blocks that were read.
    bytes: u64,
}

impl<F: ReadAt + ?Sized> Walk<'_, F> {
    /// Goes through a block of the index; `has_parts`: its entries lead to further ones.
    fn block(&mut self, handle: BlockHandle, has_parts: bool) -> Result<(), PropertiesError> {
        let damaged = |what| PropertiesError::Damaged { offset: handle.offset, what };
        let contents = self.contents(handle)?;
        self.bytes = self.bytes.saturating_add(contents.len() as u64);
        if self.bytes > INDEX_BYTES_MAX {
            return Err(damaged("index larger than any known"));
        }
        let restarts = contents.len().checked_sub(4).and_then(|at| u32_at(&contents, at));
        let restarts = restarts.ok_or(damaged("restart points"))?;
        if restarts & OTHER_FORMS != 0 {
            return Err(PropertiesError::Unsupported {
                what: "index block with",
                value: u64::from(restarts),
            });
        }
        let mut rest = entries_of(&contents, restarts & !UNIFORM_KEYS).ok_or(damaged("restart points"))?;
        let mut key = Vec::new();
        let mut before = None;
        while !rest.is_empty() {
            let entry = take_entry(&mut rest, &mut key, before, self.form);
            let entry = entry.ok_or(damaged("index entry"))?;
            before = Some(entry);
            match has_parts {
                true => self.block(entry, false)?,
                false => self.data_block(entry, &key).map_err(damaged)?,
            }
        }
        Ok(())
    }

    /// Takes in that a data block lies there, and that its keys are at most this one.
    fn data_block(&mut self, handle: BlockHandle, key: &[u8]) -> Result<(), &'static str> {
        let user_key = match self.form.is_user_key {
            true => key,
            false => {
                key.len().checked_sub(FOOTER_BYTES).and_then(|length| key.get(..length)).ok_or("index key")?
            }
        };
        if handle.offset < self.end || user_key < self.last.as_slice() {
            return Err("index entries out of order");
        }
        self.end =
            handle.end().filter(|end| *end <= self.size_bytes).ok_or("a block behind the file's end")?;
        self.last.clear();
        self.last.extend_from_slice(user_key);
        self.thinning.push(user_key, self.end);
        Ok(())
    }

    /// A block without its trailer, verified and uncompressed.
    fn contents(&self, handle: BlockHandle) -> Result<Vec<u8>, PropertiesError> {
        let damaged = |what| PropertiesError::Damaged { offset: handle.offset, what };
        if handle.size > INDEX_BLOCK_BYTES_MAX {
            return Err(damaged("index block larger than any known"));
        }
        let end = handle.end().filter(|end| *end <= self.size_bytes);
        let end = end.ok_or(damaged("block reaches beyond the end of the file"))?;
        let mut bytes = read_exact(self.file, handle.offset, end - handle.offset)?;
        let stored = bytes.split_off(handle.size as usize + 1);
        let stored = u32_at(&stored, 0).ok_or(damaged("checksum"))?;
        let expected = codec::checksum(self.footer.checksum, &bytes);
        if expected.is_some_and(|sum| sum.wrapping_add(self.footer.modifier(handle.offset)) != stored) {
            return Err(damaged("checksum of an index block"));
        }
        let compression = bytes.pop().ok_or(damaged("compression"))?;
        codec::uncompressed(compression, bytes, INDEX_BLOCK_BYTES_MAX as usize).map_err(|error| match error {
            Unreadable::Compression(kind) => {
                PropertiesError::Unsupported { what: "index block of compression", value: u64::from(kind) }
            }
            Unreadable::Damaged => damaged("compressed index block"),
            Unreadable::TooLarge => damaged("index block larger than any known"),
        })
    }
}

/// Takes one entry off: its key, and where the block is that it leads to.
fn take_entry(
    rest: &mut &[u8],
    key: &mut Vec<u8>,
    before: Option<BlockHandle>,
    form: Form,
) -> Option<BlockHandle> {
    let shared = usize::try_from(take_varint64(rest)?).ok()?;
    let own = usize::try_from(take_varint64(rest)?).ok()?;
    if !form.is_delta {
        let value_bytes = usize::try_from(take_varint64(rest)?).ok()?;
        take_key(rest, key, shared, own)?;
        return BlockHandle::decode(&mut take_bytes(rest, value_bytes)?);
    }
    take_key(rest, key, shared, own)?;
    let handle = match before.filter(|_| shared > 0) {
        Some(before) => take_difference(rest, before)?,
        None => BlockHandle::decode(rest)?,
    };
    if form.has_first_key {
        let length = usize::try_from(take_varint64(rest)?).ok()?;
        take_bytes(rest, length)?;
    }
    Some(handle)
}

/// The next block, by how much larger it is than the one before.
fn take_difference(rest: &mut &[u8], before: BlockHandle) -> Option<BlockHandle> {
    let number = take_varint64(rest)?;
    let difference = (number >> 1) as i64 ^ -((number & 1) as i64);
    Some(BlockHandle { offset: before.end()?, size: before.size.checked_add_signed(difference)? })
}

#[cfg(test)]
mod tests;

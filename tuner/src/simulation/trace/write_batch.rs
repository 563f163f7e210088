//! The entries of a write batch, as it stands in a trace or a write-ahead log.

use super::TraceError;
use super::bytes::Bytes;

/// Bytes before the entries: a sequence number, and how many there are.
const HEADER_BYTES: usize = 12;

/// One entry of a write batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written<'t> {
    pub column_family_id: u32,
    pub key: &'t [u8],
    pub change: Change<'t>,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'t> {
    Put {
        value_bytes: u32,
    },
    Merge {
        value_bytes: u32,
    },
    Delete,
    SingleDelete,
    /// The keys from the entry's own up to, and without, this one.
    DeleteRange {
        end: &'t [u8],
    },
}

/// All entries that change a key. Those of transactions (prepare, commit, roll back) and log data are passed
/// over.
pub(super) fn entries(batch: &[u8], record: u64) -> Result<Vec<Written<'_>>, TraceError> {
    let short = |what| TraceError::Short { record, what };
    let mut bytes = Bytes::new(batch);
    bytes.take(HEADER_BYTES).ok_or(short("a write batch"))?;
    let mut written = Vec::new();
    while !bytes.is_empty() {
        let kind = bytes.byte().ok_or(short("a write batch"))?;
        match read(&mut bytes, kind) {
            Some(Entry::Change(entry)) => written.push(entry),
            Some(Entry::Nothing) => {}
            Some(Entry::Unknown) => return Err(TraceError::Entry { record, kind }),
            None => return Err(short("a write batch")),
        }
    }
    Ok(written)
}

enum Entry<'t> {
    Change(Written<'t>),
    Nothing,
    Unknown,
}

/// An entry of this type (RocksDB's `ValueType`); `None` where the batch ends too early.
fn read<'t>(bytes: &mut Bytes<'t>, kind: u8) -> Option<Entry<'t>> {
    let has_family = matches!(kind, 0x04..=0x06 | 0x08 | 0x0e | 0x10 | 0x17 | 0x19);
    let column_family_id = match kind {
        0x03 | 0x0a..=0x0c => {
            bytes.prefixed()?;
            return Some(Entry::Nothing);
        }
        // The time of a commit, and the transaction's name.
        0x15 => {
            bytes.prefixed()?;
            bytes.prefixed()?;
            return Some(Entry::Nothing);
        }
        0x09 | 0x0d | 0x12 | 0x13 => return Some(Entry::Nothing),
        _ if has_family => bytes.varint32()?,
        0x00..=0x02 | 0x07 | 0x0f | 0x11 | 0x16 | 0x18 => 0,
        _ => return Some(Entry::Unknown),
    };
    let key = bytes.prefixed()?;
    let change = match kind {
        0x00 | 0x04 => Change::Delete,
        0x07 | 0x08 => Change::SingleDelete,
        0x02 | 0x06 => Change::Merge { value_bytes: length(bytes.prefixed()?) },
        0x0e | 0x0f => Change::DeleteRange { end: bytes.prefixed()? },
        // A value, a blob's index, a wide-column entity, a value with its time.
        _ => Change::Put { value_bytes: length(bytes.prefixed()?) },
    };
    Some(Entry::Change(Written { column_family_id, key, change }))
}

fn length(value: &[u8]) -> u32 {
    u32::try_from(value.len()).unwrap_or(u32::MAX)
}

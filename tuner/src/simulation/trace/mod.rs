//! RocksDB's query traces: what `DB::StartTrace` writes of the operations of a database that works, and
//! `db_bench --trace_file` too. Versions 0.1 and 0.2 of the format (RocksDB 5.15 to 11.12).
//!
//! Read here are writes, gets and iterators' seeks, with the keys of the database itself. A trace knows
//! neither how far an iterator went after a seek nor calls of `SeekToFirst` and `SeekToLast`. Traces of block
//! caches and of I/O are other files, and are not read.

mod bytes;
mod write_batch;

use bytes::Bytes;
pub use write_batch::{Change, Written};

/// What a trace begins with.
pub const MAGIC: &[u8] = b"feedcafedeadbeef";

/// Bytes of a record before its payload: time, type and length.
pub const RECORD_HEADER_BYTES: usize = 13;

/// Keys of one `MultiGet` that are read; RocksDB's own limit is some thousands.
const MULTI_GET_KEYS_MAX: u32 = 1 << 16;

/// Numbers of record types: RocksDB's `TraceType`.
const BEGIN: u8 = 1;
const END: u8 = 2;
const WRITE: u8 = 3;
const GET: u8 = 4;
const SEEK: u8 = 5;
const SEEK_FOR_PREV: u8 = 6;
const MULTI_GET: u8 = 13;

/// Bits of a record's map of what it holds: RocksDB's `TracePayloadType`.
const LOWER_BOUND: u64 = 1 << 6;
const UPPER_BOUND: u64 = 1 << 7;

/// Why a trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    #[error("the file does not begin as a query trace of RocksDB does")]
    NoTrace,
    #[error("the trace has version {0}, and 0.1 and 0.2 can be read")]
    Version(String),
    #[error("record {record} ends in the middle of {what}")]
    Short { record: u64, what: &'static str },
    #[error("record {record} has an entry of type {kind:#04x} in its write batch, which is not known")]
    Entry { record: u64, kind: u8 },
    #[error("record {record} gets {keys} keys at once, more than any program does")]
    ManyKeys { record: u64, keys: u32 },
    #[error("the traces have more than {0} operations")]
    ManyOperations(usize),
    #[error("the trace has no operation of column family {0}")]
    Empty(u32),
}

/// One call of the traced program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call<'t> {
    /// A write batch, in its order.
    Write(Vec<Written<'t>>),
    Get {
        column_family_id: u32,
        key: &'t [u8],
    },
    Seek(Seek<'t>),
}

/// An iterator's positioning call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seek<'t> {
    pub column_family_id: u32,
    pub key: &'t [u8],
    /// `iterate_lower_bound` and `iterate_upper_bound`.
    pub lower: Option<&'t [u8]>,
    pub upper: Option<&'t [u8]>,
    /// `Seek`, and not `SeekForPrev`.
    pub is_forward: bool,
}

/// A call, and when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'t> {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub call: Call<'t>,
}

/// Reads a trace record by record. A record that is cut off at the end of the file ends it: the program was
/// killed while it wrote, or the trace had reached its greatest size.
#[derive(Clone, Debug)]
pub struct Trace<'t> {
    bytes: Bytes<'t>,
    has_payload_maps: bool,
    record: u64,
    /// Calls of a `MultiGet` that are still to be given.
    gets: Vec<Record<'t>>,
}

impl<'t> Trace<'t> {
    /// # Errors
    /// Another kind of file, and a version that is not known.
    pub fn new(bytes: &'t [u8]) -> Result<Trace<'t>, TraceError> {
        let mut bytes = Bytes::new(bytes);
        let (_, kind, header) = framed(&mut bytes).ok_or(TraceError::NoTrace)?;
        if kind != BEGIN || !header.starts_with(MAGIC) {
            return Err(TraceError::NoTrace);
        }
        let text = String::from_utf8_lossy(header);
        let version = text.split('\t').find_map(|field| field.strip_prefix("Trace Version: "));
        let has_payload_maps = match version.map(str::trim) {
            Some("0.1") => false,
            Some("0.2") => true,
            other => return Err(TraceError::Version(other.unwrap_or_default().chars().take(16).collect())),
        };
        Ok(Trace { bytes, has_payload_maps, record: 0, gets: Vec::new() })
    }

    /// The next record that is one of those that are read; `None` at the end.
    fn record(&mut self) -> Result<Option<Record<'t>>, TraceError> {
        loop {
            if let Some(get) = self.gets.pop() {
                return Ok(Some(get));
            }
            let Some((at_us, kind, payload)) = framed(&mut self.bytes) else { return Ok(None) };
            self.record += 1;
            if kind == END {
                return Ok(None);
            }
            if !matches!(kind, WRITE | GET | SEEK | SEEK_FOR_PREV | MULTI_GET) {
                continue;
            }
            if let Some(call) = self.call(kind, Bytes::new(payload), at_us)? {
                return Ok(Some(Record { at_us, call }));
            }
        }
    }

    /// The call of a record; `None` for a `MultiGet`, whose gets come one by one.
    fn call(&mut self, kind: u8, mut payload: Bytes<'t>, at_us: u64) -> Result<Option<Call<'t>>, TraceError> {
        let record = self.record;
        let short = |what| TraceError::Short { record, what };
        let held = match self.has_payload_maps {
            true => payload.fixed64().ok_or(short("the map of what it holds"))?,
            false => 0,
        };
        if kind == MULTI_GET {
            self.gets = gets(&mut payload, at_us, record)?;
            return Ok(None);
        }
        if kind == WRITE {
            let batch = match self.has_payload_maps {
                true => payload.prefixed().ok_or(short("its write batch"))?,
                false => payload.rest(),
            };
            return Ok(Some(Call::Write(write_batch::entries(batch, record)?)));
        }
        let (column_family_id, key) = family_and_key(&mut payload).ok_or(short("its key"))?;
        if kind == GET {
            return Ok(Some(Call::Get { column_family_id, key }));
        }
        let mut bound = |bit| match held & bit {
            0 => Ok(None),
            _ => payload.prefixed().map(Some).ok_or(short("a bound")),
        };
        let (lower, upper) = (bound(LOWER_BOUND)?, bound(UPPER_BOUND)?);
        Ok(Some(Call::Seek(Seek { column_family_id, key, lower, upper, is_forward: kind == SEEK })))
    }
}

impl<'t> Iterator for Trace<'t> {
    type Item = Result<Record<'t>, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.record().transpose();
        if let Some(Err(_)) = record {
            self.bytes = Bytes::new(&[]);
        }
        record
    }
}

/// Time, type and payload of the next record.
fn framed<'t>(bytes: &mut Bytes<'t>) -> Option<(u64, u8, &'t [u8])> {
    let (at_us, kind) = (bytes.fixed64()?, bytes.byte()?);
    let length = bytes.fixed32()?;
    Some((at_us, kind, bytes.take(usize::try_from(length).ok()?)?))
}

fn family_and_key<'t>(payload: &mut Bytes<'t>) -> Option<(u32, &'t [u8])> {
    Some((payload.fixed32()?, payload.prefixed()?))
}

/// A `MultiGet` as its gets, the last one first.
fn gets<'t>(payload: &mut Bytes<'t>, at_us: u64, record: u64) -> Result<Vec<Record<'t>>, TraceError> {
    let short = || TraceError::Short { record, what: "its keys" };
    let count = payload.fixed32().ok_or_else(short)?;
    if count > MULTI_GET_KEYS_MAX {
        return Err(TraceError::ManyKeys { record, keys: count });
    }
    let mut families = Bytes::new(payload.prefixed().ok_or_else(short)?);
    let mut keys = Bytes::new(payload.prefixed().ok_or_else(short)?);
    let mut get = || {
        let call = Call::Get { column_family_id: families.fixed32()?, key: keys.prefixed()? };
        Some(Record { at_us, call })
    };
    let mut gets = (0..count).map(|_| get().ok_or_else(short)).collect::<Result<Vec<Record>, _>>()?;
    gets.reverse();
    Ok(gets)
}

#[cfg(test)]
pub(crate) mod tests;

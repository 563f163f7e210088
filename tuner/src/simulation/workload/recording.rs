//! A workload that was recorded: the calls of one column family in RocksDB's query traces.

use super::description::settings;
use crate::facts::key::Key;
use crate::simulation::lsm::Settings;
use crate::simulation::lsm::entry::Kind;
use crate::simulation::lsm::names::Names;
use crate::simulation::trace::{Call, Change, Record, Trace, TraceError};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Most operations of a recording: each takes 32 bytes of memory, and some microseconds to play.
const OPERATIONS_MAX: usize = 10_000_000;

/// Bytes of a value that nobody has written in the recording.
const VALUE_BYTES_UNKNOWN: u64 = 200;

/// What a trace does not say.
#[derive(Clone, Debug)]
pub struct Untold {
    pub name: String,
    /// Keys that each seek is followed by.
    pub list: u64,
    /// The column family; the one with the most seeks where nobody says.
    pub column_family_id: Option<u32>,
    /// RocksDB's options, under the names that an OPTIONS file has.
    pub options: BTreeMap<String, String>,
}

/// The calls of one column family, in the order of time.
#[derive(Clone, Debug)]
pub struct Recording {
    pub name: String,
    pub column_family_id: u32,
    /// Calls of other column families, which are not played.
    pub calls_of_others: u64,
    pub(super) list: u64,
    pub(super) operations: Vec<Operation>,
    /// Keys that were there when it began: those that are read, merged or deleted before they are put.
    pub(super) loaded: Vec<u64>,
    /// Of a value that was there when it began: the mean of what is put.
    pub(super) value_bytes: u32,
    settings: Settings,
}

/// One call; keys are places in the list of all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    /// Since the recording began.
    pub(super) at_us: u64,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Write {
        key: u32,
        kind: Kind,
        value_bytes: u32,
    },
    DeleteRange {
        begin: u32,
        end: u32,
    },
    Seek {
        key: u32,
        lower: Option<u32>,
        upper: Option<u32>,
        is_forward: bool,
    },
    /// A get skips no tombstones: it only says that the key is there.
    Get {
        key: u32,
    },
}

impl Recording {
    /// Reads traces, which may come in any order.
    ///
    /// # Errors
    /// What is no trace, and one without a call of the column family.
    pub fn of(traces: &[&[u8]], untold: Untold) -> Result<Recording, TraceError> {
        let seeks = seeks_by_family(traces)?;
        let most = seeks.iter().max_by_key(|(id, seeks)| (**seeks, std::cmp::Reverse(**id)));
        let family = untold.column_family_id.or(most.map(|(id, _)| *id)).unwrap_or(0);
        let mut keys = KeyList::default();
        let (mut operations, mut calls_of_others) = (Vec::new(), 0);
        for trace in traces {
            for record in Trace::new(trace)? {
                let Record { at_us, call } = record?;
                let before = operations.len();
                operations.extend(
                    (of_family(&call, family, &mut keys).into_iter()).map(|what| Operation { at_us, what }),
                );
                calls_of_others += u64::from(operations.len() == before);
                if operations.len() > OPERATIONS_MAX {
                    return Err(TraceError::ManyOperations(OPERATIONS_MAX));
                }
            }
        }
        operations.sort_by_key(|operation| operation.at_us);
        let Some(beginning_us) = operations.first().map(|first| first.at_us) else {
            return Err(TraceError::Empty(family));
        };
        let (listed, places) = keys.in_order();
        for operation in &mut operations {
            operation.at_us -= beginning_us;
            operation.what = operation.what.at(&places);
        }
        Ok(Recording {
            name: untold.name,
            column_family_id: family,
            calls_of_others,
            list: untold.list,
            loaded: loaded(&operations, listed.len()),
            value_bytes: mean_value_bytes(&operations),
            operations,
            settings: settings(Names::Listed(listed), &untold.options),
        })
    }

    /// From the first call to the last.
    pub fn duration(&self) -> Duration {
        Duration::from_micros(self.operations.last().map_or(0, |last| last.at_us))
    }

    /// Calls that are played.
    pub fn calls(&self) -> usize {
        self.operations.len()
    }

    /// What its tree is set to.
    pub(super) fn settings(&self) -> Settings {
        self.settings.clone()
    }
}

impl What {
    fn at(self, places: &[u32]) -> What {
        let place =
            |key: u32| usize::try_from(key).ok().and_then(|key| places.get(key)).copied().unwrap_or(key);
        match self {
            What::Write { key, kind, value_bytes } => What::Write { key: place(key), kind, value_bytes },
            What::DeleteRange { begin, end } => What::DeleteRange { begin: place(begin), end: place(end) },
            What::Get { key } => What::Get { key: place(key) },
            What::Seek { key, lower, upper, is_forward } => {
                What::Seek { key: place(key), lower: lower.map(place), upper: upper.map(place), is_forward }
            }
        }
    }
}

/// Keys in the order in which they come.
#[derive(Default)]
struct KeyList<'t> {
    numbers: HashMap<&'t [u8], u32>,
}

impl<'t> KeyList<'t> {
    fn number(&mut self, key: &'t [u8]) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(key).or_insert(next)
    }

    /// The keys in their own order, and for each number its place there.
    fn in_order(self) -> (Arc<[Key]>, Vec<u32>) {
        let mut ordered: Vec<(&[u8], u32)> = self.numbers.into_iter().collect();
        ordered.sort_unstable();
        let mut places = vec![0; ordered.len()];
        for (place, (_, number)) in (0..).zip(&ordered) {
            if let Some(slot) = usize::try_from(*number).ok().and_then(|number| places.get_mut(number)) {
                *slot = place;
            }
        }
        (ordered.into_iter().map(|(key, _)| Key::new(key)).collect(), places)
    }
}

fn seeks_by_family(traces: &[&[u8]]) -> Result<BTreeMap<u32, u64>, TraceError> {
    let mut seeks = BTreeMap::new();
    for trace in traces {
        for record in Trace::new(trace)? {
            if let Call::Seek(seek) = record?.call {
                *seeks.entry(seek.column_family_id).or_default() += 1;
            }
        }
    }
    Ok(seeks)
}

/// What a call does to this column family.
fn of_family<'t>(call: &Call<'t>, family: u32, keys: &mut KeyList<'t>) -> Vec<What> {
    match call {
        Call::Write(written) => {
            let own = written.iter().filter(|entry| entry.column_family_id == family);
            own.map(|entry| {
                let key = keys.number(entry.key);
                let write = |kind, value_bytes| What::Write { key, kind, value_bytes };
                match entry.change {
                    Change::Put { value_bytes } => write(Kind::Put, value_bytes),
                    Change::Merge { value_bytes } => write(Kind::Merge, value_bytes),
                    Change::Delete => write(Kind::Delete, 0),
                    Change::SingleDelete => write(Kind::SingleDelete, 0),
                    Change::DeleteRange { end } => What::DeleteRange { begin: key, end: keys.number(end) },
                }
            })
            .collect()
        }
        Call::Get { column_family_id, key } if *column_family_id == family => {
            vec![What::Get { key: keys.number(key) }]
        }
        Call::Seek(seek) if seek.column_family_id == family => vec![What::Seek {
            key: keys.number(seek.key),
            lower: seek.lower.map(|key| keys.number(key)),
            upper: seek.upper.map(|key| keys.number(key)),
            is_forward: seek.is_forward,
        }],
        _ => Vec::new(),
    }
}

/// Keys that are read, merged or deleted before they are put.
fn loaded(operations: &[Operation], keys: usize) -> Vec<u64> {
    let mut is_met = vec![false; keys];
    let mut loaded = Vec::new();
    for operation in operations {
        let (key, was_there) = match operation.what {
            What::Write { key, kind, .. } => (key, kind != Kind::Put),
            What::Get { key } => (key, true),
            What::DeleteRange { .. } | What::Seek { .. } => continue,
        };
        let met = usize::try_from(key).ok().and_then(|key| is_met.get_mut(key));
        if met.is_some_and(|met| !std::mem::replace(met, true)) && was_there {
            loaded.push(u64::from(key));
        }
    }
    loaded.sort_unstable();
    loaded
}

fn mean_value_bytes(operations: &[Operation]) -> u32 {
    let (mut bytes, mut puts) = (0u64, 0u64);
    for operation in operations {
        if let What::Write { kind: Kind::Put, value_bytes, .. } = operation.what {
            (bytes, puts) = (bytes + u64::from(value_bytes), puts + 1);
        }
    }
    u32::try_from(bytes.checked_div(puts).unwrap_or(VALUE_BYTES_UNKNOWN)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;

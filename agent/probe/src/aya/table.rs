//! aya's maps as tables of bytes. aya wants the sizes of keys and values as types: here they come from
//! `sexton.h`, and aya checks them against the object.

use super::{locked, said};
use crate::abi::{
    sexton_family, sexton_family_id, sexton_file, sexton_file_id, sexton_identity, sexton_iterator_id,
    sexton_learnt, sexton_operation, sexton_process, sexton_recipe, sexton_spending, sexton_thread,
    sexton_thread_id, sexton_totals,
};
use crate::error::LoaderError;
use crate::loader::Table;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use std::sync::{Arc, Mutex};

/// `BPF_NOEXIST`: the key must not be there yet.
const ONLY_NEW: u64 = 1;

/// The map `name` as a table.
/// Errors: a map that is not known here, or is of another kind or size in the object.
pub fn table(name: &'static str, map: Map) -> Result<Arc<dyn Table>, MapError> {
    match name {
        "sexton_armed" | "sexton_watched" => array::<{ size_of::<sexton_recipe>() }>(map),
        "sexton_passes" => hash::<{ size_of::<u32>() }, { size_of::<u32>() }>(map),
        "sexton_learnt_offsets" => array::<{ size_of::<sexton_learnt>() }>(map),
        "sexton_granted" => array::<{ size_of::<u64>() }>(map),
        "sexton_spending" => array::<{ size_of::<sexton_spending>() }>(map),
        "sexton_totals" => per_cpu::<{ size_of::<sexton_totals>() }>(map),
        "sexton_threads" => hash::<{ size_of::<sexton_thread_id>() }, { size_of::<sexton_thread>() }>(map),
        "sexton_operations" => {
            hash::<{ size_of::<sexton_iterator_id>() }, { size_of::<sexton_operation>() }>(map)
        }
        "sexton_identities" => {
            hash::<{ size_of::<sexton_iterator_id>() }, { size_of::<sexton_identity>() }>(map)
        }
        "sexton_files" => hash::<{ size_of::<sexton_file_id>() }, { size_of::<sexton_file>() }>(map),
        "sexton_families" => hash::<{ size_of::<sexton_family_id>() }, { size_of::<sexton_family>() }>(map),
        "sexton_processes" => hash::<{ size_of::<u32>() }, { size_of::<sexton_process>() }>(map),
        _ => Err(MapError::InvalidName { name: name.to_owned() }),
    }
}

fn array<const VALUE: usize>(map: Map) -> Result<Arc<dyn Table>, MapError> {
    Ok(Arc::new(ArrayTable::<VALUE>(Mutex::new(Array::try_from(map)?))))
}

fn per_cpu<const VALUE: usize>(map: Map) -> Result<Arc<dyn Table>, MapError> {
    Ok(Arc::new(PerCpuTable::<VALUE>(PerCpuArray::try_from(map)?)))
}

fn hash<const KEY: usize, const VALUE: usize>(map: Map) -> Result<Arc<dyn Table>, MapError> {
    Ok(Arc::new(HashTable::<KEY, VALUE>(Mutex::new(HashMap::try_from(map)?))))
}

struct ArrayTable<const VALUE: usize>(Mutex<Array<MapData, [u8; VALUE]>>);

impl<const VALUE: usize> Table for ArrayTable<VALUE> {
    fn update(&self, key: &[u8], value: &[u8], only_new: bool) -> Result<(), LoaderError> {
        locked(&self.0)
            .set(index(key)?, sized::<VALUE>(value)?, flags(only_new))
            .map_err(|error| said(&error))
    }

    fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LoaderError> {
        found(locked(&self.0).get(&index(key)?, 0))
    }
}

struct PerCpuTable<const VALUE: usize>(PerCpuArray<MapData, [u8; VALUE]>);

impl<const VALUE: usize> Table for PerCpuTable<VALUE> {
    fn lookup_per_cpu(&self, key: &[u8]) -> Result<Vec<Vec<u8>>, LoaderError> {
        let values = self.0.get(&index(key)?, 0).map_err(|error| said(&error))?;
        Ok(values.iter().map(|value| value.to_vec()).collect())
    }
}

struct HashTable<const KEY: usize, const VALUE: usize>(Mutex<HashMap<MapData, [u8; KEY], [u8; VALUE]>>);

impl<const KEY: usize, const VALUE: usize> Table for HashTable<KEY, VALUE> {
    fn update(&self, key: &[u8], value: &[u8], only_new: bool) -> Result<(), LoaderError> {
        let (key, value) = (sized::<KEY>(key)?, sized::<VALUE>(value)?);
        locked(&self.0).insert(key, value, flags(only_new)).map_err(|error| said(&error))
    }

    fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LoaderError> {
        found(locked(&self.0).get(&sized::<KEY>(key)?, 0))
    }

    fn delete(&self, key: &[u8]) -> Result<(), LoaderError> {
        locked(&self.0).remove(&sized::<KEY>(key)?).map_err(|error| said(&error))
    }

    fn keys(&self, most: usize) -> Result<Vec<Vec<u8>>, LoaderError> {
        let keys = locked(&self.0);
        keys.keys().take(most).map(|key| key.map(|key| key.to_vec()).map_err(|error| said(&error))).collect()
    }
}

fn found<const VALUE: usize>(value: Result<[u8; VALUE], MapError>) -> Result<Option<Vec<u8>>, LoaderError> {
    match value {
        Ok(value) => Ok(Some(value.to_vec())),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(error) => Err(said(&error)),
    }
}

fn flags(only_new: bool) -> u64 {
    if only_new { ONLY_NEW } else { 0 }
}

fn index(key: &[u8]) -> Result<u32, LoaderError> {
    sized(key).map(u32::from_ne_bytes)
}

fn sized<const COUNT: usize>(bytes: &[u8]) -> Result<[u8; COUNT], LoaderError> {
    let wrong = || LoaderError::Aya(format!("{} bytes where the map has {COUNT}", bytes.len()));
    bytes.try_into().map_err(|_| wrong())
}

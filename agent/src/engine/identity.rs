//! From the addresses that probes saw to names: which database directory, which column family.
//!
//! A name is read from the target's memory and believed only where it is one of the names that are
//! possible: a directory that the process has open, a printable column family name.

use crate::actuator::HandlePointers;
use crate::probe::Operation;
use crate::target::facts::Target;
use crate::target::memory;
use sexton_hook_protocol::ColumnFamilyPointers;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Offset of `DBImpl::dbname_`, behind the vtable pointer.
const DATABASE_NAME_OFFSET: u64 = 8;

/// Offset of `ColumnFamilyData::id_`.
const COLUMN_FAMILY_ID_OFFSET: u64 = 0;

/// Offset of `ColumnFamilyData::name_`.
const COLUMN_FAMILY_NAME_OFFSET: u64 = 8;

/// Longest directory name believed: PATH_MAX.
const DIRECTORY_BYTES_MAX: usize = 4096;

/// Longest column family name believed; names are people's words.
const COLUMN_FAMILY_NAME_BYTES_MAX: usize = 256;

/// Column family ids believed; they count up from 0 with each creation.
const COLUMN_FAMILY_ID_MAX: u64 = 1 << 24;

/// Addresses remembered per target: some hundred column families in a few databases, several times over.
const ADDRESSES_MAX: usize = 4096;

/// A column family as its process knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnFamilyIdentity {
    /// Name.
    pub name: String,
    /// `ColumnFamilyData::id_`.
    pub id: u32,
}

/// What is known of one target's addresses. Forgotten as soon as it grows too large: the next window
/// fills it again.
#[derive(Debug, Default)]
pub struct Identities {
    column_families: HashMap<u64, Option<ColumnFamilyIdentity>>,
    databases: HashMap<u64, Option<PathBuf>>,
    handles: BTreeMap<(PathBuf, String), HandlePointers>,
}

impl Identities {
    /// Learns from one operation; gives the directory and the column family as far as they are known.
    pub fn resolve(&mut self, target: &Target, operation: &Operation) -> (Option<PathBuf>, Option<String>) {
        if self.column_families.len() + self.databases.len() > ADDRESSES_MAX {
            *self = Identities::default();
        }
        let pid = target.process.pid;
        let family = (operation.column_family_data != 0)
            .then(|| {
                self.column_families
                    .entry(operation.column_family_data)
                    .or_insert_with(|| read_column_family(pid, operation.column_family_data))
                    .clone()
            })
            .flatten();
        let directory = (operation.database != 0)
            .then(|| {
                self.databases
                    .entry(operation.database)
                    .or_insert_with(|| read_directory(target, operation.database))
                    .clone()
            })
            .flatten();
        if let (Some(directory), Some(family)) = (&directory, &family) {
            let handles = HandlePointers {
                database: operation.database,
                column_family_handle: operation.column_family_handle,
                column_family_id: family.id,
            };
            self.handles.insert((directory.clone(), family.name.clone()), handles);
        }
        (directory, family.map(|family| family.name))
    }

    /// The pointers to a column family, as last seen at the creation of an iterator.
    pub fn handles(&self, directory: &Path, column_family: &str) -> Option<HandlePointers> {
        self.handles.get(&(directory.to_owned(), column_family.to_owned())).copied()
    }

    /// Pointers to any column family of the database in `directory`.
    pub fn any_pointers(&self, directory: &Path) -> Option<ColumnFamilyPointers> {
        let ((_, name), handles) = self.handles.iter().find(|((path, _), _)| path == directory)?;
        Some(ColumnFamilyPointers {
            database: handles.database,
            handle: handles.column_family_handle,
            name: name.clone(),
            id: handles.column_family_id,
        })
    }

    /// Forgets all pointers into this database: a command that used them was refused.
    pub fn forget(&mut self, database: u64) {
        self.databases.remove(&database);
        self.handles.retain(|_, known| known.database != database);
        self.column_families.clear();
    }
}

fn read_column_family(pid: u32, address: u64) -> Option<ColumnFamilyIdentity> {
    let id = memory::read_u64(pid, address.checked_add(COLUMN_FAMILY_ID_OFFSET)?).ok()? & 0xffff_ffff;
    let name_address = address.checked_add(COLUMN_FAMILY_NAME_OFFSET)?;
    let name = memory::read_std_string(pid, name_address, COLUMN_FAMILY_NAME_BYTES_MAX).ok()?;
    let name = String::from_utf8(name).ok()?;
    let believable = !name.is_empty() && !name.chars().any(char::is_control) && id <= COLUMN_FAMILY_ID_MAX;
    believable.then_some(ColumnFamilyIdentity { name, id: id as u32 })
}

fn read_directory(target: &Target, address: u64) -> Option<PathBuf> {
    let name_address = address.checked_add(DATABASE_NAME_OFFSET)?;
    let name = memory::read_std_string(target.process.pid, name_address, DIRECTORY_BYTES_MAX).ok()?;
    let name = PathBuf::from(String::from_utf8(name).ok()?);
    // Relative names are relative to the directory the process was in when it opened the database.
    let matches =
        |path: &PathBuf| *path == name || (name.is_relative() && path.ends_with(without_dot(&name)));
    let mut found = target.databases.iter().map(|database| &database.path).filter(|path| matches(path));
    let first = found.next()?;
    found.next().is_none().then(|| first.clone())
}

fn without_dot(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

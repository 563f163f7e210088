//! From the addresses that probes saw to names: which database directory, which column family, which SST
//! file.
//!
//! A name is read from the target's memory and believed only where it is one of the names that are
//! possible: a directory that the process has open, a printable column family name, the number of a file of
//! an open database. Handles come and go and addresses are used again, so names are read anew for each
//! window; what outlives a window is which database a column family belongs to, and only for as long as both
//! still answer to the same names.

use crate::facts::Target;
use crate::memory;
use sexton_hook_protocol::ColumnFamilyPointers;
use sexton_rocksdb_layout::{column_family_data, database, random_access_file_reader};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// No object lies below: the kernel maps nothing there.
const ADDRESS_MIN: u64 = 0x1000;

/// Digits of a file's number that RocksDB writes at least.
const SST_DIGITS_MIN: usize = 6;

/// Longest directory name believed: PATH_MAX.
const DIRECTORY_BYTES_MAX: usize = 4096;

/// Longest column family name believed; names are people's words.
const COLUMN_FAMILY_NAME_BYTES_MAX: usize = 256;

/// Column family ids believed; they count up from 0 with each creation.
const COLUMN_FAMILY_ID_MAX: u64 = 1 << 24;

/// Addresses remembered per target: some hundred column families in a few databases, several times over.
const ADDRESSES_MAX: usize = 4096;

/// Column families of a database that are asked what waits in them; some microseconds each.
const LOADED_MAX: usize = 256;

/// Where the objects of an operation are in the target's memory; 0 is not known. Nobody follows them without
/// checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// `rocksdb::DBImpl*`.
    pub database: u64,
    /// `rocksdb::ColumnFamilyHandleImpl*`.
    pub column_family_handle: u64,
    /// `rocksdb::ColumnFamilyData*`.
    pub column_family_data: u64,
}

/// The handle of a column family, where probes saw it in the target's memory; nobody follows it without
/// checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlePointers {
    /// `rocksdb::DBImpl*`.
    pub database: u64,
    /// `rocksdb::ColumnFamilyHandleImpl*`.
    pub column_family_handle: u64,
    pub column_family_id: u32,
}

impl HandlePointers {
    /// The same for the hook, which compares what it finds there with the column family's name and id.
    pub fn of(self, column_family: &str) -> ColumnFamilyPointers {
        ColumnFamilyPointers {
            database: self.database,
            handle: self.column_family_handle,
            name: column_family.to_owned(),
            id: self.column_family_id,
        }
    }
}

/// A column family as its process knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnFamilyIdentity {
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
    /// Names of those that show in no open file; read in this window.
    unseen: HashMap<u64, Option<PathBuf>>,
    handles: BTreeMap<(PathBuf, String), HandlePointers>,
    /// By the address of a `ColumnFamilyData`: from the creations of iterators that were seen.
    homes: HashMap<u64, Home>,
    /// Offset of `RandomAccessFileReader::file_name_`, once a file has shown it: it differs between versions.
    file_name_offset: Option<u64>,
}

/// Where a column family belongs.
#[derive(Debug)]
struct Home {
    database: u64,
    directory: PathBuf,
    family: ColumnFamilyIdentity,
}

/// An SST file as its process knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SstIdentity {
    /// Directory of the database it belongs to.
    pub database: PathBuf,
    /// Its number, as in `000123.sst`.
    pub number: u64,
}

impl Identities {
    /// Forgets the databases that the target does not have open any more: programs open and close a new one a
    /// minute, for months.
    pub fn keep(&mut self, is_open: impl Fn(&Path) -> bool) {
        self.handles.retain(|(directory, _), _| is_open(directory));
        self.homes.retain(|_, home| is_open(&home.directory));
    }

    /// Begins with a window's operations: names are read anew.
    pub fn begin_window(&mut self) {
        self.column_families.clear();
        self.databases.clear();
        self.unseen.clear();
        if self.homes.len() > ADDRESSES_MAX {
            self.homes.clear();
        }
    }

    /// What the target calls the database of an operation, where it has no file open that shows such a
    /// directory: it has an Env of its own, or the directory was deleted under it. For showing: nothing is
    /// looked for under this name.
    pub fn unseen(&mut self, target: &Target, addresses: Addresses) -> Option<PathBuf> {
        let address = addresses.database;
        if address == 0 || self.directory(target, address).is_some() {
            return None;
        }
        let read = || read_name(target.process.pid, address);
        self.unseen.entry(address).or_insert_with(read).clone()
    }

    /// Learns from one operation's addresses; gives the directory and the column family as far as they are
    /// known.
    pub fn resolve(&mut self, target: &Target, addresses: Addresses) -> (Option<PathBuf>, Option<String>) {
        if self.column_families.len() + self.databases.len() + self.unseen.len() > ADDRESSES_MAX {
            let file_name_offset = self.file_name_offset;
            *self = Identities { file_name_offset, ..Identities::default() };
        }
        let family = self.column_family(target, addresses.column_family_data);
        let mut directory = self.directory(target, addresses.database);
        if let (Some(directory), Some(family)) = (&directory, &family) {
            self.note(addresses, directory, family);
        } else if let Some(family) = &family {
            directory = self.home(target, addresses.column_family_data, family);
        }
        (directory, family.map(|family| family.name))
    }

    /// The file whose `RandomAccessFileReader` is at `address`; `None` where its name is none that can be, or
    /// it is not known yet where names stand.
    pub fn file(&self, target: &Target, address: u64) -> Option<SstIdentity> {
        named_file(target, address.checked_add(self.file_name_offset?)?)
    }

    /// At which byte of a `BlockFetcher`, which begins with these words, the pointer to its file stands: to
    /// an object that has the name of an SST file of an open database.
    pub fn find_file(&mut self, target: &Target, fetcher: &[u64]) -> Option<u32> {
        for (at, address) in fetcher.iter().enumerate() {
            for name_offset in (0..random_access_file_reader::NAME_MAX).step_by(8) {
                let place = address.checked_add(name_offset).filter(|_| *address >= ADDRESS_MIN);
                if place.and_then(|place| named_file(target, place)).is_some() {
                    self.file_name_offset = Some(name_offset);
                    return u32::try_from(at * size_of::<u64>()).ok();
                }
            }
        }
        None
    }

    fn column_family(&mut self, target: &Target, address: u64) -> Option<ColumnFamilyIdentity> {
        let pid = target.process.pid;
        let read = || read_column_family(pid, address);
        (address != 0).then(|| self.column_families.entry(address).or_insert_with(read).clone()).flatten()
    }

    fn directory(&mut self, target: &Target, address: u64) -> Option<PathBuf> {
        let read = || read_directory(target, address);
        (address != 0).then(|| self.databases.entry(address).or_insert_with(read).clone()).flatten()
    }

    fn note(&mut self, addresses: Addresses, directory: &Path, family: &ColumnFamilyIdentity) {
        let home =
            Home { database: addresses.database, directory: directory.to_owned(), family: family.clone() };
        self.homes.insert(addresses.column_family_data, home);
        if addresses.column_family_handle != 0 {
            let handles = HandlePointers {
                database: addresses.database,
                column_family_handle: addresses.column_family_handle,
                column_family_id: family.id,
            };
            self.handles.insert((directory.to_owned(), family.name.clone()), handles);
        }
    }

    /// The directory of a column family whose database no probe saw, from an earlier creation: believed where
    /// both are still what they were.
    fn home(&mut self, target: &Target, address: u64, family: &ColumnFamilyIdentity) -> Option<PathBuf> {
        let home = self.homes.get(&address)?;
        let (database, directory) = (home.database, home.directory.clone());
        if home.family == *family && self.directory(target, database).as_ref() == Some(&directory) {
            return Some(directory);
        }
        self.homes.remove(&address);
        None
    }

    /// The pointers to a column family, as last seen at the creation of an iterator.
    pub fn handles(&self, directory: &Path, column_family: &str) -> Option<HandlePointers> {
        self.handles.get(&(directory.to_owned(), column_family.to_owned())).copied()
    }

    /// Pointers to any column family of the database in `directory`.
    pub fn any_pointers(&self, directory: &Path) -> Option<ColumnFamilyPointers> {
        let ((_, name), handles) = self.handles.iter().find(|((path, _), _)| path == directory)?;
        Some(handles.of(name))
    }

    /// Pointers to the column families of the database in `directory` that are known, at most [`LOADED_MAX`].
    pub fn all_pointers(&self, directory: &Path) -> Vec<ColumnFamilyPointers> {
        let own = self.handles.iter().filter(|((path, _), _)| path == directory);
        own.take(LOADED_MAX).map(|((_, name), handles)| handles.of(name)).collect()
    }

    /// Forgets all pointers into this database: a command that used them was refused.
    pub fn forget(&mut self, database: u64) {
        self.databases.remove(&database);
        self.handles.retain(|_, known| known.database != database);
        self.homes.retain(|_, home| home.database != database);
        self.column_families.clear();
    }
}

fn read_column_family(pid: u32, address: u64) -> Option<ColumnFamilyIdentity> {
    let id = memory::read_u64(pid, address.checked_add(column_family_data::ID)?).ok()? & 0xffff_ffff;
    let name_address = address.checked_add(column_family_data::NAME)?;
    let name = memory::read_std_string(pid, name_address, COLUMN_FAMILY_NAME_BYTES_MAX).ok()?;
    let name = String::from_utf8(name).ok()?;
    let believable = !name.is_empty() && !name.chars().any(char::is_control) && id <= COLUMN_FAMILY_ID_MAX;
    believable.then_some(ColumnFamilyIdentity { name, id: id as u32 })
}

fn read_directory(target: &Target, address: u64) -> Option<PathBuf> {
    open_directory(target, &read_name(target.process.pid, address)?)
}

/// What a database calls itself: a name without control characters.
fn read_name(pid: u32, address: u64) -> Option<PathBuf> {
    let name_address = address.checked_add(database::NAME)?;
    let name = memory::read_std_string(pid, name_address, DIRECTORY_BYTES_MAX).ok()?;
    believable_name(name)
}

fn believable_name(name: Vec<u8>) -> Option<PathBuf> {
    let name = String::from_utf8(name).ok()?;
    (!name.is_empty() && !name.chars().any(char::is_control)).then(|| PathBuf::from(name))
}

/// The open database that the target calls `name`, where there is just one.
fn open_directory(target: &Target, name: &Path) -> Option<PathBuf> {
    // Relative names are relative to the directory the process was in when it opened the database.
    let matches = |path: &PathBuf| *path == name || (name.is_relative() && path.ends_with(without_dot(name)));
    let mut found = target.databases.iter().map(|database| &database.path).filter(|path| matches(path));
    let first = found.next()?;
    found.next().is_none().then(|| first.clone())
}

/// The SST file whose name is the `std::string` at `address`.
fn named_file(target: &Target, address: u64) -> Option<SstIdentity> {
    let name = memory::read_std_string(target.process.pid, address, DIRECTORY_BYTES_MAX).ok()?;
    let name = PathBuf::from(String::from_utf8(name).ok()?);
    let number = sst_number(name.file_name()?.to_str()?)?;
    Some(SstIdentity { database: open_directory(target, name.parent()?)?, number })
}

/// The number in `000123.sst`.
fn sst_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".sst")?;
    let is_number = digits.len() >= SST_DIGITS_MIN && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

fn without_dot(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_databases_name_is_text() {
        assert_eq!(believable_name(b"/dev/shm/om.db".to_vec()), Some(PathBuf::from("/dev/shm/om.db")));
        for name in [&b""[..], b"/db\x1b[2J", b"/db\n", b"\xff\xfe"] {
            assert_eq!(believable_name(name.to_vec()), None, "{name:?}");
        }
    }

    #[test]
    fn numbers_of_sst_files_and_of_nothing_else() {
        assert_eq!(sst_number("000123.sst"), Some(123));
        assert_eq!(sst_number("1234567.sst"), Some(1_234_567));
        for name in ["123.sst", "000123.blob", "00012x.sst", "+00123.sst", ".sst", "99999999999999999999.sst"]
        {
            assert_eq!(sst_number(name), None, "{name}");
        }
    }
}

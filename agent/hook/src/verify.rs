//! Whether the agent's pointers are what they are said to be, without following one blindly.
//!
//! Where things stand in RocksDB's objects is said by `sexton-rocksdb-layout`. A database's own name is only
//! shown, never relied upon.

use crate::rocksdb::RocksDb;
use crate::{maps, memory};
use sexton_hook_protocol::{COLUMN_FAMILY_NAME_BYTES_MAX, ColumnFamilyPointers};
use sexton_rocksdb_layout::{column_family_data, column_family_handle, database, virtual_table};

// A handle is read in one go, and its id with the word it stands in.
const _: () = assert!(column_family_handle::DATA == 8 && column_family_handle::DATABASE == 16);
const _: () = assert!(column_family_data::ID == 0);

/// Slots of a virtual table that are looked at where its symbol is hidden.
const VTABLE_SLOTS_CHECKED: usize = 4;

/// Bytes of a database's directory, `PATH_MAX`.
const DIRECTORY_BYTES_MAX: usize = 4096;

/// What the checks need of RocksDB's module.
pub struct Checker {
    /// Address of `DBImpl`'s virtual table, where its symbol is visible.
    pub database_vtable: Option<u64>,
    /// Address of `ColumnFamilyHandleImpl`'s.
    pub handle_vtable: Option<u64>,
    /// Device and inode of the module, for the weaker check without symbols.
    pub library_file: String,
}

impl Checker {
    /// For a module that was found.
    pub fn new(rocksdb: &RocksDb) -> Checker {
        Checker {
            database_vtable: rocksdb.database_vtable,
            handle_vtable: rocksdb.handle_vtable,
            library_file: rocksdb.library_file.clone(),
        }
    }

    /// Checks all there is to check; the reason of a refusal is one line for people.
    pub fn check(&self, pointers: &ColumnFamilyPointers) -> Result<(), String> {
        let vtable =
            self.object("database pointer", "rocksdb::DBImpl", pointers.database, self.database_vtable)?;
        let handle_vtable = self.object(
            "column family handle",
            "rocksdb::ColumnFamilyHandleImpl",
            pointers.handle,
            self.handle_vtable,
        )?;
        if vtable == handle_vtable {
            return Err("database pointer and column family handle are of the same class".to_owned());
        }
        let [_, data, owner] = memory::words::<3>(pointers.handle)
            .ok_or_else(|| format!("column family handle {:#x} is not readable memory", pointers.handle))?;
        if owner != pointers.database {
            return Err(format!(
                "column family handle {:#x} belongs to the database at {owner:#x}, not to {:#x}",
                pointers.handle, pointers.database
            ));
        }
        check_column_family(data, pointers)
    }

    /// Checks that a C++ object of this class lies at `address`, as far as its first word tells; returns
    /// that word.
    fn object(&self, what: &str, class: &str, address: u64, vtable: Option<u64>) -> Result<u64, String> {
        check_alignment(what, address)?;
        let [first] = memory::words::<1>(address)
            .ok_or_else(|| format!("{what} {address:#x} is not readable memory"))?;
        match vtable {
            Some(vtable) if first == vtable.wrapping_add(virtual_table::HEADER_BYTES) => Ok(first),
            Some(_) => Err(format!(
                "{what} {address:#x} is no {class}: its first word {first:#x} is not that class' virtual table"
            )),
            None => self.looks_like_vtable(first).map(|()| first).map_err(|reason| {
                format!("{what} {address:#x} is no {class}: its first word {first:#x} {reason}")
            }),
        }
    }

    /// Without the symbol: the word points into the module's data, and what stands there into its code.
    fn looks_like_vtable(&self, address: u64) -> Result<(), &'static str> {
        if !address.is_multiple_of(8) {
            return Err("is misaligned");
        }
        let mappings = maps::own();
        match maps::at(&mappings, address) {
            Some(home) if home.file == self.library_file && !home.executable => {}
            _ => return Err("does not point into the data of RocksDB's module"),
        }
        let slots = memory::words::<VTABLE_SLOTS_CHECKED>(address).ok_or("is not readable memory")?;
        let is_code = |slot: &u64| {
            maps::at(&mappings, *slot).is_some_and(|home| home.executable && home.file == self.library_file)
        };
        if slots.iter().all(is_code) { Ok(()) } else { Err("points to no functions of RocksDB's module") }
    }
}

fn check_alignment(what: &str, address: u64) -> Result<(), String> {
    match address {
        0 => Err(format!("{what} is null")),
        _ if !address.is_multiple_of(8) => Err(format!("{what} {address:#x} is misaligned")),
        _ => Ok(()),
    }
}

/// Checks id and name of the `ColumnFamilyData` at `data`.
fn check_column_family(data: u64, pointers: &ColumnFamilyPointers) -> Result<(), String> {
    check_alignment("column family data", data)?;
    let [first] = memory::words::<1>(data)
        .ok_or_else(|| format!("column family data {data:#x} is not readable memory"))?;
    let id = u32::try_from(first & u64::from(u32::MAX)).unwrap_or_default();
    if id != pointers.id {
        return Err(format!("the column family at the handle has id {id}, not {}", pointers.id));
    }
    let name = memory::cpp_string(data.wrapping_add(column_family_data::NAME), COLUMN_FAMILY_NAME_BYTES_MAX)
        .ok_or("the column family's name is not readable as a std::string of libstdc++")?;
    if name != pointers.name.as_bytes() {
        return Err(format!(
            "the column family at the handle is named {:?}, not {:?}",
            String::from_utf8_lossy(&name),
            pointers.name
        ));
    }
    Ok(())
}

/// What the object at `handle` says, if it is a `ColumnFamilyHandleImpl`: to be checked before use.
pub fn describe(handle: u64) -> Option<ColumnFamilyPointers> {
    let [_, data, database] = memory::words::<3>(handle)?;
    let [first] = memory::words::<1>(data)?;
    let name = memory::cpp_string(data.checked_add(column_family_data::NAME)?, COLUMN_FAMILY_NAME_BYTES_MAX)?;
    let id = u32::try_from(first & u64::from(u32::MAX)).ok()?;
    Some(ColumnFamilyPointers { database, handle, name: String::from_utf8(name).ok()?, id })
}

/// Directory of a database that passed the checks; `None` where the string there is no absolute path.
pub fn directory(database: u64) -> Option<String> {
    let bytes = memory::cpp_string(database.checked_add(database::NAME)?, DIRECTORY_BYTES_MAX)?;
    let text = String::from_utf8(bytes).ok()?;
    (text.starts_with('/') && !text.contains(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    static DATABASE_VTABLE: [u64; 8] = [1; 8];
    static HANDLE_VTABLE: [u64; 8] = [2; 8];

    /// Objects laid out as RocksDB's are, in this process' real memory.
    struct Objects {
        database: Box<[u64; 6]>,
        handle: Box<[u64; 4]>,
        data: Box<[u64; 6]>,
    }

    impl Objects {
        fn new() -> Objects {
            let mut data = Box::new([0, 0, 8, u64::from_le_bytes(*b"keyTable"), 0, 0]);
            data[0] = 3 | 0xabcd << 32;
            data[1] = data.as_ptr() as u64 + 24;
            let mut database = Box::new([0, 0, 5, u64::from_le_bytes(*b"/data\0\0\0"), 0, 0]);
            database[0] = DATABASE_VTABLE.as_ptr() as u64 + 16;
            database[1] = database.as_ptr() as u64 + 24;
            let vtable = HANDLE_VTABLE.as_ptr() as u64 + 16;
            let handle = Box::new([vtable, data.as_ptr() as u64, database.as_ptr() as u64, 0]);
            Objects { database, handle, data }
        }

        fn pointers(&self) -> ColumnFamilyPointers {
            ColumnFamilyPointers {
                database: self.database.as_ptr() as u64,
                handle: self.handle.as_ptr() as u64,
                name: "keyTable".into(),
                id: 3,
            }
        }
    }

    fn checker() -> Checker {
        Checker {
            database_vtable: Some(DATABASE_VTABLE.as_ptr() as u64),
            handle_vtable: Some(HANDLE_VTABLE.as_ptr() as u64),
            library_file: String::new(),
        }
    }

    #[test]
    fn what_is_as_said_passes() {
        let objects = Objects::new();
        assert_eq!(checker().check(&objects.pointers()), Ok(()));
        assert_eq!(directory(objects.pointers().database).unwrap(), "/data");
        assert_eq!(describe(objects.pointers().handle), Some(objects.pointers()));
        assert_eq!(objects.data[2], 8);
    }

    #[test]
    fn every_refusal_names_its_reason() {
        let (objects, other) = (Objects::new(), Objects::new());
        let good = objects.pointers();
        let cases = [
            (ColumnFamilyPointers { database: 0, ..good.clone() }, "database pointer is null"),
            (ColumnFamilyPointers { handle: 0, ..good.clone() }, "column family handle is null"),
            (ColumnFamilyPointers { database: good.database + 4, ..good.clone() }, "misaligned"),
            (ColumnFamilyPointers { handle: 0xdead_0000, ..good.clone() }, "not readable memory"),
            (ColumnFamilyPointers { database: good.database + 8, ..good.clone() }, "is no rocksdb::DBImpl"),
            (ColumnFamilyPointers { database: good.handle, ..good.clone() }, "is no rocksdb::DBImpl"),
            (
                ColumnFamilyPointers { handle: good.database, ..good.clone() },
                "is no rocksdb::ColumnFamilyHandle",
            ),
            (
                ColumnFamilyPointers { handle: other.pointers().handle, ..good.clone() },
                "belongs to the database",
            ),
            (ColumnFamilyPointers { id: 4, ..good.clone() }, "has id 3, not 4"),
            (ColumnFamilyPointers { name: "fileTable".into(), ..good.clone() }, "named \"keyTable\""),
        ];
        for (pointers, reason) in cases {
            let refusal = checker().check(&pointers).unwrap_err();
            assert!(refusal.contains(reason), "{refusal} / {reason}");
        }
    }

    #[test]
    fn a_dropped_column_family_data_is_refused() {
        let mut objects = Objects::new();
        objects.handle[1] = 0x6000_0000_0000;
        assert!(checker().check(&objects.pointers()).unwrap_err().contains("not readable"));
        objects.handle[1] = 0;
        assert!(checker().check(&objects.pointers()).unwrap_err().contains("is null"));
    }

    #[test]
    fn without_symbols_the_first_word_must_be_a_table_of_functions() {
        let objects = Objects::new();
        let mappings = maps::own();
        let own = maps::at(&mappings, check_alignment as *const () as u64).unwrap();
        let weak = Checker { database_vtable: None, handle_vtable: None, library_file: own.file.clone() };
        let refusal = weak.check(&objects.pointers()).unwrap_err();
        assert!(refusal.contains("points to no functions"), "{refusal}");
        let stranger = Checker { library_file: "00:00 7".into(), ..weak };
        assert!(stranger.check(&objects.pointers()).unwrap_err().contains("does not point into the data"));
    }

    proptest! {
        #[test]
        fn arbitrary_pointers_are_refused(database in any::<u64>(), handle in any::<u64>(), name in ".{0,8}") {
            let pointers = ColumnFamilyPointers { database, handle, name, id: 0 };
            prop_assert!(checker().check(&pointers).is_err());
            let weak = Checker { database_vtable: None, handle_vtable: None, library_file: "x".into() };
            prop_assert!(weak.check(&pointers).is_err());
        }
    }
}

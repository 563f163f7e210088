//! Where things stand in RocksDB's objects: the one place for the agent, its BPF programs and the hook.
//!
//! What is relied upon holds in RocksDB 5.8 to 11.12 as built by g++ or clang with libstdc++. Offsets that
//! differ between builds are not here: they are read from the target's code. Nothing here reads memory.

#![no_std]

pub mod perf_context;

/// `DBImpl`.
pub mod database {
    /// `std::string dbname_`, behind the virtual table. It has stood there as long as anyone can remember.
    pub const NAME: u64 = 8;
}

/// `ColumnFamilyHandleImpl`: virtual table, `cfd_`, `db_`.
pub mod column_family_handle {
    /// `ColumnFamilyData* cfd_`.
    pub const DATA: u64 = 8;
    /// `DBImpl* db_`.
    pub const DATABASE: u64 = 16;
}

/// `ColumnFamilyData`.
pub mod column_family_data {
    /// `uint32_t id_`.
    pub const ID: u64 = 0;
    /// `std::string name_`.
    pub const NAME: u64 = 8;
}

/// `RandomAccessFileReader`.
pub mod random_access_file_reader {
    /// Where `std::string file_name_` stands at most: since 6.25 at 104.
    pub const NAME_MAX: u64 = 192;
}

/// A class' virtual table, as the Itanium C++ ABI has it.
pub mod virtual_table {
    /// The offset to the top and the type information, which stand before what an object points to.
    pub const HEADER_BYTES: u64 = 16;
}

/// libstdc++'s `std::string`, in either layout: `{ data, length, union { room, capacity } }` since GCC 5, and
/// before it, or with `_GLIBCXX_USE_CXX11_ABI=0`, `{ data }` with length, capacity and a count of references
/// in front of the characters.
pub mod std_string {
    /// Room for a short string's characters.
    pub const ROOM: u64 = 16;
    /// Characters that have room there.
    pub const ROOM_BYTES_MAX: u64 = 15;
    /// What stands in front of the characters in the older layout.
    pub const COUNTS_BYTES: u64 = 24;
}

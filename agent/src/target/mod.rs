//! Finding running RocksDBs and how to read them.

pub mod facts;

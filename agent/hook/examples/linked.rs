//! A program that links the hook as a crate and tells it of its column family. Does what `linked.c` does.
//!
//! With a second argument a worker thread of its own panics with that for a message first: the panic is told
//! where the program's panics are told, by its own panic hook.
//!
//! It is linked with `-rdynamic` (see `build.rs`), so that the hook finds the C API of the RocksDB in it.

use rust_rocksdb::{AsColumnFamilyRef, ColumnFamilyDescriptor, DB, IteratorMode, Options};
use sexton_hook::linked;
use std::error::Error;
use std::io::Read;

const KEYS: u32 = 20_000;
const LEFT: u32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: linked DIRECTORY [PANIC]")?;
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    let family = ColumnFamilyDescriptor::new("default", options.clone());
    let database = DB::open_cf_descriptors(&options, directory, [family])?;
    fill_and_delete(&database)?;
    let handle = database.cf_handle("default").ok_or("no column family")?;

    linked::start()?;
    linked::register(handle.inner().cast())?;
    if let Some(message) = std::env::args().nth(2) {
        #[expect(clippy::panic, reason = "that is what is asked for")]
        let worker = std::thread::spawn(move || std::panic::panic_any(message));
        worker.join().err().ok_or("the worker did not panic")?;
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let keys = database.iterator(IteratorMode::Start).count();
    linked::unregister(handle.inner().cast())?;

    drop(database);
    if keys == LEFT as usize { Ok(()) } else { Err(format!("{keys} keys are left").into()) }
}

fn fill_and_delete(database: &DB) -> Result<(), rust_rocksdb::Error> {
    let key = |number: u32| format!("key{number:09}");
    for number in 0..KEYS {
        database.put(key(number), [0; 100])?;
    }
    database.flush()?;
    for number in 0..KEYS - LEFT {
        database.delete(key(number))?;
    }
    database.flush()
}

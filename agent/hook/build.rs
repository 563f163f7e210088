//! Links the library so that it loads with any glibc from 2.17 on and is never unloaded, and the example so
//! that the RocksDB in it can be found with `dlsym`.

use std::path::PathBuf;
use std::process::Command;

/// Names for which `glibc.s` has what glibc 2.17 has.
const NAMES: [&str; 17] = [
    "dlopen",
    "dlsym",
    "fstat64",
    "lstat64",
    "pthread_attr_getguardsize",
    "pthread_attr_getstack",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_detach",
    "pthread_getattr_np",
    "pthread_join",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_setname_np",
    "pthread_setspecific",
    "pthread_sigmask",
    "stat64",
];

/// Names that Rust's library only uses where they are there, and does without: they are nowhere.
const DONE_WITHOUT: [&str; 3] = ["__cxa_thread_atexit_impl", "gettid", "statx"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rustc-link-arg-examples=-rdynamic");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=glibc.s");
    let object = PathBuf::from(std::env::var("OUT_DIR")?).join("glibc.o");
    let status = Command::new("cc").args(["-c", "glibc.s", "-o"]).arg(&object).status()?;
    if !status.success() {
        return Err(format!("cc ended with {status}").into());
    }
    println!("cargo:rustc-cdylib-link-arg={}", object.display());
    for name in NAMES.iter().chain(&DONE_WITHOUT) {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
    // Its threads and the vtables that lead into it stay, whatever its host closes.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    Ok(())
}

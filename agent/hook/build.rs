//! Links the library so that it loads with any glibc from 2.17 on, or with musl, and is never unloaded, and
//! the example so that the RocksDB in it can be found with `dlsym`.

use std::path::{Path, PathBuf};
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

/// What Rust's library calls of the unwinder.
const UNWINDER: [&str; 14] = [
    "_Unwind_Backtrace",
    "_Unwind_DeleteException",
    "_Unwind_FindEnclosingFunction",
    "_Unwind_GetCFA",
    "_Unwind_GetDataRelBase",
    "_Unwind_GetIP",
    "_Unwind_GetIPInfo",
    "_Unwind_GetLanguageSpecificData",
    "_Unwind_GetRegionStart",
    "_Unwind_GetTextRelBase",
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "_Unwind_SetGR",
    "_Unwind_SetIP",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rustc-link-arg-examples=-rdynamic");
    println!("cargo:rerun-if-changed=build.rs");
    // Its threads and the vtables that lead into it stay, whatever its host closes.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let directory = PathBuf::from(std::env::var("OUT_DIR")?);
    // musl has one version of each name.
    if std::env::var("CARGO_CFG_TARGET_ENV")? == "musl" {
        return link_unwinder(&directory);
    }
    println!("cargo:rerun-if-changed=glibc.s");
    let object = directory.join("glibc.o");
    compile(Command::new("cc").args(["-c", "glibc.s", "-o"]).arg(&object))?;
    println!("cargo:rustc-cdylib-link-arg={}", object.display());
    for name in NAMES.iter().chain(&DONE_WITHOUT) {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
    Ok(())
}

/// Where a program on musl has C++ (RocksDB), it has `libgcc_s.so.1`. To link against it takes no more than
/// its names, so a library of nothing but these stands in for it here: Debian's own is one for glibc.
fn link_unwinder(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let source = directory.join("unwinder.s");
    let functions = UNWINDER.map(|name| format!(".globl {name}\n.type {name}, @function\n{name}: ret\n"));
    std::fs::write(&source, functions.concat())?;
    let mut command = Command::new("cc");
    command.args(["-shared", "-nostdlib", "-Wl,-soname,libgcc_s.so.1", "-o"]);
    compile(command.arg(directory.join("libgcc_s.so")).arg(&source))?;
    println!("cargo:rustc-link-search=native={}", directory.display());
    Ok(())
}

fn compile(command: &mut Command) -> Result<(), Box<dyn std::error::Error>> {
    let status = command.status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("cc ended with {status}").into()),
    }
}

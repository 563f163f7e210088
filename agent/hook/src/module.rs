//! A handle to a module that is loaded already.

use crate::maps;
use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

/// Loaded modules that are looked through; a JVM with every library has some 100.
const MODULES_MAX: usize = 4096;

/// The dynamic linker's handle of the module that is mapped from `path`; `None` if there is none. The
/// handle is kept for good, so that the module is never unloaded while the hook is there.
pub fn handle(path: &OsStr) -> Option<*mut c_void> {
    let name = CString::new(path.as_bytes()).ok()?;
    open_loaded(&name).or_else(|| {
        // The dynamic linker knows it under another name, through a symbolic link.
        let mappings = maps::own();
        let modules = loaded();
        let found = modules.iter().find(|module| {
            maps::at(&mappings, module.address)
                .is_some_and(|mapping| mapping.path.as_bytes() == name.to_bytes())
        })?;
        open_loaded(&found.name)
    })
}

/// `dlopen` that loads nothing; an empty name is the program itself.
fn open_loaded(name: &CStr) -> Option<*mut c_void> {
    let name = if name.is_empty() { std::ptr::null() } else { name.as_ptr() };
    // SAFETY: null or a NUL-terminated name; with RTLD_NOLOAD no foreign code runs.
    let handle = unsafe { libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

struct Loaded {
    name: CString,
    /// An address within its first mapped segment.
    address: u64,
}

fn loaded() -> Vec<Loaded> {
    let mut modules = Vec::<Loaded>::new();
    // SAFETY: the callback gets what it expects: the address of `modules`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut modules).cast()) };
    modules
}

/// # Safety
/// Called by `dl_iterate_phdr` with a valid `info`; `data` points to the `Vec<Loaded>` given to it.
unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: both are valid for this call and nobody else uses the vector meanwhile.
    let (info, modules) = unsafe { (&*info, &mut *data.cast::<Vec<Loaded>>()) };
    if modules.len() >= MODULES_MAX || info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
        return c_int::from(modules.len() >= MODULES_MAX);
    }
    // SAFETY: the dynamic linker's name is NUL-terminated, its program headers are `dlpi_phnum` many.
    let (name, headers) = unsafe {
        (
            CStr::from_ptr(info.dlpi_name).to_owned(),
            std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
        )
    };
    if let Some(segment) = headers.iter().find(|header| header.p_type == libc::PT_LOAD) {
        modules.push(Loaded { name, address: info.dlpi_addr.wrapping_add(segment.p_vaddr) });
    }
    0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_loaded_library_is_found_by_its_real_path() {
        let mappings = maps::own();
        let libc_path =
            mappings.iter().map(|mapping| mapping.path.as_str()).find(|path| path.contains("libc.so"));
        let handle = handle(OsStr::new(libc_path.unwrap())).unwrap();
        // SAFETY: a valid handle and a NUL-terminated name.
        assert!(!unsafe { libc::dlsym(handle, c"getpid".as_ptr()) }.is_null());
    }

    #[test]
    fn the_program_itself_is_found_and_a_file_that_is_not_loaded_is_not() {
        assert!(handle(std::env::current_exe().unwrap().as_os_str()).is_some());
        assert!(handle(OsStr::new("/etc/hostname")).is_none());
        assert!(handle(OsStr::from_bytes(b"/a\0b")).is_none());
    }
}

//! Whose dynamic linker a process has: glibc's and musl's lay out the dynamic thread vector differently.
//!
//! musl is known by two functions that its linker looks up in itself, and so cannot do without; a file's name
//! says nothing, distributions call it as they like. Everything else is taken for glibc.

use super::elf::ElfHeaders;
use super::maps::{Mapping, Maps};
use super::source::Source;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// `ldso/dynlink.c` finds its own later stages by these names.
const MUSL_STAGES: [&str; 2] = ["__dls2b", "__dls3"];

/// Defined by every dynamic linker for x86-64.
const TLS_GET_ADDR: &str = "__tls_get_addr";

/// Largest file that is looked into for being a dynamic linker: musl's has 800 KB, with all of its debug
/// information some megabytes.
const LINKER_BYTES_MAX: u64 = 16 << 20;

/// `AT_BASE` of the auxiliary vector: where the kernel has mapped the dynamic linker.
const AT_BASE: u64 = 7;

/// Bytes of the auxiliary vector that are read; the kernel writes some twenty pairs of words.
const AUXILIARY_VECTOR_BYTES_MAX: u64 = 4096;

/// Where the dynamic linker is mapped. Where the kernel has mapped none it is the executable itself: started
/// by hand, with the program as its argument.
pub(super) fn mapping<'a>(pid: u32, maps: &'a Maps, executable: &Path) -> Option<&'a Mapping> {
    let mut vector = Vec::new();
    let path = PathBuf::from(format!("/proc/{pid}/auxv"));
    File::open(path).ok()?.take(AUXILIARY_VECTOR_BYTES_MAX).read_to_end(&mut vector).ok()?;
    match base_address(&vector) {
        Some(base) if base != 0 => maps.executable.iter().find(|mapping| mapping.start >= base),
        _ => maps.executable.iter().find(|mapping| mapping.path == executable),
    }
}

fn base_address(auxiliary_vector: &[u8]) -> Option<u64> {
    let (words, _) = auxiliary_vector.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let base = pairs.iter().find(|[kind, _]| u64::from_ne_bytes(*kind) == AT_BASE)?;
    Some(u64::from_ne_bytes(base[1]))
}

/// Whether a file is musl's dynamic linker. One whose symbols cannot be read is none.
pub(super) fn is_musl(source: &Source<'_>, headers: &ElfHeaders) -> bool {
    if source.length() > LINKER_BYTES_MAX {
        return false;
    }
    let wanted = [&MUSL_STAGES[..], &[TLS_GET_ADDR]].concat();
    let symbols = headers.symbols(source, &wanted);
    symbols.is_ok_and(|symbols| defines_musl(|name| symbols.contains_key(name)))
}

/// Whether what defines these symbols is musl's dynamic linker.
fn defines_musl(defines: impl Fn(&str) -> bool) -> bool {
    defines(TLS_GET_ADDR) && MUSL_STAGES.iter().any(|stage| defines(stage))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::source::Allowance;
    use super::*;

    /// Some of what `.dynsym` of real files defines.
    const DEBIAN_MUSL_1_2_3: &[&str] = &["__dls2b", "__dls3", "__libc_start_main", "__tls_get_addr", "dlsym"];
    const ALPINE_MUSL_1_1_15: &[&str] = &["__dls3", "__libc_start_main", "__tls_get_addr", "dlsym"];
    const GLIBC_2_36_LINKER: &[&str] = &["_rtld_global", "__rseq_offset", "__tls_get_addr"];
    const STATIC_PROGRAM: &[&str] = &[];
    const LIBRARY_NAMED_LIKE_MUSL: &[&str] = &["__dls3"];

    #[test]
    fn musl_is_known_by_what_it_defines() {
        let is_musl = |symbols: &[&str]| defines_musl(|name| symbols.contains(&name));
        assert!(is_musl(DEBIAN_MUSL_1_2_3));
        assert!(is_musl(ALPINE_MUSL_1_1_15));
        for other in [GLIBC_2_36_LINKER, STATIC_PROGRAM, LIBRARY_NAMED_LIKE_MUSL] {
            assert!(!is_musl(other), "{other:?}");
        }
    }

    #[test]
    fn our_own_linker_is_found_and_is_not_musl() {
        let pid = std::process::id();
        let maps = super::super::maps::read(pid).unwrap();
        let executable = std::env::current_exe().unwrap();
        let linker = mapping(pid, &maps, &executable).unwrap();
        assert_ne!(linker.path, executable);
        let (file, allowance) = (File::open(&linker.path).unwrap(), Allowance::default());
        let source = Source::of_file(&file, &allowance).unwrap();
        assert!(!is_musl(&source, &ElfHeaders::read(&source).unwrap()));
    }

    #[test]
    fn the_base_is_read_from_the_auxiliary_vector() {
        let vector = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        assert_eq!(base_address(&vector(&[3, 64, AT_BASE, 0x7f00, 0, 0])), Some(0x7f00));
        assert_eq!(base_address(&vector(&[3, AT_BASE, 0, 0])), None);
        assert_eq!(base_address(&vector(&[AT_BASE])), None);
        assert_eq!(base_address(b"short"), None);
    }
}

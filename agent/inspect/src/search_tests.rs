#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
use super::super::maps;
use super::*;
use std::ptr;

/// Maps a file for execution into our own process, as a loaded library would be, until it is dropped.
struct ExecutableMapping {
    address: *mut libc::c_void,
    length: usize,
}

impl ExecutableMapping {
    fn of(path: &Path) -> ExecutableMapping {
        let file = File::open(path).unwrap();
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
        // SAFETY: a new private mapping at an address of the kernel's choice; nothing reads or runs it.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, flags, std::os::fd::AsRawFd::as_raw_fd(&file), 0)
        };
        assert_ne!(address, libc::MAP_FAILED);
        ExecutableMapping { address, length }
    }
}

impl Drop for ExecutableMapping {
    fn drop(&mut self) {
        // SAFETY: just the mapping made in `of`, unmapped once.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

/// All tests that map files into this process, one after the other: each sees the others' mappings.
pub(crate) static MAPPINGS: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn search_ourselves(path: &Path) -> Search {
    let maps = maps::read(std::process::id()).unwrap();
    let mapping = maps.executable.iter().find(|mapping| mapping.path == path).unwrap();
    let mut search = Search::default();
    Searcher::default().examine(std::process::id(), &maps, mapping, &mut search).unwrap();
    search
}

#[test]
fn a_broken_library_named_rocksdb_is_reported_as_broken() {
    let _guard = MAPPINGS.lock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("librocksdbjni42.so");
    let whole = std::fs::read("/proc/self/exe").unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let _mapping = ExecutableMapping::of(&path);
    let search = search_ourselves(&path);
    let (broken, error) = search.broken.unwrap();
    assert_eq!(broken, path);
    assert!(matches!(error, ElfError::Malformed { .. }), "{error}");
}

#[test]
fn a_broken_library_of_another_name_is_only_a_hint() {
    let _guard = MAPPINGS.lock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("libother.so");
    let whole = std::fs::read("/proc/self/exe").unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let _mapping = ExecutableMapping::of(&path);
    let search = search_ourselves(&path);
    assert!(search.broken.is_none());
    assert!(search.hint.unwrap().contains("libother.so"));
}

#[test]
fn a_deleted_file_is_still_read_where_the_kernel_allows() {
    let _guard = MAPPINGS.lock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("librocksdb-gone.so");
    std::fs::write(&path, "no ELF file").unwrap();
    let _mapping = ExecutableMapping::of(&path);
    std::fs::remove_file(&path).unwrap();
    let search = search_ourselves(&path);
    // Without the capability for `map_files` there is no other way to a deleted file.
    match (search.broken, search.denied) {
        (Some((_, error)), None) => assert_eq!(error, ElfError::NotElf),
        (None, Some(denied)) => assert_eq!(denied, path),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_named_like_rocksdb_come_first_and_each_once() {
    let maps = maps::parse(
        b"1000-2000 r-xp 0 08:01 1 /usr/bin/java\n3000-4000 r-xp 0 08:01 2 /lib/libc.so.6\n\
          5000-6000 r-xp 0 08:01 3 /tmp/librocksdbjni1.so\n7000-8000 r-xp 2000 08:01 3 /tmp/librocksdbjni1.so\n",
    );
    let inodes: Vec<u64> = candidates(&maps).iter().map(|mapping| mapping.file.inode).collect();
    assert_eq!(inodes, [3, 1, 2]);
}

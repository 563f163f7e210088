//! `/proc/PID/maps`: which files a process has mapped for execution.
//!
//! Only executable mappings of files are kept: RocksDB's code is in one of them, and a store that maps
//! its SST files has hundreds of thousands of others. Opening the mapped file is the business of `module`.

use super::facts::FileIdentity;
use std::ffi::OsString;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Bytes of `/proc/PID/maps` that are read: 262,144 mappings (four times the kernel's default limit) of
/// 128 bytes each.
pub const MAPS_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Executable mappings that are kept: ten times what a JVM with a hundred native libraries has.
pub const EXECUTABLE_MAPPINGS_MAX: usize = 16_384;

/// One executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// Offset in the file of the byte at `start`.
    pub file_offset: u64,
    pub file: FileIdentity,
    /// Its path in the target's mount namespace, without ` (deleted)`.
    pub path: PathBuf,
    /// Whether the file is gone from its directory.
    pub deleted: bool,
}

impl Mapping {
    /// The file's name without its directory; empty for a path that has none.
    pub fn file_name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// `/proc/PID/map_files/START-END`: opens the very file that is mapped, deleted or not.
    pub fn map_files_path(&self, pid: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end))
    }

    /// Whether the byte at this offset of the file is in the mapping.
    pub fn contains_file_offset(&self, offset: u64) -> bool {
        offset >= self.file_offset && offset - self.file_offset < self.end - self.start
    }
}

/// What was read from one `maps` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    /// Executable mappings of files, in address order.
    pub executable: Vec<Mapping>,
    /// Whether any line was there at all: a kernel thread and a zombie have none.
    pub any: bool,
    /// Lines that were not understood.
    pub malformed_lines: usize,
    /// Whether the file had more than [`MAPS_BYTES_MAX`] or [`EXECUTABLE_MAPPINGS_MAX`].
    pub truncated: bool,
}

impl Maps {
    /// Tells one set of executable mappings from another: the same files at the same addresses have the same.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for mapping in &self.executable {
            (mapping.start, mapping.file).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Whether a file of this name (or of a name that begins so) is mapped for execution.
    pub fn has_file_named(&self, prefix: &str) -> bool {
        self.executable.iter().any(|mapping| mapping.file_name().starts_with(prefix))
    }
}

/// Reads a process's mappings.
/// Errors: what opening or reading `/proc/PID/maps` gives: `NotFound` or `ESRCH` for a process that is gone,
/// `PermissionDenied` for one that may not be looked into.
pub fn read(pid: u32) -> io::Result<Maps> {
    let mut content = Vec::new();
    let file = File::open(Path::new("/proc").join(pid.to_string()).join("maps"))?;
    file.take(MAPS_BYTES_MAX + 1).read_to_end(&mut content)?;
    let over = content.len() as u64 > MAPS_BYTES_MAX;
    if over {
        // The last line may be half a line; what is before it is whole.
        let whole = content.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        content.truncate(whole);
    }
    let mut maps = parse(&content);
    maps.truncated |= over;
    Ok(maps)
}

/// Parses the content of a `maps` file. Never fails: a line that is not understood is counted and left out.
pub fn parse(content: &[u8]) -> Maps {
    let mut maps = Maps::default();
    for line in content.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        maps.any = true;
        match parse_line(line) {
            Some(Line::Executable(_)) if maps.executable.len() >= EXECUTABLE_MAPPINGS_MAX => {
                maps.truncated = true;
                break;
            }
            Some(Line::Executable(mapping)) => maps.executable.push(mapping),
            Some(Line::Other) => {}
            None => maps.malformed_lines += 1,
        }
    }
    maps
}

enum Line {
    Executable(Mapping),
    Other,
}

/// One line: `start-end perms offset major:minor inode          path`.
fn parse_line(line: &[u8]) -> Option<Line> {
    let (addresses, rest) = next_field(line)?;
    let (permissions, rest) = next_field(rest)?;
    let (offset, rest) = next_field(rest)?;
    let (device, rest) = next_field(rest)?;
    let (inode, rest) = next_field(rest)?;

    let (start, end) = split_hexadecimal(addresses, b'-')?;
    let file_offset = hexadecimal(offset)?;
    let (major, minor) = split_hexadecimal(device, b':')?;
    let inode = std::str::from_utf8(inode).ok()?.parse::<u64>().ok()?;
    if start >= end || permissions.len() != 4 {
        return None;
    }
    // The kernel pads with spaces up to the path; a path that matters begins with a slash.
    let path = rest.iter().position(|&byte| byte != b' ').and_then(|at| rest.get(at..)).unwrap_or_default();
    if permissions.get(2) != Some(&b'x') || inode == 0 || path.first() != Some(&b'/') {
        return Some(Line::Other);
    }
    let (path, deleted) = match path.strip_suffix(b" (deleted)") {
        Some(stripped) => (stripped, true),
        None => (path, false),
    };
    let file = FileIdentity {
        device_major: u32::try_from(major).ok()?,
        device_minor: u32::try_from(minor).ok()?,
        inode,
    };
    let path = PathBuf::from(OsString::from_vec(unescape(path)));
    Some(Line::Executable(Mapping { start, end, file_offset, file, path, deleted }))
}

/// The next field and what follows the one space behind it.
fn next_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    let field = line.get(..end).filter(|field| !field.is_empty())?;
    Some((field, line.get(end + 1..).unwrap_or_default()))
}

fn hexadecimal(field: &[u8]) -> Option<u64> {
    // `from_str_radix` takes a sign, the kernel never writes one.
    let text = std::str::from_utf8(field).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, 16).ok()
}

fn split_hexadecimal(field: &[u8], separator: u8) -> Option<(u64, u64)> {
    let at = field.iter().position(|&byte| byte == separator)?;
    Some((hexadecimal(field.get(..at)?)?, hexadecimal(field.get(at + 1..)?)?))
}

/// Undoes the kernel's only escape: a newline is written `\012`, a backslash is written as it is.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(after) => {
                plain.push(b'\n');
                rest = after;
            }
            None => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "tests"
    )]
    use super::*;
    use proptest::prelude::*;

    const JVM: &[u8] = b"\
7f10a0000000-7f10a0a68000 r-xp 00000000 fe:00 1310731                    /tmp/librocksdbjni123.so (deleted)
7f10a0a68000-7f10a0c68000 ---p 00a68000 fe:00 1310731                    /tmp/librocksdbjni123.so (deleted)
7f10a0c68000-7f10a0c94000 rw-p 00a68000 fe:00 1310731                    /tmp/librocksdbjni123.so (deleted)
7f10b0000000-7f10b0021000 rw-p 00000000 00:00 0 
7ffd1c5f8000-7ffd1c61a000 rw-p 00000000 00:00 0                          [stack]
7ffd1c61b000-7ffd1c61d000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn a_deleted_library_is_found_and_only_its_executable_mapping() {
        let maps = parse(JVM);
        assert!(maps.any);
        assert_eq!(maps.malformed_lines, 0);
        assert_eq!(maps.executable.len(), 1);
        let library = &maps.executable[0];
        assert_eq!(library.path, Path::new("/tmp/librocksdbjni123.so"));
        assert!(library.deleted);
        assert_eq!((library.start, library.end, library.file_offset), (0x7f10a0000000, 0x7f10a0a68000, 0));
        let file = FileIdentity { device_major: 0xfe, device_minor: 0, inode: 1_310_731 };
        assert_eq!(library.file, file);
        assert_eq!(library.map_files_path(7), Path::new("/proc/7/map_files/7f10a0000000-7f10a0a68000"));
    }

    #[test]
    fn spaces_and_newlines_belong_to_the_path() {
        let maps = parse(b"1000-2000 r-xp 00000000 08:01 5    /srv/my data/lib\\012rocksdb.so\n");
        assert_eq!(maps.executable[0].path, Path::new("/srv/my data/lib\nrocksdb.so"));
        assert!(!maps.executable[0].deleted);
    }

    #[test]
    fn a_line_that_is_not_understood_is_counted_and_the_rest_is_kept() {
        let content =
            b"garbage\n2000-1000 r-xp 0 08:01 5 /a\n1000-2000 r-xp 0 08:01 5 /b\n+1-2 r-xp 0 0:0 1 /c\n";
        let maps = parse(content);
        assert_eq!(maps.malformed_lines, 3);
        assert_eq!(maps.executable.len(), 1);
        assert_eq!(maps.executable[0].path, Path::new("/b"));
    }

    #[test]
    fn a_kernel_thread_has_no_lines() {
        assert!(!parse(b"").any);
    }

    #[test]
    fn our_own_mappings_hold_this_very_function() {
        let maps = read(std::process::id()).unwrap();
        let address = our_own_mappings_hold_this_very_function as fn() as usize as u64;
        let mapping = maps.executable.iter().find(|m| m.start <= address && address < m.end).unwrap();
        let exe = std::env::current_exe().unwrap();
        assert_eq!(mapping.path, exe);
        assert_eq!(maps.malformed_lines, 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(content in proptest::collection::vec(any::<u8>(), 0..512)) {
            let maps = parse(&content);
            prop_assert!(maps.executable.len() + maps.malformed_lines <= content.len());
        }

        #[test]
        fn what_the_kernel_would_print_is_read_back(
            start in 1u64..1 << 46, pages in 1u64..1 << 20, file_offset in 0u64..1 << 40, inode in 1u64..,
            major in 0u32..1 << 12, minor in 0u32..1 << 20, name in "[ -~]{1,40}", deleted in any::<bool>(),
        ) {
            prop_assume!(!name.contains("\\012") && !name.ends_with(" (deleted)"));
            let end = start + pages * 4096;
            let suffix = if deleted { " (deleted)" } else { "" };
            let line = format!(
                "{start:x}-{end:x} r-xp {file_offset:08x} {major:02x}:{minor:02x} {inode}     /{name}{suffix}\n"
            );
            let maps = parse(line.as_bytes());
            prop_assert_eq!(maps.malformed_lines, 0);
            let mapping = &maps.executable[0];
            prop_assert_eq!(&mapping.path, &PathBuf::from(format!("/{name}")));
            prop_assert_eq!((mapping.start, mapping.end), (start, end));
            prop_assert_eq!(mapping.file_offset, file_offset);
            prop_assert_eq!(mapping.deleted, deleted);
            prop_assert_eq!(mapping.file.inode, inode);
        }
    }
}

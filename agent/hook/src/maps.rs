//! `/proc/self/maps`: which file an address belongs to, and whether it may hold code.

/// Bytes of the file that are read; a process may have 65,530 mappings of some 100 bytes.
const MAPS_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// One line: part of a file mapped into memory. Anonymous mappings are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Whether it may be written to.
    pub writable: bool,
    /// Whether code may run in it.
    pub executable: bool,
    /// Device and inode as the line has them: the file's identity, deleted or not.
    pub file: String,
    /// Path, without ` (deleted)`.
    pub path: String,
}

/// Mappings of files in this process; empty if they cannot be read.
pub fn own() -> Vec<Mapping> {
    use std::io::Read;
    let mut text = Vec::new();
    let read = std::fs::File::open("/proc/self/maps")
        .and_then(|file| file.take(MAPS_BYTES_MAX).read_to_end(&mut text));
    match read {
        Ok(_) => parse(&String::from_utf8_lossy(&text)),
        Err(_) => Vec::new(),
    }
}

/// The mapping that holds `address`.
pub fn at(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))
}

/// Parses the text of a maps file; lines that are not understood are passed over.
fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.split_once(' ')?;
        rest = after;
        Some(field)
    };
    let (addresses, permissions, _offset, device, inode) = (field()?, field()?, field()?, field()?, field()?);
    let path = rest.trim_start();
    let (start, end) = addresses.split_once('-')?;
    if !path.starts_with('/') {
        return None;
    }
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        writable: permissions.contains('w'),
        executable: permissions.contains('x'),
        file: format!("{device} {inode}"),
        path: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_a_jvm() {
        let text = "\
7f01c0000000-7f01c0800000 r-xp 0002f000 fe:01 1234                       /tmp/librocksdbjni 1.so (deleted)
7f01c1000000-7f01c1001000 rw-p 00000000 00:00 0 
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]
nonsense
";
        let mappings = parse(text);
        assert_eq!(mappings.len(), 1);
        let found = at(&mappings, 0x7f01c0000010).unwrap();
        assert_eq!((found.path.as_str(), found.file.as_str()), ("/tmp/librocksdbjni 1.so", "fe:01 1234"));
        assert!(found.executable);
        assert_eq!(at(&mappings, 0x7f01c0800000), None);
    }

    #[test]
    fn own_code_is_found() {
        let mappings = own();
        assert!(at(&mappings, parse_line as *const () as u64).unwrap().executable);
        assert!(!at(&mappings, (&raw const MAPS_IN_DATA) as u64).unwrap().executable);
    }

    static MAPS_IN_DATA: std::sync::Mutex<[u8; 4096]> = std::sync::Mutex::new([1; 4096]);

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[ -~\n]{0,300}") {
            let _ = parse(&text);
        }
    }
}

//! RocksDB's version, from what the database and the module say of themselves.
//!
//! Which layout follows from it is the business of `layout`.

use super::database::{newest_options_file, read_head};
use super::facts::{DatabaseDirectory, Version};
use sexton_sandbox::rooted;
use std::path::Path;

/// Bytes of an `OPTIONS` file that are read: the version is in its first lines.
const OPTIONS_BYTES_MAX: u64 = 64 * 1024;

/// Bytes of a `LOG` that are read: each new `LOG` begins with the version.
const LOG_BYTES_MAX: u64 = 64 * 1024;

/// What stands in front of the tag in `.rodata` of builds made from a git checkout.
pub const BUILD_TAG_PREFIX: &[u8] = b"rocksdb_build_git_tag:";

/// Longest tag that is looked at: "rocksdb-11.12.3-something".
pub const BUILD_TAG_BYTES_MAX: usize = 64;

/// The version of the first database whose newest `OPTIONS` file tells it. The library writes that file
/// each time it opens the database.
pub fn from_options_files(databases: &[DatabaseDirectory]) -> Option<Version> {
    databases.iter().find_map(|database| {
        let directory = rooted::open_directory(&database.path_from_agent, database.place()).ok()?;
        let name = newest_options_file(&directory)?;
        let content = read_head(&directory, &name, OPTIONS_BYTES_MAX).ok()?;
        let numbers = in_options(&content)?;
        Some(version(numbers, format!("{name} of {}", database.path.display())))
    })
}

/// The version of the first database whose `LOG` tells it.
pub fn from_log_files(databases: &[DatabaseDirectory]) -> Option<Version> {
    databases.iter().find_map(|database| {
        let directory = rooted::open_directory(&database.path_from_agent, database.place()).ok()?;
        let content = read_head(&directory, "LOG", LOG_BYTES_MAX).ok()?;
        let numbers = after(&content, b"RocksDB version: ").and_then(parse)?;
        Some(version(numbers, format!("LOG of {}", database.path.display())))
    })
}

/// The version in the build tag that follows [`BUILD_TAG_PREFIX`] in a module.
pub fn from_build_tag(tag: &[u8], module: &Path) -> Option<Version> {
    let numbers = parse(tag)?;
    Some(version(numbers, format!("build tag in {}", module.display())))
}

/// The version in a library's file name, `librocksdb.so.7.8.3`.
pub fn from_file_name(module: &Path) -> Option<Version> {
    let name = module.file_name()?.to_str()?;
    let numbers = parse(name.strip_prefix("librocksdb.so.")?.as_bytes())?;
    Some(version(numbers, format!("file name {}", module.display())))
}

type Numbers = (u32, u32, Option<u32>);

fn version((major, minor, patch): Numbers, source: String) -> Version {
    Version { major, minor, patch, source }
}

/// `rocksdb_version=7.7.3` on a line of its own.
fn in_options(content: &[u8]) -> Option<Numbers> {
    let lines = content.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter_map(|line| line.strip_prefix(b"rocksdb_version=")).find_map(parse)
}

fn after<'a>(content: &'a [u8], mark: &[u8]) -> Option<&'a [u8]> {
    let at = content.windows(mark.len()).position(|window| window == mark)?;
    content.get(at + mark.len()..)
}

/// `7.7.3`, `v7.7.3`, `rocksdb-6.0.1`, `11.12`: two or three numbers, whatever follows.
fn parse(text: &[u8]) -> Option<Numbers> {
    let text = text.strip_prefix(b"rocksdb-").unwrap_or(text);
    let text = text.strip_prefix(b"v").unwrap_or(text);
    let (major, rest) = number(text)?;
    let (minor, rest) = number(rest.strip_prefix(b".")?)?;
    let patch = rest.strip_prefix(b".").and_then(number).map(|(patch, _)| patch);
    (major > 0).then_some((major, minor, patch))
}

/// A number of at most four digits, and what follows it.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok().filter(|_| digits <= 4)?;
    Some((value, text.get(digits..)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_as_they_are_written() {
        assert_eq!(parse(b"7.7.3"), Some((7, 7, Some(3))));
        assert_eq!(parse(b"v11.12\0next"), Some((11, 12, None)));
        assert_eq!(parse(b"rocksdb-6.0.1-dirty"), Some((6, 0, Some(1))));
        for text in [&b""[..], b"7", b"7.", b".7", b"0.1.2", b"12345.1", b"main", b"@GIT_TAG@"] {
            assert_eq!(parse(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    const OPTIONS: &str = "# This is a RocksDB option file.\n#\n\n[Version]\n  rocksdb_version=7.8.3\n  \
                           options_file_version=1.1\n\n[DBOptions]\n  max_background_jobs=2\n";

    fn database(directory: &Path) -> [DatabaseDirectory; 1] {
        [DatabaseDirectory {
            path: "/var/lib/om.db".into(),
            path_from_agent: directory.into(),
            is_read_only: false,
            inode: 0,
            device: None,
        }]
    }

    #[test]
    fn the_newest_options_file_tells_the_version_and_where_it_was() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("OPTIONS-000005"), OPTIONS.replace("7.8.3", "6.1.2")).unwrap();
        std::fs::write(directory.path().join("OPTIONS-000007"), OPTIONS).unwrap();
        let version = from_options_files(&database(directory.path())).unwrap();
        assert_eq!((version.major, version.minor, version.patch), (7, 8, Some(3)));
        assert_eq!(version.source, "OPTIONS-000007 of /var/lib/om.db");
    }

    #[test]
    fn without_options_the_log_tells_it() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(from_log_files(&database(directory.path())), None);
        let log = "2026/11/20-10:46:53.1 7f1 RocksDB version: 7.7.3\n2026/11/20-10:46:53.1 7f1 Git sha 0\n";
        std::fs::write(directory.path().join("LOG"), log).unwrap();
        let version = from_log_files(&database(directory.path())).unwrap();
        assert_eq!((version.major, version.minor, version.patch), (7, 7, Some(3)));
        assert_eq!(version.source, "LOG of /var/lib/om.db");
        assert_eq!(from_options_files(&database(directory.path())), None);
    }

    #[test]
    fn build_tags_and_file_names() {
        let module = Path::new("/usr/lib/librocksdb.so.7.8.3");
        assert_eq!(
            from_build_tag(b"v7.7.3\0", module).unwrap().source,
            format!("build tag in {}", module.display())
        );
        assert_eq!(from_build_tag(b"\0rocksdb_build_date", module), None);
        assert_eq!(from_file_name(module).unwrap().patch, Some(3));
        assert_eq!(from_file_name(Path::new("/tmp/librocksdbjni123.so")), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (parse(&text), in_options(&text));
        }

        #[test]
        fn what_is_written_is_read(major in 1u32..9999, minor in 0u32..9999, patch in 0u32..9999) {
            let text = format!("{major}.{minor}.{patch}");
            prop_assert_eq!(parse(text.as_bytes()), Some((major, minor, Some(patch))));
        }
    }
}

//! What the agent says at attach: where to listen and which module holds RocksDB.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes of the options; HotSpot passes at most 1024.
const OPTIONS_BYTES_MAX: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub socket: PathBuf,
    /// Module with RocksDB's C API, as `/proc/self/maps` shows it; `None`: whatever the program exports.
    pub library: Option<OsString>,
}

impl Options {
    /// Options of a preloaded hook.
    pub fn preload() -> Options {
        Options { socket: default_socket(), library: None }
    }
}

/// Where a hook listens unless told otherwise; the agent builds the same path.
fn default_socket() -> PathBuf {
    PathBuf::from(format!("/tmp/.sexton-hook-{}.sock", std::process::id()))
}

/// Reads `socket=PATH,library=PATH`; both are optional, the library comes last and takes the rest.
pub fn parse(text: &[u8]) -> Result<Options, &'static str> {
    if text.len() > OPTIONS_BYTES_MAX {
        return Err("the options are too long");
    }
    let mut options = Options::preload();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(library) = rest.strip_prefix(b"library=") {
            if !library.starts_with(b"/") {
                return Err("library= is not an absolute path");
            }
            options.library = Some(OsStr::from_bytes(library).to_owned());
            return Ok(options);
        }
        let Some(value) = rest.strip_prefix(b"socket=") else {
            return Err("options are socket=PATH,library=PATH");
        };
        let end = value.iter().position(|byte| *byte == b',').unwrap_or(value.len());
        let (socket, after) = value.split_at_checked(end).unwrap_or((value, b""));
        if !socket.starts_with(b"/") {
            return Err("socket= is not an absolute path");
        }
        options.socket = PathBuf::from(OsStr::from_bytes(socket));
        rest = after.strip_prefix(b",").unwrap_or(after);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_either_or_none() {
        let options = parse(b"socket=/tmp/a.sock,library=/tmp/lib,with=comma.so").unwrap();
        assert_eq!(options.socket, PathBuf::from("/tmp/a.sock"));
        assert_eq!(options.library.unwrap(), "/tmp/lib,with=comma.so");
        assert_eq!(parse(b"").unwrap(), Options::preload());
        assert_eq!(parse(b"socket=/s").unwrap().library, None);
        assert_eq!(parse(b"library=/l").unwrap().socket, Options::preload().socket);
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [&b"socket=relative"[..], b"library=", b"socket=", b"0x7f00,0x8f00", b"socket=/a,verbose"]
        {
            assert!(parse(text).is_err(), "{}", String::from_utf8_lossy(text));
        }
        assert!(parse(&[b'/'; OPTIONS_BYTES_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text);
        }
    }
}

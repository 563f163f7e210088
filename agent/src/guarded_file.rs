//! Small files that decide who may do what: they are not read where somebody else could have written them, or
//! could read what is to stay secret.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What others than root and the agent's user may do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Read it, as a certificate.
    MayRead,
    /// Nothing, as a key.
    MayNothing,
}

/// The content of a file, at most `bytes_max` long.
/// Errors: why it is not read, with its path.
pub fn read(path: &Path, bytes_max: u64, others: Others) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let data = file.metadata().map_err(|error| format!("cannot look at {shown}: {error}"))?;
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if data.uid() != 0 && data.uid() != own.0 {
        return Err(format!("{shown} belongs to user {}, neither root nor the agent's user", data.uid()));
    }
    let is_group_ours = data.gid() == 0 || data.gid() == own.1;
    if is_open_to_others(data.mode(), is_group_ours, others) {
        let what = if others == Others::MayRead { "written" } else { "read or written" };
        return Err(format!("{shown} can be {what} by others (mode {:o})", data.mode() & 0o777));
    }
    let mut content = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut content);
    read.map_err(|error| format!("cannot read {shown}: {error}"))?;
    if content.len() as u64 > bytes_max {
        return Err(format!("{shown} is longer than {bytes_max} bytes"));
    }
    Ok(content)
}

fn is_open_to_others(mode: u32, is_group_ours: bool, others: Others) -> bool {
    let forbidden = if others == Others::MayRead { 0o022 } else { 0o066 };
    mode & forbidden & if is_group_ours { 0o007 } else { 0o077 } != 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_can_read_or_write_is_told_by_mode_and_group() {
        use Others::{MayNothing, MayRead};
        let open = [(0o644, true, MayNothing), (0o640, false, MayNothing), (0o602, true, MayNothing)];
        let open = open.into_iter().chain([(0o666, true, MayRead), (0o664, false, MayRead)]);
        for (mode, is_group_ours, others) in open {
            assert!(is_open_to_others(mode, is_group_ours, others), "{mode:o} {is_group_ours} {others:?}");
        }
        let closed = [(0o600, false, MayNothing), (0o640, true, MayNothing), (0o644, false, MayRead)];
        for (mode, is_group_ours, others) in closed {
            assert!(!is_open_to_others(mode, is_group_ours, others), "{mode:o} {is_group_ours} {others:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_or_that_is_too_long_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(read(&path, 9, Others::MayNothing).unwrap_err().contains("key"));
        std::fs::write(&path, "secret").unwrap();
        let allow = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        allow(0o644);
        assert!(read(&path, 9, Others::MayNothing).unwrap_err().contains("644"));
        assert_eq!(read(&path, 9, Others::MayRead).unwrap(), b"secret");
        allow(0o600);
        assert_eq!(read(&path, 6, Others::MayNothing).unwrap(), b"secret");
        assert!(read(&path, 5, Others::MayNothing).unwrap_err().contains("longer"));
    }
}

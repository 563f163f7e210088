//! The state directory: one agent's alone, for its user's eyes only.

use super::error::JournalError;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Keys of foreign databases are kept whole in here.
const DIRECTORY_MODE: u32 = 0o700;
/// The same for its files.
const FILE_MODE: u32 = 0o600;

/// How long a directory that is in use is waited for: an agent that was killed holds it until the kernel has
/// taken it apart, with the children it was just starting.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Bytes of the lock file that are read: a process id.
const HOLDER_BYTES_MAX: u64 = 32;

/// What the names of stores begin with that were set aside.
const BROKEN_PREFIX: &str = "store.broken-";
/// Stores set aside that are kept. More corruption than that is the disk's, and beginning anew each time
/// would hide it.
const BROKEN_MAX: usize = 3;

/// A state directory that this process has for itself.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Locked for as long as it is open; the kernel closes it however the agent ends.
    _lock: File,
}

impl StateDirectory {
    /// Makes the directory where it is not there, and takes it.
    pub fn take(path: &Path) -> Result<StateDirectory, JournalError> {
        let failed = |source| JournalError::Directory { path: path.to_owned(), source };
        make(path).map_err(failed)?;
        let lock_path = path.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(lock_path)
            .map_err(failed)?;
        let deadline = Instant::now() + LOCK_WAIT_MAX;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_RETRY_DELAY);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(JournalError::Taken { path: path.to_owned(), holder: holder(&mut lock) });
                }
            }
        }
        // For people only: on a full disk it is left out.
        let _ = sign(&mut lock);
        Ok(StateDirectory { path: path.to_owned(), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the embedded RocksDB lies.
    pub fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Moves a corrupt store out of the way; gives where it lies now.
    ///
    /// # Errors
    /// [`JournalError::SetAsideTooOften`], and [`JournalError::Directory`] where it cannot be moved.
    pub fn set_aside(&self, reason: &str, unix_s: i64) -> Result<PathBuf, JournalError> {
        let failed = |source| JournalError::Directory { path: self.path.clone(), source };
        let entries = std::fs::read_dir(&self.path).map_err(failed)?.flatten();
        let count = entries.filter(|entry| is_broken(&entry.file_name().to_string_lossy())).count();
        if count >= BROKEN_MAX {
            let reason = reason.to_owned();
            return Err(JournalError::SetAsideTooOften { path: self.path.clone(), reason, count });
        }
        // Two in one second would have the same name.
        let names = (0..=BROKEN_MAX as i64).map(|later| format!("{BROKEN_PREFIX}{}", unix_s + later));
        let mut free = names.map(|name| self.path.join(name)).filter(|path| !path.exists());
        let aside = free.next().ok_or_else(|| failed(io::ErrorKind::AlreadyExists.into()))?;
        std::fs::rename(self.store(), &aside).map_err(failed)?;
        Ok(aside)
    }
}

/// Makes the directory; one that is there and belongs to others stays as open as its owner made it.
fn make(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    }
    let mode = path.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(
            path = %path.display(),
            "others may look into the state directory, and keys of watched databases are kept there: chmod 700"
        );
    }
    Ok(())
}

fn is_broken(name: &str) -> bool {
    name.starts_with(BROKEN_PREFIX)
}

fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    let read = lock.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("process {pid}"),
        _ => "another agent".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_directory_is_for_one_and_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let taken = StateDirectory::take(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, DIRECTORY_MODE);
        let error = StateDirectory::take(&path).unwrap_err();
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(taken);
        StateDirectory::take(&path).unwrap();
    }

    #[test]
    fn corrupt_stores_are_kept_and_not_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::take(folder.path()).unwrap();
        for _ in 0..BROKEN_MAX {
            std::fs::create_dir(directory.store()).unwrap();
            assert!(directory.set_aside("torn", 1_000).unwrap().is_dir());
        }
        std::fs::create_dir(directory.store()).unwrap();
        let error = directory.set_aside("torn", 1_000).unwrap_err();
        assert!(matches!(error, JournalError::SetAsideTooOften { count: BROKEN_MAX, .. }), "{error}");
    }

    #[test]
    fn a_file_in_its_place_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::write(&path, "").unwrap();
        assert!(matches!(StateDirectory::take(&path), Err(JournalError::Directory { .. })));
    }
}

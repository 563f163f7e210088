//! What guards go by, read of the target and of the disk that it stands on. What is too much is decided in
//! the tuner.

use super::Session;
use sexton_execute::{ExecuteError, HookClient, Properties};
use sexton_hook_protocol::{ColumnFamilyLoad, ColumnFamilyPointers};
use sexton_inspect::links;
use sexton_tuner::primitives::Primitives;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::TryLockError;
use std::time::Duration;
use tracing::debug;

/// Longest that the guards' readings may take: a dozen properties of some microseconds each, of at most 256
/// column families, and one question to the file system. A target that needs longer cannot be watched while
/// it is acted on.
pub const READINGS_LIMIT: Duration = Duration::from_secs(3);

/// What is read of a database and of one of its column families.
#[derive(Clone, Debug, Default)]
pub struct PlaceReadings {
    /// Bytes that the process could still write.
    pub disk_free_bytes: Option<u64>,
    /// What waits to be compacted in the column families that probes have seen.
    pub loads: Vec<ColumnFamilyLoad>,
    /// What RocksDB says of the column family; `None` where no hook answers or no probe has seen it.
    pub properties: Option<Properties>,
}

impl Session {
    /// What guards go by before an action begins.
    pub fn place_readings(&self, directory: &Path, column_family: &str) -> PlaceReadings {
        PlaceReadings {
            disk_free_bytes: self.disk_free_bytes(directory),
            loads: self.loads(directory),
            properties: self.properties(directory, column_family),
        }
    }

    /// Bytes that the process could still write on the file system of a database.
    pub fn disk_free_bytes(&self, directory: &Path) -> Option<u64> {
        free_bytes(&self.database(directory)?.path_from_agent)
    }

    /// Bytes that the file system of a database has, free or not.
    pub fn device_bytes(&self, directory: &Path) -> Option<u64> {
        let status = rustix::fs::statvfs(&self.database(directory)?.path_from_agent).ok()?;
        Some(status.f_blocks.saturating_mul(status.f_frsize))
    }

    /// The SST files of a database that have hard links elsewhere now: a checkpoint may have been made since
    /// the last window.
    pub fn linked_files(&self, directory: &Path) -> BTreeSet<u64> {
        let read = self.database(directory).and_then(|database| links::read(database).ok());
        read.map_or_else(BTreeSet::new, |links| links.files.iter().map(|file| file.number).collect())
    }

    /// What waits to be compacted in the database's column families, as far as probes have seen these and a
    /// hook answers.
    fn loads(&self, directory: &Path) -> Vec<ColumnFamilyLoad> {
        let pointers = self.identities.all_pointers(directory);
        if pointers.is_empty() {
            return Vec::new();
        }
        self.ask("loads", |hook| hook.loads(&pointers)).unwrap_or_default()
    }

    /// What the column family's RocksDB says of itself; `None` where no hook answers or no probe has seen it.
    pub fn properties(&self, directory: &Path, column_family: &str) -> Option<Properties> {
        let handles = self.identities.handles(directory, column_family)?;
        self.ask("properties", |hook| Properties::read(hook, &handles.of(column_family)))
    }

    /// What a database can be asked to compact by.
    pub fn primitives(&self, directory: &Path) -> Primitives {
        if self.refusing_files.borrow().contains(directory) {
            return Primitives::default();
        }
        self.ask("primitives", |hook| Ok(hook.primitives())).unwrap_or_default()
    }

    /// Compactions that a database runs; `None` where it cannot be asked.
    pub fn running_compactions(&self, directory: &Path) -> Option<u64> {
        let pointers: ColumnFamilyPointers = self.identities.any_pointers(directory)?;
        self.ask("properties", |hook| Properties::read(hook, &pointers))?.running_compactions
    }

    /// The hook's answer; `None` where none answers, another conversation goes on, or it failed.
    pub fn ask<T>(
        &self,
        what: &str,
        question: impl FnOnce(&mut HookClient) -> Result<T, ExecuteError>,
    ) -> Option<T> {
        let answer = self.converse(question)?;
        answer.inspect_err(|error| debug!(target = self.target.name, %error, "the hook gave no {what}")).ok()
    }

    /// The same with the error; `None` where nobody could be asked.
    pub fn converse<T>(
        &self,
        question: impl FnOnce(&mut HookClient) -> Result<T, ExecuteError>,
    ) -> Option<Result<T, ExecuteError>> {
        if self.silence.borrow().is_some() {
            return None;
        }
        let answer = match self.hook.as_ref()?.try_lock() {
            Ok(mut hook) => question(&mut hook),
            Err(TryLockError::Poisoned(poisoned)) => question(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(answer.inspect_err(|error| self.note_silence(error)))
    }
}

fn free_bytes(directory: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(directory).ok()?;
    Some(status.f_bavail.saturating_mul(status.f_frsize))
}

//! What looks at a database remember of it, so that the next look need not read it again.

use sexton_inspect::log_sizes::LogSizes;
use sexton_sst::{DatabaseFiles, IndexCache, PropertiesCache};
use std::collections::BTreeMap;

/// Files of a database that are remembered from look to look, at half a kilobyte each: where there are more,
/// they are read each time.
const REMEMBERED_FILES_MAX: usize = 1024;

/// What is remembered of a database from look to look.
#[derive(Default)]
pub struct SightedFiles {
    pub properties: PropertiesCache,
    pub indexes: IndexCache,
    /// What was read last, and the sizes of MANIFEST and OPTIONS then.
    read: Option<(BTreeMap<String, u64>, DatabaseFiles)>,
}

impl SightedFiles {
    /// What the database consists of at these sizes: as it was read last, where nothing was written to
    /// MANIFEST since and OPTIONS are the same. Reading it takes a process of its own.
    pub fn files_at<E>(
        &mut self,
        sizes: &LogSizes,
        read: impl FnOnce() -> Result<DatabaseFiles, E>,
    ) -> Result<DatabaseFiles, E> {
        if let Some((metadata, files)) = &self.read
            && !metadata.is_empty()
            && *metadata == sizes.metadata
        {
            return Ok(files.clone());
        }
        let files = read()?;
        let is_small = files.files.len() <= REMEMBERED_FILES_MAX;
        self.read = is_small.then(|| (sizes.metadata.clone(), files.clone()));
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tuner::evidence::SstFile;
    use sexton_tuner::key::Key;

    /// How often a database is read whose MANIFEST has these sizes at one look after the other.
    fn readings(sizes: &[u64], files: usize) -> usize {
        let mut known = SightedFiles::default();
        let mut readings = 0;
        for size in sizes {
            let metadata = BTreeMap::from([("MANIFEST-000005".to_owned(), *size)]);
            let file = SstFile {
                number: 7,
                column_family: "default".to_owned(),
                level: 0,
                size_bytes: 1,
                entries: 0,
                deletions: 0,
                smallest: Key::new("a"),
                largest: Key::new("b"),
            };
            let found = known.files_at(&LogSizes { metadata, ..LogSizes::default() }, || {
                readings += 1;
                Ok::<_, ()>(DatabaseFiles { files: vec![file; files], ..DatabaseFiles::default() })
            });
            assert_eq!(found.unwrap().files.len(), files);
        }
        readings
    }

    #[test]
    fn a_database_is_read_again_once_its_manifest_has_grown() {
        assert_eq!(readings(&[10, 10, 10, 20, 20, 10], 3), 3);
        assert_eq!(readings(&[10, 10, 10], REMEMBERED_FILES_MAX + 1), 3, "it is not remembered");
    }

    #[test]
    fn a_directory_that_could_not_be_listed_says_nothing() {
        let mut known = SightedFiles::default();
        let read = |known: &mut SightedFiles| {
            let mut is_read = false;
            let _ = known.files_at(&LogSizes::default(), || {
                is_read = true;
                Ok::<_, ()>(DatabaseFiles::default())
            });
            is_read
        };
        assert!(read(&mut known) && read(&mut known));
    }
}

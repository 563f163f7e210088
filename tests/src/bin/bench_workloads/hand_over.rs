//! Databases are filled once and handed to each contender: SST files never change, so that hard links will
//! do; all else is copied.

use anyhow::{Context, Result};
use std::path::Path;

/// What a closed database does not need.
const LEFT_BEHIND: [&str; 2] = ["LOCK", "LOG"];

/// Makes `to` hold the same databases as `from`; what was there before is gone.
pub fn hand_over(from: &Path, to: &Path) -> Result<()> {
    remove(to)?;
    for database in list(from)? {
        if !database.is_dir() {
            continue;
        }
        let target = to.join(database.file_name().context("a directory without a name")?);
        std::fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
        for file in list(&database)? {
            let name = file.file_name().and_then(|name| name.to_str()).context("a file without a name")?;
            if LEFT_BEHIND.contains(&name) || name.starts_with("LOG.old") {
                continue;
            }
            let target = target.join(name);
            let is_immutable = name.ends_with(".sst");
            let done = if is_immutable {
                std::fs::hard_link(&file, &target)
            } else {
                std::fs::copy(&file, &target).map(|_| ())
            };
            done.with_context(|| format!("handing over {}", file.display()))?;
        }
    }
    Ok(())
}

/// Removes a directory with all that is in it, if it is there.
pub fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", directory.display()))
        }
        _ => Ok(()),
    }
}

fn list(directory: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    paths.collect::<Result<_>>().with_context(|| format!("listing {}", directory.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_that_never_change_are_linked_and_others_copied() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        std::fs::create_dir_all(from.join("db000")).unwrap();
        for name in ["000007.sst", "CURRENT", "MANIFEST-000004", "OPTIONS-000005", "LOCK", "LOG"] {
            std::fs::write(from.join("db000").join(name), name).unwrap();
        }
        std::fs::write(from.join("filled.json"), "{}").unwrap();
        std::fs::create_dir_all(to.join("db009")).unwrap();
        for _ in 0..2 {
            hand_over(&from, &to).unwrap();
            let mut names: Vec<String> = list(&to.join("db000"))
                .unwrap()
                .iter()
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
                .collect();
            names.sort();
            assert_eq!(names, ["000007.sst", "CURRENT", "MANIFEST-000004", "OPTIONS-000005"]);
            assert_eq!(list(&to).unwrap().len(), 1);
            let inode = |directory: &Path, name| directory.join("db000").join(name).metadata().unwrap().ino();
            assert_eq!(inode(&from, "000007.sst"), inode(&to, "000007.sst"));
            assert_ne!(inode(&from, "CURRENT"), inode(&to, "CURRENT"));
        }
    }
}

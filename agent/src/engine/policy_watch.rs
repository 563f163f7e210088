//! The policy's file, or its files, while the agent runs: it is read again when it has changed, or when
//! somebody asks. What is no policy never comes into force; the last good one stays.

use crate::policy_file;
use sexton_tuner::policy::{POLICY_FILES_MAX, Policy};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file, and what was last seen of it.
#[derive(Debug)]
pub struct PolicyWatch {
    path: PathBuf,
    /// The file as it was last read.
    read: Option<Vec<Stamp>>,
    /// The file as it was at the last look, where it had not been read yet: an editor may not be done with
    /// it.
    changed: Option<Vec<Stamp>>,
    trouble: Option<Trouble>,
}

/// Tells one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    inode: u64,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

/// Why the last good policy is in force and not what is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is not there or cannot be read.
    Gone(String),
    /// It is no policy.
    Broken(String),
}

impl Trouble {
    pub fn reason(&self) -> &str {
        match self {
            Trouble::Gone(reason) | Trouble::Broken(reason) => reason,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A policy to put in force.
    Loaded(Box<Policy>),
    /// Something is wrong with the file, and was not before.
    Trouble(Trouble),
}

impl PolicyWatch {
    pub fn new(path: &Path) -> PolicyWatch {
        PolicyWatch { path: path.to_owned(), read: None, changed: None, trouble: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the last good policy is in force.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Looks at the file; gives what is new, compared with the policy in force. A change is read when it is
    /// there at two looks in a row, or `at_once`.
    pub fn look(&mut self, in_force: &Policy, at_once: bool) -> Option<News> {
        let stamps = match stamps(&self.path) {
            Ok(stamps) => stamps,
            Err(error) => {
                self.read = None;
                let reason = format!("cannot read the policy {}: {error}", self.path.display());
                return self.get_into(Trouble::Gone(reason));
            }
        };
        if !at_once && self.read.as_ref() == Some(&stamps) {
            return None;
        }
        if !at_once && self.changed.replace(stamps.clone()).as_ref() != Some(&stamps) {
            return None;
        }
        (self.read, self.changed) = (Some(stamps), None);
        match policy_file::load(&self.path) {
            Ok(policy) => {
                let had_trouble = self.trouble.take().is_some();
                let is_news = at_once || had_trouble || policy != *in_force;
                is_news.then(|| News::Loaded(Box::new(policy)))
            }
            Err(failure) if failure.is_usage() => self.get_into(Trouble::Broken(failure.cause().to_owned())),
            Err(failure) => self.get_into(Trouble::Gone(failure.cause().to_owned())),
        }
    }

    /// The same trouble again is no news.
    fn get_into(&mut self, trouble: Trouble) -> Option<News> {
        let is_news = self.trouble.as_ref() != Some(&trouble);
        self.trouble = Some(trouble.clone());
        is_news.then_some(News::Trouble(trouble))
    }
}

/// Of all files of the policy. Another one, or one less, is a change.
fn stamps(path: &Path) -> std::io::Result<Vec<Stamp>> {
    let files = policy_file::files(path)?;
    files.into_iter().take(POLICY_FILES_MAX + 1).map(stamp).collect()
}

fn stamp(path: PathBuf) -> std::io::Result<Stamp> {
    let metadata = std::fs::metadata(&path)?;
    Ok(Stamp {
        path,
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified_s: metadata.mtime(),
        modified_ns: metadata.mtime_nsec(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    const OTHER: &str = "mode: observe\n";

    fn other() -> Policy {
        Policy::parse(OTHER).unwrap()
    }

    #[test]
    fn a_change_is_read_at_the_second_look_or_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.yaml");
        std::fs::write(&path, "mode: advise\n").unwrap();
        let mut watch = PolicyWatch::new(&path);
        let in_force = Policy::default();
        for _ in 0..3 {
            assert_eq!(watch.look(&in_force, false), None, "it is what is in force");
        }
        std::fs::write(&path, OTHER).unwrap();
        assert_eq!(watch.look(&in_force, false), None);
        assert_eq!(watch.look(&in_force, false), Some(News::Loaded(Box::new(other()))));
        assert_eq!(watch.look(&other(), false), None);
        assert_eq!(watch.look(&other(), true), Some(News::Loaded(Box::new(other()))), "somebody asked");
    }

    #[test]
    fn any_change_of_a_directorys_files_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.yaml", "mode: observe\n");
        let mut watch = PolicyWatch::new(folder.path());
        let looked = |watch: &mut PolicyWatch, in_force: &Policy| {
            watch.look(in_force, false);
            watch.look(in_force, false)
        };
        assert_eq!(looked(&mut watch, &other()), None);
        write("b.yaml", "cooldown: 7m\n");
        let Some(News::Loaded(both)) = looked(&mut watch, &other()) else { panic!("a file has come") };
        assert_eq!(*both, Policy::parse("mode: observe\ncooldown: 7m\n").unwrap());
        write("b.yaml", "cooldown: 8m\n");
        let Some(News::Loaded(changed)) = looked(&mut watch, &both) else { panic!("a file has changed") };
        std::fs::remove_file(folder.path().join("b.yaml")).unwrap();
        assert_eq!(looked(&mut watch, &changed), Some(News::Loaded(Box::new(other()))), "a file has gone");
        write("c.yaml", "mode: act\n");
        let Some(News::Trouble(Trouble::Broken(reason))) = looked(&mut watch, &other()) else {
            panic!("two files have a mode")
        };
        assert!(reason.contains("c.yaml:1:7") && reason.contains("a.yaml, line 1"), "{reason}");
        write("c.yaml", "cooldown: 7m\n");
        assert!(matches!(looked(&mut watch, &other()), Some(News::Loaded(_))));
        std::fs::remove_file(folder.path().join("a.yaml")).unwrap();
        std::fs::remove_file(folder.path().join("c.yaml")).unwrap();
        assert!(matches!(looked(&mut watch, &other()), Some(News::Trouble(Trouble::Gone(_)))));
    }

    #[test]
    fn a_file_that_goes_or_breaks_is_told_once_and_its_return_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.yaml");
        std::fs::write(&path, OTHER).unwrap();
        let mut watch = PolicyWatch::new(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(watch.look(&other(), false), Some(News::Trouble(Trouble::Gone(_)))));
        assert_eq!(watch.look(&other(), false), None);
        std::fs::write(&path, "mode: [\n").unwrap();
        watch.look(&other(), false);
        let Some(News::Trouble(Trouble::Broken(reason))) = watch.look(&other(), false) else { panic!() };
        assert!(reason.contains("policy.yaml:"), "{reason}");
        assert!(watch.trouble().is_some());
        std::fs::write(&path, OTHER).unwrap();
        watch.look(&other(), false);
        assert!(matches!(watch.look(&other(), false), Some(News::Loaded(_))));
        assert_eq!(watch.trouble(), None);
    }
}

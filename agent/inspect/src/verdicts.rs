//! What the files turned out to be that processes have mapped, each examined once.
//!
//! Kept by the file's identity, "no RocksDB in here" too: a node has thousands of mapped files and nearly all
//! are such. Examining is the business of `examiner`.

use super::debug_file::{self, DebugSymbols};
use super::elf::ElfError;
use super::examiner::Examiner;
use super::facts::FoundBy;
use super::finding::Finding;
use super::module::ModuleFacts;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files whose result is kept: some times what a crowded node has mapped. When it is full it is emptied;
/// what is in use comes back with the next scan.
pub const CACHED_FILES_MAX: usize = 16_384;

/// How long a file is left alone whose examination gave no answer: what it lies on may hang, or the node was
/// short of memory. As long as a process is that does not let itself be looked into.
pub const NO_ANSWER_KEPT: Duration = Duration::from_secs(15);

/// What a file turned out to be.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// RocksDB is defined in it.
    RocksDb(Arc<ModuleFacts>),
    /// RocksDB is in it, but neither symbols nor the names of classes say where.
    Hidden,
    /// It is musl's dynamic linker.
    MuslLinker,
    /// It is a valid ELF file without RocksDB.
    Other,
    /// It could not be read.
    Unreadable(ElfError),
}

/// Identity and state of a file: any change gives another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    device: u64,
    inode: u64,
    owner: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileKey {
    /// The key of an open file.
    pub fn of(file: &File) -> io::Result<FileKey> {
        let data = file.metadata()?;
        Ok(FileKey {
            device: data.dev(),
            inode: data.ino(),
            owner: data.uid(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }

    pub fn device_and_inode(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// From where a process sees files: a debug file that lies there is this view's word, and nobody else's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// Where its root directory is, from here, and which directory that is.
    root: PathBuf,
    root_inode: (u64, u64),
    namespace: u64,
}

impl View {
    pub fn of_process(pid: u32) -> View {
        View::below(PathBuf::from(format!("/proc/{pid}/root")), PathBuf::from(format!("/proc/{pid}/ns/mnt")))
    }

    /// The view from a root directory, in a mount namespace.
    pub(super) fn below(root: PathBuf, namespace: PathBuf) -> View {
        let inode = |path| std::fs::metadata(path).map_or((0, 0), |data| (data.dev(), data.ino()));
        View { root_inode: inode(root.as_path()), namespace: inode(namespace.as_path()).1, root }
    }

    /// Whether the same names lead to the same files: then they do so for as long as one of the processes
    /// lives.
    fn is_same(&self, other: &View) -> bool {
        (self.root_inode, self.namespace) == (other.root_inode, other.namespace)
            && self.root_inode != (0, 0)
            && self.namespace != 0
    }

    /// Root directories below which debug files are looked for, the process' own first.
    fn roots(&self) -> [PathBuf; 2] {
        [self.root.clone(), PathBuf::from("/")]
    }
}

#[derive(Clone, Debug)]
struct Known {
    verdict: Verdict,
    /// Where a debug file had a part in it, the view that has this file.
    view: Option<View>,
    /// Until when it holds; `None`: for as long as the file does not change.
    until: Option<Instant>,
}

impl Known {
    fn holds(&self, view: &View, now: Instant) -> bool {
        self.view.as_ref().is_none_or(|other| other.is_same(view))
            && self.until.is_none_or(|until| now < until)
    }
}

/// Results by file. Nothing is believed of a file that was found in another one, and be it of the same build:
/// whoever makes a file writes its build id, and its tables say where in somebody else's code a probe is to
/// go.
#[derive(Debug, Default)]
pub struct Verdicts {
    examiner: Examiner,
    by_file: HashMap<FileKey, Known>,
}

impl Verdicts {
    /// Verdicts by this examiner.
    pub fn by(examiner: Examiner) -> Verdicts {
        Verdicts { examiner, by_file: HashMap::new() }
    }

    /// Has an open file examined, or gives what was found before, "no RocksDB" included. Separate files with
    /// debug information are looked for as `view` sees them.
    /// Errors: Only what `fstat` gives; a file that cannot be understood is [`Verdict::Unreadable`].
    pub fn examine(&mut self, file: &File, view: &View) -> io::Result<(FileKey, Verdict)> {
        let key = FileKey::of(file)?;
        if let Some(known) = self.by_file.get(&key).filter(|known| known.holds(view, Instant::now())) {
            return Ok((key, known.verdict.clone()));
        }
        let verdict = self.examined(file, key.size, view);
        if self.by_file.len() >= CACHED_FILES_MAX {
            self.by_file.clear();
        }
        let view = needs_debug_file(&verdict).then(|| view.clone());
        let is_passing = matches!(verdict, Verdict::Unreadable(ElfError::NotExamined { .. }));
        let until = is_passing.then(|| Instant::now() + NO_ANSWER_KEPT);
        self.by_file.insert(key, Known { verdict: verdict.clone(), view, until });
        Ok((key, verdict))
    }

    fn examined(&mut self, file: &File, size: u64, view: &View) -> Verdict {
        let mut finding = self.examiner.module(file, size, None);
        if let Finding::DebugFileWanted { build_id } = &finding {
            let symbols = self.debug_symbols(build_id, view);
            finding = self.examiner.module(file, size, Some(&symbols));
        }
        match finding {
            Finding::RocksDb(facts) => Verdict::RocksDb(Arc::from(facts)),
            // It was told what its debug file says.
            Finding::DebugFileWanted { .. } | Finding::Hidden => Verdict::Hidden,
            Finding::MuslLinker => Verdict::MuslLinker,
            Finding::Other => Verdict::Other,
            Finding::Unreadable(error) => Verdict::Unreadable(error),
        }
    }

    /// The symbols of the first debug file of a build that can be understood.
    fn debug_symbols(&mut self, build_id: &str, view: &View) -> DebugSymbols {
        let files = view.roots().into_iter().filter_map(|root| debug_file::find(&root, build_id));
        let found = files.map(|file| self.examiner.debug_symbols(&file, build_id));
        found.into_iter().find(|symbols| !symbols.is_empty()).unwrap_or_default()
    }
}

/// Whether a debug file said something, or could have said more.
fn needs_debug_file(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::RocksDb(facts) => facts.found_by == FoundBy::DebugFile,
        Verdict::Hidden | Verdict::MuslLinker | Verdict::Other | Verdict::Unreadable(_) => false,
    }
}

#[cfg(test)]
#[path = "verdicts_tests.rs"]
mod tests;

//! Finding the hook library and making it visible to a target.

use super::error::ExecuteError;
use super::process::{Directory, TargetProcess};
use rustix::fs::AtFlags;
use sexton_inspect::facts::{Target, TlsRecipe};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// File name of the hook library.
pub const LIBRARY_FILE_NAME: &str = "libsexton_hook.so";

const PACKAGE_DIRECTORY: &str = "/usr/lib/sexton";

/// Bytes of a hook library that is copied; ours has less than 1 MiB, with debug information some 20.
const LIBRARY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Mode of a copy: everybody may load it, nobody may change it.
const COPY_MODE: u32 = 0o555;

/// Folder beside the library for glibc, in which is the one for musl.
const MUSL_DIRECTORY: &str = "musl";

/// The C library of a target, which its hook has to be built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CLibrary {
    Glibc,
    Musl,
}

impl CLibrary {
    /// That of `target`. What is not known to be musl is taken for glibc.
    pub fn of(target: &Target) -> CLibrary {
        match target.module.tls {
            Some(TlsRecipe::MuslThreadVector { .. }) => CLibrary::Musl,
            _ => CLibrary::Glibc,
        }
    }

    /// Where the library for it lies, `library` being the one for glibc.
    pub fn place(self, library: &Path) -> PathBuf {
        match (self, library.parent(), library.file_name()) {
            (CLibrary::Musl, Some(directory), Some(name)) => directory.join(MUSL_DIRECTORY).join(name),
            _ => library.to_path_buf(),
        }
    }
}

/// Looks for the library: the one given, else beside the agent's program, else where packages put it; for
/// musl in a folder there.
///
/// # Errors
/// [`ExecuteError::Library`] when it is in none of these places.
pub fn find(given: Option<&Path>, c_library: CLibrary) -> Result<PathBuf, ExecuteError> {
    let beside = std::env::current_exe().ok().and_then(|program| {
        // An update may have replaced the program's file while it runs.
        let program = PathBuf::from(program.to_str()?.trim_end_matches(" (deleted)").to_owned());
        Some(program.parent()?.join(LIBRARY_FILE_NAME))
    });
    let package = Path::new(PACKAGE_DIRECTORY).join(LIBRARY_FILE_NAME);
    let places = match given {
        Some(given) => vec![given.to_path_buf()],
        None => beside.into_iter().chain([package]).collect(),
    };
    let places: Vec<PathBuf> = places.iter().map(|place| c_library.place(place)).collect();
    for place in &places {
        if place.is_file() {
            return std::fs::canonicalize(place)
                .map_err(|error| ExecuteError::Library { path: place.clone(), reason: error.to_string() });
        }
    }
    let looked_at: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(ExecuteError::Library {
        path: PathBuf::from(LIBRARY_FILE_NAME),
        reason: format!("is not there (looked at {})", looked_at.join(", ")),
    })
}

/// The library as the target can open it; a copy is removed when this is dropped.
pub struct Placed {
    /// Path inside the target's root.
    pub path: PathBuf,
    copy: Option<(Directory, String)>,
}

impl Drop for Placed {
    fn drop(&mut self) {
        if let Some((directory, name)) = &self.copy
            && let Err(error) = directory.remove(name)
        {
            tracing::warn!(%error, name, "a copy of the hook library stays in a target's /tmp");
        }
    }
}

/// Makes `library` (an absolute path) visible to the target: the file itself where the target sees the
/// same file and may read it, else a copy in its `/tmp`.
pub fn place(process: &TargetProcess, library: &Path) -> Result<Placed, ExecuteError> {
    let fail =
        |error: io::Error| ExecuteError::Library { path: library.to_path_buf(), reason: error.to_string() };
    let mut source = File::open(library).map_err(fail)?;
    if is_same_file(process, library, &source).map_err(fail)? {
        return Ok(Placed { path: library.to_path_buf(), copy: None });
    }
    let directory = process.temporary_directory()?;
    let name = unused_name(process);
    copy(&mut source, &directory, &name).map_err(|error| ExecuteError::Library {
        path: library.to_path_buf(),
        reason: format!("cannot be copied to the /tmp of process {}: {error}", process.pid),
    })?;
    Ok(Placed { path: Path::new("/tmp").join(&name), copy: Some((directory, name)) })
}

/// Whether the target sees this very file at this path, and its user may read it there.
fn is_same_file(process: &TargetProcess, library: &Path, source: &File) -> io::Result<bool> {
    let ours = rustix::fs::fstat(source)?;
    let Ok(inside) = process.open_inside(library) else { return Ok(false) };
    let theirs = rustix::fs::fstat(&inside)?;
    Ok((ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
        && (process.user_id == 0 || everybody_may_read(process, library)?))
}

/// Whether the file and all directories above it are open to everybody, as the target sees them.
fn everybody_may_read(process: &TargetProcess, library: &Path) -> io::Result<bool> {
    const OTHERS_READ: u32 = 0o004;
    const OTHERS_SEARCH: u32 = 0o001;
    for (depth, place) in library.ancestors().enumerate() {
        let mode = rustix::fs::fstat(process.open_inside(place)?)?.st_mode;
        let wanted = if depth == 0 { OTHERS_READ } else { OTHERS_SEARCH };
        if mode & wanted == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A name nobody else can have guessed; even so it is only ever created anew.
fn unused_name(process: &TargetProcess) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_nanos()).unwrap_or_default();
    format!(".sexton-hook-{}-{}-{now:x}.so", process.namespaced_pid, std::process::id())
}

fn copy(source: &mut File, directory: &Directory, name: &str) -> io::Result<()> {
    if source.metadata()?.len() > LIBRARY_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {LIBRARY_BYTES_MAX} bytes")));
    }
    let mut target = File::from(directory.create_new(name, 0o600)?);
    let written = fill(source, &mut target);
    if written.is_err() {
        let _ = rustix::fs::unlinkat(directory.descriptor(), name, AtFlags::empty());
    }
    written
}

fn fill(source: &mut File, target: &mut File) -> io::Result<()> {
    io::copy(&mut source.take(LIBRARY_BYTES_MAX), target)?;
    target.flush()?;
    rustix::fs::fchmod(&*target, rustix::fs::Mode::from_raw_mode(COPY_MODE))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use sexton_inspect::facts::ProcessId;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn own_process() -> TargetProcess {
        let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
        TargetProcess::open(&ProcessId { pid: std::process::id(), start_time_ticks: stat.starttime }).unwrap()
    }

    #[test]
    fn a_library_that_is_nowhere_names_the_places() {
        let error = find(Some(Path::new("/nowhere/hook.so")), CLibrary::Glibc).unwrap_err().to_string();
        assert!(error.contains("/nowhere/hook.so"), "{error}");
    }

    #[test]
    fn the_library_for_musl_lies_in_a_folder_beside_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("hook.so");
        std::fs::write(&library, "glibc").unwrap();
        let error = find(Some(&library), CLibrary::Musl).unwrap_err().to_string();
        assert!(error.contains("/musl/hook.so"), "{error}");
        std::fs::create_dir(folder.path().join("musl")).unwrap();
        std::fs::write(folder.path().join("musl/hook.so"), "musl").unwrap();
        let found = |c_library| std::fs::read_to_string(find(Some(&library), c_library).unwrap()).unwrap();
        assert_eq!((found(CLibrary::Glibc), found(CLibrary::Musl)), ("glibc".into(), "musl".into()));
    }

    #[test]
    fn the_file_itself_is_used_where_the_target_sees_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let library = folder.path().join("hook.so");
        std::fs::write(&library, "library").unwrap();
        assert_eq!(place(&own_process(), &library).unwrap().path, library);
    }

    #[test]
    fn a_private_file_is_copied_for_another_user_and_the_copy_removed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let library = folder.path().join("hook.so");
        std::fs::write(&library, "library").unwrap();
        let mut process = own_process();
        process.user_id = 12345;
        let placed = place(&process, &library).unwrap();
        assert_ne!(placed.path, library);
        assert_eq!(std::fs::read_to_string(&placed.path).unwrap(), "library");
        assert_eq!(std::fs::symlink_metadata(&placed.path).unwrap().mode() & 0o7777, COPY_MODE);
        let path = placed.path.clone();
        drop(placed);
        assert!(!path.exists());
    }
}

//! Where the built programs and the fetched tools lie.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// A file that cargo built in the same profile as the running executable: `sexton`, `libsexton_hook.so`.
///
/// Fails with the command that builds it when it is not there.
pub fn built(name: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe().context("reading the path of this executable")?;
    // A test executable lies in `release/deps`, a program in `release`.
    for directory in executable.ancestors().skip(1).take(2) {
        let candidate = directory.join(name);
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!("{name} is not built beside {}: run `make build`", executable.display())
}

/// The root of the source tree.
pub fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// A directory in which `make setup` keeps what it fetched for the tests.
pub fn tools() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os("SEXTON_TOOLS") {
        return Ok(PathBuf::from(directory));
    }
    let home = std::env::var_os("HOME").context("HOME is not set, so the fetched tools cannot be found")?;
    Ok(PathBuf::from(home).join(".cache/sexton-tools"))
}

/// A file that `make setup` fetched; fails with that command when it is not there.
pub fn tool(relative: &str) -> Result<PathBuf> {
    let path = tools()?.join(relative);
    if !path.is_file() {
        bail!("{} is missing: run `make setup`", path.display());
    }
    Ok(path)
}

/// A program that `make setup` installs; fails with its package when it is not there.
pub fn installed(program: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
        .with_context(|| format!("`{program}` is not installed: run `make setup` (package {package})"))
}

/// Debian's shared library of RocksDB.
pub fn debian_rocksdb() -> Result<PathBuf> {
    let path = PathBuf::from("/usr/lib/x86_64-linux-gnu/librocksdb.so.7.8");
    if !path.is_file() {
        bail!("{} is not installed: run `make setup` (package rocksdb-tools)", path.display());
    }
    Ok(path)
}

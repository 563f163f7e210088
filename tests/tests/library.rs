//! A RocksDB library that no table knows is asked for its layout, in a process that can do nothing else; one
//! whose counters belong to no thread is estimated.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_inspect::library;
use sexton_tests::process::{Lines, Process};
use sexton_tests::{agent, artifact};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Debian's RocksDB, which `db_bench` is linked to.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/librocksdb.so.7.8";
/// Offset of `internal_key_skipped_count` in RocksDB 7.8, and of its `perf_context` in its thread-local
/// block.
const SKIP_OFFSET: u32 = 224;
const PERF_CONTEXT_BYTES: u64 = 784;

#[test]
fn a_library_tells_what_the_table_says() -> Result<()> {
    let told = library::ask(&artifact::built("sexton")?, Path::new(LIBRARY));
    ensure!(told == Ok(SKIP_OFFSET), "it told {told:?}");
    Ok(())
}

#[test]
fn a_file_that_is_no_library_is_an_answer() -> Result<()> {
    let told = library::ask(&artifact::built("sexton")?, Path::new("/etc/hostname"));
    ensure!(told.as_ref().is_err_and(|reason| reason.contains("cannot be loaded")), "it told {told:?}");
    Ok(())
}

/// Goal: a `perf_context` of a size that no release has is not refused when the library itself tells its
/// layout. Method: a copy of Debian's library, in whose symbol table another size is written, in a running
/// process.
#[test]
fn an_unknown_size_is_settled_by_the_library() -> Result<()> {
    let change = |symbol: &mut SymbolEntry| {
        symbol.size = PERF_CONTEXT_BYTES + 16;
    };
    let module = inspected(change, &["--ask-libraries"])?;
    let source = agent::text(&module, "/layout_source");
    ensure!(source == "library", "the layout is from {source:?}: {module}");
    let offset = agent::count(&module, "/layout/internal_key_skipped_count")?;
    ensure!(offset == u64::from(SKIP_OFFSET), "the offset is {offset}: {module}");
    Ok(())
}

/// Goal: nobody's code runs in a process of the agent unless the operator says so. Method: as above, with a
/// library that would tell.
#[test]
fn no_library_is_asked_unless_the_operator_says_so() -> Result<()> {
    let module = inspected(|symbol| symbol.size = PERF_CONTEXT_BYTES + 16, &[])?;
    let source = agent::text(&module, "/layout_source");
    ensure!(source != "library", "the library was asked: {module}");
    Ok(())
}

/// Goal: a build without thread-local counters (-DNPERF_CONTEXT) is a target that is estimated, not refused.
/// Method: as above, with a `perf_context` that is an ordinary object.
#[test]
fn without_thread_local_counters_there_is_an_estimate() -> Result<()> {
    let module = inspected(|symbol| symbol.kind = STT_OBJECT, &[])?;
    let counts = agent::text(&module, "/counts");
    ensure!(counts == "iterator_estimate", "it counts by {counts:?}: {module}");
    ensure!(agent::count(&module, "/keys_skipped_offset")? > 0, "no offset: {module}");
    for absent in ["/layout", "/layout_source", "/perf_context_offset"] {
        ensure!(module.pointer(absent).is_some_and(Value::is_null), "{absent} is there: {module}");
    }
    Ok(())
}

/// What the symbol table says of `perf_context`.
struct SymbolEntry {
    kind: u8,
    size: u64,
}

const STT_OBJECT: u8 = 1;
const STT_TLS: u8 = 6;

/// What `sexton targets` says of the module in a process that has loaded Debian's library with another entry
/// for `perf_context`.
fn inspected(change: impl Fn(&mut SymbolEntry), arguments: &[&str]) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("librocksdb.so.7.8");
    std::fs::write(&copy, with_another_symbol(std::fs::read(LIBRARY)?, change)?)?;
    let mut host = loader(&copy)?;
    let pid = host.pid().to_string();
    let output =
        agent::output(directory.path(), &[&["targets", "--json", "--pid", &pid], arguments].concat())?;
    let inspected: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("inspect: {}", String::from_utf8_lossy(&output.stderr)))?;
    ensure!(host.is_running()?, "the process has ended");
    inspected.pointer("/0/module").cloned().context("no module")
}

/// The library's bytes with another kind and size of `perf_context`.
fn with_another_symbol(mut library: Vec<u8>, change: impl Fn(&mut SymbolEntry)) -> Result<Vec<u8>> {
    // An entry of a symbol table: name, kind with binding, section, then the value, an offset of 0xc8 here,
    // and the size.
    let known = [0xc8_u64.to_le_bytes(), PERF_CONTEXT_BYTES.to_le_bytes()].concat();
    let found = library.windows(known.len()).position(|window| window == known);
    let value_at = found.context("the library has no perf_context as it was in 7.8.3")?;
    let mut entry = SymbolEntry { kind: STT_TLS, size: PERF_CONTEXT_BYTES };
    change(&mut entry);
    let info = library.get_mut(value_at - 4).context("the library was cut")?;
    ensure!(*info & 0xf == STT_TLS, "what was found is no thread-local symbol");
    *info = *info & 0xf0 | entry.kind;
    let size = library.get_mut(value_at + 8..value_at + 16).context("the library was cut")?;
    size.copy_from_slice(&entry.size.to_le_bytes());
    Ok(library)
}

/// A process that has loaded the library.
fn loader(library: &Path) -> Result<Process> {
    let program = "import ctypes, sys, time\n\
                   ctypes.CDLL(sys.argv[1])\n\
                   print('loaded', flush=True)\n\
                   time.sleep(60)\n";
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.args(["-c", program]).arg(library).stdout(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
    lines.until(LIMIT, |line| line == "loaded")?;
    Ok(process)
}

/// Goal: what a library does when it is loaded gets nowhere.
/// Method: a library that tries, and answers with an offset that tells what it could do.
#[test]
fn a_hostile_library_gets_nowhere() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "secret")?;
    let library = build_hostile(directory.path(), &secret)?;
    let told = library::ask(&artifact::built("sexton")?, &library);
    // Each thing that it could do would add a bit.
    ensure!(told == Ok(SKIP_OFFSET), "it told {told:?}");
    ensure!(!directory.path().join("written").exists(), "it wrote a file");
    Ok(())
}

fn build_hostile(directory: &Path, secret: &Path) -> Result<PathBuf> {
    let source = directory.join("hostile.c");
    let written = directory.join("written");
    let text = HOSTILE.replace("SECRET", &secret.display().to_string());
    std::fs::write(&source, text.replace("WRITTEN", &written.display().to_string()))?;
    let library = directory.join("libhostile.so");
    let mut compile = Command::new(artifact::installed("gcc", "gcc")?);
    compile.args(["-shared", "-fPIC"]).arg(&source).arg("-o").arg(&library);
    let status = Process::start(compile)?.wait(LIMIT)?;
    ensure!(status.success(), "gcc ended with {status}");
    Ok(library)
}

const HOSTILE: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
static uint64_t context[128], *rep = context;
static uint64_t done;
__attribute__((constructor)) static void hostile(void) {
    if (open("SECRET", O_RDONLY) >= 0) done |= 1 << 10;
    if (open("WRITTEN", O_CREAT | O_RDWR, 0644) >= 0) done |= 1 << 11;
    if (open("/etc/shadow", O_RDONLY) >= 0) done |= 1 << 12;
    if (chmod("SECRET", 0777) == 0) done |= 1 << 13;
    if (kill(getppid(), 0) == 0) done |= 1 << 14;
    if (setuid(0) == 0) done |= 1 << 15;
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) done |= 1 << 16;
}
void *rocksdb_perfcontext_create(void) { return &rep; }
uint64_t rocksdb_perfcontext_metric(void *handle, int metric) {
    (void)handle;
    switch (metric) {
    case 1: return context[1];
    case 2: return context[2];
    case 3: return context[3];
    case 10: return context[28] | done;
    default: return context[29];
    }
}
"#;

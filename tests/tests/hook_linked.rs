//! All that the hook can be asked for, in programs that link it, in C and in Rust; and bringing it into a
//! JVM, out of it, and in again.

use anyhow::{Context, Result, bail, ensure};
use sexton_execute::{ExecuteError, HookClient, HookOptions};
use sexton_hook_protocol::{
    BottommostLevelCompaction, ColumnFamilyPointers, CompactRange, CompactionState, ErrorKind, Finished,
    KeyBytes, OptionChange, PROTOCOL_VERSION, Request, Response, read, write,
};
use sexton_tests::compactions::everything;
use sexton_tests::inspected;
use sexton_tests::linked::{Program, TOMBSTONES};
use sexton_tests::{artifact, jvm, options_file};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// An option that every RocksDB has, and that the hook sets.
const SKIP: &str = "max_sequential_skip_in_iterations";
/// One that came with 11.2.
const LATER: &str = "min_tombstones_for_range_conversion";
/// A job takes less than a second here.
const JOB_LIMIT: Duration = Duration::from_secs(60);
/// A Java program ends by itself after this.
const PROGRAM_SECONDS: u64 = 120;

#[test]
fn a_linked_c_program_is_served_in_all_that_can_be_asked() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = Program::in_c(directory.path())?;
    let mut hook = connect(program.pid(), false)?;
    let family = registered(&mut hook)?;
    ensure!(tombstones(&mut hook, &family)? == TOMBSTONES, "not the tombstones that were left");

    options_are_set_and_refused_by_name(&mut hook, &family)?;
    the_second_agent_is_refused(program.pid(), &family)?;

    let flush = hook.flush(&family)?;
    let finished = outcome(&mut hook, flush)?;
    ensure!(finished.ok, "the flush ended with {finished:?}");
    relieved(&mut hook, &family, BottommostLevelCompaction::ForceOptimized)?;

    let skip = || options_file::value(&directory.path().join("db"), "default", SKIP);
    ensure!(skip()? == "44", "the option is not set: {}", skip()?);
    hook.detach()?;
    ensure!(kind_of_connect(program.pid())? == "no hook", "a hook that was told to go still answers");
    ensure!(skip()? == "20", "a hook that goes leaves an option behind: {}", skip()?);
    program.end()
}

/// What `objdump -T` shows of a library, the versions of the C library's symbols among it.
fn symbols(library: &Path) -> Result<String> {
    let mut command = Command::new(artifact::installed("objdump", "binutils")?);
    let output = command.arg("-T").arg(library).output()?;
    ensure!(output.status.success(), "objdump ended with {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// RHEL 7 has glibc 2.17, and images that are older than the machine that builds this have some later one.
#[test]
fn the_library_wants_nothing_that_glibc_2_17_has_not() -> Result<()> {
    const NEWEST: (u32, u32) = (2, 17);
    let symbols = symbols(&artifact::built("libsexton_hook.so")?)?;
    let mut wanted = 0;
    for line in symbols.lines() {
        let Some((_, version)) = line.split_once("(GLIBC_") else { continue };
        let mut numbers = version.split(['.', ')']).map(str::parse);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { continue };
        ensure!((major, minor) <= NEWEST, "it wants what an older C library has not: {line}");
        wanted += 1;
    }
    ensure!(wanted > 20, "only {wanted} symbols of the C library:\n{symbols}");
    Ok(())
}

#[test]
fn a_linked_rust_program_is_served() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = Program::in_rust(directory.path())?;
    let mut hook = connect(program.pid(), false)?;
    let family = registered(&mut hook)?;
    a_value_that_is_to_stay_is_not_put_back(&mut hook, &family, directory.path())?;
    let from_a_key = CompactRange {
        begin: KeyBytes::new(*b"key")?,
        ..everything(&family, BottommostLevelCompaction::Force)
    };
    let id = hook.start_compaction(from_a_key)?;
    let finished = outcome(&mut hook, id)?;
    ensure!(finished.ok, "the compaction ended with {finished:?}");
    ensure!(tombstones(&mut hook, &family)? == 0, "tombstones are left");
    program.end()
}

/// A Rust program shares its standard library with the hook that it links, and so its panic hook: what it
/// says of its own panics is still said, where it was said before.
#[test]
fn a_panic_of_a_program_that_links_the_hook_is_told_on_its_standard_error() -> Result<()> {
    const MESSAGE: &str = "a worker of the program's own gives up";
    let directory = tempfile::tempdir()?;
    let errors = directory.path().join("errors");
    let program = Program::in_rust_after_a_panic(directory.path(), MESSAGE, &errors)?;
    let mut hook = connect(program.pid(), false)?;
    registered(&mut hook)?;
    program.end()?;
    let told = std::fs::read_to_string(&errors)?;
    ensure!(told.matches(MESSAGE).count() == 1, "its panic is not told once: {told:?}");
    Ok(())
}

/// The hook is brought in, told to go, and brought in again, by the same library; in between the JVM's own
/// closing and opening is nobody's business.
#[test]
fn a_jvm_is_attached_to_again_after_a_hook_has_gone() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut program = jvm::Program::start(directory.path(), PROGRAM_SECONDS)?;
    for _ in 0..3 {
        let hook = connect(program.pid(), true)?;
        ensure!(hook.hello().unguarded.is_none(), "the guard is not up: {:?}", hook.hello());
        hook.detach()?;
        ensure!(kind_of_connect(program.pid())? == "no hook", "it still answers");
    }
    connect(program.pid(), true)?;
    ensure!(program.deletions()? > 0, "the program no longer works");
    program.end()
}

fn options_are_set_and_refused_by_name(hook: &mut HookClient, family: &ColumnFamilyPointers) -> Result<()> {
    let set = |name: &str, value: &str, restore: &str| [change(name, value, Some(restore))];
    hook.set_options(family, &set(SKIP, "33", "20"))?;
    hook.set_options(family, &set(SKIP, "44", "33"))?;
    let unknown = hook.set_options(family, &set(LATER, "8", "0"));
    let Err(ExecuteError::Hook { kind: ErrorKind::Failed, message, .. }) = unknown else {
        bail!("an option that 7.8 does not have: {unknown:?}");
    };
    ensure!(message.contains(LATER), "RocksDB's words are missing: {message}");
    let harmful = hook.set_options(family, &set("level0_stop_writes_trigger", "1", "36"));
    ensure!(kind(harmful)? == ErrorKind::BadRequest, "an option that stops writers is set");
    let database = hook.set_options(family, &set("max_background_jobs", "3", "2"));
    ensure!(kind(database)? == ErrorKind::BadRequest, "an option of the database is set");
    let changed = hook.changed_options()?;
    let [one] = changed.as_slice() else { bail!("to be put back are {changed:?}") };
    ensure!(one.name == SKIP && one.database == family.database, "to be put back is {one:?}");
    Ok(())
}

/// An agent that puts an option back itself leaves nothing to the hook.
fn a_value_that_is_to_stay_is_not_put_back(
    hook: &mut HookClient,
    family: &ColumnFamilyPointers,
    directory: &Path,
) -> Result<()> {
    let skip = || options_file::value(&directory.join("db"), "default", SKIP);
    let before = skip()?;
    hook.set_options(family, &[change(SKIP, "55", Some(&before))])?;
    ensure!(skip()? == "55" && hook.changed_options()?.len() == 1, "the option is {}", skip()?);
    hook.set_options(family, &[change(SKIP, &before, None)])?;
    ensure!(skip()? == before && hook.changed_options()?.is_empty(), "the option is {}", skip()?);
    Ok(())
}

fn change(name: &str, value: &str, restore: Option<&str>) -> OptionChange {
    OptionChange { name: name.to_owned(), value: value.to_owned(), restore: restore.map(str::to_owned) }
}

/// Another agent, in a conversation of its own, may look but not act.
fn the_second_agent_is_refused(pid: u32, family: &ColumnFamilyPointers) -> Result<()> {
    let mut stream = UnixStream::connect(socket(pid)).context("connecting a second time")?;
    let mut ask = |request: &Request| -> Result<Response> {
        write(&mut stream, request)?;
        Ok(read(&mut stream)?)
    };
    let hello = Request::Hello { protocol_version: PROTOCOL_VERSION, agent_pid: 1, agent_id: 1 };
    ensure!(matches!(ask(&hello)?, Response::Hello(_)), "no greeting for the second agent");
    let looked = ask(&Request::SstFiles { column_family: family.clone() })?;
    ensure!(matches!(looked, Response::SstFiles { .. }), "it may not look: {looked:?}");
    let acted = ask(&Request::Flush { column_family: family.clone() })?;
    ensure!(matches!(acted, Response::Error { kind: ErrorKind::Taken, .. }), "it may act: {acted:?}");
    Ok(())
}

fn relieved(
    hook: &mut HookClient,
    family: &ColumnFamilyPointers,
    mode: BottommostLevelCompaction,
) -> Result<()> {
    let id = hook.start_compaction(everything(family, mode))?;
    let finished = outcome(hook, id)?;
    ensure!(finished.ok && !finished.cancelled, "the compaction ended with {finished:?}");
    ensure!(tombstones(hook, family)? == 0, "tombstones are left");
    Ok(())
}

fn socket(pid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/.sexton-hook-{pid}.sock"))
}

fn connect(pid: u32, may_attach: bool) -> Result<HookClient> {
    let options = HookOptions { library: Some(artifact::built("libsexton_hook.so")?), may_attach };
    HookClient::connect(&inspected::target(pid)?, &options).context("connecting to the hook")
}

fn kind_of_connect(pid: u32) -> Result<&'static str> {
    match HookClient::connect(&inspected::target(pid)?, &HookOptions::default()) {
        Err(ExecuteError::NoHook { .. }) => Ok("no hook"),
        Err(error) => Err(error).context("connecting after the hook has gone"),
        Ok(_) => Ok("a hook"),
    }
}

/// The one column family that the program has registered.
fn registered(hook: &mut HookClient) -> Result<ColumnFamilyPointers> {
    let databases = hook.databases()?;
    let [only] = databases.as_slice() else { bail!("registered are {databases:?}") };
    ensure!(only.pointers.name == "default" && only.directory.is_some(), "registered is {only:?}");
    Ok(only.pointers.clone())
}

fn tombstones(hook: &mut HookClient, family: &ColumnFamilyPointers) -> Result<u64> {
    Ok(hook.sst_files(family)?.iter().map(|file| file.deletions).sum())
}

fn outcome(hook: &mut HookClient, id: u64) -> Result<Finished> {
    let deadline = Instant::now() + JOB_LIMIT;
    loop {
        if let CompactionState::Finished(finished) = hook.compaction_status(id)? {
            return Ok(finished);
        }
        ensure!(Instant::now() < deadline, "job {id} is not done within {JOB_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The kind of the hook's refusal; an error where it did not refuse.
fn kind<T: std::fmt::Debug>(answer: Result<T, ExecuteError>) -> Result<ErrorKind> {
    match answer {
        Err(ExecuteError::Hook { kind, .. }) => Ok(kind),
        other => bail!("not refused: {other:?}"),
    }
}

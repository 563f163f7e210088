//! A virtual machine with another kernel: emulated, two processors, no network, this machine's root
//! read-only.
//!
//! Kernel and initial RAM disk come from `tests/kernels/setup.sh`; what happens inside stands in
//! `tests/kernels/init`. Two serial ports: the first is the kernel's console and goes to a file, the second
//! is what the script prints.

use anyhow::{Context, Result, bail};
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Booting takes some ten seconds. Now and then an emulated kernel loses a timer in its first seconds and
/// waits for ever; then it is booted again.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// How often a guest is booted before it is given up.
const BOOTS_MAX: u32 = 3;
/// All tests together take some minutes; a guest that takes longer hangs.
const GUEST_LIMIT: Duration = Duration::from_secs(40 * 60);
/// The server of the host's files is ready in some tens of milliseconds.
const SERVER_LIMIT: Duration = Duration::from_secs(10);
/// Holds a database of some tens of megabytes and what the tests start; most of it is never touched.
const MEMORY: &str = "2048M";
/// QEMU 7.2 emulates these two so that kernels from 6.12 on fault in their first milliseconds.
const PROCESSOR: &str = "max,la57=off,cx16=off";
/// Lines of the console shown when a guest dies.
const LAST_WORDS: usize = 15;

/// A running guest, and what it prints.
#[derive(Debug)]
pub struct Guest {
    /// `uname -r` of its kernel.
    pub release: String,
    _machine: Process,
    _files: Process,
    lines: Lines,
    log: File,
    console: PathBuf,
    deadline: Instant,
}

/// Boots the kernel in directory `kernel` to run `script` as root; its first line is there when this returns.
/// Files with the beginning `log` get the script, its output and the kernel's console.
pub fn boot(kernel: &Path, script: &str, log: &Path) -> Result<(Guest, String)> {
    for _ in 0..BOOTS_MAX {
        let mut guest = start(kernel, script, log)?;
        guest.deadline = Instant::now() + BOOT_LIMIT;
        let Some(line) = guest.next()? else {
            eprintln!("{} did not boot:\n{}", guest.release, guest.last_words());
            continue;
        };
        guest.deadline = Instant::now() + GUEST_LIMIT;
        return Ok((guest, line));
    }
    bail!("{} did not boot in {BOOTS_MAX} attempts", kernel.display())
}

fn start(kernel: &Path, script: &str, log: &Path) -> Result<Guest> {
    let file = |extension: &str| log.with_file_name(format!("{}.{extension}", name(log)));
    let (script_path, console) = (file("script"), file("console"));
    std::fs::write(&script_path, script).with_context(|| format!("writing {}", script_path.display()))?;
    let release = std::fs::read_to_string(kernel.join("release"))
        .with_context(|| format!("no kernel in {}: run `make test-kernels`", kernel.display()))?;
    let socket = kernel.join("files.sock");
    let files = serve_files(&socket)?;
    let mut machine = Process::start(qemu(kernel, &socket, &console, &script_path)?)?;
    let stdout = machine.take_stdout().context("qemu has no standard output")?;
    Ok(Guest {
        release: release.trim().to_owned(),
        _machine: machine,
        _files: files,
        lines: Lines::of("the guest", stdout),
        log: File::create(file("log")).context("creating the guest's log")?,
        console,
        deadline: Instant::now() + GUEST_LIMIT,
    })
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Serves this machine's root over `socket`, until the guest is gone.
fn serve_files(socket: &Path) -> Result<Process> {
    let programs = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];
    let program = programs.into_iter().find(|program| Path::new(program).is_file());
    let program = program.context("virtiofsd is not installed: run `make test-kernels`")?;
    // What a killed run may have left behind.
    let _ = std::fs::remove_file(socket);
    let mut command = Command::new(program);
    command.arg(format!("--socket-path={}", socket.display()));
    // The guest never writes, so its cache is never stale but for files that the host changes meanwhile.
    command.args(["-o", "source=/", "-o", "cache=always", "-o", "sandbox=chroot"]);
    command.args(["--rlimit-nofile=0", "--thread-pool-size=2"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Process::start(command)?;
    let started = Instant::now();
    while !socket.exists() {
        if !process.is_running()? || started.elapsed() > SERVER_LIMIT {
            bail!("{program} does not serve {}: run it by hand to see why", socket.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(process)
}

fn qemu(kernel: &Path, socket: &Path, console: &Path, script: &Path) -> Result<Command> {
    let mut command = Command::new(artifact::installed("qemu-system-x86_64", "qemu-system-x86")?);
    // Not KVM: where this runs may be a virtual machine itself, and the tests must not depend on that.
    command.args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", PROCESSOR, "-smp", "2"]);
    command.args(["-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot"]);
    command.args(["-m", MEMORY, "-numa", "node,memdev=memory"]);
    command.args(["-object", &format!("memory-backend-memfd,id=memory,size={MEMORY},share=on")]);
    command.args(["-chardev", &format!("socket,id=files,path={}", socket.display())]);
    command.args(["-device", "vhost-user-fs-pci,chardev=files,tag=host"]);
    command.arg("-kernel").arg(kernel.join("vmlinuz")).arg("-initrd").arg(kernel.join("initramfs"));
    command.args(["-serial", &format!("file:{}", console.display()), "-serial", "stdio"]);
    // An oops is a failure like a panic, and a panic ends the guest at once.
    let options = "console=ttyS0 quiet loglevel=5 oops=panic panic=-1 mitigations=off";
    command.args(["-append", &format!("{options} guest_script={}", script.display())]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    Ok(command)
}

impl Guest {
    /// The next line that the script prints; `None` when the guest is gone, or is given up because its time
    /// is over.
    pub fn next(&mut self) -> Result<Option<String>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let Ok(line) = self.lines.next(left) else { return Ok(None) };
        if let Some(line) = &line {
            writeln!(self.log, "{line}").context("writing the guest's log")?;
        }
        Ok(line)
    }

    /// The end of what it printed and of its kernel's console.
    pub fn last_words(&self) -> String {
        let console = std::fs::read(&self.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        let lines: Vec<&str> = console.lines().collect();
        let end = lines.iter().skip(lines.len().saturating_sub(LAST_WORDS)).copied();
        format!("{}\n{}", self.lines.shown(), end.collect::<Vec<_>>().join("\n"))
    }
}

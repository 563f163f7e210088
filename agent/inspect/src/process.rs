//! Facts of a process itself: that it is still the same one, its executable, arguments and user.
//!
//! What it has mapped is in `maps`, which files it has open in `database`.

use super::error::InspectError;
use super::facts::ProcessId;
use super::users;
use procfs::ProcError;
use procfs::process::Process;
use sexton_tuner::policy::Candidate;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bytes of the arguments that are read. A JVM's main class comes behind its class path, which has hundreds
/// of jars in it and is tens of kilobytes long; the kernel takes some 2 MiB of arguments and environment by
/// default, and up to three quarters of the stack limit where that is higher.
pub const COMMAND_LINE_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes of `/proc/PID/cgroup` that are read: a line for each of some dozen hierarchies, with a path of 4 KiB
/// at most.
const CGROUP_BYTES_MAX: u64 = 64 * 1024;

/// What `/proc/PID` says of the process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    pub process: ProcessId,
    /// `/proc/PID/exe`, without ` (deleted)`.
    pub executable: PathBuf,
    /// What the process is for people, without its pid: the main class of a JVM, else the executable's file
    /// name.
    pub program: String,
    /// Arguments, joined with spaces: the first [`COMMAND_LINE_BYTES_MAX`] bytes.
    pub command_line: String,
    pub is_command_line_cut: bool,
    pub user_id: u32,
    pub group_id: u32,
    /// Path of its control group as systemd knows it; empty where it cannot be read.
    pub cgroup: String,
}

impl ProcessFacts {
    /// The name of its user on this host.
    pub fn user_name(&self) -> Option<String> {
        users::name_of(self.user_id)
    }

    /// What a policy's conditions are asked of.
    pub fn candidate(&self) -> Candidate<'_> {
        Candidate {
            pid: self.process.pid,
            executable: self.executable.to_string_lossy(),
            command_line: self.command_line.as_str().into(),
            user_id: self.user_id,
            user_name: self.user_name().map(Into::into),
            cgroup: self.cgroup.as_str().into(),
        }
    }

    /// Short name for people: the program and the pid, `OzoneManagerStarter-4711`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.program, self.process.pid)
    }
}

/// Names the process that has this pid now.
/// Errors: [`InspectError::NoSuchProcess`] when there is none (a zombie counts as none), or a permission or
/// input/output error.
pub fn process_id(pid: u32) -> Result<ProcessId, InspectError> {
    let stat = open(pid)?.stat().map_err(|error| from_procfs(pid, error))?;
    if matches!(stat.state, 'Z' | 'X' | 'x') {
        return Err(InspectError::NoSuchProcess { pid });
    }
    Ok(ProcessId { pid, start_time_ticks: stat.starttime })
}

/// Whether this very process still runs: same pid, same start time, not a zombie.
pub fn is_alive(process: &ProcessId) -> bool {
    process_id(process.pid).is_ok_and(|now| now == *process)
}

pub fn read(pid: u32) -> Result<ProcessFacts, InspectError> {
    let process = process_id(pid)?;
    let status = open(pid)?.status().map_err(|error| from_procfs(pid, error))?;
    let exe = Path::new("/proc").join(pid.to_string()).join("exe");
    let executable = std::fs::read_link(&exe).map_err(|error| InspectError::from_io(pid, &exe, error))?;
    let executable = without_deleted(executable);
    let (arguments, is_command_line_cut) = arguments(pid)?;
    Ok(ProcessFacts {
        process,
        program: program(&executable, &arguments),
        executable,
        command_line: arguments.replace('\0', " "),
        is_command_line_cut,
        user_id: status.euid,
        group_id: status.egid,
        cgroup: cgroup(pid),
    })
}

/// The control group in the unified hierarchy, else in systemd's own.
fn cgroup(pid: u32) -> String {
    let mut content = Vec::new();
    let path = Path::new("/proc").join(pid.to_string()).join("cgroup");
    let read = File::open(path).and_then(|file| file.take(CGROUP_BYTES_MAX).read_to_end(&mut content));
    let text = String::from_utf8_lossy(&content);
    let of = |prefix: &str| text.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(prefix));
    read.ok()
        .and_then(|_| of("name=systemd:").filter(|path| *path != "/").or_else(|| of(":")))
        .unwrap_or_default()
        .to_owned()
}

/// Takes the kernel's ` (deleted)` off a link's text.
pub(super) fn without_deleted(path: PathBuf) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(stripped) => PathBuf::from(std::ffi::OsStr::from_bytes(stripped)),
        None => path,
    }
}

/// A path that the kernel shows for a file of a process, as the process itself sees it and as it is reached
/// from here. The kernel shows paths up to the root of the process's mount namespace; the process may have
/// another root directory below that.
pub(super) fn inside_and_from_agent(pid: u32, shown: &Path) -> (PathBuf, PathBuf) {
    let root_link = PathBuf::from(format!("/proc/{pid}/root"));
    let root = std::fs::read_link(&root_link).unwrap_or_else(|_| PathBuf::from("/"));
    // A path outside of its root can be open, too: it is tried as it is.
    let relative = shown.strip_prefix(&root).or_else(|_| shown.strip_prefix("/")).unwrap_or(shown);
    (Path::new("/").join(relative), root_link.join(relative))
}

/// Whether an error of reading under `/proc/PID` says that the process is gone.
pub(super) fn means_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The arguments, a zero byte between two of them, and whether there is more of them than that.
fn arguments(pid: u32) -> Result<(String, bool), InspectError> {
    let path = Path::new("/proc").join(pid.to_string()).join("cmdline");
    let mut content = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(COMMAND_LINE_BYTES_MAX + 1).read_to_end(&mut content))
        .map_err(|error| InspectError::from_io(pid, &path, error))?;
    let is_cut = content.len() as u64 > COMMAND_LINE_BYTES_MAX;
    if is_cut {
        content.pop();
    }
    while content.last() == Some(&0) {
        content.pop();
    }
    Ok((String::from_utf8_lossy(&content).into_owned(), is_cut))
}

fn program(executable: &Path, arguments: &str) -> String {
    let file_name = executable.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let class = if file_name == "java" { main_class(arguments.split('\0').skip(1)) } else { None };
    class.map_or_else(|| file_name.into_owned(), str::to_owned)
}

/// The name of the class, without its package, or of the jar that a `java` runs.
fn main_class<'a>(mut arguments: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Options whose value is the next argument.
    const WITH_VALUE: [&str; 12] = [
        "-cp",
        "-classpath",
        "--class-path",
        "-p",
        "--module-path",
        "--upgrade-module-path",
        "--add-modules",
        "--add-reads",
        "--add-exports",
        "--add-opens",
        "--limit-modules",
        "--patch-module",
    ];
    const NAME_BYTES_MAX: usize = 100;
    let name = loop {
        match arguments.next()? {
            "-jar" => break arguments.next()?.rsplit('/').next()?.trim_end_matches(".jar"),
            "-m" | "--module" => break arguments.next()?.rsplit(['.', '/']).next()?,
            option if WITH_VALUE.contains(&option) => drop(arguments.next()?),
            option if option.starts_with(['-', '@']) => {}
            class => break class.rsplit(['.', '/']).next()?,
        }
    };
    let is_plain = name.chars().all(|character| character.is_alphanumeric() || "-_.$".contains(character));
    (is_plain && (1..=NAME_BYTES_MAX).contains(&name.len())).then_some(name)
}

fn open(pid: u32) -> Result<Process, InspectError> {
    let number = i32::try_from(pid).map_err(|_| InspectError::NoSuchProcess { pid })?;
    Process::new(number).map_err(|error| from_procfs(pid, error))
}

fn from_procfs(pid: u32, error: ProcError) -> InspectError {
    let path = |path: Option<PathBuf>| path.unwrap_or_else(|| PathBuf::from(format!("/proc/{pid}")));
    match error {
        ProcError::NotFound(_) => InspectError::NoSuchProcess { pid },
        ProcError::PermissionDenied(at) => InspectError::PermissionDenied { pid, path: path(at) },
        ProcError::Io(error, at) => InspectError::from_io(pid, &path(at), error),
        other => InspectError::Io { pid, path: path(None), source: io::Error::other(other.to_string()) },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use sexton_tuner::policy::TargetMatch;

    #[test]
    fn our_own_process_is_alive_and_known() {
        let facts = read(std::process::id()).unwrap();
        assert!(is_alive(&facts.process));
        assert_eq!(facts.executable, std::env::current_exe().unwrap());
        assert!(facts.name().ends_with(&format!("-{}", std::process::id())));
        assert!(!facts.command_line.contains('\0'));
    }

    #[test]
    fn a_candidate_is_what_the_kernel_says_of_it() {
        let facts = read(std::process::id()).unwrap();
        let candidate = facts.candidate();
        assert_eq!(candidate.user_id, rustix::process::geteuid().as_raw());
        let expected = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        assert!(expected.lines().any(|line| line.ends_with(&*candidate.cgroup)), "{expected}");
        let root = users::name_of(0);
        assert_eq!(root.as_deref(), Some("root"));
    }

    /// The facts of a process with these bytes of arguments before its main class, as a JVM has its class
    /// path there.
    fn facts_behind(class_path_bytes: usize) -> ProcessFacts {
        // The kernel takes 128 KiB in one argument.
        const ARGUMENT_BYTES: usize = 100_000;
        let mut left = class_path_bytes;
        let arguments = std::iter::from_fn(|| {
            let bytes = left.min(ARGUMENT_BYTES);
            left -= bytes;
            (bytes > 0).then(|| "j".repeat(bytes))
        });
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo; read line", "java", "-classpath"])
            .args(arguments)
            .arg("org.apache.hadoop.ozone.om.OzoneManagerStarter")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Only once it runs the kernel shows its own arguments.
        let mut line = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let facts = read(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        facts.unwrap()
    }

    #[test]
    fn a_main_class_behind_a_long_class_path_is_matched() {
        let matches = TargetMatch { command_line: Some("OzoneManagerStarter".into()), ..Default::default() };
        for class_path_bytes in [100, 11_000, 900_000] {
            let facts = facts_behind(class_path_bytes);
            assert!(!facts.is_command_line_cut, "{class_path_bytes}");
            assert!(matches.holds(&facts.candidate()), "{class_path_bytes}");
        }
    }

    #[test]
    fn a_command_line_beyond_the_limit_is_known_to_be_cut() {
        let facts = facts_behind(1_200_000);
        assert!(facts.is_command_line_cut);
        assert_eq!(facts.command_line.len() as u64, COMMAND_LINE_BYTES_MAX);
        assert!(facts.command_line.starts_with("sh -c echo; read line java -classpath jjj"));
    }

    #[test]
    fn a_jvm_is_named_by_its_main_class() {
        let named =
            |executable: &str, arguments: &[&str]| program(Path::new(executable), &arguments.join("\0"));
        let java = "/usr/lib/jvm/bin/java";
        let om = [
            "java",
            "-Dproc_om",
            "-cp",
            "/a.jar:/b",
            "-Xmx4g",
            "org.apache.hadoop.ozone.om.OzoneManagerStarter",
            "--init",
        ];
        assert_eq!(named(java, &om), "OzoneManagerStarter");
        assert_eq!(named(java, &["java", "-jar", "/opt/kafka-streams.jar", "a.B"]), "kafka-streams");
        assert_eq!(named(java, &["java", "-m", "mod/com.example.Main"]), "Main");
        // What is no name of a class is not repeated.
        for arguments in
            [&["java"][..], &["java", "-cp"], &["java", "a.B\u{1b}[2J"], &["java", "-jar", "/.jar"]]
        {
            assert_eq!(named(java, arguments), "java", "{arguments:?}");
        }
        assert_eq!(named("/usr/sbin/mariadbd", &["mariadbd", "x.Y"]), "mariadbd");
    }

    #[test]
    fn a_path_is_reached_through_the_root_of_its_process() {
        let pid = std::process::id();
        let (inside, from_agent) = inside_and_from_agent(pid, Path::new("/data/om db/LOCK"));
        assert_eq!(inside, Path::new("/data/om db/LOCK"));
        assert_eq!(from_agent, PathBuf::from(format!("/proc/{pid}/root/data/om db/LOCK")));
    }

    #[test]
    fn another_start_time_is_another_process() {
        let mut process = process_id(std::process::id()).unwrap();
        process.start_time_ticks += 1;
        assert!(!is_alive(&process));
    }

    #[test]
    fn a_pid_that_cannot_be_is_no_such_process() {
        for pid in [u32::MAX, i32::MAX as u32] {
            assert!(matches!(process_id(pid), Err(InspectError::NoSuchProcess { .. })), "{pid}");
        }
    }

    #[test]
    fn a_child_that_ended_is_gone() {
        let mut child = std::process::Command::new("/proc/self/exe")
            .arg("--list")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let process = process_id(child.id());
        child.wait().unwrap();
        if let Ok(process) = process {
            assert!(!is_alive(&process));
        }
    }
}

//! Who opens what in a directory, by the kernel's word.

use crate::artifact;
use crate::process::{Lines, Process};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Prints the process and the file of each opening, by fanotify.
const WATCHER: &str = r#"import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
OPEN, ON_CHILD, ON_DIRECTORIES, ADD, HERE = 0x20, 0x08000000, 0x40000000, 1, -100
watcher = libc.fanotify_init(0, os.O_RDONLY)
mask = ctypes.c_uint64(OPEN | ON_CHILD | ON_DIRECTORIES)
if libc.fanotify_mark(watcher, ADD, mask, HERE, sys.argv[1].encode()) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("watching", flush=True)
while True:
    events = os.read(watcher, 65536)
    while events:
        length, _, _, _, _, opened, pid = struct.unpack_from("<IBBHQii", events)
        print(pid, os.readlink(f"/proc/self/fd/{opened}"), flush=True)
        os.close(opened)
        events = events[length:]
"#;

/// A directory that is watched.
pub struct Opened {
    _watcher: Process,
    lines: Lines,
}

impl Opened {
    /// Begins to watch; takes root.
    pub fn watch(directory: &Path) -> Result<Opened> {
        let mut command = Command::new(artifact::installed("python3", "python3")?);
        command.args(["-c", WATCHER]).arg(directory).stdout(Stdio::piped());
        let mut watcher = Process::start(command)?;
        let mut lines = Lines::of("fanotify", watcher.take_stdout().context("no standard output")?);
        lines.until(LIMIT, |line| line == "watching")?;
        Ok(Opened { _watcher: watcher, lines })
    }

    /// What was opened so far by others than us and `known`. `file`, which is in the directory, is read to
    /// see that it would have been noticed.
    pub fn by_others(mut self, file: &Path, known: &[u32]) -> Result<Vec<String>> {
        std::fs::read(file)?;
        let (us, name) = (std::process::id(), format!(" {}", file.display()));
        let mut others = Vec::new();
        loop {
            let line = self.lines.next(LIMIT)?.context("the watcher has ended")?;
            let pid: u32 = line.split(' ').next().unwrap_or_default().parse()?;
            if pid == us && line.ends_with(&name) {
                return Ok(others);
            }
            if pid != us && !known.contains(&pid) {
                others.push(line);
            }
        }
    }
}

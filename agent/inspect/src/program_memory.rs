//! The memory of one program in one process: dead as soon as the process runs another program or has ended.
//!
//! A pid and a start time survive `execve`, so what is written by them can land in another program, which may
//! have other rights. A descriptor below `/proc/PID` is bound to the memory that was there when it was
//! opened.
//! `/proc/PID/mem` can only be opened for writing by the process' user or with CAP_DAC_OVERRIDE; else the
//! memory is written by pid, right after its mappings, which are bound as well, were seen to be there.

use super::facts::ProcessId;
use super::memory::{self, MemoryError};
use super::process::is_alive;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes of mappings that are read: half a million lines.
const MAPS_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub struct ProgramMemory {
    process: ProcessId,
    mappings: File,
    /// `None` where it may not be opened for writing.
    bytes: Option<File>,
}

impl ProgramMemory {
    /// The memory of the program that the process runs now.
    /// Errors: [`MemoryError::NoSuchProcess`] where there is no such process any more,
    /// [`MemoryError::PermissionDenied`], or what opening gives.
    pub fn open(process: ProcessId) -> Result<ProgramMemory, MemoryError> {
        let pid = process.pid;
        let path = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
        let mappings = File::open(path("maps")).map_err(|error| memory::refusal(pid, error))?;
        let bytes = match File::options().read(true).write(true).open(path("mem")) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => return Err(memory::refusal(pid, error)),
        };
        // Seen alive afterwards, it is the process that was meant whose memory was opened.
        if !is_alive(&process) {
            return Err(MemoryError::NoSuchProcess { pid });
        }
        Ok(ProgramMemory { process, mappings, bytes })
    }

    /// Reads the byte at `address`.
    pub fn read_u8(&self, address: u64) -> Result<u8, MemoryError> {
        let pid = self.process.pid;
        let Some(bytes) = &self.bytes else {
            self.check(address, |_| true)?;
            return memory::read_u8(pid, address);
        };
        let mut byte = [0];
        match bytes.read_at(&mut byte, address) {
            Ok(1) => Ok(u8::from_le_bytes(byte)),
            // The memory is gone, whatever the process is now.
            Ok(_) => Err(MemoryError::NoSuchProcess { pid }),
            Err(_) => Err(MemoryError::Unmapped { pid, address, length: 1 }),
        }
    }

    /// Writes the byte at `address`, which has to be memory that the program itself may write and shares with
    /// nobody.
    pub fn write_u8(&self, address: u64, value: u8) -> Result<(), MemoryError> {
        let pid = self.process.pid;
        // The kernel would write to what is read-only, too.
        self.check(address, |permissions| permissions.starts_with("rw") && permissions.ends_with('p'))?;
        let Some(bytes) = &self.bytes else { return memory::write_u8(pid, address, value) };
        match bytes.write_at(&[value], address) {
            Ok(1) => Ok(()),
            Ok(_) => Err(MemoryError::NoSuchProcess { pid }),
            Err(_) => Err(MemoryError::Unmapped { pid, address, length: 1 }),
        }
    }

    /// Whether the program still is there and has memory of this kind at `address`.
    fn check(&self, address: u64, is_fit: impl Fn(&str) -> bool) -> Result<(), MemoryError> {
        let pid = self.process.pid;
        let read_failed = |source| MemoryError::Io { pid, source };
        (&self.mappings).seek(SeekFrom::Start(0)).map_err(read_failed)?;
        let mut any = false;
        for line in BufReader::new((&self.mappings).take(MAPS_BYTES_MAX)).split(b'\n') {
            let line = line.map_err(read_failed)?;
            any = true;
            let line = String::from_utf8_lossy(&line);
            let mut words = line.split(' ');
            let range = words.next().and_then(|range| range.split_once('-'));
            let number = |text| u64::from_str_radix(text, 16).unwrap_or_default();
            let holds = range.is_some_and(|(begin, end)| (number(begin)..number(end)).contains(&address));
            if holds && words.next().is_some_and(&is_fit) {
                return Ok(());
            }
        }
        match any {
            true => Err(MemoryError::Unmapped { pid, address, length: 1 }),
            false => Err(MemoryError::NoSuchProcess { pid }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::super::process::process_id;
    use super::*;
    use std::io::Write;
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicU8, Ordering};
    use std::time::{Duration, Instant};

    fn ours() -> ProgramMemory {
        ProgramMemory::open(process_id(std::process::id()).unwrap()).unwrap()
    }

    /// The same, as it is without the right to open the memory itself.
    fn by_pid(memory: ProgramMemory) -> ProgramMemory {
        ProgramMemory { bytes: None, ..memory }
    }

    #[test]
    fn a_byte_is_written_and_its_neighbours_stay() {
        let bytes: &[AtomicU8] = Box::leak(Box::new([1, 2, 3].map(AtomicU8::new)));
        let now = || bytes.iter().map(|byte| byte.load(Ordering::SeqCst)).collect::<Vec<_>>();
        let address = bytes.as_ptr() as u64 + 1;
        for memory in [ours(), by_pid(ours())] {
            memory.write_u8(address, 9).unwrap();
            assert_eq!(now(), [1, 9, 3]);
            assert_eq!(memory.read_u8(address).unwrap(), 9);
            memory.write_u8(address, 2).unwrap();
        }
    }

    #[test]
    fn what_the_program_may_not_write_is_not_written() {
        static CONSTANT: [u8; 64] = *b"a text that is in the part of the program that is only for read!";
        let constant = CONSTANT.as_ptr() as u64;
        let code = a_byte_is_written_and_its_neighbours_stay as fn() as usize as u64;
        for memory in [ours(), by_pid(ours())] {
            for address in [constant, code, 8, u64::MAX] {
                let before = memory.read_u8(address).ok();
                assert!(memory.write_u8(address, 1).is_err(), "{address:#x}");
                assert_eq!(memory.read_u8(address).ok(), before);
            }
        }
        let gone = ProcessId { pid: i32::MAX as u32, start_time_ticks: 1 };
        assert!(matches!(ProgramMemory::open(gone), Err(MemoryError::NoSuchProcess { .. })));
        let mut other = process_id(std::process::id()).unwrap();
        other.start_time_ticks += 1;
        assert!(matches!(ProgramMemory::open(other), Err(MemoryError::NoSuchProcess { .. })));
    }

    /// A place that every program can write: on its stack.
    fn writable(child: &Child) -> u64 {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        u64::from_str_radix(stack.split_once('-').unwrap().0, 16).unwrap() + 64
    }

    /// The pid and the start time are the same before and after it.
    #[test]
    fn after_an_exec_nothing_is_read_or_written() {
        let mut child =
            Command::new("sh").args(["-c", "read go; exec sleep 60"]).stdin(Stdio::piped()).spawn().unwrap();
        let process = process_id(child.id()).unwrap();
        let started = Instant::now();
        let is = |name: &str| {
            let path = std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
            path.trim() == name
        };
        while !is("sh") {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        let open = || ProgramMemory::open(process).unwrap();
        let (before, by_pid) = (open(), by_pid(open()));
        let address = writable(&child);
        for memory in [&before, &by_pid] {
            memory.write_u8(address, 7).unwrap();
            assert_eq!(memory.read_u8(address).unwrap(), 7);
        }
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let is = |name: &str| {
            let path = std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
            path.trim() == name
        };
        while !is("sleep") {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        let now = writable(&child);
        assert_eq!(process_id(child.id()).unwrap(), process);
        let there = memory::read_u8(child.id(), now).unwrap();
        for memory in [&before, &by_pid] {
            for address in [address, now] {
                assert!(matches!(memory.read_u8(address), Err(MemoryError::NoSuchProcess { .. })));
                assert!(matches!(memory.write_u8(address, !there), Err(MemoryError::NoSuchProcess { .. })));
            }
        }
        assert_eq!(memory::read_u8(child.id(), now).unwrap(), there);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

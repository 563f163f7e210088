//! A file system in user space with one file in it, which stops answering when it is told to, as a network
//! file system does whose server has gone. It speaks to `/dev/fuse` itself.

use anyhow::{Context, Result, ensure};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The kernel's buffer for a request has to be larger than what one can write; nobody writes here.
const REQUEST_BYTES_MAX: usize = 1 << 20;
const HEADER_BYTES: usize = 40;
const ROOT: u64 = 1;
const FILE: u64 = 2;
/// How long the kernel believes names and attributes, seconds.
const VALID_SECONDS: u64 = 1;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// The mounted file system; dropping it lets everybody go on and takes it away.
#[derive(Debug)]
pub struct HungFileSystem {
    directory: PathBuf,
    name: String,
    gate: Arc<Gate>,
    server: Option<JoinHandle<()>>,
}

/// Whether requests are answered.
#[derive(Debug, Default)]
struct Gate {
    is_hung: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, is_hung: bool) {
        *self.is_hung.lock().unwrap_or_else(PoisonError::into_inner) = is_hung;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut is_hung = self.is_hung.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_hung {
            is_hung = self.changed.wait(is_hung).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl HungFileSystem {
    /// Mounts one at the empty `directory`, with a copy of `file` in it.
    pub fn mount(directory: &Path, file: &Path) -> Result<HungFileSystem> {
        let device = File::options().read(true).write(true).open("/dev/fuse").context("opening /dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let [source, target, kind, options] = [
            b"sexton-tests".to_vec(),
            directory.as_os_str().as_bytes().to_vec(),
            b"fuse".to_vec(),
            options.into_bytes(),
        ]
        .map(CString::new);
        let (source, target, kind, options) = (source?, target?, kind?, options?);
        // SAFETY: all arguments are strings that end with a zero and live through the call.
        let result = unsafe {
            let flags = libc::MS_NOSUID | libc::MS_NODEV;
            libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
        };
        ensure!(result == 0, "mounting at {}: {}", directory.display(), std::io::Error::last_os_error());
        let content = File::open(file).with_context(|| format!("opening {}", file.display()))?;
        let size = content.metadata()?.len();
        let name = file.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        let gate = Arc::new(Gate::default());
        let server = Server { device, content, size, name: name.clone(), gate: Arc::clone(&gate) };
        let server = std::thread::spawn(move || server.serve());
        Ok(HungFileSystem { directory: directory.to_owned(), name, gate, server: Some(server) })
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// From now on nothing is answered.
    pub fn hang(&self) {
        self.gate.set(true);
    }

    /// From now on everything is answered again, what has waited first.
    pub fn recover(&self) {
        self.gate.set(false);
    }
}

impl Drop for HungFileSystem {
    fn drop(&mut self) {
        self.recover();
        if let Ok(target) = CString::new(self.directory.as_os_str().as_bytes()) {
            // SAFETY: a string that ends with a zero and lives through the call.
            unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        }
        // Its thread ends when the last file of it is closed, which may be a program's that still runs.
        drop(self.server.take());
    }
}

struct Server {
    device: File,
    content: File,
    size: u64,
    name: String,
    gate: Arc<Gate>,
}

impl Server {
    /// Answers one request after the other until the file system is taken away.
    fn serve(mut self) {
        let mut request = vec![0; REQUEST_BYTES_MAX];
        while let Ok(count) = self.device.read(&mut request) {
            let Some((header, body)) = request.get(..count).and_then(|it| it.split_at_checked(HEADER_BYTES))
            else {
                continue;
            };
            let (opcode, unique, node) = (number32(header, 4), number64(header, 8), number64(header, 16));
            if [FORGET, INTERRUPT, BATCH_FORGET].contains(&opcode) {
                continue;
            }
            self.gate.pass();
            let answer = self.answer(opcode, node, body);
            let (error, body) = match &answer {
                Ok(body) => (0, body.as_slice()),
                Err(error) => (-*error, &[][..]),
            };
            let length = u32::try_from(16 + body.len()).unwrap_or_default();
            let head = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &unique.to_ne_bytes()].concat();
            // Who has asked may have gone.
            let _ = self.device.write(&[&head, body].concat());
        }
    }

    fn answer(&self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        match opcode {
            INIT => Ok(init()),
            LOOKUP if body.strip_suffix(&[0]) == Some(self.name.as_bytes()) => {
                let valid = [FILE, 0, VALID_SECONDS, VALID_SECONDS, 0].map(u64::to_ne_bytes).concat();
                Ok([valid, self.attributes(FILE)].concat())
            }
            LOOKUP => Err(libc::ENOENT),
            GETATTR => {
                let valid = [VALID_SECONDS, 0].map(u64::to_ne_bytes).concat();
                Ok([valid, self.attributes(node)].concat())
            }
            OPEN if node == FILE => Ok(vec![0; 16]),
            READ if node == FILE => {
                let mut bytes = vec![0; number32(body, 16) as usize];
                let count = self.content.read_at(&mut bytes, number64(body, 8)).map_err(|_| libc::EIO)?;
                bytes.truncate(count);
                Ok(bytes)
            }
            RELEASE | FLUSH => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        }
    }

    /// A `fuse_attr`.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (mode, size) = match node {
            ROOT => (libc::S_IFDIR | 0o755, 0),
            _ => (libc::S_IFREG | 0o755, self.size),
        };
        let wide = [node, size, size.div_ceil(512), 0, 0, 0].map(u64::to_ne_bytes).concat();
        let narrow = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0u32].map(u32::to_ne_bytes).concat();
        [wide, narrow].concat()
    }
}

/// A `fuse_init_out` of version 7.31.
fn init() -> Vec<u8> {
    let (max_write, granularity) = (4096u32, 1u32);
    let mut out = [7, 31, 128 << 10, 0u32].map(u32::to_ne_bytes).concat();
    out.extend([16u16, 12].map(u16::to_ne_bytes).concat());
    out.extend([max_write, granularity].map(u32::to_ne_bytes).concat());
    out.resize(64, 0);
    out
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|it| it.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|it| it.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

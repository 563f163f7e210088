//! What the running kernel has, found out by trying: tiny programs are loaded and links asked for.
//!
//! Three answers: yes, no, and could not tell (for want of privileges, mostly). Only the first two are to be
//! acted on; the reasons are for people.

use super::ProbeError;
use super::error::LoaderError;
use super::libbpf_log::quietly;
use super::object::{BpfObject, want_programs};
use super::raw_link::{ask_for_uprobe_link, binding_is_read};
use libbpf_rs::{ErrorKind, MapHandle, MapType, Object, ProgramAttachType, ProgramMut, libbpf_sys};
use serde::Serialize;
use std::io;

/// Bytes of the ring buffer that is created to see whether it can be: the smallest there is.
const RING_BYTES: u32 = 4096;

/// A process id that cannot be.
const NO_PROCESS: u32 = u32::MAX;

/// Where kernels publish their types.
const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Whether the kernel has something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "answer", content = "reason")]
pub enum Answer {
    Yes,
    /// It has not, and why that is said.
    No(String),
    /// It could not be found out, and why.
    Unknown(String),
}

impl Answer {
    /// Whether it is known to be there.
    pub fn is_yes(&self) -> bool {
        *self == Answer::Yes
    }

    /// Why it is not known to be there; empty where it is.
    pub fn reason(&self) -> &str {
        match self {
            Answer::Yes => "",
            Answer::No(reason) | Answer::Unknown(reason) => reason,
        }
    }
}

/// What of the kernel's features Sexton uses, facts only. What follows from them stands in
/// [`super::Mechanism::choose`] and [`super::Sentinel::load`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelFeatures {
    /// `uname -r`.
    pub release: String,
    /// The kernel's own types, without which no program finds its way: `CONFIG_DEBUG_INFO_BTF`.
    pub btf: Answer,
    /// Ring buffers (5.8).
    pub ring_buffer: Answer,
    /// Cookies of perf and multi uprobes, `bpf_get_attach_cookie` (5.15).
    pub attach_cookie: Answer,
    /// Task iterators bound to one process (6.1).
    pub task_iterator: Answer,
    /// uprobe-multi links (6.6).
    pub uprobe_multi: Answer,
    /// Their process filter means the process and not the thread (6.6.35).
    pub uprobe_multi_process_filter: Answer,
    /// Uprobe sessions (6.13).
    pub uprobe_session: Answer,
    /// A thread's memory can still be read when it ends (6.16).
    pub thread_end_reading: Answer,
}

impl KernelFeatures {
    /// Asks the running kernel. Takes some tens of milliseconds.
    pub fn probe() -> KernelFeatures {
        quietly(ask)
    }
}

fn ask() -> KernelFeatures {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let nothing = load("sexton_try_nothing", None);
    let (uprobe_multi, uprobe_multi_process_filter) = multi_links();
    let mut features = KernelFeatures {
        btf: btf(),
        ring_buffer: ring_buffer(),
        attach_cookie: loads("sexton_try_cookie", "bpf_get_attach_cookie came with Linux 5.15"),
        task_iterator: task_iterator(),
        uprobe_multi,
        uprobe_multi_process_filter,
        uprobe_session: sessions(),
        thread_end_reading: thread_end_reading(&release),
        release,
    };
    if let Err(error) = nothing {
        features.know_nothing(&format!("the kernel refuses even a program that does nothing: {error}"));
    }
    features
}

impl KernelFeatures {
    /// Where nothing at all can be loaded, a refusal says nothing about the kernel.
    fn know_nothing(&mut self, reason: &str) {
        let answers = [
            &mut self.ring_buffer,
            &mut self.attach_cookie,
            &mut self.task_iterator,
            &mut self.uprobe_multi,
            &mut self.uprobe_multi_process_filter,
            &mut self.uprobe_session,
        ];
        for answer in answers {
            *answer = Answer::Unknown(reason.to_owned());
        }
    }
}

fn btf() -> Answer {
    match std::fs::File::open(KERNEL_BTF) {
        Ok(_) => Answer::Yes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Answer::No(format!(
            "there is no {KERNEL_BTF}: the kernel was built without CONFIG_DEBUG_INFO_BTF"
        )),
        Err(error) => Answer::Unknown(format!("{KERNEL_BTF}: {error}")),
    }
}

fn ring_buffer() -> Answer {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    match MapHandle::create(MapType::RingBuf, Some("sexton_try_ring"), 0, 0, RING_BYTES, &options) {
        Ok(_) => Answer::Yes,
        Err(error) => refused(&error, "ring buffers came with Linux 5.8"),
    }
}

fn task_iterator() -> Answer {
    let object = match load("sexton_try_iterator", None) {
        Ok(object) => object,
        Err(error) => return refused_by(&error, "task iterators came with Linux 5.8"),
    };
    match BpfObject::Features.program(&object, "sexton_try_iterator") {
        Ok(program) if binding_is_read(&program) => Answer::Yes,
        Ok(_) => Answer::No("iterators are bound to a process since Linux 6.1".into()),
        Err(error) => Answer::Unknown(error.to_string()),
    }
}

fn multi_links() -> (Answer, Answer) {
    let ask = |pid| {
        with_program("sexton_try_nothing", Some(ProgramAttachType::TraceUprobeMulti), |program| {
            ask_for_uprobe_link(program, libbpf_sys::BPF_TRACE_UPROBE_MULTI, pid)
        })
    };
    let multi = knows_link(ask(0), "uprobe-multi links came with Linux 6.6");
    if !multi.is_yes() {
        return (multi.clone(), multi);
    }
    // The other way round: a kernel whose filter is right looks at the process first.
    let filter = match ask(NO_PROCESS).err().and_then(|error| error.raw_os_error()) {
        Some(libc::EINVAL) => Answer::Yes,
        Some(libc::EBADF) => {
            Answer::No("its process filter means one thread; that was put right with Linux 6.6.35".into())
        }
        Some(code) => Answer::Unknown(format!("it gave no usable answer: error {code}")),
        None => Answer::Unknown("it gave no usable answer".into()),
    };
    (multi, filter)
}

fn sessions() -> Answer {
    let answer = with_program("sexton_try_session", None, |program| {
        ask_for_uprobe_link(program, libbpf_sys::BPF_TRACE_UPROBE_SESSION, 0)
    });
    knows_link(answer, "uprobe sessions came with Linux 6.13")
}

/// The one feature that cannot be tried without a target: the order of two steps in the kernel's `do_exit`.
fn thread_end_reading(release: &str) -> Answer {
    match version(release) {
        None => Answer::Unknown(format!("{release} is no version that could be read")),
        Some(version) if version >= (6, 16) => Answer::Yes,
        Some(_) => {
            Answer::No(format!("Linux {release}: before 6.16 a thread's memory is gone when its end is told"))
        }
    }
}

/// Major and minor of `uname -r`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether the kernel takes the program `name`.
fn loads(name: &'static str, since: &str) -> Answer {
    match load(name, None) {
        Ok(_) => Answer::Yes,
        Err(error) => refused_by(&error, since),
    }
}

fn load(name: &'static str, attach_type: Option<ProgramAttachType>) -> Result<Object, ProbeError> {
    let mut open = BpfObject::Features.open()?;
    want_programs(&mut open, |program| program == name);
    let wanted = open.progs_mut().find(|program| program.name() == name);
    if let (Some(mut program), Some(attach_type)) = (wanted, attach_type) {
        program.set_attach_type(attach_type);
    }
    BpfObject::Features.load(open)
}

fn with_program<T>(
    name: &'static str,
    attach_type: Option<ProgramAttachType>,
    ask: impl FnOnce(&ProgramMut<'_>) -> io::Result<T>,
) -> io::Result<T> {
    let object = load(name, attach_type).map_err(io::Error::other)?;
    ask(&BpfObject::Features.program(&object, name).map_err(io::Error::other)?)
}

/// What a kernel's answer to [`ask_for_uprobe_link`] means.
fn knows_link<T>(answer: io::Result<T>, since: &str) -> Answer {
    let Err(error) = answer else {
        return Answer::Unknown("it took a link on a directory".into());
    };
    match error.raw_os_error() {
        Some(libc::EBADF) => Answer::Yes,
        Some(libc::EPERM | libc::EACCES) => Answer::Unknown(error.to_string()),
        _ => Answer::No(format!("{since} ({error})")),
    }
}

fn refused_by(error: &ProbeError, since: &str) -> Answer {
    match error {
        ProbeError::Load { source: LoaderError::Libbpf(source), .. } => refused(source, since),
        other => Answer::Unknown(other.to_string()),
    }
}

fn refused(error: &libbpf_rs::Error, since: &str) -> Answer {
    match error.kind() {
        ErrorKind::PermissionDenied => Answer::Unknown(error.to_string()),
        _ => Answer::No(format!("{since} ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_releases() {
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("5.10.0-35-cloud-amd64"), Some((5, 10)));
        assert_eq!(version("7.2-rc1"), Some((7, 2)));
        assert_eq!(version("linux"), None);
    }

    #[test]
    fn a_link_that_is_looked_at_is_known() {
        let answer = |code| knows_link::<()>(Err(io::Error::from_raw_os_error(code)), "since");
        assert_eq!(answer(libc::EBADF), Answer::Yes);
        assert!(matches!(answer(libc::EINVAL), Answer::No(_)));
        assert!(matches!(answer(libc::EPERM), Answer::Unknown(_)));
    }

    #[test]
    fn reasons_go_with_the_answers() {
        assert_eq!(Answer::Yes.reason(), "");
        assert_eq!(Answer::No("old".into()).reason(), "old");
    }
}

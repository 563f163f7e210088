//! Links for which libbpf-rs has no word: a task iterator bound to one process, and links that only ask
//! whether the kernel would know them.

use super::ProbeError;
use libbpf_rs::{AsRawLibbpf, Link, ProgramMut, libbpf_sys};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Which tasks an iterator is bound to; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
struct Bound {
    thread_id: u32,
    process_id: u32,
}

/// A link whose iterators walk only the threads of process `pid`.
/// Errors: [`ProbeError::Attach`], among others when the process has gone.
pub fn attach_to_process(program: &ProgramMut<'_>, pid: u32) -> Result<Link, ProbeError> {
    attach(program, Bound { process_id: pid, thread_id: 0 }).map_err(|error| ProbeError::Attach {
        what: "the sentinel",
        pid,
        source: libbpf_rs::Error::from(error).into(),
    })
}

/// Whether the kernel looks at the binding: one to a thread and a process at once makes no sense, and a
/// kernel that looks refuses it. One that does not know bindings either passes over them, or says that it is
/// told more than it knows (`E2BIG`).
pub fn binding_is_read(program: &ProgramMut<'_>) -> bool {
    let pid = std::process::id();
    attach(program, Bound { process_id: pid, thread_id: pid })
        .is_err_and(|error| error.raw_os_error() != Some(libc::E2BIG))
}

fn attach(program: &ProgramMut<'_>, bound: Bound) -> io::Result<Link> {
    let task = libbpf_sys::bpf_iter_link_info__bindgen_ty_3 {
        tid: bound.thread_id,
        pid: bound.process_id,
        pid_fd: 0,
    };
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    info.task = task;
    let options = libbpf_sys::bpf_iter_attach_opts {
        sz: size_of::<libbpf_sys::bpf_iter_attach_opts>() as libbpf_sys::size_t,
        link_info: &mut info,
        link_info_len: size_of::<libbpf_sys::bpf_iter_link_info>() as u32,
        ..Default::default()
    };
    // SAFETY: the program is loaded and outlives the call; `options` and the `info` it points to live until
    // the call returns, and libbpf copies what it needs.
    let link = unsafe { libbpf_sys::bpf_program__attach_iter(program.as_libbpf_object().as_ptr(), &options) };
    let Some(link) = NonNull::new(link) else {
        return Err(io::Error::last_os_error());
    };
    // SAFETY: libbpf gave us this link and nobody else owns it; libbpf 1.x reports errors as NULL with
    // errno, so it is not an error pointer.
    Ok(unsafe { Link::from_ptr(link) })
}

/// What the kernel says to a uprobe link on the root directory, which holds no code. One that knows such
/// links looks at the file (`EBADF`), one that does not refuses their kind (`EINVAL`). A `pid` that cannot
/// be is looked at before the file, but only since 6.6.35.
/// Errors: always: that is the answer.
pub fn ask_for_uprobe_link(
    program: &ProgramMut<'_>,
    attach_type: libbpf_sys::bpf_attach_type,
    pid: u32,
) -> io::Result<OwnedFd> {
    let offsets: [std::ffi::c_ulong; 1] = [0];
    let uprobe = libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
        cnt: 1,
        path: c"/".as_ptr(),
        offsets: offsets.as_ptr(),
        pid,
        ..Default::default()
    };
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        __bindgen_anon_1: libbpf_sys::bpf_link_create_opts__bindgen_ty_1 { uprobe_multi: uprobe },
        ..Default::default()
    };
    // SAFETY: the descriptor is the loaded program's; `options`, the path and the one offset live until the
    // call returns, and the kernel copies what it needs.
    let link = unsafe { libbpf_sys::bpf_link_create(program.as_fd().as_raw_fd(), 0, attach_type, &options) };
    if link < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel gave us this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

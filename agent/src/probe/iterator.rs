//! Binding the sentinel's task iterator to one process: libbpf-rs has no word for that yet.

use super::ProbeError;
use libbpf_rs::{AsRawLibbpf, Link, ProgramMut, libbpf_sys};
use std::ptr::NonNull;

/// A link whose iterators walk only the threads of process `pid`.
///
/// # Errors
/// [`ProbeError::Attach`], among others when the process has gone.
pub fn attach_to_process(program: &ProgramMut<'_>, pid: u32) -> Result<Link, ProbeError> {
    let task = libbpf_sys::bpf_iter_link_info__bindgen_ty_3 { pid, ..Default::default() };
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
        let source = std::io::Error::last_os_error().into();
        return Err(ProbeError::Attach { what: "the sentinel", pid, source });
    };
    // SAFETY: libbpf gave us this link and nobody else owns it; libbpf 1.x reports errors as NULL with
    // errno, so it is not an error pointer.
    Ok(unsafe { Link::from_ptr(link) })
}

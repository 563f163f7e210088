//! The system calls that systemd refuses to a service which is confined as the shipped unit is, whole: those
//! whose flags lie behind a pointer, where no filter sees them. `RestrictSUIDSGID=`, which `DynamicUser=`
//! brings along, refuses `openat2`, and `RestrictNamespaces=` refuses `clone3`.

use libc::{sock_filter, sock_fprog};
use std::os::unix::process::CommandExt;
use std::process::Command;

const REFUSED: [libc::c_long; 2] = [libc::SYS_openat2, libc::SYS_clone3];
/// As on a kernel that lacks the call.
const MISSING: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Where the number of the call lies in `seccomp_data`.
const NUMBER_AT: u32 = 0;

/// Has the program that is started by `command`, and all that it starts, do without these calls. It takes
/// root: nothing else of the program is changed, so that tests can see what it gives up by itself.
pub fn install(command: &mut Command) {
    let statement = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    let mut filter = vec![statement(LOAD, NUMBER_AT)];
    for number in REFUSED {
        filter.push(sock_filter { code: IF_EQUAL, jt: 0, jf: 1, k: number as u32 });
        filter.push(statement(RETURN, MISSING));
    }
    filter.push(statement(RETURN, libc::SECCOMP_RET_ALLOW));
    let load = move || {
        let program = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: prctl reads the filter, which outlives the call, and none of the other arguments is a
        // pointer.
        let loaded = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER as libc::c_ulong, &raw const program)
        };
        if loaded == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure makes one system call: no allocation, no lock.
    unsafe {
        command.pre_exec(load);
    }
}

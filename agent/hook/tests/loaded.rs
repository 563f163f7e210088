//! The built library in real processes: preloaded where it has nothing to do, and attached to a process
//! that has no RocksDB. Real RocksDBs are the business of the end-to-end tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use sexton_hook_protocol::{ErrorKind, PROTOCOL_VERSION, Request, Response, read, write};
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

/// Cargo puts the library beside the folder of the test programs, or into it.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folders = program.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("libsexton_hook.so")).find(|path| path.is_file());
    found.expect("libsexton_hook.so is built together with its tests")
}

#[test]
fn a_preloaded_program_without_rocksdb_is_left_alone() {
    // A socket that an earlier process of this number has left behind when it was killed is older.
    let begin = std::env::temp_dir().join(format!("sexton-hook-begin-{}", std::process::id()));
    std::fs::write(&begin, "").unwrap();
    // Times of files go by the kernel's ticks.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let script = "grep -q libsexton_hook.so /proc/self/maps && echo loaded; ls /proc/self/task | wc -l; \
                  ls /proc/$$/task | wc -l; \
                  [ \"/tmp/.sexton-hook-$$.sock\" -nt \"$BEGIN\" ] && echo socket; true";
    let mut shell = Command::new("/bin/sh");
    let output =
        shell.args(["-c", script]).env("BEGIN", &begin).env("LD_PRELOAD", library()).output().unwrap();
    std::fs::remove_file(&begin).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "loaded\n1\n1\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn attaching_starts_one_listener_and_a_second_time_changes_nothing() {
    let socket = std::env::temp_dir().join(format!("sexton-hook-loaded-{}.sock", std::process::id()));
    let path = CString::new(library().as_os_str().as_bytes()).unwrap();
    // SAFETY: the library is this package's own, and its constructor does nothing here.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    // SAFETY: a valid handle and a NUL-terminated name.
    let symbol = unsafe { libc::dlsym(handle, c"Agent_OnAttach".as_ptr()) };
    assert!(!symbol.is_null());
    type OnAttach = unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void) -> c_int;
    // SAFETY: the function of that name has this type.
    let on_attach = unsafe { std::mem::transmute::<*mut c_void, OnAttach>(symbol) };
    let attach = |options: String| {
        let options = CString::new(options).unwrap();
        // SAFETY: the options are NUL-terminated; the other two are not used.
        unsafe { on_attach(std::ptr::null_mut(), options.as_ptr(), std::ptr::null_mut()) }
    };
    assert_eq!(attach("sockets=/tmp/x".to_owned()), 1);
    assert_eq!(attach(format!("socket=/nowhere/at/all/{}", std::process::id())), 2);
    let options = format!("socket={},library=/no/such/librocksdb.so", socket.display());
    assert_eq!((attach(options.clone()), attach(options)), (0, 0));
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o7777, 0o600);

    let mut stream = UnixStream::connect(&socket).unwrap();
    let hello = Request::Hello { protocol_version: PROTOCOL_VERSION, agent_pid: 1, agent_id: 1 };
    write(&mut stream, &hello).unwrap();
    let Response::Hello(answer) = read(&mut stream).unwrap() else { panic!("no greeting") };
    assert_eq!((answer.pid, answer.library), (std::process::id(), None));
    let pointers = sexton_hook_protocol::ColumnFamilyPointers {
        database: 8,
        handle: 16,
        name: "default".to_owned(),
        id: 0,
    };
    write(&mut stream, &Request::SstFiles { column_family: pointers }).unwrap();
    let Response::Error { kind, .. } = read(&mut stream).unwrap() else { panic!("no error") };
    assert_eq!(kind, ErrorKind::Unsupported);

    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap());
    assert_eq!(names.filter(|name| name.trim() == "sexton-hook").count(), 1);
    std::fs::remove_file(socket).unwrap();
}

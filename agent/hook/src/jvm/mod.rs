//! The Java virtual machine that the hook lives in, where it does: questions to its objects, over JNI.
//!
//! A question runs in a thread of its own, which the machine takes for a daemon for as long as it runs: a
//! monitor that is never let go, or a machine that ends, holds up that thread and nobody who waits for an
//! answer. What is asked stands in [`crate::scanners`].

mod environment;
mod threads;

pub use environment::{Environment, Object};
pub use threads::for_each_task;

use crate::access::Failure;
use crate::thread;
use jni_sys::{JNI_OK, JNI_VERSION_1_6, JavaVM, JavaVMAttachArgs, jint, jsize};
use sexton_hook_protocol::ErrorKind;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// How long an answer is waited for: a question takes a millisecond, and as long as the machine stands still
/// to collect garbage on top.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Stack of the thread that asks. Java code runs in it, for which the machine wants its default of 1 MiB.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// The machine that has loaded the hook, if one has.
static MACHINE: AtomicPtr<JavaVM> = AtomicPtr::new(null_mut());

/// Whether a question is without an answer: there is one at a time, so that a machine which does not answer
/// costs one thread.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Notes the machine that has loaded the hook.
pub fn note(machine: *mut c_void) {
    MACHINE.store(machine.cast(), Ordering::Release);
}

/// Asks the machine something.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where there is no machine, [`ErrorKind::Busy`] where it has not answered an
/// earlier question, and what the question itself fails with.
pub fn ask<T: Send + 'static>(
    question: impl FnOnce(&Environment) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    if machine().is_null() {
        return Err((ErrorKind::Unsupported, "this process is no Java virtual machine".to_owned()));
    }
    if IS_ASKED.swap(true, Ordering::AcqRel) {
        let message = "the Java virtual machine has not answered an earlier question yet";
        return Err((ErrorKind::Busy, message.to_owned()));
    }
    let (sender, answer) = mpsc::sync_channel(1);
    let spawned = thread::spawn("sexton-jni", STACK_BYTES, move || {
        let answered = Asked;
        let result = attached(question);
        drop(answered);
        // Nobody waits any more where this took too long.
        let _ = sender.send(result);
    });
    if let Err(error) = spawned {
        IS_ASKED.store(false, Ordering::Release);
        return Err((ErrorKind::Internal, format!("cannot start a thread: {error}")));
    }
    answer.recv_timeout(ANSWER_WAIT).unwrap_or_else(|_| {
        let seconds = ANSWER_WAIT.as_secs();
        Err((ErrorKind::Busy, format!("the Java virtual machine did not answer within {seconds} s")))
    })
}

/// A question that is being asked; none is once this is dropped.
struct Asked;

impl Drop for Asked {
    fn drop(&mut self) {
        IS_ASKED.store(false, Ordering::Release);
    }
}

/// The machine of this process; null where there is none. A hook that was preloaded was not told of it.
fn machine() -> *mut JavaVM {
    let noted = MACHINE.load(Ordering::Acquire);
    if !noted.is_null() {
        return noted;
    }
    type Created = unsafe extern "system" fn(*mut *mut JavaVM, jsize, *mut jsize) -> jint;
    // SAFETY: a name that ends with NUL; nothing is called yet.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"JNI_GetCreatedJavaVMs".as_ptr()) };
    if found.is_null() {
        return null_mut();
    }
    // SAFETY: the symbol with this name is the JNI's function with this signature.
    let created: Created = unsafe { std::mem::transmute(found) };
    let (mut machine, mut count) = (null_mut(), 0);
    // SAFETY: room for one machine, as the length says; `count` outlives the call.
    let code = unsafe { created(&raw mut machine, 1, &raw mut count) };
    if code == JNI_OK && count > 0 { machine } else { null_mut() }
}

/// Runs `question` with this thread known to the machine.
fn attached<T>(question: impl FnOnce(&Environment) -> Result<T, Failure>) -> Result<T, Failure> {
    let machine = machine();
    let mut environment = null_mut();
    let name = c"sexton-hook".as_ptr().cast_mut();
    let mut arguments = JavaVMAttachArgs { version: JNI_VERSION_1_6, name, group: null_mut() };
    // SAFETY: a machine that exists for as long as the process does, and arguments that outlive the call,
    // which copies the name.
    let code = unsafe {
        let attach = (**machine).v1_4.AttachCurrentThreadAsDaemon;
        attach(machine, &raw mut environment, (&raw mut arguments).cast())
    };
    if code != JNI_OK || environment.is_null() {
        return Err((ErrorKind::Failed, format!("the Java virtual machine takes no thread: code {code}")));
    }
    // SAFETY: the machine has just made it for this thread, which is not detached while it is used.
    let result = question(&unsafe { Environment::new(environment.cast()) });
    // SAFETY: this thread was attached above, and has no Java code on its stack.
    unsafe { ((**machine).v1_2.DetachCurrentThread)(machine) };
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_process_without_a_machine_says_so() {
        let (kind, message) = ask(|_| Ok(())).unwrap_err();
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(message.contains("no Java virtual machine"), "{message}");
        assert!(!IS_ASKED.load(Ordering::Acquire));
    }
}

//! Starting the listener, once in a process.

use crate::options::Options;
use crate::started::{STARTED, Started};
use crate::{listener, panics, socket, thread};

/// Binds the socket and starts the listener's thread. Where it runs already, from this copy of the
/// library or from another one, this is a success and changes nothing.
pub fn start(options: Options) -> Result<(), String> {
    // A panic of ours would print to the host's standard error.
    panics::keep_quiet();
    let mut started = STARTED.lock().map_err(|_| "an earlier start panicked")?;
    let process = std::process::id();
    if started.as_ref().is_some_and(|started| started.process == process) {
        return Ok(());
    }
    let listener = match socket::bind(&options.socket)? {
        socket::Bound::ServedAlready => return Ok(()),
        socket::Bound::Listening(listener) => listener,
    };
    let library = options.library;
    let spawned = thread::spawn("sexton-hook", thread::LISTENER_STACK_BYTES, move || {
        listener::run(&listener, library.as_deref());
    });
    if let Err(error) = spawned {
        let _ = std::fs::remove_file(&options.socket);
        return Err(format!("cannot start a thread: {error}"));
    }
    crate::log::line(&format!("listening on {}", options.socket.display()));
    *started = Some(Started { socket: options.socket, process });
    Ok(())
}

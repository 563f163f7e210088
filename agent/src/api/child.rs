//! The process that listens, as the agent has it.

use super::listener;
use super::pair::socket::{Socket, pair};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

/// A listener and the agent's end of the pair with it. Dropped, it ends.
pub struct Running {
    pub socket: Socket,
    process: Option<Child>,
}

/// Starts a listener: the running program again, which sees nothing of the agent's environment and
/// descriptors but its own end. It ends with the thread that calls this.
pub fn start() -> io::Result<Running> {
    let (ours, theirs) = pair()?;
    sexton_sandbox::keep_descriptors();
    let mut command = Command::new(sexton_sandbox::own_executable());
    command.arg(listener::CHILD_SUBCOMMAND).env_clear().current_dir("/");
    let process = command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Running::new(ours, Some(process))
}

impl Running {
    /// `process`: what holds the other end, unless that is this process itself.
    pub fn new(ours: OwnedFd, process: Option<Child>) -> io::Result<Running> {
        match Socket::new(ours) {
            Ok(socket) => Ok(Running { socket, process }),
            Err(error) => {
                process.into_iter().for_each(end);
                Err(error)
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.take().into_iter().for_each(end);
    }
}

/// When this returns, its sockets are closed, and can be bound again.
fn end(mut process: Child) {
    let _ = process.kill();
    let _ = process.wait();
}

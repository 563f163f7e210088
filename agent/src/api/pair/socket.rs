//! One end of a pair of sockets: it keeps messages apart, bounds them, and passes descriptors.
//!
//! Nothing here waits in the kernel, whatever the other end makes of the descriptor that both may share: each
//! call says itself that it must not.

use rustix::fs::OFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// The longest message: request line and headers have 16 KiB at most, some characters take two bytes, and it
/// is less than what a socket keeps by default (208 KiB), so that some parts of an answer are on their way.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Descriptors that come with a message: a request's own pair, and the connection that it came by.
const DESCRIPTORS_MAX: usize = 2;

/// What has come: never empty.
#[derive(Debug)]
pub struct Message {
    pub bytes: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// An end, within a runtime, which knows no sockets of this kind: what it waits for is the same for those
/// that it takes them for.
#[derive(Debug)]
pub struct Socket(UnixDatagram);

/// Both ends.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl Socket {
    /// Errors: where it is no end of such a pair. Must be called within a runtime.
    pub fn new(descriptor: OwnedFd) -> io::Result<Socket> {
        rustix::fs::fcntl_setfl(&descriptor, OFlags::NONBLOCK)?;
        let is_unix = sockopt::socket_domain(&descriptor)? == AddressFamily::UNIX;
        match is_unix && sockopt::socket_type(&descriptor)? == SocketType::SEQPACKET {
            true => Ok(Socket(UnixDatagram::from_std(descriptor.into())?)),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no end of a pair")),
        }
    }

    /// Sends a message, as soon as there is room for it. Of a call that is given up nothing was sent.
    pub async fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.is_empty() || bytes.len() > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
        }
        self.0.async_io(Interest::WRITABLE, || send_now(self.0.as_fd(), bytes, descriptors)).await
    }

    /// The next message; `None`: the other end is closed.
    /// Errors: `InvalidData` for what is longer, or has more descriptors, than any message has.
    pub async fn receive(&self) -> io::Result<Option<Message>> {
        self.0.async_io(Interest::READABLE, || receive_now(self.0.as_fd())).await
    }
}

fn send_now(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

fn receive_now(socket: BorrowedFd<'_>) -> io::Result<Option<Message>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            // The other end was closed before it had read everything. That is told once, and what it has sent
            // before comes after.
            Err(rustix::io::Errno::CONNRESET) => {}
            received => break received?,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    let is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    if is_cut || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than any message"));
    }
    bytes.truncate(received.bytes);
    bytes.shrink_to_fit();
    Ok((!bytes.is_empty()).then_some(Message { bytes, descriptors }))
}

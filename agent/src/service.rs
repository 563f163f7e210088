//! The service manager: what it is told, by the protocol of `sd_notify(3)`, and the socket that it hands
//! over, by that of `sd_listen_fds(3)`. Without one nothing is told and nothing is there.

use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// So many times within its time the watchdog is fed.
const FEEDS: u32 = 3;

/// The first descriptor that is handed over.
const FIRST_HANDED_OVER: RawFd = 3;

/// The socket that the service manager listens on for this process: it had the port before any other user
/// could take it. To be called before the process opens a file.
pub fn handed_over_listener() -> Option<TcpListener> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID")? != std::process::id() || number("LISTEN_FDS")? == 0 {
        return None;
    }
    // SAFETY: by the protocol this descriptor is open and this process' own from its start on, and nothing
    // else in here takes it: it is asked for once, before a file is opened.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST_HANDED_OVER) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(TcpListener::from(socket))
}

/// Where words for the service manager go.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// How often the watchdog wants to be fed, where there is one.
    feed_interval: Option<Duration>,
    fed: Option<Instant>,
}

impl ServiceManager {
    /// The one that has started this process, by its environment.
    pub fn of_environment() -> ServiceManager {
        let text = |name: &str| std::env::var(name).ok();
        let is_meant = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = text("WATCHDOG_USEC").and_then(|text| text.parse().ok()).filter(|_| is_meant);
        ServiceManager::at(text("NOTIFY_SOCKET").as_deref(), watchdog.map(Duration::from_micros))
    }

    fn at(socket: Option<&str>, watchdog: Option<Duration>) -> ServiceManager {
        let socket = socket.and_then(|name| connect(name).ok());
        let feed_interval = watchdog.filter(|_| socket.is_some()).map(|limit| limit / FEEDS);
        ServiceManager { socket, feed_interval, fed: None }
    }

    /// The agent watches.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// The agent ends, which may take until settings are restored.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// The loop turns: feeds the watchdog, if it is time.
    pub fn turn(&mut self) {
        let Some(interval) = self.feed_interval else { return };
        if self.fed.is_none_or(|fed| fed.elapsed() >= interval) {
            self.fed = Some(Instant::now());
            self.tell("WATCHDOG=1");
        }
    }

    /// Longest that the loop may wait before its next turn.
    pub fn patience(&self) -> Duration {
        self.feed_interval.unwrap_or(Duration::MAX)
    }

    /// Nobody waits for a service manager that does not listen.
    fn tell(&self, words: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(words.as_bytes());
        }
    }
}

fn connect(name: &str) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match name.strip_prefix('@') {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(name)?,
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn heard(manager: &UnixDatagram) -> Vec<String> {
        let mut words = Vec::new();
        let mut bytes = [0; 64];
        while let Ok(length) = manager.recv(&mut bytes) {
            words.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        words
    }

    #[test]
    fn the_watchdog_is_fed_by_turns_and_not_more_often_than_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let mut service = ServiceManager::at(path.to_str(), Some(Duration::from_secs(300)));
        service.ready();
        (0..100).for_each(|_| service.turn());
        assert_eq!(heard(&manager), ["READY=1", "WATCHDOG=1"]);
        assert_eq!(service.patience(), Duration::from_secs(100));
        service.fed = Instant::now().checked_sub(Duration::from_secs(101));
        service.turn();
        service.stopping();
        assert_eq!(heard(&manager), ["WATCHDOG=1", "STOPPING=1"]);
    }

    #[test]
    fn without_a_service_manager_nothing_is_told_and_nothing_waits() {
        for mut service in [ServiceManager::at(None, None), ServiceManager::at(Some("/nonexistent/x"), None)]
        {
            service.ready();
            service.turn();
            assert_eq!(service.patience(), Duration::MAX);
        }
    }
}

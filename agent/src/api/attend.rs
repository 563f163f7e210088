//! Attends to the listener: hands it what it needs, answers what it passes on, and starts another one where
//! it has ended.

use super::child::Running;
use super::gate::Gate;
use super::listener;
use super::pair::socket::Message;
use super::pair::{Malformed, ToAgent, ToListener, decode, encode};
use super::place::Place;
use super::remote::{Keyring, Keys};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tracing::warn;

/// Requests under way: one for each connection there can be at three listeners.
const REQUESTS_MAX: usize = 3 * listener::CONNECTIONS_MAX;
/// Pause before a port that somebody else has is tried again.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(2);
/// For the listener to take a message: it does nothing that takes long.
const SEND_TIME_MAX: Duration = Duration::from_secs(5);
/// For the answers under way when the agent ends; the listener gives them ten seconds.
const LAST_ANSWERS_TIME_MAX: Duration = Duration::from_secs(12);
/// Pause before a listener that has ended is replaced, for the first time and at most: who can make it end
/// must neither be rid of it nor keep the agent busy.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A listener that has lived as long has nothing to do with those that ended before it.
const SOUND_AFTER: Duration = Duration::from_secs(60);

/// Why a listener is attended to no more.
enum Ended {
    Stopped,
    /// It is to be replaced, for this reason.
    Lost(String),
}

/// What a listener is started and served with.
pub struct Attendant<S> {
    pub places: Vec<Place>,
    pub gate: Arc<Gate>,
    pub keyring: Option<Arc<Keyring>>,
    pub start: S,
}

impl<S: Fn() -> io::Result<Running>> Attendant<S> {
    /// Attends to one listener after the other until `shutdown` is ready.
    pub async fn attend(mut self, mut shutdown: Pin<&mut impl Future<Output = ()>>) {
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            let ended = match (self.start)() {
                Ok(running) => self.attend_one(&running, shutdown.as_mut()).await,
                Err(error) => Ended::Lost(error.to_string()),
            };
            self.places.iter_mut().for_each(Place::take_back);
            let Ended::Lost(reason) = ended else { return };
            if began.elapsed() >= SOUND_AFTER {
                pause = PAUSE_MIN;
            }
            warn!(reason, seconds = pause.as_secs_f64(), "the listener has ended: another one is started");
            tokio::select! {
                () = sleep(pause) => {}
                () = shutdown.as_mut() => return,
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    async fn attend_one(
        &mut self,
        running: &Running,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Ended {
        let mut requests = JoinSet::new();
        let mut keys = self.keyring.as_ref().map(|keyring| keyring.changes());
        // What is in force now is news for this one.
        keys.as_mut().map(watch::Receiver::mark_changed);
        let mut retry = interval(LISTEN_RETRY_DELAY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last: Option<Instant> = None;
        loop {
            let done = tokio::select! {
                // First of all certificate and key, without which nobody is accepted over TLS.
                biased;
                () = shutdown.as_mut(), if last.is_none() => {
                    last = Some(Instant::now() + LAST_ANSWERS_TIME_MAX);
                    tell(running, &ToListener::Stop, None).await
                }
                () = until(last) => return Ended::Stopped,
                () = changed(&mut keys), if last.is_none() => self.hand_over_keys(running).await,
                _ = retry.tick(), if last.is_none() && self.is_missing_a_place() => {
                    self.hand_over_places(running).await
                }
                Some(ended) = requests.join_next() => of_request(ended),
                received = running.socket.receive(), if requests.len() < REQUESTS_MAX => match received {
                    Ok(Some(message)) => self.take(message, &mut requests),
                    Ok(None) if last.is_some() => return Ended::Stopped,
                    Ok(None) => Err("it is no more".to_owned()),
                    Err(error) => Err(error.to_string()),
                }
            };
            match done {
                Ok(()) => {}
                Err(_) if last.is_some() => return Ended::Stopped,
                Err(reason) => return Ended::Lost(reason),
            }
        }
    }

    /// What the listener says.
    fn take(&self, message: Message, requests: &mut JoinSet<Result<(), Malformed>>) -> Result<(), String> {
        match decode(&message.bytes).map_err(|error| error.to_string())? {
            ToAgent::Request(asked) => {
                let gate = Arc::clone(&self.gate);
                requests.spawn(async move { gate.answer(asked, message.descriptors).await });
                Ok(())
            }
            ToAgent::Failed { reason } => Err(reason),
        }
    }

    fn is_missing_a_place(&self) -> bool {
        self.places.iter().any(|place| !place.is_handed_over())
    }

    async fn hand_over_places(&mut self, running: &Running) -> Result<(), String> {
        for place in self.places.iter_mut().filter(|place| !place.is_handed_over()) {
            if let Some(socket) = place.socket() {
                tell(running, &ToListener::Listen(place.door), Some(socket)).await?;
            }
        }
        Ok(())
    }

    async fn hand_over_keys(&self, running: &Running) -> Result<(), String> {
        let Some(keyring) = &self.keyring else { return Ok(()) };
        let file = keyring.keys().tls.hand_over().map_err(|error| error.to_string())?;
        tell(running, &ToListener::Tls, Some(file)).await
    }
}

/// What came of a request.
fn of_request(ended: Result<Result<(), Malformed>, JoinError>) -> Result<(), String> {
    match ended {
        Ok(ended) => ended.map_err(|malformed| malformed.to_string()),
        // Its answer was not sent, and that of others is.
        Err(_) => Ok(()),
    }
}

/// Ready when there are other keys than were seen.
async fn changed(keys: &mut Option<watch::Receiver<Arc<Keys>>>) {
    if let Some(keys) = keys
        && keys.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn tell(running: &Running, message: &ToListener, with: Option<OwnedFd>) -> Result<(), String> {
    let bytes = encode(message).map_err(|error| error.to_string())?;
    let descriptors: Vec<_> = with.iter().map(AsFd::as_fd).collect();
    let sent = timeout(SEND_TIME_MAX, running.socket.send(&bytes, &descriptors)).await;
    sent.map_err(|_| "it does not listen to the agent".to_owned())?.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;

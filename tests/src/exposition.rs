//! An address that shows metrics which a test makes up, for situations that no real agent gets into within
//! minutes.

use anyhow::Result;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a client may take to ask.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Longest beginning of a request that is read; what is asked for makes no difference.
const REQUEST_BYTES_MAX: usize = 4096;

/// Stands in the text for a number that has grown by one with each scrape while it was allowed to.
const COUNTER: &str = "COUNTER";

#[derive(Default)]
struct Shown {
    text: String,
    is_growing: bool,
    counter: u64,
}

/// Shows metrics for as long as the test's process lives.
pub struct Exposition {
    pub address: SocketAddr,
    shown: Arc<Mutex<Shown>>,
}

impl Exposition {
    pub fn serve() -> Result<Exposition> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, shown) = (listener.local_addr()?, Arc::<Mutex<Shown>>::default());
        let served = Arc::clone(&shown);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; REQUEST_BYTES_MAX];
                let _ = stream.set_read_timeout(Some(REQUEST_LIMIT));
                if stream.read(&mut request).is_ok() {
                    let body = text(&served);
                    let head =
                        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
                    let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
                }
            }
        });
        Ok(Exposition { address, shown })
    }

    /// From now on it shows this; `COUNTER` grows with each scrape or stands still.
    pub fn show(&self, text: &str, is_growing: bool) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = Shown { text: text.to_owned(), is_growing, counter: shown.counter };
    }
}

fn text(shown: &Mutex<Shown>) -> String {
    let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
    shown.counter += u64::from(shown.is_growing);
    shown.text.replace(COUNTER, &shown.counter.to_string())
}

//! A Prometheus endpoint with one metric, `queue_length{queue="rpc"}`, for signals of pressure.

use anyhow::Result;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a request may take to come.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Serves the metric for as long as the process lives; its address.
pub fn serve(value: Arc<AtomicU64>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}/prom", listener.local_addr()?);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            let _ = stream.set_read_timeout(Some(REQUEST_LIMIT));
            if stream.read(&mut request).is_ok() {
                let value = value.load(Ordering::Relaxed);
                let body = format!("# TYPE queue_length gauge\nqueue_length{{queue=\"rpc\"}} {value}\n");
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            }
        }
    });
    Ok(endpoint)
}

//! The log: one line an event on standard error, whatever the words in it.
//!
//! Fields and messages hold foreign words: names of processes, errors of hooks and servers. Here is the one
//! place that all of them pass, so here their control characters are written out: nobody but the agent writes
//! a line of it.

use crate::text::shown;
use std::fmt::{Debug, Result};
use std::io::IsTerminal;
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::util::SubscriberInitExt;

/// Variable of the environment that says what is logged.
const FILTER_VARIABLE: &str = "SEXTON_LOG";

/// Logs to standard error from here on, as the environment says or else as `filter` does.
pub fn start(filter: &str) {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(filter));
    subscriber(filter, std::io::stderr, std::io::stderr().is_terminal()).init();
}

fn subscriber(
    filter: EnvFilter,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
    is_coloured: bool,
) -> impl Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(is_coloured)
        .with_target(false)
        .fmt_fields(debug_fn(write_field).delimited(" "))
        .finish()
}

/// Writes one field of an event; the message is one without a name.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", shown(&text)),
        name => write!(writer, "{name}={}", shown(&text)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use tracing::{info, warn};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines of a log without their times.
    fn logged(tell: impl FnOnce()) -> Vec<String> {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = subscriber(EnvFilter::new("info"), move || writer.clone(), false);
        tracing::subscriber::with_default(subscriber, tell);
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.split_once("Z ").unwrap().1.trim_start().to_owned()).collect()
    }

    #[test]
    fn an_event_is_a_line_whatever_words_are_in_it() {
        let hostile = "java\u{1b}[2J\n2026-11-22T00:00:00Z  INFO all is well";
        let error = io::Error::other(hostile);
        let lines = logged(|| {
            warn!(%error, name = hostile, debug = ?hostile, "{hostile}");
            info!(count = 7, is_known = true, path = "/db", "found");
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains(char::is_control)), "{lines:?}");
        assert!(lines.first().unwrap().contains("error=java\\u{1b}[2J\\n2026-11-22"), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "INFO found count=7 is_known=true path=\"/db\"");
    }
}

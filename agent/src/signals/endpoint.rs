//! A target's own Prometheus endpoint, asked for one metric.
//!
//! The answer is the target's word: it is limited in size and time, searched for a name, and forgotten.

use sexton_tuner::exposition::Selector;
use std::time::Duration;
use ureq::Agent;

/// The metrics of an Ozone Manager are some megabytes.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// A daemon that takes longer to write its metrics is better not asked every few seconds.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks endpoints; each is asked once a reading, however many metrics are wanted of it.
pub struct Endpoints {
    http: Agent,
    answers: Vec<(String, Result<String, String>)>,
}

impl Default for Endpoints {
    fn default() -> Endpoints {
        let http = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            // The policy names an address on this host: neither environment nor answer leads elsewhere.
            .proxy(None)
            .max_redirects(0)
            .max_idle_connections(0)
            .build();
        Endpoints { http: http.into(), answers: Vec::new() }
    }
}

impl Endpoints {
    /// Another reading begins.
    pub fn forget(&mut self) {
        self.answers.clear();
    }

    /// The greatest value of a metric's series.
    pub fn value(&mut self, endpoint: &str, metric: &str) -> Result<f64, String> {
        let selector = Selector::read(metric).ok_or("the policy's metric is no name of one")?;
        if !self.answers.iter().any(|(asked, _)| asked == endpoint) {
            let answer = self.ask(endpoint);
            self.answers.push((endpoint.to_owned(), answer));
        }
        let answer = self.answers.iter().find(|(asked, _)| asked == endpoint);
        let (_, answer) = answer.ok_or("it was not asked")?;
        let text = answer.as_ref().map_err(Clone::clone)?;
        selector.greatest(text).ok_or_else(|| format!("{endpoint} has no metric {metric}"))
    }

    fn ask(&self, endpoint: &str) -> Result<String, String> {
        let failed = |error: ureq::Error| format!("{endpoint} does not answer: {error}");
        let mut answer = self.http.get(endpoint).call().map_err(failed)?;
        if answer.status() != 200 {
            return Err(format!("{endpoint} answers {}", answer.status().as_u16()));
        }
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(failed)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Answers one connection with `answer` and asks it for a metric.
    fn asked(answer: Vec<u8>) -> Result<f64, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/prom", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let _ = stream.read(&mut request).unwrap();
            // Who has heard enough hangs up.
            let _ = stream.write_all(&answer);
        });
        let mut endpoints = Endpoints::default();
        let value = endpoints.value(&endpoint, "queue_length");
        server.join().unwrap();
        // The second question is answered by the first one's text: nobody listens any more.
        assert_eq!(endpoints.value(&endpoint, "queue_length").is_ok(), value.is_ok());
        endpoints.forget();
        assert!(endpoints.value(&endpoint, "queue_length").is_err());
        value
    }

    #[test]
    fn a_metric_is_found_and_what_is_wrong_with_an_answer_is_said() {
        assert_eq!(
            asked(b"HTTP/1.1 200 OK\r\n\r\nother 1\nqueue_length{a=\"\xff\"} 17\n".to_vec()),
            Ok(17.0)
        );
        let error = |answer: &[u8]| asked(answer.to_vec()).unwrap_err();
        assert!(error(b"HTTP/1.1 200 OK\r\n\r\nother 1\n").contains("has no metric queue_length"));
        assert!(error(b"HTTP/1.1 503 Busy\r\n\r\nqueue_length 1\n").contains("answers 503"));
        let elsewhere = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n";
        assert!(error(elsewhere).contains("302"), "{}", error(elsewhere));
        assert!(error(b"SSH-2.0-OpenSSH\r\n").contains("does not answer"));
        let mut long = b"HTTP/1.1 200 OK\r\n\r\nqueue_length 1\n".to_vec();
        long.resize(long.len() + usize::try_from(ANSWER_BYTES_MAX).unwrap() + 1, b'#');
        assert!(asked(long).unwrap_err().contains("does not answer"));
    }
}

//! Clients that poll the API, each on a connection of its own.

use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ureq::Agent;

/// No answer is nearly as long.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Far beyond what is allowed: the answer is counted as one that took so long.
const TIMEOUT: Duration = Duration::from_secs(30);

/// One answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub is_heatmap: bool,
    pub took: Duration,
    pub bytes: usize,
}

/// A client with a connection that stays open.
pub struct Client {
    agent: Agent,
    base: String,
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).build();
        Client { agent: config.into(), base: format!("http://{address}") }
    }

    /// Asks, reads the whole answer, and says how long that took.
    pub fn ask(&self, path: &str) -> Result<Answer> {
        let began = Instant::now();
        let mut answer =
            self.agent.get(format!("{}{path}", self.base)).call().with_context(|| format!("GET {path}"))?;
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        let is_heatmap = path.starts_with("/api/v1/heatmap");
        Ok(Answer { is_heatmap, took: began.elapsed(), bytes: body.len() })
    }
}

/// Has so many clients ask for these paths in turn, each once in an interval, until the time is up.
pub fn poll(
    address: SocketAddr,
    clients: u32,
    interval: Duration,
    length: Duration,
    paths: &[String],
) -> Result<Vec<Answer>> {
    let threads: Vec<JoinHandle<Result<Vec<Answer>>>> = (0..clients)
        .map(|number| {
            let paths = paths.to_vec();
            // They have not all been started at once.
            let phase = interval * number / clients;
            std::thread::spawn(move || {
                std::thread::sleep(phase);
                poll_one(&Client::new(address), number, interval, length, &paths)
            })
        })
        .collect();
    let mut answers = Vec::new();
    for thread in threads {
        let of_one = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
        answers.extend(of_one?);
    }
    ensure!(!answers.is_empty(), "nothing was answered");
    Ok(answers)
}

fn poll_one(
    client: &Client,
    number: u32,
    interval: Duration,
    length: Duration,
    paths: &[String],
) -> Result<Vec<Answer>> {
    let began = Instant::now();
    let mut answers = Vec::new();
    let mut turn = 0_u32;
    while began.elapsed() < length {
        let path = paths.get((number + turn) as usize % paths.len()).context("nothing to ask for")?;
        answers.push(client.ask(path)?);
        turn += 1;
        std::thread::sleep((interval * turn).saturating_sub(began.elapsed()));
    }
    Ok(answers)
}

//! Which running agent a command asks.

use crate::top::{Client, TopError};
use clap::Args;

/// The argument of every command that asks a running agent.
#[derive(Args, Debug)]
pub struct AskedAgent {
    /// The agent to ask.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9776")]
    url: String,
}

impl AskedAgent {
    /// A client for it. Nothing is asked yet.
    /// Errors: when the URL is none that an agent has.
    pub fn client(&self) -> Result<Client, TopError> {
        Client::new(&self.url)
    }
}

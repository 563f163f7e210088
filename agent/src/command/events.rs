//! `sexton events`: what a running agent has done and met, one line each.

use super::asked_agent::AskedAgent;
use crate::failure::Failure;
use crate::text::{json_shown, shown};
use clap::Args;
use sexton_journal::Event;
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// How often the agent is asked: its cycles are seconds apart.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `sexton events`.
#[derive(Args, Debug)]
pub struct EventsArguments {
    #[command(flatten)]
    agent: AskedAgent,
    /// Leave out events up to this id.
    #[arg(long, value_name = "ID", default_value_t = 0)]
    since: u64,
    /// Go on with what happens from now on, until interrupted.
    #[arg(long)]
    follow: bool,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// Prints the events that the agent has at hand; with `--follow` goes on.
/// Errors: when there is no agent to ask, or it ends.
pub fn run(arguments: &EventsArguments) -> Result<(), Failure> {
    let client = arguments.agent.client()?;
    let mut since = arguments.since;
    loop {
        let page = client.events(since)?;
        if let Some(oldest) = page.oldest_id.filter(|oldest| since > 0 && *oldest > since + 1) {
            let last = oldest - 1;
            eprintln!("warning: events {} to {last} are not at hand any more: see the audit log", since + 1);
        }
        let is_all = page.events.is_empty();
        for event in &page.events {
            since = event.id;
            if !print(event, arguments.json)? {
                return Ok(());
            }
        }
        if is_all {
            if !arguments.follow {
                return Ok(());
            }
            std::thread::sleep(ASK_INTERVAL);
        }
    }
}

/// `false`: nobody reads any more, as behind `| head`.
fn print(event: &Event, json: bool) -> Result<bool, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new(error, "see where the output goes");
    let line = match json {
        true => json_shown(&serde_json::to_string(event).map_err(|error| failed(&error))?),
        false => shown(&event.to_string()).into_owned(),
    };
    let mut output = std::io::stdout().lock();
    match writeln!(output, "{line}").and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failed(&error)),
    }
}

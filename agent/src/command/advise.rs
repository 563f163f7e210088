//! `sexton advise`: what a running agent has found out about the use of column families, and what suits it.

use super::asked_agent::AskedAgent;
use super::print_json;
use crate::failure::Failure;
use crate::text::shown;
use clap::Args;
use sexton_tuner::advice;

/// Arguments of `sexton advise`.
#[derive(Args, Debug)]
pub struct AdviseArguments {
    /// Only this target, as `sexton top` names it.
    target: Option<String>,
    #[command(flatten)]
    agent: AskedAgent,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints what the agent advises.
/// Errors: when there is no agent to ask, or it knows no such target.
pub fn run(arguments: &AdviseArguments) -> Result<(), Failure> {
    let page = arguments.agent.client()?.advice(arguments.target.as_deref())?;
    if arguments.json {
        return print_json(&page);
    }
    if page.advice.is_empty() {
        println!(
            "No database has been looked at yet: the agent looks at one in each cycle, and at each every twelve."
        );
    }
    for advice in &page.advice {
        for line in advice::text(advice).lines() {
            println!("{}", shown(line));
        }
    }
    Ok(())
}

//! `sexton top`: a live view of a running agent.

use super::asked_agent::AskedAgent;
use super::interrupt::Interrupt;
use crate::failure::Failure;
use crate::top::{Client, Screen, Snapshot, State, TopError, plain_text};
use clap::Args;
use ratatui_crossterm::crossterm::event::{self, Event};
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How often the agent is asked: its cycles are seconds apart.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a key is waited for before news of the agent and signals are looked for.
const KEY_WAIT: Duration = Duration::from_millis(200);

/// How long `--once` waits for a second snapshot: three of the engine's usual cycles.
const SECOND_PICTURE_WAIT: Duration = Duration::from_secs(15);

/// Snapshots waiting to be shown; whoever makes more waits.
const PICTURES_QUEUED_MAX: usize = 4;

/// Arguments of `sexton top`.
#[derive(Args, Debug)]
pub struct TopArguments {
    #[command(flatten)]
    agent: AskedAgent,
    /// Print one frame as text and leave. Rates need two snapshots of the agent, so it takes a cycle.
    #[arg(long)]
    once: bool,
    /// Print one JSON object instead, and leave.
    #[arg(long)]
    json: bool,
}

impl TopArguments {
    /// Whether the terminal will be taken over.
    pub fn is_live(&self) -> bool {
        !self.once && !self.json
    }
}

/// Shows until told to leave, or prints once.
/// Errors: when there is no agent to ask, or standard input and output are no terminal.
pub fn run(arguments: &TopArguments) -> Result<(), Failure> {
    if arguments.is_live() && !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(Failure::usage(
            "standard input and output are no terminal",
            "print one frame with --once, or one JSON object with --json",
        ));
    }
    let client = arguments.agent.client()?;
    let mut state = State::new(client.url().to_owned());
    // Whoever cannot be asked at the start is not asked for ever.
    state.take(client.snapshot()?);
    if arguments.is_live() {
        return show(state, client);
    }
    wait_for_a_second_snapshot(&mut state, &client)?;
    if arguments.json {
        return super::print_json(&state.report());
    }
    print!("{}", plain_text(&state));
    Ok(())
}

fn wait_for_a_second_snapshot(state: &mut State, client: &Client) -> Result<(), TopError> {
    let deadline = Instant::now() + SECOND_PICTURE_WAIT;
    let mut snapshots_left = if state.at().is_empty() { 2 } else { 1 };
    while snapshots_left > 0 && Instant::now() < deadline {
        std::thread::sleep(ASK_INTERVAL);
        let snapshot = client.snapshot()?;
        if snapshot.at != state.at() {
            state.take(snapshot);
            snapshots_left -= 1;
        }
    }
    Ok(())
}

fn show(mut state: State, client: Client) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(error, "check the terminal, or use --once");
    let interrupt = Interrupt::listen()?;
    let (sender, snapshots) = sync_channel(PICTURES_QUEUED_MAX);
    std::thread::Builder::new()
        .name("sexton-ask".into())
        .spawn(move || ask(&client, &sender))
        .map_err(failed)?;
    let mut screen = Screen::enter().map_err(failed)?;
    show_until_left(&mut screen, &mut state, &snapshots, &interrupt).map_err(failed)
}

fn show_until_left(
    screen: &mut Screen,
    state: &mut State,
    snapshots: &Receiver<Result<Snapshot, TopError>>,
    interrupt: &Interrupt,
) -> std::io::Result<()> {
    while !state.quit && !interrupt.is_raised() {
        screen.draw(state)?;
        if event::poll(KEY_WAIT)?
            && let Event::Key(key) = event::read()?
        {
            state.press(key);
        }
        for snapshot in snapshots.try_iter() {
            match snapshot {
                Ok(snapshot) => state.take(snapshot),
                Err(error) => state.trouble = Some(error.to_string()),
            }
        }
    }
    Ok(())
}

/// Asks for snapshots until nobody looks.
fn ask(client: &Client, snapshots: &SyncSender<Result<Snapshot, TopError>>) {
    while snapshots.send(client.snapshot()).is_ok() {
        std::thread::sleep(ASK_INTERVAL);
    }
}

//! `sexton top`: a live view of a running agent, or of an engine of its own.

use crate::failure::Failure;
use crate::text::json_shown;
use crate::top::{
    Client, KeyReader, Picture, Screen, Source, State, TopError, draw, is_terminal, plain_text,
};
use clap::Args;
use ratatui::Terminal;
use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// How often the agent is asked: its cycles are seconds apart.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the screen stays as it is when nothing happens: a terminal that was resized is drawn anew then.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

/// How long the rest of an escape sequence may take to come; slower than that no terminal is.
const ESCAPE_WAIT: Duration = Duration::from_millis(50);

/// How long `--once` waits for a second picture: three of the engine's usual cycles.
const SECOND_PICTURE_WAIT: Duration = Duration::from_secs(15);

/// Happenings waiting to be shown; whoever makes more waits.
const EVENTS_QUEUED_MAX: usize = 64;

/// Arguments of `sexton top`.
#[derive(Args, Debug)]
pub struct TopArguments {
    /// The agent to ask.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9776")]
    url: String,
    /// Ask no agent: observe from here. Needs the rights of `sexton run`; nothing is changed in any target.
    #[arg(long, conflicts_with = "url")]
    standalone: bool,
    /// With --standalone: observe only this process; can be given several times.
    #[arg(long, requires = "standalone")]
    pid: Vec<u32>,
    /// Print one frame as text and leave. Rates need two pictures of the agent, so it takes a cycle.
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
///
/// # Errors
/// When there is no agent to ask, or standard input and output are no terminal.
pub fn run(arguments: &TopArguments) -> Result<(), Failure> {
    if arguments.is_live() && !is_terminal() {
        return Err(Failure::usage(
            "standard input and output are no terminal",
            "print one frame with --once, or one JSON object with --json",
        ));
    }
    let source = if arguments.standalone {
        Source::standalone(arguments.pid.clone())?
    } else {
        Source::Agent(Client::new(&arguments.url)?)
    };
    let mut state = State::new(source.name());
    // Whoever cannot be asked at the start is not asked for ever.
    state.take(source.picture()?);
    if arguments.is_live() {
        return show(state, source, arguments.standalone);
    }
    wait_for_a_second_picture(&mut state, &source)?;
    if arguments.json {
        let json = serde_json::to_string_pretty(&state.report())
            .map_err(|error| Failure::new(error, "this is not expected: report it"))?;
        println!("{}", json_shown(&json));
    } else {
        print!("{}", plain_text(&state));
    }
    Ok(())
}

fn wait_for_a_second_picture(state: &mut State, source: &Source) -> Result<(), TopError> {
    let deadline = Instant::now() + SECOND_PICTURE_WAIT;
    let mut pictures_left = if state.at().is_empty() { 2 } else { 1 };
    while pictures_left > 0 && Instant::now() < deadline {
        std::thread::sleep(ASK_INTERVAL);
        let picture = source.picture()?;
        if picture.at != state.at() {
            state.take(picture);
            pictures_left -= 1;
        }
    }
    Ok(())
}

/// Something that changes the screen.
enum Event {
    Input(Vec<u8>),
    Picture(Result<Picture, TopError>),
    Leave,
}

fn show(mut state: State, source: Source, is_standalone: bool) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(error, "check the terminal, or use --once");
    let (sender, events) = sync_channel(EVENTS_QUEUED_MAX);
    leave_on_signals(sender.clone()).map_err(failed)?;
    let pictures = sender.clone();
    let spawn = |name: &str| std::thread::Builder::new().name(name.into());
    let asker = spawn("sexton-ask").spawn(move || ask(source, &pictures)).map_err(failed)?;
    spawn("sexton-keys").spawn(move || read_keys(&sender)).map_err(failed)?;
    let mut terminal = Terminal::new(Screen::enter().map_err(failed)?).map_err(failed)?;
    let mut keys = KeyReader::default();
    while !state.quit {
        terminal.draw(|frame| draw(&state, frame.area(), frame.buffer_mut())).map_err(failed)?;
        take_event(&mut state, &mut keys, &events);
    }
    drop((terminal, events));
    if is_standalone {
        // The engine inside ends in order; of another one nothing has to be waited for.
        asker.thread().unpark();
        // What made it panic has been printed.
        let _ = asker.join();
    }
    Ok(())
}

fn take_event(state: &mut State, keys: &mut KeyReader, events: &Receiver<Event>) {
    let wait = if keys.is_pending() { ESCAPE_WAIT } else { REDRAW_INTERVAL };
    match events.recv_timeout(wait) {
        Ok(Event::Input(bytes)) => keys.push(&bytes).into_iter().for_each(|key| state.press(key)),
        Ok(Event::Picture(Ok(picture))) => state.take(picture),
        Ok(Event::Picture(Err(error))) => state.trouble = Some(error.to_string()),
        Ok(Event::Leave) | Err(RecvTimeoutError::Disconnected) => state.quit = true,
        Err(RecvTimeoutError::Timeout) => {
            keys.settle().into_iter().for_each(|key| state.press(key));
        }
    }
}

/// Asks for pictures until nobody looks.
fn ask(source: Source, events: &SyncSender<Event>) {
    while events.send(Event::Picture(source.picture())).is_ok() {
        std::thread::park_timeout(ASK_INTERVAL);
    }
    drop(source);
}

/// Forwards what the terminal sends; its end is the user's leaving.
fn read_keys(events: &SyncSender<Event>) {
    let mut input = std::io::stdin().lock();
    let mut bytes = [0; 64];
    loop {
        let event = match input.read(&mut bytes) {
            Ok(count @ 1..) => Event::Input(bytes.iter().take(count).copied().collect()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => Event::Leave,
        };
        let is_end = matches!(event, Event::Leave);
        if events.send(event).is_err() || is_end {
            return;
        }
    }
}

/// A signal that would end the process ends the view in order instead.
fn leave_on_signals(events: SyncSender<Event>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let listening = runtime.block_on(async {
        Ok::<_, std::io::Error>((
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ))
    });
    let (mut interrupt, mut terminate, mut hangup) = listening?;
    let body = move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} }
        });
        // Nobody to tell: it has ended by itself.
        let _ = events.send(Event::Leave);
    };
    std::thread::Builder::new().name("sexton-signals".into()).spawn(body)?;
    Ok(())
}

//! Commands of the guards that nobody waits for: each is started, heard and ended on a thread of its own,
//! and what it says is an event.
//!
//! The thread lives as long as its command: the kernel ends a command that holds a lock with the thread that
//! has started it, and so with the agent.

use crate::commands::Counted;
use crate::inbox::{Event, Post};
use sexton_execute::{AskedCommand, GuardCommand, POLL_INTERVAL, Said};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// Threads at the same time, with those whose command is about to end: a target has one action at a time, and
/// a node some ten targets.
const THREADS_MAX: usize = 64;

/// Starts commands, and knows how many there are.
pub struct GuardCommands {
    post: Post,
    last: u64,
    threads: Arc<AtomicUsize>,
}

/// A command that was asked. It is ended when this is dropped.
#[derive(Debug)]
pub struct Asked {
    pub number: u64,
    _until_dropped: Sender<()>,
}

impl GuardCommands {
    /// Whose words go there.
    pub fn new(post: Post) -> GuardCommands {
        GuardCommands { post, last: 0, threads: Arc::default() }
    }

    /// Starts a command; what it says is sent as [`Event::GuardSaid`].
    /// Errors: why it cannot be started, in words.
    pub fn ask(&mut self, command: GuardCommand) -> Result<Asked, String> {
        if self.threads.load(Ordering::Relaxed) >= THREADS_MAX {
            return Err(format!("{THREADS_MAX} commands of the guards run already"));
        }
        self.last += 1;
        let number = self.last;
        let (until_dropped, is_wanted) = channel();
        let (post, counted) = (self.post.clone(), Counted::new(&self.threads));
        let body = move || {
            run(number, &command, &is_wanted, &post);
            drop(counted);
            post.ring();
        };
        let spawned = std::thread::Builder::new().name("guard".to_owned()).spawn(body);
        spawned.map_err(|error| format!("no thread can be started: {error}"))?;
        Ok(Asked { number, _until_dropped: until_dropped })
    }

    /// Whether any command has not ended yet.
    pub fn are_any(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > 0
    }
}

fn run(number: u64, asked: &GuardCommand, is_wanted: &Receiver<()>, post: &Post) {
    let say = |said| post.send(Event::GuardSaid { number, said });
    let mut command = match AskedCommand::start(asked) {
        Ok(command) => command,
        Err(error) => return say(Said::Refused(format!("{error}; {}", error.remedy()))),
    };
    loop {
        let said = command.poll();
        let is_over = match &said {
            Some(Said::Ended) => return,
            Some(Said::Refused(_)) => true,
            Some(Said::Given) => asked.is_answered_once(),
            None => false,
        };
        said.into_iter().for_each(say);
        if is_over {
            return;
        }
        if let Err(RecvTimeoutError::Disconnected) = is_wanted.recv_timeout(POLL_INTERVAL) {
            command.end();
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::inbox::Inbox;
    use sexton_execute::Question;
    use std::time::{Duration, Instant};

    fn command(question: Question, script: &str) -> GuardCommand {
        let run = ["sh", "-c", script].map(str::to_owned).to_vec();
        let (entry, path) = ("om".to_owned(), "/db".to_owned());
        GuardCommand { question, run, entry, path, pid: 1, user: None }
    }

    fn heard(inbox: &mut Inbox) -> (u64, Said) {
        loop {
            match inbox.take() {
                Some(Event::GuardSaid { number, said }) => return (number, said),
                Some(other) => panic!("{other:?}"),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn all_end(commands: &GuardCommands) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while commands.are_any() {
            assert!(Instant::now() < deadline, "a command runs on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_lock_is_held_until_its_handle_is_dropped() {
        let (mut inbox, post) = Inbox::new().unwrap();
        let mut commands = GuardCommands::new(post);
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        let script = format!("echo held; cat; echo released > {}", trace.display());
        let asked = commands.ask(command(Question::Hold, &script)).unwrap();
        assert_eq!(heard(&mut inbox), (asked.number, Said::Given));
        assert!(commands.are_any() && !trace.exists());
        drop(asked);
        all_end(&commands);
        assert!(inbox.take().is_none(), "what was asked to end says nothing");
    }

    #[test]
    fn what_cannot_be_started_or_says_no_is_a_refusal() {
        let (mut inbox, post) = Inbox::new().unwrap();
        let mut commands = GuardCommands::new(post);
        let limit = Duration::from_secs(60);
        let asked = commands.ask(command(Question::MayBegin { limit }, "exit 1")).unwrap();
        assert!(matches!(heard(&mut inbox), (number, Said::Refused(_)) if number == asked.number));
        let nothing =
            GuardCommand { run: vec!["/no/such/program".to_owned()], ..command(Question::Hold, "") };
        let _asked = commands.ask(nothing).unwrap();
        let (_, Said::Refused(reason)) = heard(&mut inbox) else { panic!("it has started") };
        assert!(reason.contains("/no/such/program"), "{reason}");
        all_end(&commands);
    }
}

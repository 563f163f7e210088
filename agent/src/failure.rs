//! How the agent fails in front of people: one line of cause, one line of what to do, an exit code.

use crate::text::shown;
use std::fmt::Display;
use std::process::ExitCode;

/// Exit code when something could not be done.
pub const EXIT_FAILED: u8 = 1;

/// Exit code when what was asked for makes no sense: flags, policies.
pub const EXIT_USAGE: u8 = 2;

/// A failure as an operator sees it.
#[derive(Debug)]
pub struct Failure {
    cause: String,
    /// Something to look at between cause and help: an excerpt of the policy's line.
    excerpt: Option<String>,
    help: String,
    exit_code: u8,
}

impl Failure {
    /// Something could not be done: exit code 1.
    pub fn new(cause: impl Display, help: impl Display) -> Failure {
        Failure { cause: one_line(cause), excerpt: None, help: one_line(help), exit_code: EXIT_FAILED }
    }

    /// What was asked for makes no sense: exit code 2.
    pub fn usage(cause: impl Display, help: impl Display) -> Failure {
        Failure { exit_code: EXIT_USAGE, ..Failure::new(cause, help) }
    }

    /// The same failure with something to look at.
    pub fn with_excerpt(self, excerpt: String) -> Failure {
        Failure { excerpt: Some(excerpt), ..self }
    }

    /// What went wrong, one line.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// Whether what was asked for makes no sense.
    pub fn is_usage(&self) -> bool {
        self.exit_code == EXIT_USAGE
    }

    /// Prints the failure to standard error and gives the exit code.
    pub fn report(&self) -> ExitCode {
        eprintln!("error: {}", self.cause);
        if let Some(excerpt) = &self.excerpt {
            eprintln!("{excerpt}");
        }
        eprintln!("help: {}", self.help);
        ExitCode::from(self.exit_code)
    }
}

/// Causes from below may have line breaks; an operator greps for one line.
fn one_line(text: impl Display) -> String {
    let words = text.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    shown(&words).into_owned()
}

impl From<sexton_probe::ProbeError> for Failure {
    fn from(error: sexton_probe::ProbeError) -> Failure {
        Failure::new(&error, error.remedy())
    }
}

impl From<sexton_inspect::error::InspectError> for Failure {
    fn from(error: sexton_inspect::error::InspectError) -> Failure {
        Failure::new(&error, error.remedy())
    }
}

impl From<sexton_execute::ExecuteError> for Failure {
    fn from(error: sexton_execute::ExecuteError) -> Failure {
        Failure::new(&error, error.remedy())
    }
}

impl From<crate::engine::EngineError> for Failure {
    fn from(error: crate::engine::EngineError) -> Failure {
        Failure::new(&error, error.remedy())
    }
}

impl From<crate::api::ApiError> for Failure {
    fn from(error: crate::api::ApiError) -> Failure {
        Failure::new(&error, error.remedy())
    }
}

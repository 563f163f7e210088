//! `sexton top`: what a running agent sees, live in a terminal.
//!
//! One way only: pictures come from a [`Source`] (an agent's HTTP API, or an engine of our own), keys from the
//! terminal; [`State`] takes both in and [`draw`] turns it into a frame, purely. Nothing here reaches into
//! a target, and nothing is asked of an agent but what it publishes, with its keys redacted as its policy says.

mod client;
mod frame;
mod keys;
mod picture;
mod rates;
mod row;
mod screen;
mod source;
mod state;

pub use client::Client;
pub use frame::{draw, plain_text};
pub use keys::{Key, KeyReader};
pub use picture::Picture;
pub use row::{Report, Row};
pub use screen::{Screen, is_terminal};
pub use source::{Source, TopError};
pub use state::{Sort, State};

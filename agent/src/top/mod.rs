//! `sexton top`: what a running agent sees, live in a terminal.
//!
//! One way only: snapshots come from the agent's HTTP API through a [`Client`], keys from the terminal;
//! [`State`] takes both in and [`draw`] turns it into a frame, purely. Nothing here reaches into a target,
//! and nothing is asked of an agent but what it publishes, with its keys redacted as its policy says.

mod client;
mod frame;
mod rates;
mod row;
mod screen;
mod state;

pub use client::{AdvicePage, Client, Snapshot, TopError};
pub use frame::plain_text;
pub use row::{Report, Row};
pub use screen::Screen;
pub use state::{Sort, State};

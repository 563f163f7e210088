//! The terminal: raw mode and the alternate screen, given back when a [`Screen`] is dropped, and before a
//! panic is printed.

use super::frame::draw;
use super::state::State;
use ratatui::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{Result, Stdout, stdout};

/// The terminal, taken over until this is dropped. There is one at a time.
pub struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// Takes over the terminal, which must be one.
    pub fn enter() -> Result<Screen> {
        // A panic's message would be lost on the alternate screen.
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            next(panic);
        }));
        enable_raw_mode()?;
        // From here on dropping it gives the terminal back.
        let screen = Screen(Terminal::new(CrosstermBackend::new(stdout()))?);
        // Not `Terminal::clear`: it asks the terminal for the cursor's place, which not every one answers.
        execute!(stdout(), EnterAlternateScreen, Hide, Clear(ClearType::All))?;
        Ok(screen)
    }

    pub fn draw(&mut self, state: &State) -> Result<()> {
        self.0.draw(|frame| draw(state, frame.area(), frame.buffer_mut())).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    // A terminal that is gone needs nothing.
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

//! The terminal: raw mode, the alternate screen, and cells as escape sequences.
//!
//! A backend of our own, as all that is needed of a terminal library are these few sequences, which every terminal since the
//! VT100 and xterm has; an agent with privileges is better off without the rest.
//! What was changed is put back when a [`Screen`] is dropped, and before a panic is printed.

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, IsTerminal, Stdout, Write};
use std::sync::{Mutex, PoisonError};

/// Enter the alternate screen, hide the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// All attributes off, show the cursor, leave the alternate screen.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";
/// Size where the terminal does not know its own: what a VT100 has.
const SIZE_UNKNOWN: Size = Size { width: 80, height: 24 };

/// The terminal's modes as they were, while a screen has changed them.
static FORMER: Mutex<Option<Termios>> = Mutex::new(None);

/// Whether both standard input and standard output are a terminal.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal, taken over until this is dropped. There is one at a time.
#[derive(Debug)]
pub struct Screen {
    output: Stdout,
    colours: bool,
    cursor: Position,
    /// The style in force, as a sequence: told again only where it changes.
    style: String,
}

impl Screen {
    /// Takes over the terminal, which must be one, and sees to it that a panic gives it back.
    ///
    /// # Errors
    /// What the terminal says.
    pub fn enter() -> io::Result<Screen> {
        let former = tcgetattr(io::stdin())?;
        let mut raw = former.clone();
        raw.make_raw();
        remember(Some(former));
        give_back_before_panics();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        // The convention of https://no-color.org.
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut screen =
            Screen { output: io::stdout(), colours, cursor: Position::ORIGIN, style: String::new() };
        screen.output.write_all(ENTER.as_bytes())?;
        screen.clear()?;
        Ok(screen)
    }

    fn paint(&mut self, cell: &Cell) -> io::Result<()> {
        let mut style = "\x1b[0".to_owned();
        for (modifier, code) in [(Modifier::BOLD, ";1"), (Modifier::DIM, ";2"), (Modifier::REVERSED, ";7")] {
            if cell.modifier.contains(modifier) {
                style.push_str(code);
            }
        }
        if self.colours {
            style.push_str(&colour(cell.fg, 30));
            style.push_str(&colour(cell.bg, 40));
        }
        style.push('m');
        if style != self.style {
            self.output.write_all(style.as_bytes())?;
            self.style = style;
        }
        self.output.write_all(cell.symbol().as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn remember(termios: Option<Termios>) -> Option<Termios> {
    std::mem::replace(&mut *FORMER.lock().unwrap_or_else(PoisonError::into_inner), termios)
}

/// Puts the terminal back as it was; nothing happens when that was done before.
fn give_back() {
    if let Some(former) = remember(None) {
        let mut output = io::stdout();
        // A terminal that is gone needs nothing.
        let _ = output.write_all(LEAVE.as_bytes()).and_then(|()| output.flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &former);
    }
}

/// A panic's message would be lost on the alternate screen.
fn give_back_before_panics() {
    let next = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        next(panic);
    }));
}

/// The part of a sequence that sets a colour; `base` is 30 for the foreground, 40 for the background.
fn colour(colour: Color, base: u8) -> String {
    let bright = base + 60;
    let code = match colour {
        Color::Reset => return String::new(),
        Color::Rgb(red, green, blue) => return format!(";{};2;{red};{green};{blue}", base + 8),
        Color::Indexed(index) => return format!(";{};5;{index}", base + 8),
        Color::Black => base,
        Color::Red => base + 1,
        Color::Green => base + 2,
        Color::Yellow => base + 3,
        Color::Blue => base + 4,
        Color::Magenta => base + 5,
        Color::Cyan => base + 6,
        Color::Gray => base + 7,
        Color::DarkGray => bright,
        Color::LightRed => bright + 1,
        Color::LightGreen => bright + 2,
        Color::LightYellow => bright + 3,
        Color::LightBlue => bright + 4,
        Color::LightMagenta => bright + 5,
        Color::LightCyan => bright + 6,
        Color::White => bright + 7,
    };
    format!(";{code}")
}

impl Backend for Screen {
    type Error = io::Error;

    fn draw<'cells, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'cells Cell)>,
    {
        let mut next = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.set_cursor_position(Position { x, y })?;
            }
            self.paint(cell)?;
            next = Some((x.saturating_add(1), y));
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.output.write_all(b"\x1b[?25l")
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.output.write_all(b"\x1b[?25h")
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.cursor = position.into();
        let Position { x, y } = self.cursor;
        write!(self.output, "\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.style.clear();
        self.output.write_all(match region {
            ClearType::All => b"\x1b[0m\x1b[2J",
            ClearType::AfterCursor => b"\x1b[0m\x1b[0J",
            ClearType::BeforeCursor => b"\x1b[0m\x1b[1J",
            ClearType::CurrentLine => b"\x1b[0m\x1b[2K",
            ClearType::UntilNewLine => b"\x1b[0m\x1b[0K",
        })
    }

    fn size(&self) -> io::Result<Size> {
        let size = tcgetwinsize(&self.output)?;
        match (size.ws_col, size.ws_row) {
            (0, _) | (_, 0) => Ok(SIZE_UNKNOWN),
            (width, height) => Ok(Size { width, height }),
        }
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

//! From the bytes a terminal sends to keys.
//!
//! A terminal sends Escape as one byte and arrows as sequences that begin with it, perhaps in pieces: so a lone Escape is
//! only known as such when nothing follows for a moment.

/// Bytes of an unfinished sequence that are kept: no key we know is longer, and pasted text is not kept at all.
const PENDING_BYTES_MAX: usize = 16;

const ESCAPE: u8 = 0x1b;
const CONTROL_C: u8 = 0x03;

/// A key that means something here, or none that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Escape, alone.
    Escape,
    /// Ctrl-C, which a terminal in raw mode sends as a byte.
    Interrupt,
    /// A printable character.
    Character(char),
}

/// Puts keys together from bytes as they come.
#[derive(Debug, Default)]
pub struct KeyReader {
    pending: Vec<u8>,
}

impl KeyReader {
    /// Takes in bytes and gives the keys that are complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for byte in bytes {
            self.pending.push(*byte);
            match self.meaning() {
                Meaning::Key(key) => {
                    keys.push(key);
                    self.pending.clear();
                }
                Meaning::Nothing => self.pending.clear(),
                Meaning::Unfinished if self.pending.len() >= PENDING_BYTES_MAX => self.pending.clear(),
                Meaning::Unfinished => {}
            }
        }
        keys
    }

    /// Whether more bytes are expected.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nothing came for a moment: a lone Escape was Escape, anything else unfinished was nothing.
    pub fn settle(&mut self) -> Option<Key> {
        let pending = std::mem::take(&mut self.pending);
        (pending == [ESCAPE]).then_some(Key::Escape)
    }

    fn meaning(&self) -> Meaning {
        match self.pending.as_slice() {
            [ESCAPE] | [ESCAPE, b'[' | b'O'] => Meaning::Unfinished,
            // Two Escapes: the first one was alone.
            [ESCAPE, ESCAPE] => Meaning::Key(Key::Escape),
            [ESCAPE, b'[' | b'O', b'A'] => Meaning::Key(Key::Up),
            [ESCAPE, b'[' | b'O', b'B'] => Meaning::Key(Key::Down),
            // Other sequences end with a letter or `~`.
            [ESCAPE, b'[', .., last] if !(0x40..=0x7e).contains(last) => Meaning::Unfinished,
            [CONTROL_C] => Meaning::Key(Key::Interrupt),
            [byte] if byte.is_ascii_graphic() => Meaning::Key(Key::Character(char::from(*byte))),
            _ => Meaning::Nothing,
        }
    }
}

enum Meaning {
    Key(Key),
    Unfinished,
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_of_a_terminal() {
        let mut reader = KeyReader::default();
        assert_eq!(reader.push(b"qs"), [Key::Character('q'), Key::Character('s')]);
        assert_eq!(reader.push(b"\x1b[A\x1bOB\x03"), [Key::Up, Key::Down, Key::Interrupt]);
        // Other keys and letters of other alphabets mean nothing.
        assert_eq!(reader.push(b"\x1b[5~\x1b[1;5C\xc3\xa4\x1bx\r"), []);
        assert!(!reader.is_pending());
    }

    #[test]
    fn an_arrow_in_pieces_is_no_escape() {
        let mut reader = KeyReader::default();
        assert_eq!(reader.push(b"\x1b"), []);
        assert!(reader.is_pending());
        assert_eq!(reader.push(b"["), []);
        assert_eq!(reader.push(b"B"), [Key::Down]);
    }

    #[test]
    fn a_lone_escape_settles() {
        let mut reader = KeyReader::default();
        reader.push(b"\x1b");
        assert_eq!(reader.settle(), Some(Key::Escape));
        assert_eq!(reader.settle(), None);
        reader.push(b"\x1b[");
        assert_eq!(reader.settle(), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_kept_for_ever(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = KeyReader::default();
            let keys = reader.push(&bytes);
            prop_assert!(keys.len() <= bytes.len());
            prop_assert!(reader.pending.len() < PENDING_BYTES_MAX);
        }
    }
}

//! Foreign text as people get to see it: names and paths of processes, what hooks, JVMs, servers and RocksDB
//! say.
//!
//! Whoever chooses such a text must not be able to write to an operator's terminal with it, nor a line of the
//! log.

use std::borrow::Cow;
use std::fmt::{Display, Write};

/// Characters that turn the direction of what follows, or begin a line: control characters in effect, though
/// Unicode does not count them among these.
const LIKE_CONTROL_CHARACTERS: [std::ops::RangeInclusive<char>; 5] = [
    '\u{61c}'..='\u{61c}',
    '\u{200e}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2066}'..='\u{2069}',
    '\u{feff}'..='\u{feff}',
];

/// A text on one line, its control characters written as `\n` or `\u{1b}`.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_control(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    Cow::Owned(line)
}

/// Prints a line with foreign words in it to standard output.
pub fn print_line(line: impl Display) {
    println!("{}", shown(&line.to_string()));
}

/// A JSON document that can be printed to a terminal: the standard lets the control characters behind ASCII
/// stand in a string as they are. Outside of strings there are line breaks only.
pub fn json_shown(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    for character in document.chars() {
        let code = u32::from(character);
        match u16::try_from(code) {
            // Writing to a string does not fail.
            Ok(code) if character != '\n' && is_control(character) => drop(write!(text, "\\u{code:04x}")),
            _ => text.push(character),
        }
    }
    text
}

/// The same JSON document in ASCII: clients that guess the encoding of few bytes take them for what they are.
pub fn json_in_ascii(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    for character in document.chars() {
        if character.is_ascii() {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

fn is_control(character: char) -> bool {
    character.is_control() || LIKE_CONTROL_CHARACTERS.iter().any(|range| range.contains(&character))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_are_written_out_and_nothing_else_is() {
        assert_eq!(shown("/db/größe-数据 \\n 🗜"), "/db/größe-数据 \\n 🗜");
        assert_eq!(shown("\u{1b}[2J\nFAKE\r\t\0"), "\\u{1b}[2J\\nFAKE\\r\\t\\u{0}");
        assert_eq!(shown("\u{9b}31m \u{7f} \u{202e}txt.so"), "\\u{9b}31m \\u{7f} \\u{202e}txt.so");
    }

    #[test]
    fn characters_beyond_the_first_plane_are_pairs_in_ascii() {
        assert_eq!(json_in_ascii("[\"À¡ 🗜\"]"), "[\"\\u00c0\\u00a1 \\ud83d\\udddc\"]");
    }

    proptest! {
        #[test]
        fn json_in_ascii_says_the_same_as_before(text: String) {
            let ascii = json_in_ascii(&serde_json::to_string(&[&text]).unwrap());
            prop_assert!(ascii.is_ascii());
            let read: Vec<String> = serde_json::from_str(&ascii).unwrap();
            prop_assert_eq!(read, [text]);
        }

        #[test]
        fn what_is_shown_is_one_line_and_writes_to_no_terminal(text: String) {
            prop_assert!(!shown(&text).contains(char::is_control));
        }

        #[test]
        fn json_says_the_same_as_before(text: String) {
            let document = serde_json::to_string_pretty(&[&text]).unwrap();
            let shown = json_shown(&document);
            prop_assert!(!shown.chars().any(|character| character != '\n' && character.is_control()));
            let read: Vec<String> = serde_json::from_str(&shown).unwrap();
            prop_assert_eq!(read, [text]);
        }
    }
}

//! What is wrong with a policy text, where, and what to do about it.

/// Separates message and help inside the one string that serde lets an error carry. A control
/// character, because texts quoted from the policy are escaped and so cannot hold it.
const HELP_SEPARATOR: char = '\u{1f}';

/// Why a policy was refused. Positions count from one, as editors do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", self.place())]
pub struct PolicyError {
    /// What is wrong, in one line.
    pub message: String,
    /// What to do.
    pub help: String,
    /// The number of the file, where a policy is in several and one of them is at fault.
    pub file: Option<usize>,
    /// Line of the offending value; `None` where the whole text is at fault.
    pub line: Option<usize>,
    /// Column of the offending value, in characters.
    pub column: Option<usize>,
    /// The same place in bytes from the start of the text.
    pub offset_bytes: Option<usize>,
    /// Length of the offending value in bytes, at least one where there is a place.
    pub length: usize,
}

impl PolicyError {
    /// An error about the whole text.
    pub(super) fn of_text(message: impl Into<String>, help: impl Into<String>) -> PolicyError {
        PolicyError {
            message: message.into(),
            help: help.into(),
            file: None,
            line: None,
            column: None,
            offset_bytes: None,
            length: 0,
        }
    }

    /// Moves the error to a place of the text, given as the YAML parser counts: in characters. Line
    /// and column follow from the text: where it breaks off the parser names a line that is not there.
    pub(super) fn at(mut self, text: &str, index_characters: usize) -> PolicyError {
        let written_bytes = text.trim_end().len();
        let offset = offset_bytes(text, index_characters).min(written_bytes);
        let before = text.get(..offset).unwrap_or("").trim_start_matches('\u{feff}');
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        self.line = Some(before.matches('\n').count() + 1);
        self.column = Some(before.get(line_start..).unwrap_or("").chars().count() + 1);
        self.offset_bytes = Some(offset);
        self.length = token_length(text.get(offset..).unwrap_or(""));
        self
    }

    fn place(&self) -> String {
        match (self.line, self.column) {
            (Some(line), Some(column)) => format!("line {line}, column {column}: "),
            _ => String::new(),
        }
    }
}

/// A message with its help, on its way through serde's errors, which carry one string.
pub(super) struct Complaint {
    message: String,
    help: String,
}

impl Complaint {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Complaint {
        Complaint { message: message.into(), help: help.into() }
    }
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}{HELP_SEPARATOR}{}", self.message, self.help)
    }
}

/// Turns an error of the YAML parser into ours.
pub(super) fn from_yaml(error: &serde_yaml::Error, text: &str) -> PolicyError {
    let mut shown = error.to_string();
    let location = error.location();
    if let Some(location) = &location {
        // The place has its own fields; in the message it would only stand twice.
        let place = format!(" at line {} column {}", location.line(), location.column());
        shown = shown.replacen(&place, "", 1);
    }
    let (message, help) = match shown.split_once(HELP_SEPARATOR) {
        Some((message, help)) => (message.to_owned(), help.to_owned()),
        None => (shown.clone(), super::suggest::help_for(&shown)),
    };
    let built = PolicyError::of_text(message, help);
    match location {
        Some(location) => built.at(text, location.index()),
        None => built,
    }
}

/// Byte offset of the character with this index, as libyaml counts: without a byte order mark.
fn offset_bytes(text: &str, index_characters: usize) -> usize {
    let mark_bytes = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let body = text.get(mark_bytes..).unwrap_or("");
    let inside = body.char_indices().nth(index_characters).map_or(body.len(), |(offset, _)| offset);
    mark_bytes + inside
}

/// Length in bytes of the YAML token that starts here: a quoted text, a bracket or a plain scalar.
fn token_length(rest: &str) -> usize {
    let mut characters = rest.char_indices();
    let Some((_, first)) = characters.next() else { return 1 };
    match first {
        '{' | '[' => 1,
        '"' | '\'' => {
            characters.find(|(_, c)| *c == first || *c == '\n').map_or(rest.len(), |(at, _)| at + 1)
        }
        _ => {
            let end = rest.find([',', '}', ']', '\n', '#']).unwrap_or(rest.len());
            let token = rest.get(..end).unwrap_or("");
            let token = token.split(": ").next().unwrap_or("").trim_end();
            token.trim_end_matches(':').len().max(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_lengths() {
        for (rest, length) in [
            ("64MB, burst", 4),
            ("10 minuts\n", 9),
            ("\"a b\" ]", 5),
            ("'open", 5),
            ("{ a: 1 }", 1),
            ("name: x", 4),
            ("name:\n", 4),
            ("", 1),
            ("\n", 1),
        ] {
            assert_eq!(token_length(rest), length, "{rest:?}");
        }
    }

    #[test]
    fn offsets_count_characters_not_bytes() {
        assert_eq!(offset_bytes("äb", 1), 2);
        assert_eq!(offset_bytes("\u{feff}ab", 1), 4);
        assert_eq!(offset_bytes("ab", 7), 2);
    }
}

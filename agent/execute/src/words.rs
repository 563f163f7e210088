//! Foreign words, of a command or a hook, as they are kept and shown.

/// Characters that go into the history: some lines, and of thousands of actions some megabytes.
pub const KEPT_CHARS_MAX: usize = 2048;

/// As one line that can be kept and shown anywhere.
pub fn one_line(words: &str) -> String {
    let words = words.split(|character: char| character.is_whitespace() || character.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(KEPT_CHARS_MAX) {
        Some((cut, _)) => format!("{}...", line.get(..cut).unwrap_or_default()),
        None => line,
    }
}

//! One metric out of a text in Prometheus' exposition format.
//!
//! The text is foreign: each line that is not understood is passed over, and what is understood is compared
//! and never kept.

/// Longest selector, and most labels in it.
const SELECTOR_BYTES_MAX: usize = 512;
const LABELS_MAX: usize = 16;

/// Which series of an exposition are meant: those of a metric with these labels, and whatever others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    name: String,
    labels: Vec<Label>,
}

impl Selector {
    /// Reads `name` or `name{label="value", ...}`; `None` where it is neither.
    pub fn read(text: &str) -> Option<Selector> {
        let text = text.trim();
        let (name, labels, rest) = series(text).filter(|_| text.len() <= SELECTOR_BYTES_MAX)?;
        let is_whole = rest.trim().is_empty() && labels.len() <= LABELS_MAX;
        is_whole.then(|| Selector { name: name.to_owned(), labels })
    }

    /// The greatest value of the series that are meant; `None` where there is none.
    pub fn greatest(&self, exposition: &str) -> Option<f64> {
        exposition.lines().filter_map(|line| self.value(line)).reduce(f64::max)
    }

    fn value(&self, line: &str) -> Option<f64> {
        let line = line.trim_start();
        // Most lines are of other metrics: they are not looked into.
        if !line.starts_with(&self.name) {
            return None;
        }
        let (name, labels, rest) = series(line)?;
        let is_meant = name == self.name && self.labels.iter().all(|wanted| labels.contains(wanted));
        let value = rest.split_ascii_whitespace().next().filter(|_| is_meant)?;
        value.parse::<f64>().ok().filter(|value| value.is_finite())
    }
}

/// A label's name and value.
type Label = (String, String);

/// Name, labels and what follows them.
fn series(text: &str) -> Option<(&str, Vec<Label>, &str)> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | ':');
    let end = text.find(|character| !is_name(character)).unwrap_or(text.len());
    let (name, rest) = text.split_at_checked(end)?;
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    match rest.trim_start().strip_prefix('{') {
        None => Some((name, Vec::new(), rest)),
        Some(inside) => labels(inside).map(|(labels, rest)| (name, labels, rest)),
    }
}

/// `a="1", b="2"}` and what follows.
fn labels(mut text: &str) -> Option<(Vec<Label>, &str)> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start();
        if let Some(rest) = text.strip_prefix('}') {
            return Some((found, rest));
        }
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = quoted(rest.trim_start().strip_prefix('"')?)?;
        found.push((name.trim().to_owned(), value));
        text = rest.trim_start();
        text = text.strip_prefix(',').unwrap_or(text);
    }
}

/// A label's value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "# HELP queue_length Requests that wait.\n# TYPE queue_length gauge\n\
        queue_length{queue=\"rpc\",host=\"a \\\"b\\\" {c}\"} 17 1700000000000\nqueue_length{queue=\"scm\"} 4e1\n\
        queue_length_max 99\nqueue_length{queue=\"broken} 1\nidle NaN\nplain 3.5\nqueue_length\n";

    fn greatest(selector: &str) -> Option<f64> {
        Selector::read(selector).unwrap().greatest(TEXT)
    }

    #[test]
    fn a_metric_is_found_by_name_and_labels() {
        assert_eq!(greatest("queue_length"), Some(40.0));
        assert_eq!(greatest("queue_length{queue=\"rpc\"}"), Some(17.0));
        assert_eq!(greatest("queue_length{ host=\"a \\\"b\\\" {c}\" , queue=\"rpc\" }"), Some(17.0));
        assert_eq!(greatest("queue_length{queue=\"om\"}"), None);
        assert_eq!(greatest("plain"), Some(3.5));
        assert_eq!(greatest("plai"), None);
        assert_eq!(greatest("idle"), None);
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for text in ["", "1a", "a b", "a{", "a{b}", "a{b=c}", "a{b=\"c\"", "a{b=\"c\"} 1", "ä"] {
            assert_eq!(Selector::read(text), None, "{text}");
        }
        assert_eq!(Selector::read(&"a".repeat(SELECTOR_BYTES_MAX + 1)), None);
    }

    proptest! {
        #[test]
        fn any_text_has_a_value_or_none(selector in "[a-c]{1,2}(\\{[a-c=\",]*\\})?", text in "([a-c{}=\"\\\\ 0-9.\n]|\\PC)*") {
            if let Some(selector) = Selector::read(&selector) {
                let value = selector.greatest(&text);
                prop_assert!(value.is_none_or(f64::is_finite));
            }
        }

        #[test]
        fn what_is_written_is_found(value: i32, label in "\\PC{0,20}") {
            let escaped = label.replace('\\', "\\\\").replace('"', "\\\"");
            let selector = Selector::read(&format!("a{{b=\"{escaped}\"}}")).unwrap();
            prop_assert_eq!(selector.greatest(&format!("a{{c=\"\",b=\"{escaped}\"}} {value}\n")), Some(f64::from(value)));
        }
    }
}

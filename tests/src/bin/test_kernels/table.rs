//! The table that is printed at the end.

use super::answer::{Answer, Outcome};
use super::suite::Test;
use std::fmt::Write;

/// Kernel by test, and then what each kernel lacks.
pub fn render(tests: &[Test], answers: &[Answer]) -> String {
    let width = tests.iter().map(|test| test.to_string().len()).max().unwrap_or_default();
    let mut text = format!("{:width$}", "test");
    for answer in answers {
        text.push_str(&format!("  {:>9}", answer.kernel));
    }
    text.push('\n');
    for test in tests {
        text.push_str(&format!("{:width$}", test.to_string()));
        for answer in answers {
            text.push_str(&format!("  {:>9}", answer.outcome(test).to_string()));
        }
        text.push('\n');
    }
    for answer in answers {
        let _ = write!(text, "\n{}", lacking(tests, answer));
    }
    text.push('\n');
    text
}

fn lacking(tests: &[Test], answer: &Answer) -> String {
    let mut text = match answer.lacks.as_deref() {
        None => format!("Linux {}: it did not say what it lacks\n", answer.kernel),
        Some([]) => format!("Linux {} lacks nothing\n", answer.kernel),
        Some(lacks) => format!("Linux {} lacks\n    {}\n", answer.kernel, lacks.join("\n    ")),
    };
    for test in tests {
        if let Outcome::Lacks(reason) = answer.outcome(test) {
            text.push_str(&format!("    so `{test}` checked the refusal: {reason}\n"));
        }
    }
    text
}

//! What a guest said: how each test ended, and what its kernel lacks.

use super::suite::Test;
use serde_json::Value;
use std::collections::BTreeMap;

/// Begins what is meant for us: a line, or the end of one, where a test was ended in the middle of its own.
const MARK: &str = "guest: ";
/// Begins a line in which a test says that the kernel lacks what it is about, and that this was told to the
/// operator as it should.
const LACKS: &str = "lacks: ";
/// Exit status of `timeout` when it had to end the command.
const TIMED_OUT: &str = "124";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The guest was gone before.
    #[default]
    NotRun,
    Passed {
        /// How long it took, seconds of the guest.
        seconds: u64,
    },
    /// The kernel lacks what the test is about, and the agent says so as it should.
    Lacks(String),
    /// It did not hold.
    Failed,
    /// It had not ended in time.
    Hung,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::NotRun => write!(formatter, "NOT RUN"),
            Outcome::Passed { seconds } => write!(formatter, "ok, {seconds} s"),
            Outcome::Lacks(_) => write!(formatter, "lacks"),
            Outcome::Failed => write!(formatter, "FAILED"),
            Outcome::Hung => write!(formatter, "HUNG"),
        }
    }
}

#[derive(Debug)]
pub struct Answer {
    pub kernel: String,
    /// What its kernel lacks, each with the reason; `None` when the guest did not say.
    pub lacks: Option<Vec<String>>,
    outcomes: BTreeMap<String, Outcome>,
    running: Option<Running>,
    seconds: u64,
}

#[derive(Debug)]
struct Running {
    test: String,
    lacks: Option<String>,
}

impl Answer {
    pub fn new(kernel: &str) -> Answer {
        Answer {
            kernel: kernel.to_owned(),
            lacks: None,
            outcomes: BTreeMap::new(),
            running: None,
            seconds: 0,
        }
    }

    /// Takes the next line; returns the test that ended with it.
    pub fn hear(&mut self, line: &str) -> Option<(String, Outcome)> {
        let Some((_, words)) = line.split_once(MARK) else {
            // libtest prints the test's name and no line end before the test's own first line.
            let reason = line.split_once(LACKS).map(|(_, reason)| reason.to_owned());
            if let (Some(running), Some(reason)) = (&mut self.running, reason) {
                running.lacks = Some(reason);
            }
            return None;
        };
        let (verb, rest) = words.split_once(' ')?;
        match verb {
            "kernel" => self.lacks = lacks(rest),
            "begin" => {
                let test = rest.split_once(' ')?.1.to_owned();
                self.running = Some(Running { test, lacks: None });
            }
            "end" => return self.end(rest),
            _ => {}
        }
        None
    }

    /// `INDEX STATUS SECONDS`, the seconds since the script began.
    fn end(&mut self, words: &str) -> Option<(String, Outcome)> {
        let running = self.running.take()?;
        let mut words = words.split(' ').skip(1);
        let (status, now) = (words.next()?, words.next()?.parse::<u64>().ok()?);
        let seconds = now.saturating_sub(std::mem::replace(&mut self.seconds, now));
        let outcome = match (status, running.lacks) {
            ("0", Some(reason)) => Outcome::Lacks(reason),
            ("0", None) => Outcome::Passed { seconds },
            (TIMED_OUT, _) => Outcome::Hung,
            _ => Outcome::Failed,
        };
        self.outcomes.insert(running.test.clone(), outcome.clone());
        Some((running.test, outcome))
    }

    /// How `test` ended.
    pub fn outcome(&self, test: &Test) -> Outcome {
        self.outcomes.get(&test.to_string()).cloned().unwrap_or_default()
    }

    /// Whether all of `tests` were run and none failed, and the guest said what its kernel lacks.
    pub fn passed(&self, tests: &[Test]) -> bool {
        let good = |test| matches!(self.outcome(test), Outcome::Passed { .. } | Outcome::Lacks(_));
        self.lacks.is_some() && tests.iter().all(good)
    }
}

/// Which of the agent's [`sexton_probe::KernelFeatures`], as JSON, are not there; `None` when that is not
/// what it is.
fn lacks(features: &str) -> Option<Vec<String>> {
    let features: Value = serde_json::from_str(features).ok()?;
    let features = features.as_object().filter(|features| features.contains_key("release"))?;
    let missing = features.iter().filter_map(|(name, answer)| {
        let said = answer.get("answer")?.as_str().filter(|said| *said != "yes")?;
        let reason = answer.get("reason").and_then(Value::as_str).unwrap_or(said);
        Some(format!("{}: {reason}", name.replace('_', " ")))
    });
    Some(missing.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn told(lines: &[&str]) -> (Answer, Vec<(String, Outcome)>) {
        let mut answer = Answer::new("6.1");
        let ended = lines.iter().filter_map(|line| answer.hear(line)).collect();
        (answer, ended)
    }

    #[test]
    fn tests_end_well_or_badly_or_for_want_of_something() {
        let (_, ended) = told(&[
            "guest: begin 0 db_bench exact",
            "test exact ... ok",
            "guest: end 0 0 12",
            "guest: begin 1 kill nothing_left",
            "guest: end 1 101 20",
            "guest: begin 2 mechanisms session",
            "test session ... lacks: sessions came with Linux 6.13",
            "guest: end 2 0 21",
            "guest: begin 3 kill hangs",
            "guest: end 3 124 261",
            "guest: begin 4 kill too_late",
        ]);
        let outcomes: Vec<Outcome> = ended.into_iter().map(|(_, outcome)| outcome).collect();
        let lacks = Outcome::Lacks("sessions came with Linux 6.13".into());
        assert_eq!(outcomes, [Outcome::Passed { seconds: 12 }, Outcome::Failed, lacks, Outcome::Hung]);
    }

    /// It was shown as not run: libtest ends the line that names a test only when the test has ended.
    #[test]
    fn a_test_that_was_ended_in_the_middle_of_a_line_has_hung() {
        let (_, ended) = told(&["guest: begin 0 a b", "test b ... guest: end 0 124 240"]);
        assert_eq!(ended.first().unwrap().1, Outcome::Hung);
    }

    #[test]
    fn what_the_kernel_lacks_comes_from_its_features() {
        let (answer, _) = told(&[concat!(
            r#"guest: kernel {"release":"6.1","btf":{"answer":"yes"},"#,
            r#""uprobe_session":{"answer":"no","reason":"came with 6.13"}}"#
        )]);
        assert_eq!(answer.lacks.unwrap(), ["uprobe session: came with 6.13"]);
        assert!(told(&["guest: kernel "]).0.lacks.is_none());
        assert!(told(&["guest: kernel {}"]).0.lacks.is_none());
    }

    #[test]
    fn a_failing_test_that_says_lacks_has_failed() {
        let (_, ended) = told(&["guest: begin 0 a b", "lacks: x", "guest: end 0 101 1"]);
        assert_eq!(ended.first().unwrap().1, Outcome::Failed);
    }
}

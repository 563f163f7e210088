//! One thing that was looked at, and what came of it.

use serde::Serialize;
use sexton_probe::Answer as KernelAnswer;

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Answer {
    Yes,
    /// It is not.
    No,
    /// It could not be found out.
    Unknown,
}

/// One thing that was looked at. Where the answer is not `yes` there are a reason and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, stable: `CAP_BPF`, `uprobe sessions`.
    pub name: String,
    pub answer: Answer,
    /// What it is for, or with `yes` sometimes what exactly was found.
    pub note: String,
    /// Why the answer is not `yes`.
    pub reason: Option<String>,
    /// What to do about it.
    pub remedy: Option<String>,
    /// Whether Sexton cannot do its work without it.
    pub essential: bool,
}

impl Finding {
    /// It is as it should be.
    pub fn yes(name: impl Into<String>, note: impl Into<String>) -> Finding {
        Finding {
            name: name.into(),
            answer: Answer::Yes,
            note: note.into(),
            reason: None,
            remedy: None,
            essential: false,
        }
    }

    /// It is not.
    pub fn no(
        name: impl Into<String>,
        note: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            answer: Answer::No,
            reason: Some(reason.into()),
            remedy: Some(remedy.into()),
            ..Finding::yes(name, note)
        }
    }

    /// It could not be found out.
    pub fn unknown(
        name: impl Into<String>,
        note: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { answer: Answer::Unknown, ..Finding::no(name, note, reason, remedy) }
    }

    pub fn of_kernel(answer: &KernelAnswer, name: &str, note: &str, remedy: &str) -> Finding {
        match answer {
            KernelAnswer::Yes => Finding::yes(name, note),
            KernelAnswer::No(reason) => Finding::no(name, note, reason.as_str(), remedy),
            KernelAnswer::Unknown(reason) => {
                Finding::unknown(name, note, reason.as_str(), "run sexton as root to find out")
            }
        }
    }

    /// The same, and nothing works without it.
    pub fn essential(self) -> Finding {
        Finding { essential: true, ..self }
    }

    /// Whether it stands in the way.
    pub fn is_obstacle(&self) -> bool {
        self.essential && self.answer != Answer::Yes
    }
}

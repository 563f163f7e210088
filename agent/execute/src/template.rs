//! A command with placeholders, as a policy writes it: program and arguments, never a shell.

use super::error::ExecuteError;
use super::task::CompactTask;

/// Arguments of a command; more is not a command but an accident.
const ARGUMENTS_MAX: usize = 256;

/// Bytes of one argument after filling in; the kernel's own limit is 128 KiB.
const ARGUMENT_BYTES_MAX: usize = 64 * 1024;

/// Program and arguments; `{name}` in an argument is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTemplate {
    program: String,
    arguments: Vec<String>,
}

/// A command that is ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandedCommand {
    /// Program, looked for in `PATH` unless it has a slash.
    pub program: String,
    pub arguments: Vec<String>,
    /// The values that could be filled in, by name and value: arguments can be read by every user of the
    /// node, the environment by the command's own user only.
    pub environment: Vec<(String, String)>,
}

impl CommandTemplate {
    /// A template of these words, the program first.
    ///
    /// # Errors
    /// [`ExecuteError::Template`] for no program, a placeholder in the program's name, too many words.
    pub fn new(words: &[String]) -> Result<CommandTemplate, ExecuteError> {
        let fail = |program: &str, reason: &str| {
            Err(ExecuteError::Template { program: program.to_owned(), reason: reason.to_owned() })
        };
        let Some((program, arguments)) = words.split_first().filter(|(program, _)| !program.is_empty())
        else {
            return fail("(empty)", "names no program");
        };
        if program.contains('{') {
            return fail(program, "the program's own name cannot hold a placeholder");
        }
        if arguments.len() > ARGUMENTS_MAX {
            return fail(program, "has too many arguments");
        }
        Ok(CommandTemplate { program: program.clone(), arguments: arguments.to_vec() })
    }

    /// Fills in `values`, pairs of a name and what stands for it.
    ///
    /// # Errors
    /// [`ExecuteError::Template`] for a name that has no value, for a value with a NUL byte, and for a
    /// value that would turn the start of an argument into an option (`-...`): column families and
    /// directories are named by the target.
    pub fn expand(&self, values: &[(&str, &str)]) -> Result<ExpandedCommand, ExecuteError> {
        let arguments: Result<_, String> =
            self.arguments.iter().map(|argument| expand_argument(argument, values)).collect();
        let arguments =
            arguments.map_err(|reason| ExecuteError::Template { program: self.program.clone(), reason })?;
        let environment = values.iter().filter(|(_, value)| !value.contains('\0'));
        let environment = environment.map(|(name, value)| (variable(name), (*value).to_owned())).collect();
        Ok(ExpandedCommand { program: self.program.clone(), arguments, environment })
    }

    /// Fills in a compaction's values: `{begin_hex}`, `{end_hex}` (empty without an end),
    /// `{column_family}`, `{path}`, `{pid}`.
    pub fn expand_for(&self, task: &CompactTask) -> Result<ExpandedCommand, ExecuteError> {
        let end = task.range.end.as_ref().map(|key| key.hex()).unwrap_or_default();
        self.expand_with_keys(task, &task.range.begin.hex(), &end)
    }

    /// The same with keys as they may be shown.
    pub fn expand_redacted(&self, task: &CompactTask) -> Result<ExpandedCommand, ExecuteError> {
        let end = task.range.end.as_ref().map(|key| key.redacted()).unwrap_or_default();
        self.expand_with_keys(task, &task.range.begin.redacted(), &end)
    }

    fn expand_with_keys(
        &self,
        task: &CompactTask,
        begin: &str,
        end: &str,
    ) -> Result<ExpandedCommand, ExecuteError> {
        let path = task.database.to_str().ok_or_else(|| ExecuteError::Template {
            program: self.program.clone(),
            reason: "the database's directory is not UTF-8".to_owned(),
        })?;
        self.expand(&[
            ("begin_hex", begin),
            ("end_hex", end),
            ("column_family", &task.column_family),
            ("path", path),
            ("pid", &task.process.pid.to_string()),
        ])
    }
}

impl ExpandedCommand {
    /// As one line that a shell reads as these very words.
    pub fn shell_line(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        words.map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
    }
}

/// What a value is called in the environment: `SEXTON_BEGIN_HEX`.
fn variable(name: &str) -> String {
    format!("SEXTON_{}", name.to_ascii_uppercase())
}

/// `word`, in single quotes where a shell would otherwise read more into it.
pub fn shell_word(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./=:,@%+".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn expand_argument(argument: &str, values: &[(&str, &str)]) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = argument;
    while let Some((before, name, after)) = next_placeholder(rest) {
        expanded.push_str(before);
        let (_, value) = values
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| format!("{{{name}}} is not a known placeholder"))?;
        if value.contains('\0') {
            return Err(format!("the value of {{{name}}} holds a NUL byte"));
        }
        if expanded.is_empty() && value.starts_with('-') {
            return Err(format!("the value of {{{name}}} begins with '-' and would be taken for an option"));
        }
        expanded.push_str(value);
        rest = after;
    }
    expanded.push_str(rest);
    if expanded.len() > ARGUMENT_BYTES_MAX {
        return Err(format!("an argument is longer than {ARGUMENT_BYTES_MAX} bytes"));
    }
    Ok(expanded)
}

/// Text before the next `{name}`, the name, and the text after it. A brace without a name of lower-case
/// letters and underscores is text.
fn next_placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    text.match_indices('{').find_map(|(at, _)| {
        let (before, from) = text.split_at_checked(at)?;
        let (name, after) = from.strip_prefix('{')?.split_once('}')?;
        is_name(name).then_some((before, name, after))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn template(words: &[&str]) -> CommandTemplate {
        CommandTemplate::new(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn placeholders_are_filled_in_and_never_split() {
        let command = template(&["ctl", "--cf={column_family}", "{begin_hex}", "{\"json\":{}}", "{end_hex}"]);
        let values = [("column_family", "key Table; rm -rf /"), ("begin_hex", "00ff"), ("end_hex", "")];
        let expanded = command.expand(&values).unwrap();
        assert_eq!(expanded.arguments, ["--cf=key Table; rm -rf /", "00ff", "{\"json\":{}}", ""]);
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            expanded.environment.first(),
            Some(&variable("SEXTON_COLUMN_FAMILY", "key Table; rm -rf /"))
        );
        assert_eq!(expanded.environment.last(), Some(&variable("SEXTON_END_HEX", "")));
        assert_eq!(expanded.shell_line(), "ctl '--cf=key Table; rm -rf /' 00ff '{\"json\":{}}' ''");
    }

    #[test]
    fn what_is_not_a_command_is_refused() {
        for words in [&[][..], &[String::new()], &["{path}/bin".to_owned()]] {
            assert!(CommandTemplate::new(words).is_err());
        }
        assert!(template(&["a", "{unknown}"]).expand(&[]).unwrap_err().to_string().contains("{unknown}"));
        assert!(template(&["a", "{x}"]).expand(&[("x", "a\0b")]).is_err());
    }

    #[test]
    fn a_value_cannot_become_an_option() {
        let values = [("column_family", "--config=/tmp/evil")];
        assert!(template(&["a", "{column_family}"]).expand(&values).is_err());
        assert!(template(&["a", "--cf={column_family}"]).expand(&values).is_ok());
    }

    #[test]
    fn quoting_survives_a_real_shell() {
        let word = "it's a \"$HOME\" `x` \\ *\n";
        let script = format!("printf %s {}", shell_word(word));
        let output = std::process::Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
    }

    proptest! {
        #[test]
        fn arbitrary_arguments_never_panic(argument in ".{0,80}", value in ".{0,20}") {
            let _ = template(&["a", &argument]).expand(&[("x", &value)]);
        }

        #[test]
        fn without_braces_an_argument_stays_as_it_is(argument in "[^{]{0,40}") {
            let expanded = template(&["a", &argument]).expand(&[]).unwrap();
            prop_assert_eq!(&expanded.arguments, &[argument]);
        }
    }
}

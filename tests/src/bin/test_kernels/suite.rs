//! What is run: the tests whose name carries the tag, in which programs they are, and the script that runs
//! them in a guest.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use sexton_tests::artifact;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A test that has not ended after this has hung: emulated, the longest takes two minutes, and four on a
/// machine that builds beside it.
const TEST_LIMIT_SECONDS: u64 = 600;
/// Emulated, everything takes ten to twenty times as long; the tests make their databases that much smaller.
const SLOWNESS: u64 = 20;

/// A test and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// The file it stands in, `db_bench` for `tests/tests/db_bench.rs`.
    pub program: String,
    pub name: String,
    executable: PathBuf,
}

impl std::fmt::Display for Test {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.program, self.name)
    }
}

/// The tests of one run, in the order in which they are run.
#[derive(Debug)]
pub struct Suite {
    pub tests: Vec<Test>,
}

impl Suite {
    /// Asks the programs that cargo's `messages` name for their tests, and keeps those whose name contains
    /// `filter`.
    pub fn read(messages: impl BufRead, filter: &str) -> Result<Suite> {
        let mut tests = Vec::new();
        let mut programs = 0;
        for line in messages.lines() {
            let line = line.context("reading cargo's messages")?;
            let Some((program, executable)) = test_program(&line) else { continue };
            programs += 1;
            for name in names(&executable, filter)? {
                tests.push(Test { program: program.clone(), name, executable: executable.clone() });
            }
        }
        ensure!(programs > 0, "standard input names no test program: run `make test-kernels`");
        tests.sort_by(|one, two| (&one.program, &one.name).cmp(&(&two.program, &two.name)));
        Ok(Suite { tests })
    }

    /// A shell script for the guest: says first what the kernel has, then runs each test in a process of
    /// its own and says how it ended. [`super::answer`] understands it.
    pub fn script(&self) -> Result<String> {
        let ourselves = std::env::current_exe().context("reading the path of this executable")?;
        let mut lines = vec![
            format!("export SEXTON_TOOLS={}", quote(&artifact::tools()?)?),
            format!("export SEXTON_TEST_SLOWNESS={SLOWNESS}"),
            format!("cd {}", quote(&artifact::repository())?),
            format!("echo \"guest: kernel $({} features)\"", quote(&ourselves)?),
        ];
        for (index, test) in self.tests.iter().enumerate() {
            let (executable, name) = (quote(&test.executable)?, &test.name);
            let options = "--test-threads=1 --nocapture";
            lines.push(format!("echo 'guest: begin {index} {test}'"));
            lines.push(format!("timeout -k 10 {TEST_LIMIT_SECONDS} {executable} --exact {name} {options}"));
            lines.push(format!("echo \"guest: end {index} $? $SECONDS\""));
        }
        Ok(lines.join("\n") + "\n")
    }
}

/// The name and path of an integration test, when that is what a message of cargo's is about.
fn test_program(message: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let kinds = message.pointer("/target/kind")?.as_array()?;
    if !kinds.iter().any(|kind| kind == "test") {
        return None;
    }
    let name = message.pointer("/target/name")?.as_str()?;
    Some((name.to_owned(), PathBuf::from(message.get("executable")?.as_str()?)))
}

fn names(executable: &Path, filter: &str) -> Result<Vec<String>> {
    let output = Command::new(executable).args(["--list", "--format", "terse", filter]).output();
    let output = output.with_context(|| format!("starting {}", executable.display()))?;
    ensure!(output.status.success(), "{} --list ended with {}", executable.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// A path as one word of a shell script.
fn quote(path: &Path) -> Result<String> {
    // The guest has directories of its own there.
    for hidden in ["/tmp", "/run", "/var/tmp", "/mnt"] {
        if path.starts_with(hidden) {
            bail!(
                "{} lies below {hidden}, which a guest cannot see: build and install elsewhere",
                path.display()
            );
        }
    }
    let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(format!("'{}'", path.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_integration_tests_are_taken_from_cargos_messages() {
        let test = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"kill"},"executable":"/t/kill-1"}"#;
        assert_eq!(test_program(test), Some(("kill".into(), "/t/kill-1".into())));
        let library =
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"x"},"executable":null}"#;
        assert_eq!(test_program(library), None);
        assert_eq!(test_program(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(test_program("not JSON"), None);
    }

    #[test]
    fn paths_are_one_word_and_visible_in_the_guest() {
        assert_eq!(quote(Path::new("/home/it's mine")).unwrap(), r"'/home/it'\''s mine'");
        assert!(quote(Path::new("/tmp/target")).is_err());
        assert!(quote(Path::new("/tmpfiles/target")).is_ok());
    }
}

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
use super::super::elf_error::Resource;
use super::*;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

/// A stand-in for the agent's program: a shell script that says of each file the same.
pub(in super::super) struct Program {
    directory: tempfile::TempDir,
}

impl Program {
    pub fn that(does: &str) -> Program {
        let directory = tempfile::tempdir().unwrap();
        let program = Program { directory };
        let counts = program.directory.path().join("starts");
        let text = format!("#!/bin/sh\necho x >> {}\n{does}\n", counts.display());
        std::fs::write(program.path(), text).unwrap();
        std::fs::set_permissions(program.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("program")
    }

    pub fn examiner(&self) -> Examiner {
        Examiner { time_limit: Duration::from_secs(30), ..Examiner::by(self.path()) }
    }

    /// How often it was started.
    pub fn starts(&self) -> usize {
        std::fs::read_to_string(self.directory.path().join("starts")).map_or(0, |text| text.lines().count())
    }
}

/// What comes of a file that the stand-in is asked about.
fn said(does: &str) -> Finding {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[0; 64]).unwrap();
    Program::that(does).examiner().module(&file, 64, None)
}

fn reason(does: &str) -> String {
    reason_of(said(does))
}

/// The same, of one that is not waited for for long.
fn hasty_reason(does: &str) -> String {
    let program = Program::that(does);
    let mut examiner = Examiner { time_limit: Duration::from_millis(500), ..program.examiner() };
    reason_of(examiner.module(&tempfile::tempfile().unwrap(), 0, None))
}

fn reason_of(finding: Finding) -> String {
    match finding {
        Finding::Unreadable(ElfError::NotExamined { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_answer_says_why() {
    assert!(reason("exit 3").contains("exit status: 3"));
    assert!(reason("kill -11 $$").contains("SIGSEGV"));
    assert!(reason("echo '{\"Other\"'").contains("makes sense"), "cut");
    assert!(hasty_reason("exec sleep 600").contains("did not answer within 500ms"));
    // What holds the socket open goes on, and is not waited for.
    assert!(hasty_reason("echo '\"Other\"'; sleep 1 &").contains("did not answer"));
    assert!(reason("exec cat /dev/zero").contains("more than there is to say"));
    let many = format!("printf '\"%{}s\"' x", ANSWER_BYTES_MAX + 1);
    assert!(reason(&many).contains("more than there is to say"));
}

#[test]
fn an_answer_is_taken_from_a_process_that_does_not_end() {
    assert_eq!(said("echo '\"Other\"'; exec 1>&-; exec sleep 600"), Finding::Other);
    assert_eq!(said("echo '\"MuslLinker\"'"), Finding::MuslLinker);
    let error = said("echo '{\"Unreadable\":{\"TooMuch\":{\"resource\":\"time\"}}}'");
    assert_eq!(
        error.clone(),
        Finding::Unreadable(ElfError::TooMuch { resource: Resource::Time }),
        "{error:?}"
    );
}

#[test]
fn the_words_of_an_answer_are_cut() {
    let finding = said("printf '{\"Unreadable\":{\"Io\":{\"message\":\"%100000s\"}}}' x");
    let Finding::Unreadable(error @ ElfError::Io { .. }) = finding else { panic!("{finding:?}") };
    assert!(error.to_string().len() < 2000);
}

#[test]
fn no_program_is_no_answer() {
    let file = tempfile::tempfile().unwrap();
    let finding = Examiner::by("/nonexistent/program".into()).module(&file, 0, None);
    let Finding::Unreadable(ElfError::NotExamined { reason }) = finding else { panic!("{finding:?}") };
    assert!(reason.contains("cannot be started"), "{reason}");
}

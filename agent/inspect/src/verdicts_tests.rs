#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
use super::super::examiner::tests::Program;
use super::*;
use std::io::Write;

#[test]
fn the_verdict_follows_the_file_when_it_changes() {
    let mut verdicts = Verdicts::default();
    let view = View::of_process(std::process::id());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"this is no ELF file at all").unwrap();
    let (before, verdict) = verdicts.examine(&file, &view).unwrap();
    assert!(matches!(verdict, Verdict::Unreadable(ElfError::NotElf)));
    file.write_all(b" and longer").unwrap();
    let (after, _) = verdicts.examine(&file, &view).unwrap();
    assert_ne!(before, after);
    assert_eq!(before.device_and_inode(), after.device_and_inode());
}

/// Goal: a file whose examination gives no answer takes the agent one process and one wait, not one at each
/// look, and is not left alone for ever. Method: a stand-in that ends without an answer, and counts.
#[test]
fn no_answer_is_remembered_for_a_while() {
    let program = Program::that("kill -9 $$");
    let mut verdicts = Verdicts::by(program.examiner());
    let view = View::of_process(std::process::id());
    let mut file = tempfile::tempfile().unwrap();
    for _ in 0..3 {
        let (_, verdict) = verdicts.examine(&file, &view).unwrap();
        let Verdict::Unreadable(ElfError::NotExamined { reason }) = verdict else { panic!("{verdict:?}") };
        assert!(reason.contains("SIGKILL"), "{reason}");
    }
    assert_eq!(program.starts(), 1);
    for known in verdicts.by_file.values_mut() {
        assert!(known.until.unwrap() <= Instant::now() + NO_ANSWER_KEPT);
        known.until = Some(Instant::now());
    }
    verdicts.examine(&file, &view).unwrap();
    assert_eq!(program.starts(), 2);
    // Another state of the file is another file.
    file.write_all(b"more").unwrap();
    verdicts.examine(&file, &view).unwrap();
    assert_eq!(program.starts(), 3);
}

/// Goal: a taken-over process says nothing of other files, and cannot keep the agent asking for debug files.
#[test]
fn who_wants_a_debug_file_again_has_none() {
    let program = Program::that(r#"echo '{"DebugFileWanted":{"build_id":"abcdef"}}'"#);
    let mut verdicts = Verdicts::by(program.examiner());
    let file = tempfile::tempfile().unwrap();
    let (_, verdict) = verdicts.examine(&file, &View::of_process(std::process::id())).unwrap();
    assert!(matches!(verdict, Verdict::Hidden), "{verdict:?}");
    assert_eq!(program.starts(), 2);
}

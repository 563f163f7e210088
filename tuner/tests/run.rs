//! What becomes of actions is tested as texts: what happens to them, line by line, and what is to be done
//! about it.
//!
//! `BLESS=1 cargo test -p sexton-tuner --test run` writes what comes out into the files; the difference is
//! what to review. A file begins with a sentence on what it shows; `policy` is a block of YAML; a block `run`
//! has the lines that are described in `run/script.rs`, a line `----`, and what came of each of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cases;
#[path = "run/script.rs"]
mod script;
#[path = "run/shown.rs"]
mod shown;

use script::Script;

#[test]
fn cases() {
    cases::check("run", 20, |text, _| {
        let mut script = Script::default();
        cases::outputs_anew(text, |command, lines| match command {
            "policy" => script.take_policy(lines),
            "run" => Ok(script.run(lines)),
            _ => Err(format!("unknown command {command}")),
        })
    });
}

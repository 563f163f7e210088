//! `sexton man`: manual pages, made of what `--help` says.

use super::{ENVIRONMENT, EXAMPLES, EXIT_CODES, command_line};
use crate::failure::Failure;
use clap::Args;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What the agent reads and writes where nothing else is asked for.
const FILES: [(&str, &str); 5] = [
    ("/etc/sexton/policy.yaml", "The policy of the service. `sexton policy check` checks it."),
    ("/usr/lib/sexton/libsexton_hook.so", "The part that is loaded into targets in mode act."),
    ("/var/lib/sexton", "History, cooldowns, budgets and events. Keys of databases are in there whole."),
    ("/run/sexton/control.sock", "The unix socket for requests that change something."),
    ("http://127.0.0.1:9776/", "The dashboard of a running agent, its metrics and its API."),
];

/// Arguments of `sexton man`.
#[derive(Args, Debug)]
pub struct ManArguments {
    /// Subcommand that the page is about, for example: policy check. Default: all of sexton.
    #[arg(value_name = "SUBCOMMAND", conflicts_with = "directory")]
    subcommand: Vec<String>,
    /// Write the pages of all subcommands into this directory instead of printing one.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// Prints a page, for `man -l -`, or writes them all.
/// Errors: there is no such subcommand, or the directory cannot be written.
pub fn run(arguments: &ManArguments) -> Result<(), Failure> {
    let mut whole = command_line();
    whole.build();
    if let Some(directory) = &arguments.directory {
        return write_all(&whole, directory).map_err(|error| {
            Failure::new(
                format!("{}: {error}", directory.display()),
                "name a directory that exists and can be written",
            )
        });
    }
    let mut command = &whole;
    for word in &arguments.subcommand {
        command = shown_subcommands(command).find(|known| known.get_name() == word).ok_or_else(|| {
            Failure::usage(format!("there is no subcommand {word}"), "`sexton --help` lists the subcommands")
        })?;
    }
    let written = page(command).and_then(|page| io::stdout().write_all(&page));
    written.map_err(|error| Failure::new(error, "give `sexton man` an output that takes its page"))
}

fn shown_subcommands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|known| !known.is_hide_set() && known.get_name() != "help")
}

/// The page of `command` and those of all subcommands below it, each in a file of its name.
fn write_all(command: &clap::Command, directory: &Path) -> io::Result<()> {
    for subcommand in shown_subcommands(command) {
        write_all(subcommand, directory)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    std::fs::write(directory.join(format!("{name}.1")), page(command)?)
}

/// One page. It has no date, so that the same program always makes the same page.
fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let is_whole = command.get_name() == "sexton";
    let man =
        Man::new(command.clone()).source(concat!("sexton ", env!("CARGO_PKG_VERSION"))).manual("Sexton");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if shown_subcommands(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::default();
    match is_whole {
        true => as_it_is(&mut rest, "EXAMPLES", EXAMPLES),
        false => own_words(&mut rest, command),
    }
    let exit_codes = EXIT_CODES.map(|(code, meaning)| (code.to_string(), meaning));
    list(&mut rest, "EXIT STATUS", exit_codes.iter().map(|(code, meaning)| (code.as_str(), *meaning)));
    list(&mut rest, "ENVIRONMENT", ENVIRONMENT.into_iter());
    list(&mut rest, "FILES", FILES.into_iter());
    if !is_whole {
        rest.control("SH", ["SEE ALSO"]);
        rest.text([bold("sexton"), roman("(1)")]);
    }
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// What a subcommand says at the end of its help, but for what all of them say there.
fn own_words(roff: &mut Roff, command: &clap::Command) {
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let common = super::exit_codes_text();
    let own = text.strip_suffix(&common).unwrap_or(&text).trim();
    if !own.is_empty() {
        as_it_is(roff, "NOTES", own);
    }
}

/// A section whose lines stay as they are.
fn as_it_is(roff: &mut Roff, heading: &str, text: &str) {
    roff.control("SH", [heading]);
    roff.control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}

/// A section of terms and what they mean.
fn list<'a>(roff: &mut Roff, heading: &str, terms: impl Iterator<Item = (&'a str, &'a str)>) {
    roff.control("SH", [heading]);
    for (term, meaning) in terms {
        roff.control("TP", []);
        roff.text([bold(term)]);
        roff.text([roman(meaning)]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn every_subcommand_but_the_hidden_ones_has_a_page_with_exit_codes() {
        let folder = tempfile::tempdir().unwrap();
        run(&ManArguments { subcommand: vec![], directory: Some(folder.path().to_owned()) }).unwrap();
        let names = names(folder.path());
        let mut whole = command_line();
        whole.build();
        assert_eq!(names.iter().filter(|name| name.starts_with("sexton-policy")).count(), 4, "{names:?}");
        for subcommand in whole.get_subcommands().filter(|known| known.get_name() != "help") {
            let name = format!("sexton-{}.1", subcommand.get_name());
            assert_eq!(names.contains(&name), !subcommand.is_hide_set(), "{name}");
        }
        for name in names {
            let page = std::fs::read_to_string(folder.path().join(&name)).unwrap();
            let status = page.split(".SH \"EXIT STATUS\"").nth(1).unwrap_or_default();
            let meanings = EXIT_CODES.iter().map(|(_, meaning)| meaning);
            assert!(meanings.clone().all(|meaning| status.contains(meaning)), "{name}:\n{page}");
        }
    }

    #[test]
    fn a_page_is_the_same_each_time_and_says_what_the_help_says() {
        let mut whole = command_line();
        whole.build();
        let run = whole.find_subcommand("run").unwrap();
        let text = String::from_utf8(page(run).unwrap()).unwrap();
        assert_eq!(text.into_bytes(), page(run).unwrap());
        let text = String::from_utf8(page(&whole).unwrap()).unwrap();
        assert!(text.contains("sexton events \\-\\-follow"), "{text}");
    }

    #[test]
    fn a_subcommand_that_is_none_is_wrong_usage() {
        let failure = run(&ManArguments { subcommand: vec!["dance".into()], directory: None }).unwrap_err();
        assert!(failure.is_usage());
        let hidden = sexton_sst::CHILD_SUBCOMMAND.to_owned();
        assert!(run(&ManArguments { subcommand: vec![hidden], directory: None }).is_err());
    }

    #[test]
    fn every_help_ends_with_the_exit_codes() {
        fn check(command: &clap::Command) {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.ends_with(&crate::command::exit_codes_text()), "{}", command.get_name());
            shown_subcommands(command).for_each(check);
        }
        let mut whole = command_line();
        whole.build();
        check(&whole);
    }
}

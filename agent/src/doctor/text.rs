//! The report for people: aligned, one line a finding, reason and remedy below what is not well.

use super::finding::{Answer, Finding};
use super::report::{DatabaseReport, ProbeReport, Report, TargetReport};
use crate::text::shown;
use sexton_inspect::facts::{ProbeSite, Target};
use sexton_probe::Site;
use std::fmt::{Display, Write};

/// Column in which what is said of something begins.
const INDENT: usize = 10;
/// Room for a finding's name before its note.
const NAME_COLUMNS: usize = 32;
/// Room for the name of a property.
const PROPERTY_COLUMNS: usize = 14;

/// The report as lines of text, the summary last. What comes from a target is printed without control
/// characters.
pub fn text(report: &Report) -> String {
    let mut text = Text::default();
    text.line(format_args!("sexton {} on Linux {}", report.version, report.kernel.release));
    text.heading("Kernel");
    text.findings(&report.kernel.findings);
    text.heading("Privileges");
    text.findings(&report.privileges);
    for target in &report.targets {
        text.target(target);
    }
    if !report.refused.is_empty() {
        text.heading("Not read");
    }
    for refused in &report.refused {
        text.line(format_args!("  {}", refused.reason));
        text.line(format_args!("{:INDENT$}{}", "", refused.remedy));
    }
    text.heading("Summary");
    text.line(format_args!("  {}: {}", if report.ok { "ok" } else { "NOT OK" }, report.summary));
    text.0
}

/// What is known of a target without looking at its threads, its databases' files and this node's probes.
pub fn facts_text(target: &Target) -> String {
    let mut text = Text::default();
    text.facts(target);
    for database in &target.databases {
        let access = if database.is_read_only { ", open for reading only" } else { "" };
        text.property("database", format_args!("{}{access}", database.path.display()));
    }
    for site in Site::SHOWN {
        let place = site.place(&target.module.sites).map_or_else(|| "not found".to_owned(), site_words);
        text.property("probe", format_args!("{:13} {place}", site.label()));
    }
    text.gaps(target);
    text.0
}

/// Lines of text, free of control characters.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: impl Display) {
        let line = line.to_string();
        // A String takes everything.
        let _ = writeln!(self.0, "{}", shown(line.trim_end()));
    }

    fn heading(&mut self, heading: &str) {
        self.0.push('\n');
        self.line(heading);
    }

    fn property(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("  {name:PROPERTY_COLUMNS$}{value}"));
    }

    fn findings(&mut self, findings: &[Finding]) {
        for finding in findings {
            self.finding(finding);
        }
    }

    fn finding(&mut self, finding: &Finding) {
        let Finding { name, answer, note, .. } = finding;
        self.line(format_args!("  {answer:8}{name:NAME_COLUMNS$} {note}"));
        if *answer == Answer::Yes {
            return;
        }
        for words in [&finding.reason, &finding.remedy].into_iter().flatten() {
            self.line(format_args!("{:INDENT$}{words}", ""));
        }
    }

    fn target(&mut self, target: &TargetReport) {
        self.0.push('\n');
        self.facts(&target.facts);
        for probe in &target.probes {
            self.property("probe", probe_words(probe));
        }
        if let Some(threads) = target.threads {
            let level = threads.perf_level.map_or_else(|| "unknown".to_owned(), |level| level.to_string());
            self.property(
                "threads",
                format_args!(
                    "{}, {} of them have used RocksDB, lowest perf level {level}",
                    threads.threads, threads.threads_with_counters
                ),
            );
        }
        for database in &target.databases {
            self.database(database);
        }
        self.findings(&target.findings);
        self.findings(&target.executors);
        self.findings(&target.throttles);
        self.gaps(&target.facts);
    }

    fn gaps(&mut self, target: &Target) {
        for gap in &target.gaps {
            self.finding(&Finding::no(&gap.what, "", &gap.reason, &gap.remedy));
        }
    }

    fn facts(&mut self, target: &Target) {
        let Target { name, executable, user_id, module, .. } = target;
        self.line(format_args!("{name} ({}, user {user_id})", executable.display()));
        if target.is_command_line_cut {
            self.property("command", "only the first MiB of its arguments can be matched");
        }
        let deleted = if module.deleted { " (deleted)" } else { "" };
        self.property("module", format_args!("{}{deleted}", module.path.display()));
        self.property("build id", module.build_id.as_deref().unwrap_or("none"));
        self.property("RocksDB", format_args!("{} from {}", module.version, module.version.source));
        self.property("functions", format_args!("found by {}", module.found_by));
        self.property("counts", module.counts);
        match module.tls {
            Some(tls) => self.property("TLS", tls),
            None => self.property("TLS", "none that matters"),
        }
        if let Some(layout) = &module.layout {
            let source = module.layout_source.map(|source| format!(", from {source}")).unwrap_or_default();
            self.property("layout", format_args!("that of {}{source}", layout.versions));
        }
    }

    fn database(&mut self, database: &DatabaseReport) {
        self.property("database", database.path.display());
        if let Some(error) = &database.error {
            self.finding(error);
            return;
        }
        let shown = database.column_families.len();
        let more = match database.column_families_total.saturating_sub(shown) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = database.column_families.join(", ");
        self.property("", format_args!("{} SST files; column families {names}{more}", database.sst_files));
    }
}

fn probe_words(probe: &ProbeReport) -> String {
    let Some(site) = &probe.site else { return format!("{:13} not found", probe.function) };
    let price =
        probe.price_ns.map_or_else(|| "price unknown".to_owned(), |price| format!("{price} ns a call"));
    let mechanism = probe.mechanism.unwrap_or("nothing: it cannot be placed");
    format!("{:13} {price}, placed by {mechanism}, {}", probe.function, site_words(site))
}

fn site_words(site: &ProbeSite) -> String {
    format!("{}, at {:#x} of the file, found by {}", site.kind, site.file_offset, site.found_by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{KernelReport, RefusedProcess};
    use sexton_inspect::error::InspectError;

    fn report() -> Report {
        let findings = vec![
            Finding::yes("ring buffers", "records come out of the kernel"),
            Finding::no("uprobe sessions", "cheaper", "came with Linux 6.13", "nothing to do"),
        ];
        let kernel = KernelReport { release: "6.1.0".into(), mechanism: Some("multi".into()), findings };
        let error = InspectError::NoRocksDb { pid: 7, hint: Some("evil\u{1b}[2J".into()) };
        Report::new(kernel, Vec::new(), Vec::new(), vec![RefusedProcess::new(&error, true)])
    }

    #[test]
    fn the_text_is_aligned_and_ends_with_the_summary() {
        let text = text(&report());
        assert!(text.contains("\n  yes     ring buffers                     records come"), "{text}");
        assert!(
            text.contains("\n  no      uprobe sessions                  cheaper\n          came with"),
            "{text}"
        );
        assert!(text.lines().last().is_some_and(|line| line.starts_with("  NOT OK: missing: ")), "{text}");
    }

    #[test]
    fn control_characters_of_a_target_are_not_printed() {
        assert!(!text(&report()).contains('\u{1b}'));
    }
}

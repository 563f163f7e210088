//! `sexton history`: what readers lost in each column family over time, and what was compacted.

use super::asked_agent::AskedAgent;
use super::print_json;
use crate::failure::Failure;
use crate::history::{FamiliesView, FamilyView, TimesView};
use crate::text::print_line;
use clap::Args;
use jiff::Timestamp;
use sexton_tuner::words;

/// Arguments of `sexton history`.
#[derive(Args, Debug)]
pub struct HistoryArguments {
    #[command(flatten)]
    agent: AskedAgent,
    /// How far back, such as 8h or 7d; five weeks are kept.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = read_span)]
    since: u64,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Print comma-separated values with a line of headings instead of text.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

fn read_span(text: &str) -> Result<u64, String> {
    let span: jiff::Span = text.parse().map_err(|error: jiff::Error| format!("{error}; write 8h or 7d"))?;
    let length = span.total((jiff::Unit::Second, jiff::SpanRelativeTo::days_are_24_hours()));
    let seconds = length.map_err(|error| format!("{error}; write 8h or 7d"))?;
    // Out of this range the agent says so.
    if seconds >= 1.0 { Ok(seconds as u64) } else { Err("write a time back, such as 8h or 7d".to_owned()) }
}

const HEADINGS: &str = "begin,length_seconds,target,database,column_family,pain_seconds,pain_seconds_per_second_max,\
                        operations,tombstones_skipped,block_misses,bytes_compacted,actions,lists,\
                        list_p50_seconds,list_p99_seconds,seek_p50_seconds,seek_p99_seconds";

/// Prints what the agent has.
/// Errors: when there is no agent to ask.
pub fn run(arguments: &HistoryArguments) -> Result<(), Failure> {
    let client = arguments.agent.client()?;
    let history: FamiliesView = client.get(&format!("/api/v1/history?span_seconds={}", arguments.since))?;
    if arguments.json {
        return print_json(&history);
    }
    if arguments.csv {
        print_line(HEADINGS);
        history.rows.iter().for_each(|row| print_line(csv_line(row)));
        return Ok(());
    }
    if history.rows.is_empty() {
        println!("No reader was seen to lose time since then.");
    }
    for row in &history.rows {
        print_line(line(row));
    }
    if history.families_left_out > 0 {
        println!("{} more column families, in which readers lost less", history.families_left_out);
    }
    Ok(())
}

fn time_of(row: &FamilyView) -> String {
    Timestamp::from_second(row.begin_unix_seconds).map_or_else(|_| "?".to_owned(), |at| at.to_string())
}

fn line(row: &FamilyView) -> String {
    let lost = format!(
        "{} {:>6}  {} lost, {} tombstones, {} misses",
        time_of(row),
        words::span(row.length_seconds),
        words::seconds(row.counted.pain_seconds),
        words::count(row.counted.tombstones_skipped as u64),
        words::count(row.counted.block_misses as u64),
    );
    let acted = match row.counted.actions as u64 {
        0 => String::new(),
        actions => {
            format!(", {actions} actions rewrote {}", words::bytes(row.counted.bytes_compacted as u64))
        }
    };
    let took = row.times.list_p99_seconds.map_or_else(String::new, |seconds| {
        format!(", 99 of 100 lists took at most {}", words::seconds(seconds))
    });
    format!("{lost}{took}{acted}  {} {} {}", row.target, row.database, row.column_family)
}

fn csv_line(row: &FamilyView) -> String {
    let names = [&row.target, &row.database, &row.column_family].map(|name| quoted(name)).join(",");
    let counted = &row.counted;
    let counts = [
        counted.pain_seconds,
        counted.pain_seconds_per_second_max,
        counted.operations,
        counted.tombstones_skipped,
        counted.block_misses,
        counted.bytes_compacted,
        counted.actions,
    ];
    let counts = counts.map(|count| count.to_string()).join(",");
    let TimesView { lists, list_p50_seconds, list_p99_seconds, seek_p50_seconds, seek_p99_seconds } =
        row.times;
    let times = [list_p50_seconds, list_p99_seconds, seek_p50_seconds, seek_p99_seconds];
    let times =
        times.map(|seconds| seconds.map_or_else(String::new, |seconds| seconds.to_string())).join(",");
    format!("{},{},{names},{counts},{lists},{times}", time_of(row), row.length_seconds)
}

/// RFC 4180; what a spreadsheet would take for a formula is marked as text.
fn quoted(text: &str) -> String {
    let mark = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    if mark.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        return text.to_owned();
    }
    format!("\"{mark}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::history::CountedView;

    fn row() -> FamilyView {
        FamilyView {
            begin_unix_seconds: 1_790_000_000,
            length_seconds: 60,
            target: "java-1".into(),
            database: "/db, \"two\"".into(),
            column_family: "=1+1".into(),
            counted: CountedView {
                pain_seconds: 1.5,
                pain_seconds_per_second_max: 0.5,
                operations: 3.0,
                tombstones_skipped: 1e6,
                block_misses: 0.0,
                bytes_compacted: 1048576.0,
                actions: 1.0,
            },
            times: TimesView {
                lists: 7,
                list_p50_seconds: Some(0.25),
                list_p99_seconds: Some(0.5),
                ..TimesView::default()
            },
        }
    }

    #[test]
    fn times_back() {
        assert_eq!(read_span("90m"), Ok(5_400));
        assert_eq!(read_span("5w"), Ok(3_024_000));
        assert!(read_span("-1h").is_err() && read_span("later").is_err() && read_span("1y").is_err());
    }

    #[test]
    fn a_row_as_text_and_as_csv() {
        let expected = "2026-09-21T14:13:20Z     1m  1.5 s lost, 1,000,000 tombstones, 0 misses, 99 of 100 lists took at most 500.0 ms, 1 actions rewrote 1.0 MiB  \
                        java-1 /db, \"two\" =1+1";
        assert_eq!(line(&row()), expected);
        let expected = "2026-09-21T14:13:20Z,60,java-1,\"/db, \"\"two\"\"\",\"'=1+1\",1.5,0.5,3,1000000,0,1048576,1,7,0.25,0.5,,";
        assert_eq!(csv_line(&row()), expected);
        assert_eq!(HEADINGS.split(',').count(), 17);
    }
}

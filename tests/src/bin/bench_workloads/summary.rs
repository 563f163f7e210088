//! What all runs of a bench come to: medians by workload and contender, and the figures that are promised.

use crate::columns::{self, COLUMNS};
use crate::contender::{Contender, DENSITY, NOTHING, SEXTON, contenders};
use crate::order::Healthy;
use crate::results::{Common, Results, Run};
use crate::workload::{self, Workload};
use anyhow::Result;
use serde_json::{Value, json};

/// See [`ratio`].
const RATIO_TERM_MIN: f64 = 1e-3;

/// All runs of a contender on a workload.
pub struct Row {
    pub contender: Contender,
    pub runs: Vec<Run>,
    healthy: Healthy,
}

/// All that was measured on a workload.
pub struct Table {
    pub workload: Workload,
    pub rows: Vec<Row>,
}

impl Row {
    /// The median of a column over the repetitions; of an even number the mean of the two in the middle.
    pub fn median(&self, column: &str) -> Option<f64> {
        let values = self.runs.iter().filter_map(|run| columns::value(column, run, &self.healthy));
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
        Some((low + high) / 2.0)
    }

    fn line(&self) -> String {
        let shown = COLUMNS.iter().filter(|column| !column.heading.is_empty());
        let cells: Vec<String> = shown
            .map(|column| {
                let value = self.median(column.name);
                value.map_or(String::new(), |value| format!("{:.*}", column.decimals, value / column.divisor))
            })
            .collect();
        format!("| {} | {} | {} |", self.contender.name, self.runs.len(), cells.join(" | "))
    }

    /// The raw figures, one line a run.
    fn lines(&self, workload: &Workload) -> Vec<String> {
        let line = |run: &Run| {
            let cells: Vec<String> = COLUMNS
                .iter()
                .map(|column| {
                    (column.value)(run, &self.healthy).map(|value| value.to_string()).unwrap_or_default()
                })
                .collect();
            let Contender { name, kind, .. } = &self.contender;
            format!("{},{kind},{name},{},{}", workload.name, run.repetition, cells.join(","))
        };
        self.runs.iter().map(line).collect()
    }
}

impl Table {
    /// What a bench's directory holds of a workload; `None` where that is nothing.
    fn of(results: &Results, common: &Common, workload: Workload, repetitions: u32) -> Result<Option<Table>> {
        let Some(healthy) = results.healthy(&workload)? else { return Ok(None) };
        let mut rows = Vec::new();
        for contender in contenders(&workload, common.scale) {
            let mut runs = Vec::new();
            for repetition in 1..=repetitions {
                runs.extend(results.run(&workload, &contender.name, repetition)?);
            }
            if !runs.is_empty() {
                rows.push(Row { contender, runs, healthy });
            }
        }
        Ok((!rows.is_empty()).then_some(Table { workload, rows }))
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.contender.name == name)
    }

    fn median(&self, name: &str, column: &str) -> Option<f64> {
        self.row(name)?.median(column)
    }

    /// How many times as much of a column one contender has as another.
    fn ratio(&self, column: &str, of: &str, over: &str) -> Option<f64> {
        Some(ratio(self.median(of, column)?, self.median(over, column)?))
    }

    pub fn markdown(&self) -> String {
        let headings = COLUMNS.iter().map(|column| column.heading).filter(|heading| !heading.is_empty());
        let headings: Vec<&str> = ["contender", "runs"].into_iter().chain(headings).collect();
        let lines: Vec<String> = self.rows.iter().map(Row::line).collect();
        format!(
            "## {}: {}\n\n| {} |\n|{}\n{}\n",
            self.workload.name,
            self.workload.what,
            headings.join(" | "),
            "---|".repeat(headings.len()),
            lines.join("\n")
        )
    }

    /// Time that readers lose with Sexton, over the least that they lose with any other contender which
    /// rewrites at most twice as much.
    fn lost_over_contender(&self) -> Option<f64> {
        let (column, bytes) = ("reader_seconds_lost", "compaction_written_bytes");
        let most = self.median(SEXTON, bytes)? * 2.0;
        let others = self.rows.iter().filter(|row| !row.contender.is_sexton());
        let cheap = others.filter(|row| row.median(bytes).is_some_and(|written| written <= most));
        let least = cheap.filter_map(|row| row.median(column)).min_by(f64::total_cmp)?;
        Some(ratio(self.median(SEXTON, column)?, least))
    }

    /// 99th percentile of lists with Sexton, over the least that any alternative has.
    fn list_p99_over_best(&self) -> Option<f64> {
        let others = self.rows.iter().filter(|row| row.contender.is_alternative());
        let least = others.filter_map(|row| row.median("list_p99_ns")).min_by(f64::total_cmp)?;
        Some(ratio(self.median(SEXTON, "list_p99_ns")?, least))
    }

    /// What Sexton rewrote, by what the databases held.
    fn rewritten_share(&self) -> Option<f64> {
        let column = |name| self.median(SEXTON, name);
        Some(column("agent_rewritten_bytes")? / column("sst_bytes_before")?.max(1.0))
    }
}

/// The tables of all workloads that a bench's directory holds anything of.
pub fn tables(results: &Results, common: &Common, repetitions: u32) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for workload in workload::all() {
        tables.extend(Table::of(results, common, workload, repetitions)?);
    }
    Ok(tables)
}

/// All runs, one a line: for other programs.
pub fn csv(tables: &[Table]) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    let heading = format!("workload,kind,contender,repetition,{}", names.join(","));
    let rows = tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    let lines = rows.flat_map(|(table, row)| row.lines(&table.workload));
    std::iter::once(heading).chain(lines).map(|line| line + "\n").collect()
}

/// The figures that are promised; `null` where their runs are missing.
pub fn promises(tables: &[Table]) -> Value {
    let table = |name: &str| tables.iter().find(|table| table.workload.name == name);
    let queue = |value: &dyn Fn(&Table) -> Option<f64>| table("queue_1e7").and_then(value);
    let worst = |is_one: fn(&Workload) -> bool, value: &dyn Fn(&Table) -> Option<f64>| {
        let wanted = tables.iter().filter(|table| is_one(&table.workload));
        wanted.filter_map(value).max_by(f64::total_cmp)
    };
    let is_between_b_and_g = |workload: &Workload| ('b'..='g').contains(&workload.letter);
    let lost_over_density = |table: &Table| table.ratio("reader_seconds_lost", SEXTON, DENSITY);
    // The least throughput is the greatest of what is missing.
    let slowdown = |table: &Table| table.ratio("operations_per_second", NOTHING, SEXTON);
    json!({
        "queue_1e7_list_mean_ratio": shown(queue(&|table| table.ratio("list_mean_ns", NOTHING, SEXTON))),
        "queue_1e7_seek_mean_ratio": shown(queue(&|table| table.ratio("seek_mean_ns", NOTHING, SEXTON))),
        "queue_1e7_list_p99_over_best_contender": shown(queue(&Table::list_p99_over_best)),
        "queue_1e7_write_p99_ratio": shown(queue(&|table| table.ratio("write_p99_ns", SEXTON, NOTHING))),
        "reader_seconds_lost_over_density_worst": shown(worst(is_between_b_and_g, &lost_over_density)),
        "reader_seconds_lost_over_contender_worst": shown(worst(is_between_b_and_g, &Table::lost_over_contender)),
        "wrong_answer_bytes_share_worst": shown(worst(Workload::is_for_something_else, &Table::rewritten_share)),
        "ycsb_throughput_ratio_worst": shown(worst(Workload::is_ycsb, &slowdown).map(|ratio| 1.0 / ratio)),
    })
}

/// What is too little to be told apart counts as equal: a thousandth, of seconds lost and of any larger unit.
fn ratio(of: f64, over: f64) -> f64 {
    of.max(RATIO_TERM_MIN) / over.max(RATIO_TERM_MIN)
}

/// Four digits behind the point: more is noise.
fn shown(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 10_000.0).round() / 10_000.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::order::{Latencies, Measured, Second};
    use crate::workload::Scale;

    fn table(name: &str, figures: &[(&str, u64, u64)]) -> Table {
        let workload = workload::selected(name).unwrap().remove(0);
        let known = contenders(&workload, Scale::Full);
        let rows = figures.iter().map(|(name, list_ms, written_bytes)| {
            let list_ns = &(list_ms * 1_000_000);
            let second = Second { lists: 1, list_ns: *list_ns, ..Second::default() };
            let list =
                Latencies { count: 1, mean_ns: *list_ns as f64, p99_ns: *list_ns, ..Latencies::default() };
            let measured = Measured {
                list,
                seconds: vec![second],
                compaction_written_bytes: *written_bytes,
                ..Measured::default()
            };
            let contender = known.iter().find(|contender| contender.name == *name).unwrap().clone();
            let run = Run { contender: contender.name.clone(), repetition: 1, measured, ..Run::default() };
            Row { contender, runs: vec![run], healthy: Healthy::default() }
        });
        Table { rows: rows.collect(), workload }
    }

    #[test]
    fn promises_are_held_against_those_they_are_about() {
        let queue = table(
            "queue_1e7",
            &[(NOTHING, 5_000, 0), (SEXTON, 10, 50), ("collector", 20, 10), ("density", 5, 1)],
        );
        let stores = table(
            "stores",
            &[(SEXTON, 40, 100), (DENSITY, 400, 100), ("full_compaction", 4, 300), ("collector", 80, 200)],
        );
        let index = table("index", &[(SEXTON, 30, 100), (DENSITY, 60, 100), ("versions_rate", 60, 0)]);
        let promises = promises(&[queue, stores, index]);
        let value = |name: &str| promises[name].as_f64();
        assert_eq!(value("queue_1e7_list_mean_ratio"), Some(500.0));
        assert_eq!(value("queue_1e7_list_p99_over_best_contender"), Some(0.5));
        assert_eq!(value("reader_seconds_lost_over_density_worst"), Some(0.5));
        assert_eq!(value("reader_seconds_lost_over_contender_worst"), Some(0.5));
        assert_eq!(promises["ycsb_throughput_ratio_worst"], Value::Null);
        assert_eq!(promises.as_object().unwrap().len(), 8);
    }

    #[test]
    fn medians_of_odd_and_even_numbers() {
        let mut row = table("index", &[(SEXTON, 30, 100)]).rows.remove(0);
        for took in [4.0, 1.0, 2.0] {
            row.runs.push(Run { took_seconds: took, ..Run::default() });
        }
        assert_eq!(row.median("took_seconds"), Some(1.5));
        row.runs.remove(0);
        assert_eq!(row.median("took_seconds"), Some(2.0));
        assert_eq!(row.median("agent_actions"), None);
    }

    #[test]
    fn a_line_of_the_file_has_a_cell_for_each_name() {
        let csv = csv(&[table("index", &[(SEXTON, 30, 100), (DENSITY, 60, 100)])]);
        let cells: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(cells, vec![COLUMNS.len() + 4; 3]);
    }
}

//! A target's databases: what can be read of them from their directories.

use super::finding::Finding;
use super::report::DatabaseReport;
use sexton_inspect::facts::DatabaseDirectory;
use sexton_sst::{Place, read_database};

/// Names of column families that are listed of one database: a screenful; the total is always said.
pub const COLUMN_FAMILIES_SHOWN_MAX: usize = 50;

/// Databases of one target that are opened: each takes a child process and up to seconds.
pub const DATABASES_READ_MAX: usize = 32;

/// Reads all databases of a target, up to a limit.
pub fn reports(databases: &[DatabaseDirectory]) -> Vec<DatabaseReport> {
    databases
        .iter()
        .enumerate()
        .map(|(index, database)| report(database, index < DATABASES_READ_MAX))
        .collect()
}

fn report(database: &DatabaseDirectory, is_read: bool) -> DatabaseReport {
    let mut report = DatabaseReport {
        path: database.path.clone(),
        column_families: Vec::new(),
        column_families_total: 0,
        sst_files: 0,
        error: None,
    };
    let (name, note) = ("SST statistics", "says what a compaction would rewrite, and where deletions lie");
    if !is_read {
        let reason = format!("only the first {DATABASES_READ_MAX} databases of a process are opened here");
        report.error = Some(Finding::unknown(name, note, reason, "nothing to do: sexton run reads them all"));
        return report;
    }
    match read_database(Place { path: &database.path_from_agent, identity: database.place() }) {
        Ok(read) => {
            report.column_families_total = read.column_families.len();
            report.sst_files = read.files.len();
            report.column_families = read
                .column_families
                .into_iter()
                .take(COLUMN_FAMILIES_SHOWN_MAX)
                .map(|family| family.name)
                .collect();
        }
        Err(error) => {
            let remedy =
                "see the reason, which says what to do; without it, ranges are ranked by reads alone";
            report.error = Some(Finding::no(name, note, error.to_string(), remedy));
        }
    }
    report
}

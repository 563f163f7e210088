//! The executor `sql`: MyRocks, by statements to its server.
//!
//! `SET GLOBAL rocksdb_compact_cf` compacts a whole column family, with the bottommost level forced, and
//! returns when that has ended. No statement takes a range of keys, and `OPTIMIZE TABLE`, which takes a
//! table, locks it. Nothing stops a compaction that runs.

use super::bounded::{Ending, RunningCommand};
use super::error::ExecuteError;
use super::executor::{Executor, Job, Jobs, POLL_INTERVAL};
use super::sql_client::{self, SqlClient};
use super::sql_trouble::SqlTrouble;
use super::task::{CompactTask, JobEnd, JobId, JobOutcome, JobStatus, Progress, Task};
use sexton_inspect::facts::ProcessId;
use sexton_tuner::policy::{SqlPolicy, TargetPolicy};
use std::time::Duration;

/// Compacts column families of a MyRocks server.
pub struct SqlExecutor {
    client: SqlClient,
    time_limit: Duration,
    jobs: Jobs,
}

/// What a server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// Manual compactions that run in it.
    pub manual_compactions: u64,
    /// Whether the user's own grants say that it may set what has to be set.
    pub may_set: bool,
}

impl SqlExecutor {
    /// For the target that the policy's entry is about.
    ///
    /// # Errors
    /// [`ExecuteError::Request`] where the entry names no server.
    pub fn of(entry: &TargetPolicy) -> Result<SqlExecutor, ExecuteError> {
        let reason =
            || ExecuteError::Request { reason: "the policy does not say where the server is".into() };
        let policy = entry.sql.as_ref().ok_or_else(reason)?;
        Ok(SqlExecutor::new(policy, entry.commands_user.as_deref()))
    }

    /// Over a connection to the server that the policy names; the client program is the `user`'s.
    pub fn new(policy: &SqlPolicy, user: Option<&str>) -> SqlExecutor {
        let (client, time_limit) = (SqlClient::new(policy, user), policy.timeout.duration());
        SqlExecutor { client, time_limit, jobs: Jobs::default() }
    }

    /// Asks the server of a process how it stands; changes nothing.
    ///
    /// # Errors
    /// [`ExecuteError::Sql`] where it is another server, does not let the agent in, or has no MyRocks.
    pub fn examine(&self, process: &ProcessId) -> Result<ServerState, ExecuteError> {
        self.client.check_server(process)?;
        let answer = self.client.ask(
            &format!(
                "SELECT @@GLOBAL.rocksdb_compact_cf IS NOT NULL, {RUNNING}, (SELECT COUNT(*) FROM \
                 information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'SUPER' AND GRANTEE = \
                 CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), ''''))"
            ),
            3,
        )?;
        let number = |at: usize| answer.get(at).and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(ServerState { manual_compactions: number(1), may_set: number(2) > 0 })
    }
}

/// A statement's column with the number of manual compactions that run.
const RUNNING: &str = "(SELECT COALESCE(MAX(VARIABLE_VALUE + 0), 0) FROM information_schema.GLOBAL_STATUS WHERE \
                       VARIABLE_NAME = 'ROCKSDB_MANUAL_COMPACTIONS_RUNNING')";

fn compact(column_family: &str) -> String {
    format!("SET GLOBAL rocksdb_compact_cf = {}", literal(column_family))
}

/// Whether a name stands for itself between quotes, in SQL and in a shell.
fn is_plain(name: &str) -> bool {
    name.chars().all(|character| character.is_ascii_alphanumeric() || "_-.:/ ".contains(character))
}

/// A name as SQL; what could be read in two ways (`sql_mode` decides about backslashes), by its bytes.
fn literal(name: &str) -> String {
    if is_plain(name) {
        return format!("'{name}'");
    }
    let digits: String = name.bytes().map(|byte| format!("{byte:02X}")).collect();
    format!("X'{digits}'")
}

impl Executor for SqlExecutor {
    /// Compacts all of the column family, whatever the range. The server has to be the target's own.
    fn start(&mut self, task: &Task) -> Result<JobId, ExecuteError> {
        let Task::Compact(CompactTask { process, column_family, .. }) = task else {
            return Err(ExecuteError::Unsupported { executor: "sql", what: "do anything but compact" });
        };
        if column_family.is_empty() {
            // MyRocks would take it for the default one.
            return Err(ExecuteError::Request { reason: "the column family has no name".to_owned() });
        }
        self.client.check_server(process)?;
        let name = literal(column_family);
        let running = self.client.question(&format!(
            "SELECT COUNT(*), {RUNNING} FROM information_schema.ROCKSDB_CFSTATS WHERE \
             CAST(CF_NAME AS BINARY) = CAST({name} AS BINARY)"
        ))?;
        let (client, column_family) = (self.client.clone(), column_family.clone());
        let time_limit = self.time_limit;
        Ok(self.jobs.add(Compaction { client, column_family, time_limit, running, is_checked: false }))
    }

    fn jobs(&mut self) -> &mut Jobs {
        &mut self.jobs
    }

    fn can_stop(&self) -> bool {
        false
    }

    fn describe(&self, task: &Task) -> Vec<String> {
        let Task::Compact(CompactTask { column_family: name, .. }) = task else { return Vec::new() };
        match self.client.command_line(&compact(name), is_plain(name)) {
            Ok(line) => vec![line],
            Err(error) => vec![format!("# {error}")],
        }
    }
}

/// A compaction of a column family: the question whether it can be done, then the statement.
struct Compaction {
    client: SqlClient,
    column_family: String,
    time_limit: Duration,
    running: RunningCommand,
    is_checked: bool,
}

impl Compaction {
    /// Whether the server has the column family, and does not compact for anybody else.
    fn check(&self, answer: &[String]) -> Result<(), ExecuteError> {
        let fail = |trouble, message| Err(ExecuteError::Sql { trouble, message });
        match answer.iter().map(|text| text.parse().unwrap_or(0u64)).collect::<Vec<_>>().as_slice() {
            // An unknown name would be passed over in silence.
            [0, ..] => fail(
                SqlTrouble::NoColumnFamily,
                format!("MyRocks has no column family {}", self.column_family),
            ),
            [_, running] if *running > 0 => {
                fail(SqlTrouble::Busy, "a manual compaction runs in the server already".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn step(&mut self) -> Result<Option<JobOutcome>, ExecuteError> {
        let Some(run) = sql_client::poll(&mut self.running)? else { return Ok(None) };
        let cancelled = |reason: &str| JobEnd::Cancelled { reason: reason.to_owned() };
        let end = match (run.ending, self.is_checked) {
            (Ending::Cancelled, false) => cancelled("it was asked for"),
            (_, false) => {
                self.check(&sql_client::row(run, 2)?)?;
                self.running = self.client.start(&compact(&self.column_family), self.time_limit)?;
                self.is_checked = true;
                return Ok(None);
            }
            (Ending::Ended(_), true) => JobEnd::Done,
            (Ending::Cancelled, true) => {
                cancelled("it was asked for; MyRocks stops no compaction, so it goes on in the server")
            }
            (Ending::TimedOut, true) => {
                let message = format!(
                    "the compaction was not over after {:?}, and goes on in the server",
                    self.time_limit
                );
                return Err(ExecuteError::Sql { trouble: SqlTrouble::GoesOn, message });
            }
        };
        Ok(Some(JobOutcome { end, duration: run.duration, ..JobOutcome::default() }))
    }
}

impl Job for Compaction {
    fn poll(&mut self) -> JobStatus {
        let running = || JobStatus::Running(Progress { poll_again_in: POLL_INTERVAL, ..Progress::default() });
        self.step().transpose().map_or_else(running, JobStatus::Ended)
    }

    /// Ends the waiting and not the compaction.
    fn cancel(&mut self) {
        self.running.cancel();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::exec::tests::request;
    use super::super::sql_client::tests::policy;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_command_names_the_column_family() {
        let executor = SqlExecutor::new(&policy("socket: /run/mysqld/mysqld.sock, user: sexton"), None);
        let mut request = request(b"a", Some(b"b"));
        request.column_family = "rev:cf_1".into();
        assert_eq!(
            executor.describe(&Task::Compact(request.clone())),
            [
                "mariadb --socket=/run/mysqld/mysqld.sock --user=sexton -e \"SET GLOBAL rocksdb_compact_cf = 'rev:cf_1'\""
            ]
        );
        request.column_family = "it's".into();
        let line = executor.describe(&Task::Compact(request.clone())).remove(0);
        assert!(line.ends_with("-e 'SET GLOBAL rocksdb_compact_cf = X'\\''69742773'\\'''"), "{line}");
        assert!(!executor.can_stop());
    }

    #[test]
    fn a_column_family_without_a_name_is_not_the_default_one() {
        let mut executor = SqlExecutor::new(&policy("socket: /none"), None);
        let mut request = request(b"", None);
        request.column_family.clear();
        let error = executor.start(&Task::Compact(request.clone())).unwrap_err();
        assert!(error.to_string().contains("no name"), "{error}");
        request.column_family = "default".into();
        let error = executor.start(&Task::Compact(request.clone())).unwrap_err();
        assert!(error.to_string().contains("/none") && error.remedy().contains("sql.socket"), "{error}");
    }

    proptest! {
        /// Whatever a column family is called, its name cannot end the literal.
        #[test]
        fn a_name_stays_inside_its_literal(name in "\\PC{0,20}") {
            let literal = literal(&name);
            let inside = literal.trim_start_matches('X').strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            prop_assert!(inside.is_some_and(|inside| !inside.contains(['\'', '\\', '"', '$', '`'])), "{literal}");
        }
    }
}

//! The actuator `sql`: MyRocks, by statements to its server.
//!
//! `SET GLOBAL rocksdb_compact_cf` compacts a whole column family, with the bottommost level forced, and returns when
//! that has ended. No statement takes a range of keys, and `OPTIMIZE TABLE`, which takes a table, locks it. Nothing
//! stops a compaction that runs.

use super::Actuator;
use super::bounded::Ending;
use super::error::ActuatorError;
use super::request::{CompactEnd, CompactOutcome, CompactRequest, ThrottleOutcome, ThrottleRequest};
use super::sql_client::SqlClient;
use super::sql_trouble::SqlTrouble;
use sexton_inspect::facts::ProcessId;
use sexton_tuner::policy::SqlPolicy;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Compacts column families of a MyRocks server.
#[derive(Clone, Debug)]
pub struct SqlActuator {
    client: SqlClient,
    time_limit: Duration,
}

/// What a server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// Manual compactions that run in it.
    pub manual_compactions: u64,
    /// Whether the user's own grants say that it may set what has to be set.
    pub may_set: bool,
}

impl SqlActuator {
    /// Over a connection to the server that the policy names.
    pub fn new(policy: &SqlPolicy) -> SqlActuator {
        SqlActuator { client: SqlClient::new(policy), time_limit: policy.timeout.duration() }
    }

    /// Asks the server of a process how it stands; changes nothing.
    ///
    /// # Errors
    /// [`ActuatorError::Sql`] where it is another server, does not let the agent in, or has no MyRocks.
    pub fn examine(&self, process: &ProcessId) -> Result<ServerState, ActuatorError> {
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

    /// Whether the server is the target's own, has the column family, and does not compact for anybody else.
    fn check(&self, request: &CompactRequest) -> Result<(), ActuatorError> {
        self.client.check_server(&request.process)?;
        let name = literal(&request.column_family);
        let answer = self.client.ask(
            &format!(
                "SELECT COUNT(*), {RUNNING} FROM information_schema.ROCKSDB_CFSTATS WHERE \
                 CAST(CF_NAME AS BINARY) = CAST({name} AS BINARY)"
            ),
            2,
        )?;
        let fail = |trouble, message| Err(ActuatorError::Sql { trouble, message });
        match answer.iter().map(|text| text.parse().unwrap_or(0u64)).collect::<Vec<_>>().as_slice() {
            // An unknown name would be passed over in silence.
            [0, ..] => fail(
                SqlTrouble::NoColumnFamily,
                format!("MyRocks has no column family {}", request.column_family),
            ),
            [_, running] if *running > 0 => {
                fail(SqlTrouble::Busy, "a manual compaction runs in the server already".to_owned())
            }
            _ => Ok(()),
        }
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

impl Actuator for SqlActuator {
    fn name(&self) -> &'static str {
        "sql"
    }

    /// Compacts all of the column family, whatever the range. Cancelling ends the waiting and not the compaction.
    fn compact_range(
        &mut self,
        request: &CompactRequest,
        cancelled: &AtomicBool,
    ) -> Result<CompactOutcome, ActuatorError> {
        if request.column_family.is_empty() {
            // MyRocks would take it for the default one.
            return Err(ActuatorError::Request { reason: "the column family has no name".to_owned() });
        }
        self.check(request)?;
        let run = self.client.run(&compact(&request.column_family), self.time_limit, cancelled)?;
        let end = match run.ending {
            Ending::Ended(_) => CompactEnd::Done,
            Ending::Cancelled => CompactEnd::Cancelled {
                reason: "it was asked for; MyRocks stops no compaction, so it goes on in the server"
                    .to_owned(),
            },
            Ending::TimedOut => {
                let message = format!(
                    "the compaction was not over after {:?}, and goes on in the server",
                    self.time_limit
                );
                return Err(ActuatorError::Sql { trouble: SqlTrouble::GoesOn, message });
            }
        };
        Ok(CompactOutcome {
            end,
            duration: run.duration,
            bytes_replaced: 0,
            bytes_flushed: 0,
            deletions_before: 0,
            deletions_after: 0,
            command: None,
        })
    }

    fn can_stop(&self) -> bool {
        false
    }

    fn set_throttle(&mut self, _setting: &ThrottleRequest) -> Result<ThrottleOutcome, ActuatorError> {
        Err(ActuatorError::Unsupported { actuator: "sql", what: "set a throttle" })
    }

    fn commands_for(&self, request: &CompactRequest) -> Vec<String> {
        let name = &request.column_family;
        match self.client.command_line(&compact(name), is_plain(name)) {
            Ok(line) => vec![line],
            Err(error) => vec![format!("# {error}")],
        }
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
        let actuator = SqlActuator::new(&policy("socket: /run/mysqld/mysqld.sock, user: sexton"));
        let mut request = request(b"a", Some(b"b"));
        request.column_family = "rev:cf_1".into();
        assert_eq!(
            actuator.commands_for(&request),
            [
                "mariadb --socket=/run/mysqld/mysqld.sock --user=sexton -e \"SET GLOBAL rocksdb_compact_cf = 'rev:cf_1'\""
            ]
        );
        request.column_family = "it's".into();
        let line = actuator.commands_for(&request).remove(0);
        assert!(line.ends_with("-e 'SET GLOBAL rocksdb_compact_cf = X'\\''69742773'\\'''"), "{line}");
        assert!(!actuator.can_stop());
    }

    #[test]
    fn a_column_family_without_a_name_is_not_the_default_one() {
        let mut actuator = SqlActuator::new(&policy("socket: /none"));
        let mut request = request(b"", None);
        request.column_family.clear();
        let error = actuator.compact_range(&request, &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains("no name"), "{error}");
        request.column_family = "default".into();
        let error = actuator.compact_range(&request, &AtomicBool::new(false)).unwrap_err();
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

//! A connection to a MyRocks server: MariaDB's own client program, one statement a run.
//!
//! What the statements mean is not known here. No password passes through the agent: the program reads it
//! from the file that the policy names.

use super::bounded::{Ending, Run, RunningCommand};
use super::error::ExecuteError;
use super::process::TargetProcess;
use super::sql_trouble::SqlTrouble;
use super::template::{ExpandedCommand, shell_word};
use super::words::one_line;
use procfs::net::TcpState;
use procfs::process::{FDInfo, FDTarget, Process};
use rustix::fs::AtFlags;
use sexton_inspect::facts::ProcessId;
use sexton_inspect::users::Account;
use sexton_tuner::policy::{SqlEndpoint, SqlPolicy};
use std::collections::HashSet;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The client program, as MariaDB 10.5 and later name it.
const PROGRAM: &str = "mariadb";

/// What the program is told on every run. A server may answer any statement with the wish for a file of the
/// client's; this client sends none.
const FIXED_ARGUMENTS: [&str; 4] = ["--batch", "--skip-column-names", "--skip-reconnect", "--local-infile=0"];

/// How long the program tries to connect: the server is on this node.
const CONNECT_TIMEOUT_SECONDS: u32 = 10;

/// How long a question may take that the server answers from memory.
const QUESTION_TIME_LIMIT: Duration = Duration::from_secs(30);

/// Mode bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// How statements get to one server.
#[derive(Clone, Debug)]
pub struct SqlClient {
    policy: SqlPolicy,
    /// Whose the client program is; `None`: the agent's user's.
    user: Option<String>,
}

impl SqlClient {
    /// To the server that the policy names.
    pub fn new(policy: &SqlPolicy, user: Option<&str>) -> SqlClient {
        SqlClient { policy: policy.clone(), user: user.map(str::to_owned) }
    }

    /// Makes sure that the server which listens is the process itself. Nobody is connected to: a connection
    /// without a login would be a warning in the server's log.
    ///
    /// # Errors
    /// [`ExecuteError::Sql`] where it is another one, or nobody listens.
    pub fn check_server(&self, process: &ProcessId) -> Result<(), ExecuteError> {
        let (place, listens) = match self.endpoint()? {
            SqlEndpoint::Socket(path) => {
                let socket = std::fs::metadata(path);
                let socket = socket.map_err(|error| unreachable(format!("no socket {path}: {error}")))?;
                (path.to_owned(), listens_at_socket(process, &socket))
            }
            SqlEndpoint::Address(host, port) => {
                (format!("port {port} of {host}"), listens_at_port(process, port))
            }
        };
        let message = match listens {
            Ok(true) => return Ok(()),
            Ok(false) => format!("process {} does not listen at {place}", process.pid),
            Err(error) => format!("cannot see where process {} listens: {error}", process.pid),
        };
        Err(ExecuteError::Sql { trouble: SqlTrouble::OtherServer, message })
    }

    /// Asks, and waits for the only row's columns.
    ///
    /// # Errors
    /// [`ExecuteError::Sql`] where the server cannot be asked, or gives something else than a row of
    /// `columns`.
    pub fn ask(&self, question: &str, columns: usize) -> Result<Vec<String>, ExecuteError> {
        let run = self.question(question)?.wait();
        row(ended(run.map_err(spawn_failed)?)?, columns)
    }

    pub fn question(&self, question: &str) -> Result<RunningCommand, ExecuteError> {
        self.start(question, QUESTION_TIME_LIMIT)
    }

    /// Begins to have a statement executed. Where its time is over, or it is cancelled, the server's part of
    /// it goes on.
    ///
    /// # Errors
    /// [`ExecuteError::Sql`] where the password's file is not to be trusted, or there is no client;
    /// [`ExecuteError::Spawn`].
    pub fn start(&self, statement: &str, time_limit: Duration) -> Result<RunningCommand, ExecuteError> {
        self.check_password_file()?;
        let mut arguments = self.connection()?;
        arguments.extend(FIXED_ARGUMENTS.map(str::to_owned));
        arguments.push(format!("--connect-timeout={CONNECT_TIMEOUT_SECONDS}"));
        arguments.push(format!("--execute={statement}"));
        let command = ExpandedCommand { program: PROGRAM.to_owned(), arguments, environment: Vec::new() };
        let running = RunningCommand::start(&command, self.user.as_deref(), time_limit);
        running.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ExecuteError::Sql {
                trouble: SqlTrouble::NoClient,
                message: format!("there is no program {PROGRAM}"),
            },
            _ => spawn_failed(source),
        })
    }

    /// The statement as a line that an operator would type. `is_plain`: nothing in it means anything to a
    /// shell that reads double quotes.
    pub fn command_line(&self, statement: &str, is_plain: bool) -> Result<String, ExecuteError> {
        let arguments = self.connection()?;
        // Whoever types it has option files of their own.
        let arguments = arguments.iter().filter(|argument| *argument != "--no-defaults");
        let words: Vec<String> = arguments.map(|argument| shell_word(argument)).collect();
        let statement = if is_plain { format!("\"{statement}\"") } else { shell_word(statement) };
        Ok(format!("{PROGRAM} {} -e {statement}", words.join(" ")))
    }

    /// Arguments that lead to the server; the one about option files has to be the first.
    fn connection(&self) -> Result<Vec<String>, ExecuteError> {
        let mut arguments = vec![match &self.policy.password_file {
            Some(path) => format!("--defaults-file={path}"),
            None => "--no-defaults".to_owned(),
        }];
        match self.endpoint()? {
            SqlEndpoint::Socket(path) => arguments.push(format!("--socket={path}")),
            SqlEndpoint::Address(host, port) => {
                arguments.extend([
                    "--protocol=tcp".into(),
                    format!("--host={host}"),
                    format!("--port={port}"),
                ]);
            }
        }
        arguments.push(format!("--user={}", self.policy.user));
        Ok(arguments)
    }

    fn endpoint(&self) -> Result<SqlEndpoint<'_>, ExecuteError> {
        self.policy.endpoint().ok_or_else(|| ExecuteError::Sql {
            trouble: SqlTrouble::Refused,
            message: "the policy does not say where the server is".to_owned(),
        })
    }

    /// A password that others can read is none, and a file that others can write could have the program load
    /// a plugin of theirs.
    fn check_password_file(&self) -> Result<(), ExecuteError> {
        let Some(path) = &self.policy.password_file else { return Ok(()) };
        let wrong = |reason: String| ExecuteError::Sql {
            trouble: SqlTrouble::PasswordFile,
            message: format!("password file {path}: {reason}"),
        };
        let metadata = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
        let own = rustix::process::geteuid().as_raw();
        let account = self.user.as_deref().map(Account::named).transpose();
        let of_user = account.map_err(|error| wrong(error.to_string()))?.flatten();
        let is_of_user = of_user.is_some_and(|account| account.user_id == metadata.uid());
        if metadata.uid() != 0 && metadata.uid() != own && !is_of_user {
            return Err(wrong(format!("it belongs to user {}", metadata.uid())));
        }
        match metadata.mode() & OTHERS {
            0 => Ok(()),
            _ => Err(wrong(format!("others may use it (mode {:03o})", metadata.mode() & 0o777))),
        }
    }
}

/// What came of a run of the client once it has ended; `None` while it has not.
pub fn poll(running: &mut RunningCommand) -> Result<Option<Run>, ExecuteError> {
    running.poll().map_err(spawn_failed)?.map(ended).transpose()
}

fn spawn_failed(source: io::Error) -> ExecuteError {
    ExecuteError::Spawn { program: PROGRAM.to_owned(), source }
}

/// A run of the client; one that the server has refused is an error with its words.
fn ended(run: Run) -> Result<Run, ExecuteError> {
    match run.ending {
        Ending::Ended(status) if !status.success() => {
            let message = one_line(&run.output);
            Err(ExecuteError::Sql { trouble: SqlTrouble::of_client(&message), message })
        }
        _ => Ok(run),
    }
}

/// The only row's columns of an answer.
pub fn row(run: Run, columns: usize) -> Result<Vec<String>, ExecuteError> {
    if run.ending == Ending::TimedOut {
        return Err(unreachable(format!("it gave no answer within {QUESTION_TIME_LIMIT:?}")));
    }
    let row: Vec<String> =
        run.output.lines().next().unwrap_or_default().split('\t').map(str::to_owned).collect();
    if row.len() == columns {
        return Ok(row);
    }
    let message = format!("an answer of {} columns, not {columns}", row.len());
    Err(ExecuteError::Sql { trouble: SqlTrouble::Refused, message })
}

fn unreachable(message: String) -> ExecuteError {
    ExecuteError::Sql { trouble: SqlTrouble::Unreachable, message }
}

/// Whether the process holds the socket that lies in this file; the path it was bound to is the process' own
/// word.
fn listens_at_socket(process: &ProcessId, file: &Metadata) -> Result<bool, Box<dyn Error>> {
    let held = TargetProcess::open(process)?;
    let process = Process::new(i32::try_from(process.pid)?)?;
    let (own, directory) = (sockets_of(&process)?, process.cwd()?);
    let bound = process.unix()?.into_iter().filter(|entry| own.contains(&entry.inode));
    let mut paths = bound.filter_map(|entry| entry.path).map(|path| directory.join(path));
    Ok(paths.any(|path| {
        // Not what a link in the socket's place leads to.
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let stat = held
            .open_inside(directory)
            .and_then(|directory| Ok(rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?));
        stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (file.dev(), file.ino()))
    }))
}

/// Whether the process listens at the port, in our own network namespace.
fn listens_at_port(process: &ProcessId, port: u16) -> Result<bool, Box<dyn Error>> {
    let held = TargetProcess::open(process)?;
    let process = Process::new(i32::try_from(process.pid)?)?;
    let network = |process: &Process| -> Result<Option<u64>, procfs::ProcError> {
        let namespaces = process.namespaces()?.0;
        Ok(namespaces.get(OsStr::new("net")).map(|namespace| namespace.identifier))
    };
    if network(&process)? != network(&Process::myself()?)? {
        return Ok(false);
    }
    let own = sockets_of(&process)?;
    let mut entries = process.tcp()?.into_iter().chain(process.tcp6().unwrap_or_default());
    let listens = entries.any(|entry| {
        entry.state == TcpState::Listen && entry.local_address.port() == port && own.contains(&entry.inode)
    });
    // What was read was not that of another process with its id.
    Ok(listens && held.is_alive())
}

/// Inodes of the sockets that a process has open.
fn sockets_of(process: &Process) -> Result<HashSet<u64>, procfs::ProcError> {
    let socket = |descriptor: FDInfo| match descriptor.target {
        FDTarget::Socket(inode) => Some(inode),
        _ => None,
    };
    Ok(process.fd()?.filter_map(|descriptor| descriptor.ok().and_then(socket)).collect())
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::process::tests::own;
    use sexton_tuner::policy::Policy;
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    pub fn policy(sql: &str) -> SqlPolicy {
        let text =
            format!("targets: [{{ name: a, match: {{ pid: 1 }}, executor: sql, sql: {{ {sql} }} }}]\n");
        Policy::parse(&text).unwrap().targets.remove(0).sql.unwrap()
    }

    fn trouble(result: Result<(), ExecuteError>) -> SqlTrouble {
        match result.unwrap_err() {
            ExecuteError::Sql { trouble, .. } => trouble,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_line_is_one_that_an_operator_can_type() {
        let client = SqlClient::new(&policy("socket: /run/mysqld/mysqld.sock"), None);
        assert_eq!(
            client.command_line("SET GLOBAL a = 'b'", true).unwrap(),
            "mariadb --socket=/run/mysqld/mysqld.sock --user=root -e \"SET GLOBAL a = 'b'\""
        );
        let client = SqlClient::new(
            &policy("address: \"127.0.0.1:3306\", user: it's, password_file: /etc/s.cnf"),
            None,
        );
        assert_eq!(
            client.command_line("SET GLOBAL a = 'b'", false).unwrap(),
            "mariadb --defaults-file=/etc/s.cnf --protocol=tcp --host=127.0.0.1 --port=3306 '--user=it'\\''s' \
             -e 'SET GLOBAL a = '\\''b'\\'''"
        );
    }

    #[test]
    fn a_server_is_known_by_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let client = SqlClient::new(&policy(&format!("socket: {}", path.display())), None);
        assert_eq!(trouble(client.check_server(&own())), SqlTrouble::Unreachable);
        let listener = UnixListener::bind(&path).unwrap();
        client.check_server(&own()).unwrap();
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = sexton_inspect::process::process_id(other.id()).unwrap();
        assert_eq!(trouble(client.check_server(&process)), SqlTrouble::OtherServer);
        other.kill().unwrap();
        other.wait().unwrap();
        // The file stays, and nobody listens.
        drop(listener);
        assert_eq!(trouble(client.check_server(&own())), SqlTrouble::OtherServer);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = SqlClient::new(&policy(&format!("address: \"127.0.0.1:{port}\"")), None);
        client.check_server(&own()).unwrap();
        drop(listener);
        assert_eq!(trouble(client.check_server(&own())), SqlTrouble::OtherServer);
    }

    #[test]
    fn a_password_that_others_can_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mariadb.cnf");
        let client =
            SqlClient::new(&policy(&format!("socket: /none, password_file: {}", path.display())), None);
        assert_eq!(trouble(client.check_password_file()), SqlTrouble::PasswordFile);
        std::fs::write(&path, "[client]\npassword=x\n").unwrap();
        for (mode, is_good) in [(0o644, false), (0o620, false), (0o600, true), (0o400, true)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(client.check_password_file().is_ok(), is_good, "{mode:o}");
        }
    }
}

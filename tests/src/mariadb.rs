//! Debian's MariaDB with its MyRocks plugin as a program to observe: a private server on a socket in a
//! temporary directory, that no network and no other server of this machine has to do with.

use crate::artifact;
use crate::process::{Lines, Process};
use crate::truth::Truth;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Where `make setup` unpacks the plugin.
const PLUGIN: &str = "mariadb/usr/lib/mysql/plugin/ha_rocksdb.so";

/// The server is up within half a second here.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Filling the table takes some seconds.
const STATEMENT_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(50);

/// Printed behind each statement, to know where its rows end.
const END_OF_ROWS: &str = "--end of rows--";

/// What the server's package has its own tables made of.
const SYSTEM_TABLES: [&str; 2] =
    ["/usr/share/mysql/mysql_system_tables.sql", "/usr/share/mysql/mysql_system_tables_data.sql"];

#[derive(Debug)]
pub struct Server {
    process: Process,
    directory: PathBuf,
}

impl Server {
    /// Starts a server with no databases in `directory`, and waits until it answers.
    pub fn start(directory: &Path) -> Result<Server> {
        std::fs::create_dir(data(directory)).context("creating the server's directory")?;
        // Without its own tables there is nothing to create first; only we can reach the socket.
        Server::launch(directory, &["--skip-grant-tables"])
    }

    /// The same with users and grants: so far root alone, without a password.
    pub fn start_with_users(directory: &Path) -> Result<Server> {
        std::fs::create_dir(data(directory)).context("creating the server's directory")?;
        make_system_tables(directory)?;
        Server::launch(directory, &[])
    }

    fn launch(directory: &Path, arguments: &[&str]) -> Result<Server> {
        let plugin = artifact::tool(PLUGIN)?;
        let mut command = Command::new(artifact::installed("mariadbd", "mariadb-server-core")?);
        command.arg("--no-defaults").arg(option("datadir", &data(directory)));
        command.arg(option("socket", &socket(directory))).arg(option("pid-file", &directory.join("pid")));
        command.arg(option("plugin-dir", plugin.parent().context("the plugin has no directory")?));
        command.args(["--plugin-load-add=ha_rocksdb.so", "--plugin-maturity=unknown", "--user=root"]);
        command.args(["--skip-networking", "--skip-innodb"]).args(arguments);
        command.arg("--default-storage-engine=rocksdb");
        // So small a cache that most reads miss it. Compactions would drop the tombstones.
        command.arg("--rocksdb-block-cache-size=1M");
        command.arg("--rocksdb-default-cf-options=disable_auto_compactions=true");
        command.arg("--rocksdb-override-cf-options=default={disable_auto_compactions=true}");
        let log = File::create(directory.join("mariadb.log")).context("creating the server's log")?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut server = Server { process: Process::start(command)?, directory: directory.to_path_buf() };
        server.wait_for_answer()?;
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn socket(&self) -> PathBuf {
        socket(&self.directory)
    }

    /// A new connection, served by a thread of its own.
    pub fn connect(&self) -> Result<Session> {
        let mut command = Command::new(artifact::installed("mariadb", "mariadb-client-core")?);
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--unbuffered"]);
        command.arg(option("socket", &socket(&self.directory)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let stdout = Lines::of("mariadb", process.take_stdout().context("no standard output")?);
        let stderr = Lines::of("mariadb", process.take_stderr().context("no standard error")?);
        Ok(Session { process, stdin, stdout, stderr })
    }

    /// Shuts the server down in order.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::TERM)?;
        let status = self.process.wait(STOP_LIMIT)?;
        ensure!(status.success(), "mariadbd ended with {status}:\n{}", self.log());
        Ok(())
    }

    fn wait_for_answer(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !self.connect()?.execute("select 1").is_ok_and(|rows| rows == ["1"]) {
            if !self.process.is_running()? || Instant::now() >= deadline {
                bail!("mariadbd does not answer:\n{}", self.log());
            }
            std::thread::sleep(START_POLL);
        }
        Ok(())
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("mariadb.log")).unwrap_or_default()
    }
}

/// A connection to the server.
#[derive(Debug)]
pub struct Session {
    process: Process,
    stdin: ChildStdin,
    stdout: Lines,
    stderr: Lines,
}

impl Session {
    /// Executes one statement and returns its rows, the columns of each parted by tabs.
    pub fn execute(&mut self, statement: &str) -> Result<Vec<String>> {
        // The client ends at the first error; the pipe may be closed by then.
        let _ = writeln!(self.stdin, "{statement};\nselect '{END_OF_ROWS}';");
        let mut rows = Vec::new();
        loop {
            match self.stdout.next(STATEMENT_LIMIT)? {
                Some(line) if line == END_OF_ROWS => return Ok(rows),
                Some(line) => rows.push(line),
                None => bail!("{statement}: {}", self.stderr.rest(STATEMENT_LIMIT)?.join("\n")),
            }
        }
    }

    pub fn close(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.process.wait(STOP_LIMIT)?;
        ensure!(status.success(), "the client ended with {status}");
        Ok(())
    }

    /// What MyRocks has counted in its statements since the server's start: its perf contexts, harvested at
    /// the end of each statement.
    pub fn perf_context(&mut self) -> Result<Truth> {
        let rows =
            self.execute("select stat_type, value from information_schema.rocksdb_perf_context_global")?;
        let value = |name: &str| -> Result<u64> {
            let row = rows.iter().find_map(|row| row.strip_prefix(name)?.strip_prefix('\t'));
            row.and_then(|value| value.parse().ok()).with_context(|| format!("no {name} in {rows:?}"))
        };
        Ok(Truth {
            tombstones_skipped: value("INTERNAL_DELETE_SKIPPED_COUNT")?,
            keys_skipped: value("INTERNAL_KEY_SKIPPED_COUNT")?,
            block_reads: value("BLOCK_READ_COUNT")?,
            block_read_bytes: value("BLOCK_READ_BYTE")?,
            block_cache_hits: value("BLOCK_CACHE_HIT_COUNT")?,
        })
    }

    /// RocksDB's ticker `NUMBER_DB_SEEK`: how often an iterator was positioned since the server's start.
    pub fn positionings(&mut self) -> Result<u64> {
        let rows = self.execute("show global status like 'rocksdb_number_db_seek'")?;
        let value = rows.first().and_then(|row| row.split('\t').nth(1)?.parse().ok());
        value.with_context(|| format!("no number of seeks: {rows:?}"))
    }
}

/// Has the server make its own tables, as its package's `mariadb-install-db` does.
fn make_system_tables(directory: &Path) -> Result<()> {
    let mut command = Command::new(artifact::installed("mariadbd", "mariadb-server-core")?);
    command.arg("--no-defaults").arg("--bootstrap").arg(option("datadir", &data(directory)));
    command.args(["--skip-innodb", "--default-storage-engine=Aria", "--user=root"]);
    command.args(["--max-allowed-packet=8M", "--net-buffer-length=16K"]);
    let log = File::create(directory.join("bootstrap.log")).context("creating the server's log")?;
    command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
    let mut process = Process::start(command)?;
    let mut stdin = process.take_stdin().context("no standard input")?;
    let mut script = "create database mysql;\nuse mysql;\nset @auth_root_socket = null;\n".to_owned();
    for file in SYSTEM_TABLES {
        script += &std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    }
    // The server ends at the first error; the pipe may be closed by then.
    let _ = stdin.write_all(script.as_bytes());
    drop(stdin);
    let status = process.wait(START_LIMIT)?;
    let log = std::fs::read_to_string(directory.join("bootstrap.log")).unwrap_or_default();
    ensure!(status.success(), "mariadbd --bootstrap ended with {status}:\n{log}");
    Ok(())
}

fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

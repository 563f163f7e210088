//! Storage Container Manager, Ozone Manager and DataNode, each a process of Ozone's own user.

use crate::write_program;
use anyhow::{Context, Result, bail, ensure};
use sexton_tests::artifact;
use sexton_tests::process::Process;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whose the daemons are: a user that every Debian has, and that owns nothing.
pub const USER: &str = "daemon";

/// How long a daemon may take to start; ten seconds on a quiet machine.
const START_LIMIT: Duration = Duration::from_secs(180);
/// How long a command of Ozone's may take: mostly the start of its JVM.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// What the JVMs have to be told, as Ozone's own scripts tell them.
const JVM_OPTIONS: &str = "--add-opens=java.management/com.sun.jmx.mbeanserver=ALL-UNNAMED \
     --add-exports=java.management/com.sun.jmx.mbeanserver=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED \
     --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.lang.reflect=ALL-UNNAMED \
     -Dorg.apache.ratis.thirdparty.io.netty.allocator.useCacheForAllThreads=false \
     -Dorg.apache.ratis.thirdparty.io.netty.tryReflectionSetAccessible=true -XX:+UseSerialGC -XX:TieredStopAtLevel=1";

const SCM: &str = "org.apache.hadoop.hdds.scm.server.StorageContainerManagerStarter";
const OM: &str = "org.apache.hadoop.ozone.om.OzoneManagerStarter";
const DATANODE: &str = "org.apache.hadoop.ozone.HddsDatanodeService";

/// The daemons, which end with this.
pub struct Cluster {
    base: PathBuf,
    _scm: Process,
    _om: Process,
    pub datanode: Process,
}

/// Lets every user into a directory.
pub fn open_for_all(directory: &Path) -> Result<()> {
    Ok(std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?)
}

impl Cluster {
    /// Starts them in `directory` and waits until data can be stored.
    pub fn start(directory: &Path) -> Result<Cluster> {
        let base = directory.join("ozone");
        for part in ["conf", "logs", "data", "bin", "lib"] {
            std::fs::create_dir_all(base.join(part))?;
        }
        link_libraries(&base)?;
        write_configuration(&base)?;
        let mut give = Command::new("chown");
        give.arg("-R").arg(format!("{USER}:"));
        let give = give.args(["conf", "logs", "data"].map(|part| base.join(part))).status()?;
        ensure!(give.success(), "chown ended with {give}");
        let run = |class: &str, name: &str, arguments: &[&str]| run(&base, class, name, arguments);
        run(SCM, "scm-init", &["--init"])?.wait(START_LIMIT)?;
        let mut scm = run(SCM, "scm", &[])?;
        wait_for_log(&base, "scm", &mut scm, "HTTP server of scm listening")?;
        run(OM, "om-init", &["--init"])?.wait(START_LIMIT)?;
        let mut om = run(OM, "om", &[])?;
        let mut datanode = run(DATANODE, "datanode", &[])?;
        wait_for_log(&base, "om", &mut om, "HTTP server of ozoneManager listening")?;
        wait_for_log(&base, "datanode", &mut datanode, "HTTP server of hddsDatanode listening")?;
        wait_for_log(&base, "scm", &mut scm, "Opened pipeline")?;
        Ok(Cluster { base, _scm: scm, _om: om, datanode })
    }

    /// Where all of it lies.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The site file that the daemons read.
    pub fn site(&self) -> PathBuf {
        self.base.join("conf/ozone-site.xml")
    }

    /// A client of a class that was compiled into `classes`, with its standard streams at hand.
    pub fn client(&self, classes: &Path, class: &str) -> Result<Process> {
        let mut command = java(&self.base, Some(classes))?;
        command.arg("-Xmx256m").arg(class).stdin(Stdio::piped()).stdout(Stdio::piped());
        Process::start(command)
    }

    /// Has all containers closed: open ones are not scanned.
    pub fn close_containers(&self) -> Result<()> {
        for container in ["1", "2"] {
            self.administer(&["container", "close", container])?;
        }
        Ok(())
    }

    /// Runs `ozone admin` with these arguments.
    fn administer(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("setpriv");
        command.args(SETPRIV).arg(self.base.join("bin/ozone")).arg("admin").args(arguments);
        let log = File::create(self.base.join("logs/admin.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A container that is not there, or closed already, is an error of Ozone's and none of ours.
        Process::start(command)?.wait(COMMAND_LIMIT).map(|_| ())
    }
}

/// Become Ozone's user, and end with the test: changing the user would take that back.
const SETPRIV: [&str; 6] = [
    "--reuid=daemon",
    "--regid=daemon",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
    "--pdeathsig=KILL",
];

/// Puts Ozone's libraries where its user can read them: they were fetched into somebody's home.
fn link_libraries(base: &Path) -> Result<()> {
    let directory = artifact::tools()?.join("ozone/lib");
    let libraries = std::fs::read_dir(&directory)
        .with_context(|| format!("{} is missing: run `make test-ozone`", directory.display()))?;
    for library in libraries {
        let library = library?;
        let (from, to) = (library.path(), base.join("lib").join(library.file_name()));
        if std::fs::hard_link(&from, &to).is_err() {
            std::fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
        }
    }
    Ok(())
}

/// A JVM with Ozone's libraries and no class yet.
fn java(base: &Path, classes: Option<&Path>) -> Result<Command> {
    let mut command = Command::new(artifact::installed("setpriv", "util-linux")?);
    command.args(SETPRIV).arg(artifact::installed("java", "default-jdk-headless")?);
    let mut path = format!("{}:{}/*", base.join("conf").display(), base.join("lib").display());
    if let Some(classes) = classes {
        path = format!("{}:{path}", classes.display());
    }
    command.args(JVM_OPTIONS.split_whitespace()).arg("-cp").arg(path);
    command.arg(format!("-Dlog4j.configuration=file:{}", base.join("conf/log4j.properties").display()));
    command.arg(format!("-Dhadoop.log.dir={}", base.join("logs").display()));
    command.env("HOME", base).env("OZONE_CONF_DIR", base.join("conf")).env("OZONE_HOME", base);
    command.current_dir(base).stderr(File::create(base.join("logs/client.log"))?);
    Ok(command)
}

fn run(base: &Path, class: &str, name: &str, arguments: &[&str]) -> Result<Process> {
    let mut command = java(base, None)?;
    let log = File::create(log_path(base, name))?;
    command.arg("-Xmx512m").arg(class).args(arguments);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Process::start(command)
}

fn log_path(base: &Path, name: &str) -> PathBuf {
    base.join("logs").join(format!("{name}.log"))
}

fn wait_for_log(base: &Path, name: &str, daemon: &mut Process, expected: &str) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let log = std::fs::read(log_path(base, name)).context("reading a daemon's log")?;
        let log = String::from_utf8_lossy(&log);
        if log.contains(expected) {
            return Ok(());
        }
        if Instant::now() >= deadline || !daemon.is_running()? {
            let end: Vec<&str> = log.lines().rev().take(20).collect();
            bail!(
                "{name} did not say {expected:?} within {START_LIMIT:?}; its log ends, last line first:\n{}",
                end.join("\n")
            );
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Site file, log settings, and the commands that a node with Ozone has.
fn write_configuration(base: &Path) -> Result<()> {
    let shipped = artifact::repository().join("tests/ozone");
    let site = std::fs::read_to_string(shipped.join("ozone-site.xml"))?;
    std::fs::write(base.join("conf/ozone-site.xml"), site.replace("@BASE@", &base.display().to_string()))?;
    std::fs::copy(shipped.join("log4j.properties"), base.join("conf/log4j.properties"))?;
    let bin = base.join("bin");
    let admin = format!(
        "#!/bin/sh\nshift\nexec java {JVM_OPTIONS} -Xmx128m -cp '{}:{}/*' org.apache.hadoop.ozone.admin.OzoneAdmin \"$@\"\n",
        base.join("conf").display(),
        base.join("lib").display()
    );
    write_program(&bin.join("ozone"), &admin)?;
    let script = artifact::repository().join("deploy/ozone/ozone-reconfigure.sh");
    write_program(&bin.join("ozone-reconfigure.sh"), &std::fs::read_to_string(script)?)?;
    // What the drop-in of the systemd unit says by `Environment=`.
    let wrapper = format!(
        "#!/bin/sh\nexport PATH='{}':/usr/bin:/bin OZONE_CONF_DIR='{}'\nexec '{}' \"$@\"\n",
        bin.display(),
        base.join("conf").display(),
        bin.join("ozone-reconfigure.sh").display()
    );
    write_program(&bin.join("reconfigure"), &wrapper)?;
    // Ozone's user need not come to where these were built.
    for name in ["sexton", "libsexton_hook.so"] {
        std::fs::copy(artifact::built(name)?, bin.join(name)).with_context(|| format!("copying {name}"))?;
    }
    Ok(())
}

//! What the daemons say of themselves, over their own web pages and the kernel's: never what Sexton says.

use anyhow::{Context, Result, bail};
use sexton_tests::http;
use sexton_tests::process::threads_named;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Web pages of the Ozone Manager, the Storage Container Manager and the DataNode.
pub const OM: u16 = 9874;
pub const SCM: u16 = 9876;
pub const DATANODE: u16 = 9882;

fn get(port: u16, path: &str) -> Result<String> {
    http::get(SocketAddr::from(([127, 0, 0, 1], port)), path)
}

/// The value of a property that is in force.
pub fn in_force(port: u16, property: &str) -> Result<String> {
    let page = get(port, &format!("/conf?name={property}"))?;
    let value = page.split_once("<value>").and_then(|(_, rest)| rest.split_once("</value>"));
    Ok(value.with_context(|| format!("no value of {property}: {page}"))?.0.to_owned())
}

/// How old a metric of Ozone's may be, and some more.
pub const METRICS_AGE: Duration = Duration::from_secs(12);

/// A metric of the Ozone Manager, without regard to labels.
fn metric(name: &str) -> Result<u64> {
    let page = get(OM, "/prom")?;
    let values = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
    let value = values.map(|(_, value)| value.trim()).next().with_context(|| format!("no metric {name}"))?;
    Ok(value.parse::<f64>().with_context(|| format!("{name} is {value}"))? as u64)
}

/// Entries that the Ozone Manager's iterators have stepped over, as its RocksDB counts them: a tombstone, and
/// what it hides.
pub fn skipped() -> Result<u64> {
    metric("rocksdb_om_db_number_iter_skip")
}

/// Keys that the key deleting service takes out for good, a second. Its metric is read when it changes, and
/// when it does again after so long.
pub fn keys_purged_per_second(over: Duration) -> Result<f64> {
    let changed = || {
        let (begin, before) = (Instant::now(), keys_purged()?);
        while begin.elapsed() < 3 * METRICS_AGE {
            let now = keys_purged()?;
            if now != before {
                return Ok((Instant::now(), now));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("the key deleting service has taken nothing out for good in {:?}", begin.elapsed())
    };
    let (begin, before) = changed()?;
    std::thread::sleep(over.saturating_sub(METRICS_AGE));
    let (end, after) = changed()?;
    Ok((after - before) as f64 / (end - begin).as_secs_f64())
}

fn keys_purged() -> Result<u64> {
    metric("deleting_service_metrics_num_keys_purged")
}

/// The DataNode's data scanner, a thread.
pub struct Scanner {
    io: PathBuf,
}

impl Scanner {
    /// Of a DataNode with one volume.
    pub fn of(datanode: u32) -> Result<Scanner> {
        let thread = threads_named(datanode, "ContainerData")?.pop();
        Ok(Scanner { io: thread.context("the DataNode has no data scanner")?.join("io") })
    }

    /// Bytes that it has read since it began, as the kernel counts them.
    fn bytes_read(&self) -> Result<u64> {
        let io = std::fs::read_to_string(&self.io).context("reading what the scanner has read")?;
        let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).context("no rchar")?;
        Ok(line.trim().parse()?)
    }

    /// Bytes a second that it reads, over some time; it has been at it for a second before.
    pub fn bytes_per_second(&self, over: Duration) -> Result<f64> {
        let (begin, before) = (Instant::now(), self.bytes_read()?);
        std::thread::sleep(over);
        let bytes = self.bytes_read()? - before;
        Ok(bytes as f64 / begin.elapsed().as_secs_f64())
    }
}

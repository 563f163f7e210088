//! The machine that the tests run on: which kernel it has and how slow it is.

use anyhow::{Context, Result};
use std::time::Duration;

/// How many times slower than real hardware this machine is: an emulated one says so in
/// `SEXTON_TEST_SLOWNESS`. Tests make their databases that much smaller.
pub fn slowness() -> Result<u64> {
    match std::env::var("SEXTON_TEST_SLOWNESS") {
        Ok(text) => text.parse().context("SEXTON_TEST_SLOWNESS is no number"),
        Err(_) => Ok(1),
    }
}

/// How long to wait for what takes at most `limit` on a machine of usual speed.
pub fn patience(limit: Duration) -> Result<Duration> {
    let slowness = u32::try_from(slowness()?).context("SEXTON_TEST_SLOWNESS is too large")?;
    Ok(limit.saturating_mul(slowness))
}

/// The processor's model, as the kernel knows it.
pub fn processor() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown processor", |(_, name)| name).to_owned()
}

/// The running kernel's release, as `uname -r` prints it.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The running kernel's version: major, minor, patch.
pub fn kernel_version() -> Result<[u32; 3]> {
    let release = kernel_release();
    parse(&release).with_context(|| format!("the kernel's release `{release}` has no version"))
}

fn parse(release: &str) -> Option<[u32; 3]> {
    let version = release.split(['-', '+']).next()?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    // Release candidates, 7.3-rc1, have no third number.
    Some([numbers.next()??, numbers.next()??, numbers.next().unwrap_or(Some(0))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_sorts_of_releases() {
        assert_eq!(parse("6.1.0-56-cloud-amd64"), Some([6, 1, 0]));
        assert_eq!(parse("6.12.117+deb13-cloud-amd64"), Some([6, 12, 117]));
        assert_eq!(parse("7.3-rc1"), Some([7, 3, 0]));
        assert_eq!(parse("unknown"), None);
    }
}

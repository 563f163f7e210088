//! A small file system for a test to fill.

use crate::artifact;
use anyhow::{Result, ensure};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs; dropping it unmounts it.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of so many bytes at `path`, which is made.
    pub fn mount(path: &Path, bytes: u64) -> Result<SmallDisk> {
        std::fs::create_dir_all(path)?;
        let status = Command::new(artifact::installed("mount", "mount")?)
            .args(["-t", "tmpfs", "-o", &format!("size={bytes},mode=700"), "none"])
            .arg(path)
            .status()?;
        ensure!(status.success(), "mounting a tmpfs ended with {status}");
        Ok(SmallDisk(path.to_owned()))
    }

    /// Fills it to the last byte.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::create(self.0.join("filler"))?;
        for length in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; length]).is_ok() {}
        }
        Ok(())
    }

    /// Makes room again.
    pub fn empty(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.0.join("filler"))?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The agent is gone by then; lazily, so that nothing stays mounted even if it is not.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

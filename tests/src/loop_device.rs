//! A block device of its own for a test: a file behind a loop device, with a file system on it.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted loop device; dropping it takes both away, and the file with them.
#[derive(Debug)]
pub struct LoopDevice {
    device: PathBuf,
    mounted_at: PathBuf,
    file: PathBuf,
}

impl LoopDevice {
    /// Makes a device of so many bytes in `directory` and mounts it there.
    pub fn mount(directory: &Path, name: &str, bytes: u64) -> Result<LoopDevice> {
        let file = directory.join(format!("{name}.img"));
        std::fs::File::create(&file)?.set_len(bytes)?;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&file))?;
        let device = PathBuf::from(device.trim());
        let mounted_at = directory.join(name);
        std::fs::create_dir(&mounted_at)?;
        let made = LoopDevice { device, mounted_at, file };
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&made.device))?;
        run(Command::new("mount").arg(&made.device).arg(&made.mounted_at))?;
        Ok(made)
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        &self.mounted_at
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // What fails here was not there yet.
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.mounted_at));
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
        let _ = std::fs::remove_file(&self.file);
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {:?}", command.get_program()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

//! Processors that do not fall asleep while something is measured.
//!
//! One that is idle is woken by its host on a virtual machine, and out of a state that saves power on a real
//! one. That takes longer than what is measured, and varies more.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;

/// The kernel's interface for it (PM QoS): for as long as it is held open, no idle state is entered that
/// takes longer to leave than what was written, in microseconds.
const CPU_DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// While it lives no processor falls asleep.
#[derive(Debug)]
pub struct Awake {
    _request: File,
}

impl Awake {
    /// From now on; fails where the kernel has no such interface, or this is not root.
    pub fn keep() -> Result<Awake> {
        let open = || -> std::io::Result<File> {
            let mut request = File::options().write(true).open(CPU_DMA_LATENCY)?;
            request.write_all(&0i32.to_ne_bytes())?;
            Ok(request)
        };
        let request = open().with_context(|| {
            format!("asking the kernel to keep processors awake, by {CPU_DMA_LATENCY} (CONFIG_CPU_IDLE)")
        })?;
        Ok(Awake { _request: request })
    }
}

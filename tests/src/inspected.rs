//! Looking into a process as the agent does, for tests that speak with its parts.

use crate::artifact;
use anyhow::{Context, Result};
use sexton_inspect::facts::Target;
use sexton_inspect::inspect::Inspector;

/// The primary target of a process. Its files are examined by processes of the agent's program.
pub fn target(pid: u32) -> Result<Target> {
    Inspector::by(artifact::built("sexton")?)
        .inspect(pid)
        .with_context(|| format!("inspecting process {pid}"))
}

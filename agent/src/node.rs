//! What tells this node from others: replicas on several nodes wait different parts of a period's jitter.

use std::hash::Hasher;

/// systemd's number of the installation, the same after each boot.
const MACHINE_ID: &str = "/etc/machine-id";
/// Its name, where there is no such number.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// A number made of what names this node; 0 where nothing does.
pub fn number() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok().filter(|text| !text.trim().is_empty());
    let name = read(MACHINE_ID).or_else(|| read(HOST_NAME)).unwrap_or_default();
    let mut hash = std::hash::DefaultHasher::new();
    hash.write(name.trim().as_bytes());
    if name.is_empty() { 0 } else { hash.finish() }
}

//! The kernel side's other half: loading the BPF programs, reading totals, opening windows.
//!
//! [`Sentinel`] reads every thread's totals with no probe in the target; [`Windows`] arms probes for a
//! short time and gives back who is to be charged for what. Neither decides when: that is the engine's
//! business, and what it means is the tuner's. `unsafe` is confined to `abi` and `iterator`.

mod abi;
mod account;
mod error;
mod iterator;
mod libbpf_log;
mod recipe;
mod sentinel;
mod skeleton;
mod window;

pub use error::ProbeError;
pub use libbpf_log::forward_libbpf_messages;
pub use recipe::Thresholds;
pub use sentinel::{Sentinel, SentinelReading};
pub use window::{OpenWindow, Operation, WindowResult, Windows};

/// Index into the kernel's table of totals; one per target watched at the same time.
pub type Slot = u32;

/// Targets that can be watched at the same time.
pub const TARGETS_MAX: usize = abi::SEXTON_TARGETS_MAX as usize;

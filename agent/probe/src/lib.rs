//! The kernel side's other half: loading the BPF programs, reading totals, opening windows, hearing of
//! processes.
//!
//! [`KernelFeatures`] says what the kernel has and [`Mechanism`] what follows for the probes. [`Sentinel`]
//! reads every thread's totals with no probe in the target; [`Windows`] arms probes for a short time and
//! gives back who is to be charged for what; [`ProcessEvents`] tells of processes that come and go. None of
//! them decides when: that is the engine's business, and what it means is the tuner's. `unsafe` is confined
//! to `abi`, `raw_link` and the assembly of `subject`.

mod abi;
mod account;
mod aya;
mod credit;
mod error;
mod events;
mod features;
#[cfg(test)]
mod fuzz;
pub mod governor;
mod haste;
mod libbpf;
mod libbpf_log;
mod loader;
mod mechanism;
mod object;
mod operation;
mod programs;
mod raw_link;
mod recipe;
mod sentinel;
mod settle;
mod site;
mod subject;
mod thread_memory;
mod window;

pub use account::ThreadKey;
pub use credit::Credit;
pub use error::{LoaderError, ProbeError};
pub use events::{ProcessChange, ProcessEvent, ProcessEvents, wait_for};
pub use features::{Answer, KernelFeatures};
pub use libbpf_log::forward_libbpf_messages;
pub use loader::Loader;
pub use mechanism::Mechanism;
pub use operation::Operation;
pub use recipe::Thresholds;
pub use sentinel::{Sentinel, SentinelReading, Totals, TotalsBy, TotalsReader};
pub use sexton_inspect::facts::ThreadLevel;
pub use site::{ProbeHits, Site, SiteHits};
pub use window::{
    Attached, Closed, Closing, FamilyWaits, FileFetches, OPERATIONS_KEPT_MAX, OpenWindow, Stopped,
    Unattached, WindowResult, Windows,
};

/// Index into the kernel's tables; one for each target watched at the same time. A process with two copies of
/// RocksDB has two.
pub type Slot = u32;

/// Targets that can be watched at the same time: of the kernel's slots the last one is kept for measuring
/// what probes cost.
pub const TARGETS_MAX: usize = abi::SEXTON_TARGETS_MAX as usize - 1;

/// What is opened, read and taken away in steps goes from thread to thread.
const _: () = {
    const fn is_sent<T: Send>() {}
    is_sent::<Windows>();
    is_sent::<Unattached>();
    is_sent::<Attached>();
    is_sent::<OpenWindow>();
    is_sent::<Closing>();
    is_sent::<Stopped>();
    is_sent::<Sentinel>();
    is_sent::<TotalsReader>();
    is_sent::<Totals>();
    is_sent::<ProcessEvents>();
};

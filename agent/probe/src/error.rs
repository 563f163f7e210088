//! What can go wrong with probes, each with what to do about it.

use thiserror::Error;

#[derive(Debug, Error)]
pub enum LoaderError {
    #[error(transparent)]
    Libbpf(#[from] libbpf_rs::Error),
    /// aya, with all causes in one line.
    #[error("{0}")]
    Aya(String),
}

/// A failure to load, attach or read BPF programs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    #[error("this kernel has no {what}: {reason}")]
    Kernel { what: &'static str, reason: String },
    #[error("{loader} cannot arm {what}; it can arm {can}")]
    Loader { loader: &'static str, what: &'static str, can: String },
    #[error("cannot load the BPF object {object}: {source}")]
    Load {
        /// Name of its source in `bpf/`.
        object: &'static str,
        source: LoaderError,
    },
    #[error("cannot attach {what} to process {pid}: {source}")]
    Attach { what: &'static str, pid: u32, source: LoaderError },
    #[error("cannot access {what}: {source}")]
    Access { what: &'static str, source: LoaderError },
    #[error("process {pid} has no place for a probe: {reason}")]
    NoSites { pid: u32, reason: &'static str },
    #[error("process {pid}: the counters' layout ({versions}) is not one that can be read")]
    Layout { pid: u32, versions: String },
    #[error("process {pid} has no counters that can be read")]
    NoCounters { pid: u32 },
    #[error("slot {slot} is not being watched")]
    NotWatched { slot: u32 },
    #[error("cannot measure what probes cost: {reason}")]
    Calibration { reason: String },
    #[error("process {pid} cannot be watched: {max} targets are being watched already")]
    TooManyTargets { pid: u32, max: usize },
    #[error("process {pid}: {max} copies of RocksDB are being watched in it already")]
    TooManyCopies { pid: u32, max: usize },
}

impl ProbeError {
    /// What an operator can do about it, in one sentence.
    pub fn remedy(&self) -> &'static str {
        match self {
            ProbeError::Kernel { .. } | ProbeError::Load { .. } => {
                "run as root or with CAP_BPF and CAP_PERFMON, on Linux 5.10 or newer with BTF \
                 (/sys/kernel/btf/vmlinux), where 5.10 also wants a high RLIMIT_MEMLOCK; \
                 SEXTON_LOG=libbpf=trace shows the verifier's words"
            }
            ProbeError::Attach { .. } => {
                "check that the process still runs and that the agent has CAP_PERFMON, CAP_SYS_PTRACE \
                 for processes of other users, and before Linux 6.6.35 CAP_SYS_ADMIN"
            }
            ProbeError::Loader { .. } => "leave out --mechanism, or choose another --loader",
            ProbeError::NoSites { .. } | ProbeError::Layout { .. } | ProbeError::NoCounters { .. } => {
                "`sexton targets --pid PID` says what was found in the target and what is missing"
            }
            ProbeError::TooManyTargets { .. } | ProbeError::TooManyCopies { .. } => {
                "name the targets that matter in a policy (`targets:`)"
            }
            ProbeError::Access { .. } | ProbeError::NotWatched { .. } | ProbeError::Calibration { .. } => {
                "this is not expected: run again with SEXTON_LOG=debug and report what it says"
            }
        }
    }
}

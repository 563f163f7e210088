//! libbpf's own messages, the verifier's words among them, into the agent's log.

use libbpf_rs::PrintLevel;

/// From now on libbpf's messages go to the log, under the target `libbpf`.
pub fn forward_libbpf_messages() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, forward)));
}

/// Runs `body` with libbpf's messages turned down: what fails there is an answer and no fault.
pub fn quietly<T>(body: impl FnOnce() -> T) -> T {
    let before = libbpf_rs::set_print(Some((PrintLevel::Debug, murmur)));
    let result = body();
    libbpf_rs::set_print(before);
    result
}

fn forward(level: PrintLevel, message: String) {
    let message = message.trim_end();
    match level {
        PrintLevel::Warn => tracing::warn!(target: "libbpf", "{message}"),
        PrintLevel::Info => tracing::debug!(target: "libbpf", "{message}"),
        PrintLevel::Debug => tracing::trace!(target: "libbpf", "{message}"),
    }
}

fn murmur(_level: PrintLevel, message: String) {
    tracing::trace!(target: "libbpf", "{}", message.trim_end());
}

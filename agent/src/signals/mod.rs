//! What targets are under pressure by, read on threads of its own: the kernel's files and the targets'
//! Prometheus endpoints. What it comes to is decided in [`sexton_tuner::pressure`].

mod counters;
mod endpoint;
mod reader;
mod sampler;

pub use reader::Signals;
pub use sampler::Sensed;

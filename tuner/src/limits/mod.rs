//! What Sexton keeps to: budgets of bytes and of probes, guards, the schedule, and throttles by it
//! and by pressure.

pub mod attention;
pub mod back_off;
pub mod bucket;
pub mod charge;
pub mod controller;
pub mod daily;
pub mod governor;
pub mod guard;
pub mod pressure;
pub mod price_correction;
mod readings;
pub mod sampling;
pub mod schedule;
pub mod throttle;

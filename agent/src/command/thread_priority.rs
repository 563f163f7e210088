//! `sexton thread-priority`: how the threads of a process come to processors and block devices, by their
//! names.
//!
//! RocksDB names the threads that compact `rocksdb:low`, and those that flush `rocksdb:high`. As a throttle's
//! `command` and `get` this has compactions give way by the schedule, and by pressure, in any program.

use crate::failure::Failure;
use crate::text::print_line;
use clap::{Args, Subcommand};
use sexton_execute::{IoPriority, Threads};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Arguments of `sexton thread-priority`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The line printed is what the threads have; several values where they differ. Threads that begin later have what their
creator has: read the value now and then, as a throttle does.

Run it as the process' user, or as root; the kernel refuses whoever lacks a capability that the process has. The I/O priority counts where the device's scheduler minds it (bfq,
mq-deadline). To lower a niceness again takes CAP_SYS_NICE, which a policy's commands do not have.")]
pub struct ThreadPriorityArguments {
    #[command(subcommand)]
    priority: Priority,
}

#[derive(Subcommand, Debug)]
enum Priority {
    /// The I/O priority: 0 (first) to 7, idle, or none (the niceness decides).
    Io {
        #[command(flatten)]
        threads: ThreadsArguments,
        /// To set; without it the one that they have is shown.
        #[arg(value_name = "PRIORITY")]
        value: Option<IoPriority>,
    },
    /// The niceness: -20 (first) to 19.
    Nice {
        #[command(flatten)]
        threads: ThreadsArguments,
        /// To set; without it the one that they have is shown.
        #[arg(value_name = "NICENESS", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
        value: Option<i32>,
    },
}

#[derive(Args, Debug)]
struct ThreadsArguments {
    /// The process.
    #[arg(long)]
    pid: u32,
    /// Which of its threads: a glob on their names, `rocksdb:low*`.
    #[arg(long, value_name = "GLOB")]
    threads: String,
}

impl ThreadsArguments {
    fn threads(&self) -> Threads {
        Threads { pid: self.pid, names: self.threads.clone() }
    }
}

/// Sets, where that is wanted, and prints what is.
/// Errors: when there is no such process or thread, or the kernel refuses.
pub fn run(arguments: &ThreadPriorityArguments) -> Result<(), Failure> {
    match &arguments.priority {
        Priority::Io { threads, value } => {
            let threads = threads.threads();
            value.map(|value| threads.set_io_priority(value)).transpose()?;
            print_line(in_words(&threads.io_priorities()?));
        }
        Priority::Nice { threads, value } => {
            let threads = threads.threads();
            value.map(|value| threads.set_niceness(value)).transpose()?;
            print_line(in_words(&threads.nicenesses()?));
        }
    }
    Ok(())
}

fn in_words(values: &BTreeSet<impl Display>) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

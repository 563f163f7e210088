//! What the end-to-end tests and the demo share: starting and ending processes, talking to the agent,
//! driving the programs that are observed.
//!
//! Nothing here knows what a test wants to prove; that stands in `tests/*.rs`, one scenario a file.

pub mod agent;
pub mod artifact;
pub mod awake;
pub mod bpf_objects;
pub mod compactions;
pub mod db_bench;
pub mod etcd;
pub mod exposition;
pub mod grafana;
pub mod http;
pub mod hung_file_system;
pub mod inspected;
pub mod java_readers;
pub mod jvm;
pub mod linked;
pub mod loop_device;
pub mod machine;
pub mod mariadb;
pub mod metric_endpoint;
pub mod minute;
pub mod musl_host;
pub mod opened;
pub mod options_file;
pub mod policy_reference;
pub mod process;
pub mod prometheus;
pub mod python_readers;
pub mod rocksdb_log;
pub mod small_disk;
pub mod small_lists;
pub mod state;
pub mod static_host;
pub mod steady_seeks;
pub mod tls;
pub mod truth;
pub mod turns;
pub mod two_iterators;
pub mod unit_filter;
pub mod workload;

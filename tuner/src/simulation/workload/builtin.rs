//! Workloads that come with the program.

use super::description::Workload;

/// Files are a sixteenth of RocksDB's default size, and so are memtables and levels: the same shapes, sooner.
const SMALL: &str = "
options:
  write_buffer_size: '4194304'
  target_file_size_base: '4194304'
  max_bytes_for_level_base: '16777216'
duration: 1h
";

const QUEUE: &str = "
name: queue
keys: prefixed
load: 200000
writers:
  - { do: put, at: next, per_second: 200 }
  - { do: delete, at: { oldest: { keep: 100000 } }, per_second: 210 }
readers:
  - { at: first, list: 100, per_second: 20 }
";

const DIRECTORIES: &str = "
name: directories
keys: { directories: 600 }
load: 600000
writers:
  - { do: delete, at: { group_of: 600 }, run: 500, per_second: 0.3 }
  - { do: put, at: any, per_second: 50 }
readers:
  - { at: { group_of: 600 }, list: 5, per_second: 500 }
";

const HASHED: &str = "
name: hashed
keys: big_endian
load: 500000
writers:
  - { do: put, at: any, per_second: 100 }
  - { do: delete, at: any, per_second: 100 }
readers:
  - { at: any, list: 100, per_second: 200 }
";

const TIME_SERIES: &str = "
name: time-series
load: 300000
writers:
  - { do: put, at: next, per_second: 300 }
  - { do: delete, at: { oldest: { keep: 300000 } }, run: 15000, per_second: 0.02 }
readers:
  - { at: first, list: 1000, per_second: 2 }
  - { at: { skewed: 0.5 }, list: 100, per_second: 50 }
";

const BUCKET: &str = "
name: bucket
keys: { directories: 20000 }
load: 400000
writers:
  - { do: delete, at: { within: { from: 160000, count: 20000 } }, per_second: 60 }
  - { do: put, at: { within: { from: 0, count: 100000 } }, per_second: 50 }
readers:
  - { at: { within: { from: 160000, count: 1 } }, list: 1000, per_second: 10 }
  - { at: any, list: 100, per_second: 100 }
";

/// Names of all, in the order in which they are listed.
pub const BUILTIN: [&str; 5] = ["queue", "directories", "bucket", "hashed", "time-series"];

/// The workload of this name.
pub fn builtin(name: &str) -> Option<Workload> {
    let text = match name {
        "queue" => QUEUE,
        "directories" => DIRECTORIES,
        "bucket" => BUCKET,
        "hashed" => HASHED,
        "time-series" => TIME_SERIES,
        _ => return None,
    };
    Workload::parse(&format!("{text}{SMALL}")).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn all_can_be_read() {
        for name in BUILTIN {
            assert_eq!(builtin(name).unwrap().name, name);
        }
        assert!(builtin("other").is_none());
    }

    #[test]
    fn what_cannot_be_played_is_refused() {
        for wrong in ["duration: 0s", "duration: 900000s", "load: 99999999999\nduration: 1s", "speed: 3"] {
            assert!(Workload::parse(&format!("name: x\n{wrong}")).is_err(), "{wrong}");
        }
        let fast = "name: x\nduration: 1s\nreaders: [{ at: first, per_second: .inf }]";
        assert!(Workload::parse(fast).unwrap_err().to_string().contains("per_second"));
    }
}

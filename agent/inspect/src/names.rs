//! Names of targets, which stay what they are as long as the target lives.
//!
//! The first copy of RocksDB that was seen in a process has the process's own name; the others have their
//! module's file name behind it.

use super::facts::TargetId;
use super::process::{ProcessFacts, is_alive};
use std::collections::HashMap;
use std::path::Path;

/// Names that are remembered before those of processes that have ended are forgotten: many times the
/// targets that one agent watches.
const NAMES_MAX: usize = 1024;

/// The names given so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    by_target: HashMap<TargetId, String>,
}

impl Names {
    /// The names of a process's targets, in their order. Modules that are no longer there are forgotten, and
    /// so are names of a program that the process was before an `exec`.
    pub fn of_process(&mut self, facts: &ProcessFacts, targets: &[(TargetId, &Path)]) -> Vec<String> {
        if self.by_target.len() > NAMES_MAX {
            self.by_target.retain(|id, _| is_alive(&id.process));
        }
        let own = facts.name();
        self.by_target.retain(|id, name| {
            let is_there = targets.iter().any(|(target, _)| target == id);
            id.process != facts.process || (is_there && name.starts_with(&own))
        });
        targets.iter().map(|(id, module)| self.name(*id, &own, module)).collect()
    }

    fn name(&mut self, id: TargetId, own: &str, module: &Path) -> String {
        if let Some(name) = self.by_target.get(&id) {
            return name.clone();
        }
        let taken = |name: &String| {
            self.by_target.iter().any(|(other, taken)| other.process == id.process && taken == name)
        };
        let file_name = module.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let with_module = format!("{own}-{file_name}");
        let with_inode = format!("{with_module}-{}", id.module.inode);
        let free = [own.to_owned(), with_module].into_iter().find(|name| !taken(name));
        let name = free.unwrap_or(with_inode);
        self.by_target.insert(id, name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::super::facts::{FileIdentity, ProcessId};
    use super::*;

    fn process(executable: &str) -> ProcessFacts {
        ProcessFacts {
            process: ProcessId { pid: 4711, start_time_ticks: 1 },
            executable: executable.into(),
            program: executable.rsplit('/').next().unwrap_or_default().to_owned(),
            command_line: String::new(),
            is_command_line_cut: false,
            user_id: 0,
            group_id: 0,
            cgroup: String::new(),
        }
    }

    fn target(inode: u64) -> TargetId {
        let module = FileIdentity { device_major: 8, device_minor: 1, inode };
        TargetId { process: process("").process, module }
    }

    #[test]
    fn a_second_copy_does_not_take_the_firsts_name_whatever_the_order() {
        let mut names = Names::default();
        let java = process("/usr/bin/java");
        let first = (target(1), Path::new("/tmp/librocksdbjni7.so"));
        let second = (target(2), Path::new("/usr/lib/librocksdb.so.7.8"));
        assert_eq!(names.of_process(&java, &[first]), ["java-4711"]);
        assert_eq!(names.of_process(&java, &[second, first]), ["java-4711-librocksdb.so.7.8", "java-4711"]);
        let third = (target(3), Path::new("/opt/librocksdb.so.7.8"));
        let all = names.of_process(&java, &[third, second, first]);
        assert_eq!(all, ["java-4711-librocksdb.so.7.8-3", "java-4711-librocksdb.so.7.8", "java-4711"]);
    }

    #[test]
    fn after_an_exec_the_name_is_the_new_programs() {
        let mut names = Names::default();
        let module = (target(1), Path::new("/usr/lib/librocksdb.so.7.8"));
        assert_eq!(names.of_process(&process("/usr/bin/loader"), &[module]), ["loader-4711"]);
        assert_eq!(names.of_process(&process("/usr/bin/db_bench"), &[module]), ["db_bench-4711"]);
    }
}

//! Which ways of acting on a target would work. Nothing is tried that would change it.

use super::finding::Finding;
use sexton_execute::{
    CLibrary, HOOK_LIBRARY_FILE_NAME, SqlExecutor, SqlTrouble, check_attachable, find_hook_library,
};
use sexton_inspect::facts::{COMPACT_RANGE, Target};
use sexton_tuner::policy::Policy;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of `/proc/PID/maps` that are looked through.
const MAPS_BYTES_MAX: u64 = 16 << 20;

/// Beginning of the name of the module that has MyRocks inside.
const MYROCKS_MODULE: &str = "ha_rocksdb";

/// One finding for each executor that a policy can name.
pub fn findings(target: &Target, policy: Option<&Policy>) -> Vec<Finding> {
    let by_statement = by_statement(target, policy);
    vec![by_attaching(target), by_preload(target), by_command(target), by_statement, advise()]
}

fn by_attaching(target: &Target) -> Finding {
    let (name, note) = ("hook by attaching", "compacts ranges inside an unmodified JVM");
    let no = |reason: String, remedy: String| Finding::no(name, note, reason, remedy);
    if !target.is_jvm {
        return no(
            "it is no JVM".into(),
            "preload the hook, or name a command in the policy (executor: exec)".into(),
        );
    }
    if let Err(error) = check_attachable(&target.process) {
        return no(error.to_string(), error.remedy());
    }
    if let Err(error) = find_hook_library(None, CLibrary::of(target)) {
        return no(error.to_string(), error.remedy());
    }
    match target.module.exports_compact_range {
        true => Finding::yes(name, note),
        false => no_interface(name, note),
    }
}

fn by_preload(target: &Target) -> Finding {
    let (name, note) = ("hook by preload", "compacts ranges inside the process");
    let library = CLibrary::of(target).place(&Path::new("/usr/lib/sexton").join(HOOK_LIBRARY_FILE_NAME));
    let remedy = format!("start the process with LD_PRELOAD={}", library.display());
    let maps = match read_maps(target.process.pid) {
        Ok(maps) => maps,
        Err(error) => return Finding::unknown(name, note, format!("/proc/PID/maps: {error}"), remedy),
    };
    if !has_hook(&maps) {
        return Finding::no(name, note, "the hook is not loaded in it", remedy);
    }
    match target.module.exports_compact_range {
        true => Finding::yes(name, format!("{note}; the hook is loaded")),
        false => no_interface(name, note),
    }
}

fn no_interface(name: &str, note: &str) -> Finding {
    Finding::no(
        name,
        note,
        format!("its module does not export {COMPACT_RANGE}, which the hook would call"),
        "name a command in the policy (executor: exec)",
    )
}

fn by_command(target: &Target) -> Finding {
    match target.databases.is_empty() {
        false => Finding::yes("exec", "runs the policy's command with the range filled in"),
        true => Finding::no(
            "exec",
            "runs the policy's command with the range filled in",
            "no database of it is known, so no range can be ranked",
            "look again when a database is open",
        ),
    }
}

/// MyRocks: the server that the policy names is asked, and nothing is set.
fn by_statement(target: &Target, policy: Option<&Policy>) -> Finding {
    let (name, note) = ("sql", "compacts whole column families by a statement to MyRocks");
    let entry = policy.and_then(|policy| policy.target_for(&target.candidate()));
    let user = entry.and_then(|entry| entry.commands_user.as_deref());
    let module = target.module.path.file_name().map(|name| name.to_string_lossy());
    let is_myrocks = module.is_some_and(|name| name.starts_with(MYROCKS_MODULE));
    match entry.and_then(|entry| entry.sql.as_ref()) {
        None if is_myrocks => Finding::unknown(
            name,
            note,
            "no policy says where its server listens",
            "sexton doctor --policy FILE, with `executor: sql` and `sql: { socket: ... }` in the target",
        ),
        None => Finding::no(
            name,
            note,
            "it is no MariaDB with MyRocks",
            "preload the hook, or name a command in the policy (executor: exec)",
        ),
        Some(sql) => match SqlExecutor::new(sql, user).examine(&target.process) {
            Ok(state) if state.may_set => {
                let running = state.manual_compactions;
                Finding::yes(name, format!("{note}; {running} manual compactions run in it"))
            }
            Ok(_) => Finding::unknown(
                name,
                note,
                format!("the grants of {} do not name SUPER; a role of it may", sql.user),
                SqlTrouble::Privilege.remedy(),
            ),
            Err(error) => Finding::no(name, note, error.to_string(), error.remedy()),
        },
    }
}

fn advise() -> Finding {
    Finding::yes("none", "shows the plan and the commands an operator would run")
}

fn read_maps(pid: u32) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/maps"))?.take(MAPS_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the hook is mapped: the library itself, or the copy that attaching leaves (`.sexton-hook-...so`).
fn has_hook(maps: &str) -> bool {
    maps.lines().filter_map(|line| line.rsplit('/').next()).any(|name| {
        let name = name.trim_end_matches(" (deleted)");
        name == HOOK_LIBRARY_FILE_NAME || name.starts_with(".sexton-hook-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_known_by_its_name() {
        assert!(has_hook("7f00-7f01 r-xp 0 fe:01 12   /usr/lib/sexton/libsexton_hook.so\n"));
        assert!(has_hook("7f00-7f01 r-xp 0 fe:01 12   /tmp/.sexton-hook-7-1-ab.so (deleted)\n"));
        assert!(!has_hook(
            "7f00-7f01 r-xp 0 fe:01 12   /usr/lib/librocksdb.so.7.8\n7f02-7f03 r-xp 0 00:00 0\n"
        ));
    }
}

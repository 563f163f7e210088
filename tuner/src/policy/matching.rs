//! Which processes an entry is about: conditions, and what they are asked of. Nothing of a process has been
//! opened when they are asked.

use super::glob::glob_matches;
use super::present;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Hexadecimal digits of a container's id, as all container runtimes make them.
const CONTAINER_ID_DIGITS: usize = 64;

/// Fewest digits of a container's id that name it: what `docker ps` shows.
pub(super) const CONTAINER_ID_DIGITS_MIN: usize = 12;

/// A process as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate<'a> {
    pub pid: u32,
    /// The executable's path, as the process sees it.
    pub executable: Cow<'a, str>,
    /// Arguments, joined with spaces.
    pub command_line: Cow<'a, str>,
    /// Effective user.
    pub user_id: u32,
    /// That user's name on this host; `None` where it has none.
    pub user_name: Option<Cow<'a, str>>,
    /// Path of its control group; empty where it is not known.
    pub cgroup: Cow<'a, str>,
}

impl Candidate<'_> {
    /// The systemd unit that the process belongs to: the first part of its control group that is no slice.
    /// What a unit names its own control groups, and with them a user's session its own, is not looked at.
    pub fn unit(&self) -> Option<&str> {
        self.cgroup.split('/').find(|part| !part.is_empty() && !part.ends_with(".slice"))
    }

    /// The id of the container that the process runs in: the first part of its control group that has one.
    pub fn container(&self) -> Option<&str> {
        self.cgroup.split('/').find_map(|part| {
            let part = part.strip_suffix(".scope").unwrap_or(part);
            let id = part.rsplit(['-', ':']).next()?;
            let is_id = id.len() == CONTAINER_ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_id.then_some(id)
        })
    }
}

/// Conditions that all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetMatch {
    /// Process id.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Glob on the executable's path: `*` is any text, slashes included, `?` one character. In a container
    /// any user can have a file at any path.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// Part of the command line, arguments joined with spaces. Of a longer one the first MiB is looked at.
    /// Any user can write any command line.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
    /// Effective user of the process: a name in this host's `/etc/passwd`, or a number, quoted.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The systemd unit that it runs in, such as `mariadb.service`. What a user's own service manager runs
    /// belongs to that user's unit, `user@1000.service`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Glob on the path of its control group, such as `/kubepods.slice/*`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Id of the container that it runs in, or its first digits, 12 at least.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl TargetMatch {
    /// Whether a process meets all the conditions that are given.
    pub fn holds(&self, candidate: &Candidate<'_>) -> bool {
        let is_user = |user: &String| match user.parse::<u32>() {
            Ok(user_id) => user_id == candidate.user_id,
            Err(_) => candidate.user_name.as_deref() == Some(user),
        };
        let is_container =
            |id: &String| candidate.container().is_some_and(|found| found.starts_with(&id.to_lowercase()));
        self.pid.is_none_or(|wanted| wanted == candidate.pid)
            && self.executable.as_ref().is_none_or(|pattern| glob_matches(pattern, &candidate.executable))
            && self.command_line.as_ref().is_none_or(|part| candidate.command_line.contains(part.as_str()))
            && self.user.as_ref().is_none_or(is_user)
            && self.unit.as_ref().is_none_or(|unit| candidate.unit() == Some(unit))
            && self.cgroup.as_ref().is_none_or(|pattern| glob_matches(pattern, &candidate.cgroup))
            && self.container.as_ref().is_none_or(is_container)
    }

    /// Whether no condition is given.
    pub fn is_empty(&self) -> bool {
        *self == TargetMatch::default()
    }

    /// Whether every local user can run a process that meets it: executables and command lines are theirs to
    /// choose.
    pub fn is_open_to_everybody(&self) -> bool {
        self.pid.is_none()
            && self.user.is_none()
            && self.unit.is_none()
            && self.container.is_none()
            && self.cgroup.as_ref().is_none_or(|pattern| pattern.starts_with(['*', '?']))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn in_cgroup(cgroup: &str) -> Candidate<'_> {
        Candidate { cgroup: cgroup.into(), ..Candidate::default() }
    }

    #[test]
    fn a_unit_is_the_service_managers_word_and_not_a_users() {
        let units = [
            ("/system.slice/mariadb.service", Some("mariadb.service")),
            ("/system.slice/system-postgres.slice/postgres@1.service/inner", Some("postgres@1.service")),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/mariadb.service",
                Some("user@1000.service"),
            ),
            ("/system.slice", None),
            ("/", None),
            ("", None),
        ];
        for (cgroup, unit) in units {
            assert_eq!(in_cgroup(cgroup).unit(), unit, "{cgroup}");
        }
    }

    #[test]
    fn containers_are_known_under_every_runtime() {
        for form in [
            "/system.slice/docker-ID.scope",
            "/docker/ID",
            "/kubepods/burstable/podab-12/ID",
            "/kubepods.slice/kubepods-podab.slice/cri-containerd-ID.scope",
            "/machine.slice/libpod-ID.scope/container",
            "/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:ID",
        ] {
            assert_eq!(in_cgroup(&form.replace("ID", ID)).container(), Some(ID), "{form}");
        }
        for other in
            ["/", "/system.slice/docker.service", "/docker/0123456789ab", "/system.slice/docker-xyz.scope"]
        {
            assert_eq!(in_cgroup(other).container(), None, "{other}");
        }
        let matches =
            |container: &str| TargetMatch { container: Some(container.into()), ..TargetMatch::default() };
        let cgroup = format!("/docker/{ID}");
        assert!(matches("0123456789AB").holds(&in_cgroup(&cgroup)));
        assert!(matches(ID).holds(&in_cgroup(&cgroup)));
        assert!(!matches("1123456789ab").holds(&in_cgroup(&cgroup)));
        assert!(!matches("0123456789ab").holds(&in_cgroup("/docker")));
    }

    #[test]
    fn a_user_is_a_name_or_a_number() {
        let matches = |user: &str| TargetMatch { user: Some(user.into()), ..TargetMatch::default() };
        let mysql = Candidate { user_id: 105, user_name: Some("mysql".into()), ..Candidate::default() };
        assert!(matches("mysql").holds(&mysql) && matches("105").holds(&mysql));
        assert!(
            !matches("root").holds(&mysql) && !matches("0").holds(&mysql) && !matches("mysq").holds(&mysql)
        );
        let nameless = Candidate { user_id: 105, ..Candidate::default() };
        assert!(matches("105").holds(&nameless) && !matches("mysql").holds(&nameless));
    }

    #[test]
    fn what_any_user_can_meet_is_open_to_everybody() {
        let open = [
            "executable: \"*/java\"",
            "command_line: Om",
            "executable: a\ncommand_line: b",
            "cgroup: \"*x\"",
        ];
        let closed =
            ["pid: 7", "user: hdfs\nexecutable: \"*/java\"", "unit: om.service", "cgroup: /system.slice/*"];
        let read = |text| serde_yaml::from_str::<TargetMatch>(text);
        assert!(open.into_iter().all(|text| read(text).is_ok_and(|read| read.is_open_to_everybody())));
        assert!(closed.into_iter().all(|text| read(text).is_ok_and(|read| !read.is_open_to_everybody())));
    }
}

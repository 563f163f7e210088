//! A setting: a value in a target that the agent may change and has to restore. The perf level of a thread is
//! none: whoever raises it keeps it, and nobody else could put it back.

use crate::plan::{SetOptions, SetThrottle};
use crate::policy::TimeSpan;
use serde::{Deserialize, Serialize};

/// Names a setting of a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Setting {
    /// What kind it is, and where it is.
    pub kind: SettingKind,
    /// RocksDB's name of the option, or the policy's name of the throttle.
    pub name: String,
}

/// The kinds of settings. They live the same life; how they are read and set is the executors' business.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum SettingKind {
    /// An option of an open column family.
    Option {
        /// Database directory, as the target names it.
        database: String,
        /// Column family.
        column_family: String,
    },
    /// A throttle of the policy, set by a command.
    Throttle,
}

/// How a setting of the policy's commands is restored, whatever becomes of the policy meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreCommands {
    /// Program and arguments that set the former value.
    pub command: Vec<String>,
    /// Program and arguments that print the value in force.
    pub get: Vec<String>,
    /// Whose the two are; `None`: the agent's user's.
    #[serde(default)]
    pub user: Option<String>,
    /// How long each of the two may run.
    pub timeout: TimeSpan,
}

/// A setting and the value that is wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "setting")]
pub enum SettingChange {
    /// An option of a column family.
    Option(SetOptions),
    /// A throttle.
    Throttle(SetThrottle),
}

impl SettingChange {
    /// Which setting.
    pub fn setting(&self) -> Setting {
        match self {
            SettingChange::Option(set) => Setting {
                kind: SettingKind::Option {
                    database: set.database.clone(),
                    column_family: set.column_family.clone(),
                },
                name: set.name.clone(),
            },
            SettingChange::Throttle(set) => Setting { kind: SettingKind::Throttle, name: set.name.clone() },
        }
    }

    /// Name of the action that changes it, as the API has it.
    pub fn action_name(&self) -> &'static str {
        match self {
            SettingChange::Option(_) => "set_options",
            SettingChange::Throttle(_) => "set_throttle",
        }
    }

    /// The value that is wanted.
    pub fn value(&self) -> String {
        match self {
            SettingChange::Option(set) => set.value.clone(),
            SettingChange::Throttle(set) => set.value.clone(),
        }
    }

    /// The value to put back; `None` where nobody can know it.
    pub fn restore(&self) -> Option<&str> {
        match self {
            SettingChange::Option(set) => Some(&set.restore),
            SettingChange::Throttle(set) => set.restore.as_ref().map(|restore| restore.value.as_str()),
        }
    }

    /// The commands that restore it, where it takes commands.
    pub fn restore_commands(&self) -> Option<RestoreCommands> {
        let SettingChange::Throttle(set) = self else { return None };
        let command = set.restore.as_ref()?.command.clone();
        let (get, user) = (set.get.clone()?, set.user.clone());
        Some(RestoreCommands { command, get, user, timeout: set.timeout })
    }

    /// Target's name.
    pub fn target(&self) -> &str {
        match self {
            SettingChange::Option(set) => &set.target,
            SettingChange::Throttle(set) => &set.target,
        }
    }

    /// Why, in words.
    pub fn reason(&self) -> &str {
        match self {
            SettingChange::Option(set) => &set.reason,
            SettingChange::Throttle(set) => &set.reason,
        }
    }
}

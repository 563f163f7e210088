//! What an action does.

use super::claim::Claim;
use super::setting::SettingChange;
use crate::guard::DiskPrice;
use crate::plan::{self, CompactRange, Flush};
use crate::policy::RemedyKind;
use crate::range::KeyRange;
use crate::rank::RangeAssessment;
use crate::verify::Seen;
use serde::{Deserialize, Serialize};

/// What an action does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub enum ActionKind {
    /// Compact a range, or a slice of it.
    Compact(CompactRange),
    /// Flush a column family.
    Flush(Flush),
    /// Change a setting.
    ChangeSetting(SettingChange),
}

impl From<plan::Action> for ActionKind {
    fn from(planned: plan::Action) -> ActionKind {
        match planned {
            plan::Action::CompactRange(compact) => ActionKind::Compact(compact),
            plan::Action::Flush(flush) => ActionKind::Flush(flush),
            plan::Action::SetOptions(set) => ActionKind::ChangeSetting(SettingChange::Option(set)),
            plan::Action::SetThrottle(set) => ActionKind::ChangeSetting(SettingChange::Throttle(set)),
        }
    }
}

impl ActionKind {
    /// Name, as in the API: `compact_range`.
    pub fn name(&self) -> &'static str {
        match self {
            ActionKind::Compact(_) => "compact_range",
            ActionKind::Flush(_) => "flush",
            ActionKind::ChangeSetting(change) => change.action_name(),
        }
    }

    /// Target's name.
    pub fn target(&self) -> &str {
        match self {
            ActionKind::Compact(compact) => &compact.target,
            ActionKind::Flush(flush) => &flush.target,
            ActionKind::ChangeSetting(change) => change.target(),
        }
    }

    /// Database directory; `None` where it is not done to a database.
    pub fn database(&self) -> Option<&str> {
        match self {
            ActionKind::Compact(compact) => Some(&compact.database),
            ActionKind::Flush(flush) => Some(&flush.database),
            ActionKind::ChangeSetting(SettingChange::Option(set)) => Some(&set.database),
            ActionKind::ChangeSetting(_) => None,
        }
    }

    /// Column family; `None` where it is not done to one.
    pub fn column_family(&self) -> Option<&str> {
        match self {
            ActionKind::Compact(compact) => Some(&compact.column_family),
            ActionKind::Flush(flush) => Some(&flush.column_family),
            ActionKind::ChangeSetting(SettingChange::Option(set)) => Some(&set.column_family),
            ActionKind::ChangeSetting(_) => None,
        }
    }

    /// All keys that it is about.
    pub fn range(&self) -> KeyRange {
        match self {
            ActionKind::Compact(compact) => compact.range.clone(),
            ActionKind::Flush(_) | ActionKind::ChangeSetting(_) => KeyRange::everything(),
        }
    }

    /// What it promises to those who verify it; `None` where nothing is measured afterwards.
    pub fn claim(&self) -> Option<Claim> {
        let before = self.prediction().filter(|before| before.relief_seconds_per_second > 0.0)?;
        let promised_seconds_per_second = before.relief_seconds_per_second;
        Some(Claim { before, promised_seconds_per_second, windows_waited: 0, seen: Seen::default() })
    }

    /// Why, in words.
    pub fn reason(&self) -> &str {
        match self {
            ActionKind::Compact(compact) => &compact.reason,
            ActionKind::Flush(flush) => &flush.reason,
            ActionKind::ChangeSetting(change) => change.reason(),
        }
    }

    /// What it takes of the disk.
    pub fn disk_price(&self) -> DiskPrice {
        match self {
            ActionKind::Compact(compact) => compact.disk_price(),
            ActionKind::Flush(flush) => DiskPrice { written_bytes: flush.cost_bytes, linked_bytes: 0 },
            ActionKind::ChangeSetting(_) => DiskPrice::default(),
        }
    }

    /// Bytes that it is expected to write.
    pub fn cost_bytes(&self) -> u64 {
        self.disk_price().written_bytes
    }

    /// Bytes of the files it is expected to replace that hard links elsewhere keep on the disk.
    pub fn linked_bytes(&self) -> u64 {
        self.disk_price().linked_bytes
    }

    /// The range that the effect is to be looked for in, as it was before, with the relief that is promised
    /// there; `None` for what is not measured.
    pub fn prediction(&self) -> Option<RangeAssessment> {
        match self {
            ActionKind::Compact(compact) => Some(compact.prediction()),
            ActionKind::Flush(flush) => Some(flush.prediction()),
            ActionKind::ChangeSetting(SettingChange::Option(set)) => Some(set.prediction()),
            ActionKind::ChangeSetting(_) => None,
        }
    }

    /// Which of the policy's remedies it is; `None` for what is no remedy. Actions of the same keys wait for
    /// each other where they are the same remedy.
    pub fn remedy(&self) -> Option<RemedyKind> {
        match self {
            ActionKind::Compact(_) => Some(RemedyKind::Compact),
            ActionKind::Flush(_) => Some(RemedyKind::Flush),
            ActionKind::ChangeSetting(SettingChange::Option(_)) => Some(RemedyKind::Options),
            ActionKind::ChangeSetting(_) => None,
        }
    }
}

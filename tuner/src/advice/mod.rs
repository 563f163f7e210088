//! Advice: what a column family is used for, which compaction suits that, and what is about to go wrong.
//!
//! [`History`] takes in looks at a database and what windows have seen of it, and keeps sums. [`advise`]
//! makes sentences of them. No key is in any of these.

mod danger;
mod figures;
mod history;
mod order;
mod strategy;
mod text;
mod workload;

pub use danger::{Danger, DangerKind};
pub use figures::{Figures, LevelFigures};
pub use history::History;
pub use order::{FileOrder, OrderCounts};
pub use strategy::{OptionAdvice, Recommendation, Strategy};
pub use text::text;
pub use workload::Workload;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strategy::Setup;

/// What there is to say of one column family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    pub target: String,
    pub database: String,
    pub column_family: String,
    pub workload: Workload,
    /// What it was told by, in sentences with figures.
    pub because: Vec<String>,
    /// What is missing to tell it, or to tell it better.
    pub missing: Vec<String>,
    /// What suits it; `None` where that cannot be told, or where it is hardly used.
    pub recommendation: Option<Recommendation>,
    /// What must not be done here.
    pub never: Vec<String>,
    /// What is about to go wrong.
    pub dangers: Vec<Danger>,
    pub figures: Figures,
}

/// What there is to say of a database, a piece for each column family that holds files.
pub fn advise(target: &str, database: &str, history: &History) -> Vec<Advice> {
    let sums = history.sums();
    let now_unix_s = history.at_unix_s();
    let families = history.families.iter();
    families
        .map(|(name, family)| {
            let figures = Figures::of(history, &sums, name, family);
            let told = workload::tell(&figures, family.options.has_compaction_filter);
            let setup = Setup {
                figures: &figures,
                options: &family.options,
                has_deletion_collector: family.has_deletion_collector,
            };
            Advice {
                target: target.to_owned(),
                database: database.to_owned(),
                column_family: name.clone(),
                workload: told.workload,
                because: told.because,
                missing: told.missing,
                recommendation: strategy::recommend(told.workload, &setup),
                never: strategy::never(told.workload, &setup),
                dangers: danger::dangers(&setup, family, now_unix_s),
                figures,
            }
        })
        .collect()
}

//! Which compaction suits a workload, in RocksDB's terms: what to set, why, what it costs, since when
//! RocksDB has it, how to try it, and what must not be done.

use super::figures::Figures;
use super::order::FileOrder;
use super::workload::Workload;
use crate::facts::options::{ColumnFamilyOptions, CompactionStyle};
use crate::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Files that have to lie behind each other before dropping the oldest is spoken of.
const FIFO_FILES_MIN: u64 = 3;

/// Most deletions in an entry, and most of what was written again, where data goes by its age alone.
const FIFO_RATIO_MAX: f64 = 0.01;

/// The compaction that suits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Strategy {
    /// `kCompactionStyleLevel`.
    Leveled,
    /// `kCompactionStyleUniversal`.
    Universal,
    /// `kCompactionStyleFIFO` with `ttl`.
    FifoWithTtl,
    /// Leveled, with `CompactOnDeletionCollector`.
    CompactOnDeletion,
}

impl Strategy {
    /// In RocksDB's words.
    pub fn in_words(self) -> &'static str {
        match self {
            Strategy::Leveled => "leveled compaction",
            Strategy::Universal => "universal compaction",
            Strategy::FifoWithTtl => "FIFO compaction with a TTL",
            Strategy::CompactOnDeletion => "leveled compaction with CompactOnDeletionCollector",
        }
    }
}

/// A value of an option of RocksDB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OptionAdvice {
    /// RocksDB's name for it.
    pub name: String,
    /// What to set, as in an OPTIONS file or in words.
    pub value: String,
    /// The value in force, where it is known.
    pub in_force: Option<String>,
    /// Whether `SetOptions` changes it while the database is open.
    pub at_run_time: bool,
    /// The first version that has it so.
    pub since: String,
    /// What it does here.
    pub why: String,
}

/// What suits a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recommendation {
    pub strategy: Strategy,
    /// Whether it is in force already, as far as the options tell.
    pub is_in_force: bool,
    pub why: String,
    /// What it costs.
    pub cost: String,
    /// The first version of RocksDB that has it.
    pub since: String,
    pub options: Vec<OptionAdvice>,
    /// How to try it.
    pub how_to_try: String,
}

/// What is known of a column family beside its figures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    pub figures: &'a Figures,
    pub options: &'a ColumnFamilyOptions,
    pub has_deletion_collector: bool,
}

/// Versions that Sexton knows have it.
const ALWAYS: &str = "every version";

/// What suits it; `None` where nothing is known, or nothing is to be gained.
pub(super) fn recommend(workload: Workload, setup: &Setup<'_>) -> Option<Recommendation> {
    match workload {
        Workload::Unknown | Workload::Idle => None,
        Workload::WriteOnly => Some(universal(setup)),
        Workload::Overwrite => Some(overwritten(setup)),
        Workload::ReadMostlyFewUpdates => Some(read(setup)),
        Workload::ReadMostlyManyUpdates => Some(read_and_updated(setup)),
        Workload::TimeSeries if fifo_objection(setup.figures).is_none() => Some(fifo(setup)),
        Workload::TimeSeries => Some(expiring(setup)),
        Workload::MonotonicLog => Some(appended(setup)),
        Workload::Queue | Workload::InsertAndDelete => Some(deleting(workload, setup)),
    }
}

/// What must not be done here.
pub(super) fn never(workload: Workload, setup: &Setup<'_>) -> Vec<String> {
    let mut never = Vec::new();
    if workload == Workload::MonotonicLog {
        never.push(
            "FIFO compaction, unless old entries may be lost: it drops the oldest files whether or not anybody still \
             needs them, and nothing is deleted here"
                .to_owned(),
        );
    } else if let Some(objection) = fifo_objection(setup.figures) {
        never.push(format!("FIFO compaction: it drops the oldest files whole, and {objection}"));
    }
    if matches!(workload, Workload::Overwrite | Workload::Queue | Workload::InsertAndDelete) {
        never.push(
            "disable_auto_compactions: nothing but compaction drops what was overwritten or deleted"
                .to_owned(),
        );
    }
    if workload == Workload::Queue {
        never.push(
            "universal compaction for the sake of fewer rewrites: its tombstones stay until a compaction takes the oldest \
             run, which is the whole column family"
                .to_owned(),
        );
    }
    never
}

/// Why dropping the oldest files would lose data that is in use; `None` where all data came in the order of
/// its keys, so that none was written again, and nothing is merged or deleted one by one.
pub(super) fn fifo_objection(figures: &Figures) -> Option<String> {
    let order = &figures.order;
    if figures.is_unordered || order.behind < order.known() || order.unknown > 0 {
        let others = order.known() + order.unknown - order.behind;
        return Some(match others {
            0 => "its data is not ordered by time: keys were written that lie among older ones".to_owned(),
            _ => format!(
                "its data is not ordered by time: {others} of {} new files hold keys that lie among older ones",
                order.known() + order.unknown,
            ),
        });
    }
    if order.behind < FIFO_FILES_MIN {
        return Some(format!(
            "it is not known whether its data is ordered by time: {} new files were seen, and {FIFO_FILES_MIN} are \
             wanted",
            order.behind,
        ));
    }
    if figures.merge_ratio > 0.0 {
        return Some("it holds merge operands, of which an old file may have the first".to_owned());
    }
    match figures.file_order {
        FileOrder::ByTime => None,
        FileOrder::Other => Some("its files are not in the order of their age".to_owned()),
        FileOrder::Unknown => {
            Some("so many of its files have been rewritten that their order is not known".to_owned())
        }
    }
}

fn level_style(setup: &Setup<'_>) -> bool {
    setup.options.compaction_style == CompactionStyle::Level
}

fn option(name: &str, value: &str, at_run_time: bool, since: &str, why: impl Into<String>) -> OptionAdvice {
    OptionAdvice {
        name: name.to_owned(),
        value: value.to_owned(),
        in_force: None,
        at_run_time,
        since: since.to_owned(),
        why: why.into(),
    }
}

impl OptionAdvice {
    fn in_force(mut self, value: impl ToString) -> OptionAdvice {
        self.in_force = Some(value.to_string());
        self
    }
}

fn style(setup: &Setup<'_>, wanted: &str) -> Option<OptionAdvice> {
    let in_force = match setup.options.compaction_style {
        CompactionStyle::Level => "kCompactionStyleLevel",
        CompactionStyle::Universal => "kCompactionStyleUniversal",
        CompactionStyle::Fifo => "kCompactionStyleFIFO",
    };
    let advice = option("compaction_style", wanted, false, ALWAYS, "the style is fixed while it is open");
    (wanted != in_force).then(|| advice.in_force(in_force))
}

/// A larger memtable takes up more versions of a key before any of them is written.
fn write_buffer(setup: &Setup<'_>, why: &str) -> OptionAdvice {
    let bytes = setup.options.write_buffer_size;
    option("write_buffer_size", &bytes.saturating_mul(2).to_string(), true, ALWAYS, why).in_force(bytes)
}

/// Cuts files where those of the next level end.
fn dynamic_file_size(setup: &Setup<'_>) -> Option<OptionAdvice> {
    let in_force = setup.options.level_compaction_dynamic_file_size;
    let why =
        "files end where those of the next level do: a tenth less is rewritten, by RocksDB's own measurement";
    let advice = option("level_compaction_dynamic_file_size", "true", false, "7.8, where it is on", why);
    match in_force {
        Some(true) => None,
        Some(false) => Some(advice.in_force(false)),
        None => Some(OptionAdvice { in_force: Some("not in this version".to_owned()), ..advice }),
    }
}

fn dynamic_levels(setup: &Setup<'_>) -> Option<OptionAdvice> {
    let why = "the last level holds nine tenths of the data, so that little space goes to old versions";
    let advice = option("level_compaction_dynamic_level_bytes", "true", false, ALWAYS, why);
    (!setup.options.level_compaction_dynamic_level_bytes).then(|| advice.in_force(false))
}

fn amplifications(figures: &Figures) -> String {
    let of = |value: Option<f64>| value.map_or("not known".to_owned(), words::number);
    format!(
        "write amplification {} while watched, space amplification {}, {} sorted runs",
        of(figures.write_amplification),
        of(figures.space_amplification),
        figures.read_amplification,
    )
}

fn universal(setup: &Setup<'_>) -> Recommendation {
    Recommendation {
        strategy: Strategy::Universal,
        is_in_force: setup.options.compaction_style == CompactionStyle::Universal,
        why: format!(
            "nobody waits for reads, so that writing each entry fewer times is worth more sorted runs; now {}",
            amplifications(setup.figures)
        ),
        cost: format!(
            "up to twice the space while all files are merged ({} now), and reads that look into more runs",
            words::bytes(setup.figures.sst_bytes)
        ),
        since: ALWAYS.to_owned(),
        options: style(setup, "kCompactionStyleUniversal")
            .into_iter()
            .chain([write_buffer(setup, "fewer and larger files reach L0")])
            .collect(),
        how_to_try: "open one replica, or a copy of the data, with the other style; a database of several levels opens as \
                     universal with the same num_levels, and needs one full compaction to go back"
            .to_owned(),
    }
}

fn overwritten(setup: &Setup<'_>) -> Recommendation {
    let more = [dynamic_levels(setup), dynamic_file_size(setup)];
    Recommendation {
        strategy: Strategy::Leveled,
        is_in_force: level_style(setup),
        why: format!(
            "old versions of the same keys are dropped where levels meet, so that space stays near one copy; now {}",
            amplifications(setup.figures)
        ),
        cost: "each entry is written once a level".to_owned(),
        since: ALWAYS.to_owned(),
        options: [write_buffer(setup, "versions of a key that meet in the memtable are written once")]
            .into_iter()
            .chain(more.into_iter().flatten())
            .collect(),
        how_to_try:
            "write_buffer_size by SetOptions while it runs; compare the write amplification after an hour"
                .to_owned(),
    }
}

fn read(setup: &Setup<'_>) -> Recommendation {
    let trigger = setup.options.level0_file_num_compaction_trigger;
    let level0 = option(
        "level0_file_num_compaction_trigger",
        "2",
        true,
        ALWAYS,
        "each file in L0 is one more place that a read looks into; so few writes can be merged at once",
    );
    let read_triggered = setup.options.run_time_options.get("read_triggered_compaction_threshold");
    let read_triggered = read_triggered.map(|value| {
        let why = "files that are read much are moved down";
        option("read_triggered_compaction_threshold", "0.01", true, "11.2", why).in_force(value)
    });
    Recommendation {
        strategy: Strategy::Leveled,
        is_in_force: level_style(setup),
        why: format!(
            "a read looks into one file a level; what is written is too little for rewriting to matter; now {}",
            amplifications(setup.figures)
        ),
        cost: "each of the few entries that are written is rewritten once a level".to_owned(),
        since: ALWAYS.to_owned(),
        options: (trigger > 2).then(|| level0.in_force(trigger)).into_iter().chain(read_triggered).collect(),
        how_to_try: "the options by SetOptions while it runs; blocks read and cache hits of the target tell in minutes"
            .to_owned(),
    }
}

fn read_and_updated(setup: &Setup<'_>) -> Recommendation {
    let more = [dynamic_levels(setup), dynamic_file_size(setup)];
    Recommendation {
        strategy: Strategy::Leveled,
        is_in_force: level_style(setup),
        why: format!(
            "readers want few sorted runs, and updates leave old versions that leveled compaction drops soonest; now {}",
            amplifications(setup.figures)
        ),
        cost: "each update is rewritten once a level; compaction runs beside the readers".to_owned(),
        since: ALWAYS.to_owned(),
        options: [write_buffer(setup, "keys that are updated often meet in the memtable")]
            .into_iter()
            .chain(more.into_iter().flatten())
            .collect(),
        how_to_try:
            "write_buffer_size by SetOptions while it runs; compare write amplification and latencies"
                .to_owned(),
    }
}

fn fifo(setup: &Setup<'_>) -> Recommendation {
    let open_files = "ttl needs max_open_files = -1";
    Recommendation {
        strategy: Strategy::FifoWithTtl,
        is_in_force: setup.options.compaction_style == CompactionStyle::Fifo,
        why: format!(
            "all {} new files lay behind each other, nothing is written again, and old entries go: whole files can be \
             dropped by their age, and nothing is ever rewritten",
            setup.figures.order.behind,
        ),
        cost: "a file goes whole, at its age, without a question: what has to stay longer than the TTL is lost; all files \
               are in L0, so that a read by a key outside of all ranges is cheap and one inside looks into its file's filter"
            .to_owned(),
        since: "every version, ttl as an option of the column family since 6.0".to_owned(),
        options: [
            option("ttl", "the longest time for which an entry is wanted, seconds", true, "5.15", open_files)
                .in_force(ttl(setup)),
            option(
                "compaction_options_fifo",
                "{max_table_files_size=...}, well above what is written in a TTL",
                true,
                ALWAYS,
                "beyond this size the oldest files go before their time; the default is 1 GiB",
            ),
        ]
        .into_iter()
        .chain(style(setup, "kCompactionStyleFIFO"))
        .collect(),
        how_to_try: "write new data into a new column family with this style, and drop the old one when its data has \
                     expired: files that were written under another style are not in order"
            .to_owned(),
    }
}

fn ttl(setup: &Setup<'_>) -> String {
    match setup.options.ttl_seconds {
        Some(0) => "0 (off)".to_owned(),
        Some(seconds) => seconds.to_string(),
        None => "not in this version".to_owned(),
    }
}

/// Old data that goes, in no order that FIFO could drop it by.
fn expiring(setup: &Setup<'_>) -> Recommendation {
    let by_hand = setup.figures.deletion_ratio > FIFO_RATIO_MAX;
    let periodic = setup.options.periodic_compaction_seconds;
    let mut options = vec![
        option(
            "ttl",
            "the time for which an entry is wanted, seconds",
            true,
            "5.15",
            "files above the last level whose data is older are compacted down, and what is deleted or expired goes",
        )
        .in_force(ttl(setup)),
    ];
    if setup.options.has_compaction_filter {
        let value = periodic.map_or("not in this version".to_owned(), |seconds| seconds.to_string());
        let why = "each file meets the compaction filter at least so often, those of the last level as well";
        options.push(
            option("periodic_compaction_seconds", "a tenth of that time", true, "6.2", why).in_force(value),
        );
    }
    let advice = if by_hand {
        "entries of one age are deleted one by one: one DeleteRange a prefix leaves one tombstone for all of them"
    } else {
        "what is old lies in the same files as what is not, so that compaction has to part them"
    };
    Recommendation {
        strategy: Strategy::Leveled,
        is_in_force: level_style(setup),
        why: format!("{advice}; now {}", amplifications(setup.figures)),
        cost: "files are rewritten once in the time that is set, in addition".to_owned(),
        since: "5.14, at run time since 5.15".to_owned(),
        options,
        how_to_try: "ttl by SetOptions while it runs, at first ten times as long as wanted".to_owned(),
    }
}

fn appended(setup: &Setup<'_>) -> Recommendation {
    Recommendation {
        strategy: Strategy::Leveled,
        is_in_force: level_style(setup),
        why: format!(
            "files that overlap nothing are moved from level to level without being rewritten; now {}",
            amplifications(setup.figures)
        ),
        cost: "nothing: each entry is written once, as with any other style".to_owned(),
        since: ALWAYS.to_owned(),
        options: Vec::new(),
        how_to_try: "there is nothing to change; if old entries are not wanted for ever, DeleteFilesInRanges drops whole \
                     files of them, and FIFO compaction with a ttl does so by itself"
            .to_owned(),
    }
}

fn deleting(workload: Workload, setup: &Setup<'_>) -> Recommendation {
    let figures = setup.figures;
    let mut options = Vec::new();
    if !setup.has_deletion_collector {
        options.push(option(
            "table_properties_collector_factories",
            "NewCompactOnDeletionCollectorFactory(128, 64)",
            false,
            ALWAYS,
            "a new file with 64 deletions among 128 entries is marked for compaction when it is written",
        ));
    }
    if let Some(value) = setup.options.run_time_options.get("memtable_op_scan_flush_trigger") {
        let why = "a scan that steps over so many entries of the memtable has it flushed, and the file is then marked";
        options.push(option("memtable_op_scan_flush_trigger", "1000", true, "10.2", why).in_force(value));
    }
    options.push(
        option(
            "ttl",
            "3600",
            true,
            "5.15",
            "tombstones that no compaction has taken for an hour are compacted down",
        )
        .in_force(ttl(setup)),
    );
    let seeks = match figures.tombstones_per_seek {
        tombstones if tombstones >= 1.0 => {
            format!(", and a seek steps over {} of them", words::number(tombstones))
        }
        _ => String::new(),
    };
    let place = match workload {
        Workload::Queue => "at the front, where readers begin",
        _ => "all over the keys",
    };
    Recommendation {
        strategy: Strategy::CompactOnDeletion,
        is_in_force: level_style(setup) && setup.has_deletion_collector,
        why: format!(
            "{} of the new entries are deletions {place}{seeks}; compaction by size alone takes their files late",
            words::percent(figures.deletion_ratio),
        ),
        cost: "files full of tombstones are rewritten as soon as they are flushed: some more writing, of small files"
            .to_owned(),
        since: "every version; at num_levels = 1 it does nothing".to_owned(),
        options,
        how_to_try: "ttl by SetOptions while it runs; the collector with the next restart of one replica; until then Sexton \
                     in mode act compacts the ranges that hurt"
            .to_owned(),
    }
}

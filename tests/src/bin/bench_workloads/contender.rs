//! Who is compared: nothing, what an application or its operator can do without Sexton, and Sexton.

use crate::order::{Collector, Settings};
use crate::workload::{Scale, Workload};

/// Somebody, or something, that deals with tombstones, at one setting.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Unique among those of a workload: `full_compaction`, `full_compaction_4s`.
    pub name: String,
    /// Those of one kind differ in a setting, and make one curve.
    pub kind: &'static str,
    pub settings: Settings,
    pub agent: Option<AgentSettings>,
    /// Whether it is there for its kind's curve only, and runs once.
    pub is_for_curve: bool,
}

/// What the agent's policy says.
#[derive(Clone, Copy, Debug)]
pub struct AgentSettings {
    pub ranker: &'static str,
    pub remedies: &'static str,
    /// What it may rewrite a second.
    pub budget_mib_per_second: u64,
}

pub const NOTHING: &str = "nothing";
pub const SEXTON: &str = "sexton";
const SEXTON_OPTIONS: &str = "sexton_options";
pub const DENSITY: &str = "density";

/// Kinds that decide by Sexton's evidence and rank as others do.
const RANKERS: [&str; 3] = [DENSITY, "deletes_per_operation", "versions_rate"];
const COMPACT: &str = "[compact]";
/// As much as readers and writers of these workloads leave of a small disk.
const BUDGET_MIB_PER_SECOND: u64 = 16;
/// In a quick run nothing is to wait for its budget.
const QUICK_BUDGET_MIB_PER_SECOND: u64 = 256;

/// Options of RocksDB 11 for readers: the name of the contender, the option, its value, and those that make
/// the curve.
const OPTIONS: [(&str, &str, &str, [&str; 3]); 3] = [
    ("memtable_scan_flush", "memtable_op_scan_flush_trigger", "1000", ["100", "300", "10000"]),
    ("read_triggered", "read_triggered_compaction_threshold", "0.01", ["0.001", "0.1", "1"]),
    ("range_conversion", "min_tombstones_for_range_conversion", "8", ["2", "32", "128"]),
];

impl Contender {
    fn new(kind: &'static str) -> Contender {
        Contender {
            name: kind.to_owned(),
            kind,
            settings: Settings::default(),
            agent: None,
            is_for_curve: false,
        }
    }

    /// The same kind at another setting.
    fn at(mut self, setting: &str) -> Contender {
        self.name = format!("{}_{setting}", self.kind);
        self.is_for_curve = true;
        self
    }

    /// Whether it stands for doing something without Sexton.
    pub fn is_alternative(&self) -> bool {
        self.agent.is_none() && self.kind != NOTHING
    }

    /// Whether it is Sexton as it is meant to be, not a rule of others on Sexton's evidence.
    pub fn is_sexton(&self) -> bool {
        [SEXTON, SEXTON_OPTIONS].contains(&self.kind)
    }

    /// The name of the filled databases that it begins with: a collector marks files as they are written, so
    /// it has to be there when the databases are filled.
    pub fn filled_name(&self) -> String {
        if self.settings.collector.is_some() { self.name.clone() } else { "plain".to_owned() }
    }

    /// What is set while they are filled.
    pub fn filling_settings(&self) -> Settings {
        Settings { collector: self.settings.collector, ..Settings::default() }
    }
}

fn full_compaction(seconds: u64) -> Contender {
    let mut contender = Contender::new("full_compaction");
    contender.settings.compact_interval_seconds = Some(seconds);
    contender
}

fn collector(window: usize, trigger: usize) -> Contender {
    let mut contender = Contender::new("collector");
    contender.settings.collector = Some(Collector { window, trigger, ratio: 0.5 });
    contender
}

fn option(kind: &'static str, name: &str, value: &str) -> Contender {
    let mut contender = Contender::new(kind);
    contender.settings.options.push((name.to_owned(), value.to_owned()));
    contender
}

fn all_options() -> Contender {
    let mut contender = Contender::new("all_options");
    let options = OPTIONS.map(|(_, name, value, _)| (name.to_owned(), value.to_owned()));
    contender.settings.options.extend(options);
    contender
}

fn agent(
    kind: &'static str,
    ranker: &'static str,
    remedies: &'static str,
    budget_mib_per_second: u64,
) -> Contender {
    let agent = Some(AgentSettings { ranker, remedies, budget_mib_per_second });
    Contender { agent, ..Contender::new(kind) }
}

/// Who is compared on a workload, in the order of the first repetition.
pub fn contenders(workload: &Workload, scale: Scale) -> Vec<Contender> {
    match (scale, workload.name) {
        (Scale::Quick, _) => quick(workload),
        (Scale::Full, "queue_1e5" | "queue_1e6") => few(),
        (Scale::Full, "queue_1e7" | "prefixes") => [all(), curves()].concat(),
        (Scale::Full, _) if workload.is_ycsb() => few(),
        (Scale::Full, _) => all(),
    }
}

fn quick(workload: &Workload) -> Vec<Contender> {
    let budget = QUICK_BUDGET_MIB_PER_SECOND;
    let sexton = agent(SEXTON, "margin", COMPACT, budget);
    match workload.letter {
        'a' => vec![Contender::new(NOTHING), full_compaction(2), sexton],
        'c' => vec![sexton],
        'h' => vec![Contender::new(NOTHING), sexton],
        _ => vec![Contender::new(NOTHING), sexton, agent(DENSITY, DENSITY, COMPACT, budget)],
    }
}

fn few() -> Vec<Contender> {
    vec![
        Contender::new(NOTHING),
        agent(SEXTON, "margin", COMPACT, BUDGET_MIB_PER_SECOND),
        full_compaction(16),
        collector(32_768, 16_384),
        all_options(),
        agent(DENSITY, DENSITY, COMPACT, BUDGET_MIB_PER_SECOND),
    ]
}

fn all() -> Vec<Contender> {
    let mut all = vec![
        Contender::new(NOTHING),
        agent(SEXTON, "margin", COMPACT, BUDGET_MIB_PER_SECOND),
        agent(SEXTON_OPTIONS, "margin", "[compact, options]", BUDGET_MIB_PER_SECOND),
        full_compaction(16),
        collector(32_768, 16_384),
    ];
    all.extend(OPTIONS.map(|(kind, name, value, _)| option(kind, name, value)));
    all.push(all_options());
    all.extend(RANKERS.map(|ranker| agent(ranker, ranker, COMPACT, BUDGET_MIB_PER_SECOND)));
    all
}

/// Three more settings of each kind that has one.
fn curves() -> Vec<Contender> {
    let mut curves: Vec<Contender> = Vec::new();
    curves.extend([4, 8, 32].map(|seconds| full_compaction(seconds).at(&format!("{seconds}s"))));
    let triggers = [(1_024, 512), (4_096, 2_048), (131_072, 65_536)];
    curves.extend(triggers.map(|(window, trigger)| collector(window, trigger).at(&trigger.to_string())));
    for (kind, name, _, values) in OPTIONS {
        curves.extend(values.map(|value| option(kind, name, value).at(value)));
    }
    for (kind, ranker) in [(SEXTON, "margin"), (DENSITY, DENSITY)] {
        curves.extend([4, 8, 32].map(|mib| agent(kind, ranker, COMPACT, mib).at(&format!("{mib}mib"))));
    }
    curves
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::workload;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_everybody_is_compared_with_nothing() {
        for workload in workload::all() {
            for scale in [Scale::Full, Scale::Quick] {
                let contenders = contenders(&workload, scale);
                let names: BTreeSet<&str> = contenders.iter().map(|one| one.name.as_str()).collect();
                assert_eq!(names.len(), contenders.len(), "{}", workload.name);
                assert!(names.contains(SEXTON), "{}", workload.name);
                assert!(scale == Scale::Quick || names.contains(NOTHING), "{}", workload.name);
            }
        }
    }

    #[test]
    fn a_curve_has_four_settings() {
        let queue = workload::selected("queue_1e7").unwrap();
        let contenders = contenders(&queue[0], Scale::Full);
        for kind in ["full_compaction", "collector", "range_conversion", SEXTON, DENSITY] {
            assert_eq!(contenders.iter().filter(|one| one.kind == kind).count(), 4, "{kind}");
        }
    }
}

//! The dashboard for Grafana, `deploy/grafana/sexton.json`, made from the panels described here.
//!
//! A panel is a question and the expressions that answer it. Whatever else Grafana wants to be told is the
//! same for all of them, so it is written once.

use serde_json::{Value, json};

/// What a panel is drawn as.
#[derive(Clone, Copy, Debug)]
enum Drawn {
    Lines,
    Number,
}

/// A panel: its title, what it means, its unit (Grafana's name for it), and expressions with their legends.
struct Panel {
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    drawn: Drawn,
    expressions: &'static [(&'static str, &'static str)],
}

const fn lines(
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    expressions: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, description, unit, drawn: Drawn::Lines, expressions }
}

const fn number(
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    expressions: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, description, unit, drawn: Drawn::Number, expressions }
}

/// Rows, each with its panels.
const ROWS: &[(&str, &[Panel])] =
    &[("Now", NOW), ("Readers", READERS), ("Actions", ACTIONS), ("Probes", PROBES), ("Agent", AGENT)];

const NOW: &[Panel] = &[
    number(
        "Readers lose",
        "Reader time lost to tombstones and block misses, of all targets.",
        "percentunit",
        &[(r#"sum(sexton_seek_pain_ratio{instance=~"$instance", target=~"$target"})"#, "")],
    ),
    number(
        "Targets watched",
        "Processes with a RocksDB that are there.",
        "none",
        &[(r#"sum(sexton_target_up{instance=~"$instance", target=~"$target"})"#, "")],
    ),
    number(
        "Actions running",
        "Compactions and other actions that run now.",
        "none",
        &[(r#"sum(sexton_actions_running{instance=~"$instance", target=~"$target"})"#, "")],
    ),
    number(
        "Things to look at",
        "Agents that do not follow their policy or cannot write their state, and targets that do not answer.",
        "none",
        &[(
            r#"count(sexton_policy_current{instance=~"$instance"} == 0 or sexton_state_writable{instance=~"$instance"} == 0 or sexton_target_unresponsive{instance=~"$instance", target=~"$target"} == 1) or vector(0)"#,
            "",
        )],
    ),
];

const READERS: &[Panel] = &[
    lines(
        "Seek pain",
        "Reader seconds lost per second, by target.",
        "percentunit",
        &[(r#"sexton_seek_pain_ratio{instance=~"$instance", target=~"$target"}"#, "{{instance}} {{target}}")],
    ),
    lines(
        "How long lists take",
        "From the positioning of an iterator to its end, by operations that windows have seen.",
        "s",
        &[
            (
                r#"histogram_quantile(0.99, sum by (instance, target, column_family, le) (rate(sexton_list_latency_seconds_bucket{instance=~"$instance", target=~"$target"}[$__rate_interval])))"#,
                "{{target}} {{column_family}} p99",
            ),
            (
                r#"histogram_quantile(0.5, sum by (instance, target, column_family, le) (rate(sexton_list_latency_seconds_bucket{instance=~"$instance", target=~"$target"}[$__rate_interval])))"#,
                "{{target}} {{column_family}} p50",
            ),
        ],
    ),
    lines(
        "Seek pain of the worst ranges",
        "By rank; rank 1 is relieved first. /api/v1/ranges on the node has their keys.",
        "percentunit",
        &[(
            r#"sexton_range_seek_pain_ratio{instance=~"$instance", target=~"$target"}"#,
            "{{target}} {{rank}}",
        )],
    ),
    lines(
        "Tombstones skipped",
        "By readers, a second.",
        "short",
        &[(
            r#"rate(sexton_tombstones_skipped_total{instance=~"$instance", target=~"$target"}[$__rate_interval])"#,
            "{{instance}} {{target}}",
        )],
    ),
    lines(
        "Blocks read from files",
        "Blocks that were not in the block cache, a second.",
        "short",
        &[(
            r#"rate(sexton_block_reads_total{instance=~"$instance", target=~"$target"}[$__rate_interval])"#,
            "{{instance}} {{target}}",
        )],
    ),
    lines(
        "Block cache hits",
        "Blocks found in the cache per block needed.",
        "percentunit",
        &[(
            r#"rate(sexton_block_cache_hits_total{instance=~"$instance", target=~"$target"}[$__rate_interval]) / (rate(sexton_block_cache_hits_total{instance=~"$instance", target=~"$target"}[$__rate_interval]) + rate(sexton_block_reads_total{instance=~"$instance", target=~"$target"}[$__rate_interval]) > 0)"#,
            "{{instance}} {{target}}",
        )],
    ),
    lines(
        "Pain that is in no range",
        "Not recorded, or in no operation that the probes followed.",
        "percentunit",
        &[
            (
                r#"sexton_seek_pain_unrecorded_ratio{instance=~"$instance", target=~"$target"}"#,
                "{{target}} unrecorded",
            ),
            (
                r#"sexton_seek_pain_unowned_ratio{instance=~"$instance", target=~"$target"}"#,
                "{{target}} unowned",
            ),
            (
                r#"sexton_block_reads_unowned_ratio{instance=~"$instance", target=~"$target"}"#,
                "{{target}} unowned block reads",
            ),
        ],
    ),
];

const ACTIONS: &[Panel] = &[
    lines(
        "Actions that ended",
        "In the interval, by what became of them.",
        "short",
        &[(
            r#"increase(sexton_actions_total{instance=~"$instance", target=~"$target"}[$__rate_interval]) > 0"#,
            "{{target}} {{state}}",
        )],
    ),
    lines(
        "Bytes rewritten",
        "A second, beside what may be rewritten.",
        "Bps",
        &[
            (
                r#"rate(sexton_bytes_rewritten_total{instance=~"$instance", target=~"$target"}[$__rate_interval])"#,
                "{{instance}} {{target}}",
            ),
            (r#"sexton_budget_bytes_per_second{instance=~"$instance"}"#, "{{instance}} budget"),
        ],
    ),
    lines(
        "Relief promised and delivered",
        "Seek pain that verified actions of the last day were to take away, and did.",
        "percentunit",
        &[
            (
                r#"increase(sexton_relief_promised_ratio_total{instance=~"$instance", target=~"$target"}[1d])"#,
                "{{target}} promised",
            ),
            (
                r#"increase(sexton_relief_delivered_ratio_total{instance=~"$instance", target=~"$target"}[1d])"#,
                "{{target}} delivered",
            ),
        ],
    ),
    lines(
        "Plan",
        "Steps of the current plan, and what it leaves alone by rule.",
        "short",
        &[
            (r#"sexton_plan_steps{instance=~"$instance"}"#, "{{instance}} steps"),
            (r#"sexton_plan_refusals{instance=~"$instance", target=~"$target"}"#, "{{target}} {{rule}}"),
        ],
    ),
    lines(
        "Guards that object",
        "What keeps actions from beginning, and pauses those that run.",
        "short",
        &[(
            r#"sexton_guard_blocking{instance=~"$instance", target=~"$target"} == 1"#,
            "{{target}} {{guard}}",
        )],
    ),
];

const PROBES: &[Panel] = &[
    lines(
        "What probes cost",
        "Share of one processor core, beside the budget.",
        "percentunit",
        &[
            (
                r#"rate(sexton_probe_cost_seconds_total{instance=~"$instance", target=~"$target"}[$__rate_interval])"#,
                "{{instance}} {{target}}",
            ),
            (r#"sexton_probe_budget_ratio{instance=~"$instance", target=~"$target"}"#, "{{target}} budget"),
        ],
    ),
    lines(
        "Windows",
        "Share of the time that probes were in the process.",
        "percentunit",
        &[(
            r#"rate(sexton_window_seconds_total{instance=~"$instance", target=~"$target"}[$__rate_interval])"#,
            "{{instance}} {{target}}",
        )],
    ),
];

const AGENT: &[Panel] = &[
    lines(
        "Targets",
        "Whether each is there, readable, and answered by a hook.",
        "short",
        &[
            (r#"sexton_target_readable{instance=~"$instance", target=~"$target"}"#, "{{target}} readable"),
            (r#"sexton_target_hook{instance=~"$instance", target=~"$target"}"#, "{{target}} hook"),
            (
                r#"sexton_target_unresponsive{instance=~"$instance", target=~"$target"}"#,
                "{{target}} unresponsive",
            ),
        ],
    ),
    lines(
        "Age of the published state",
        "How long ago the agent finished its last step.",
        "s",
        &[(r#"time() - sexton_snapshot_timestamp_seconds{instance=~"$instance"}"#, "{{instance}}")],
    ),
];

/// Grid of Grafana: 24 columns.
const COLUMNS: usize = 24;
const LINES_WIDTH: usize = 12;
const LINES_HEIGHT: usize = 8;
const NUMBER_WIDTH: usize = 6;
const NUMBER_HEIGHT: usize = 4;

/// The title of each panel with each of its expressions.
pub fn expressions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let panels = ROWS.iter().flat_map(|(_, panels)| panels.iter());
    panels.flat_map(|panel| panel.expressions.iter().map(|(expression, _)| (panel.title, *expression)))
}

/// The whole dashboard.
pub fn dashboard() -> Value {
    let mut panels = Vec::new();
    let mut y = 0;
    for (title, row) in ROWS {
        let id = panels.len() + 1;
        panels.push(json!({
            "id": id, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }));
        y += 1;
        let (mut x, mut height) = (0, 0);
        for panel in *row {
            let (w, h) = match panel.drawn {
                Drawn::Lines => (LINES_WIDTH, LINES_HEIGHT),
                Drawn::Number => (NUMBER_WIDTH, NUMBER_HEIGHT),
            };
            if x + w > COLUMNS {
                (x, y) = (0, y + height);
            }
            let id = panels.len() + 1;
            panels.push(panel_json(panel, id, &json!({"x": x, "y": y, "w": w, "h": h})));
            (x, height) = (x + w, h);
        }
        y += height;
    }
    json!({
        "title": "Sexton", "uid": "sexton", "tags": ["rocksdb"], "schemaVersion": 38, "version": 1,
        "editable": true, "refresh": "30s", "time": {"from": "now-6h", "to": "now"}, "timezone": "browser",
        "graphTooltip": 1,
        "templating": {"list": variables()},
        "annotations": {"list": [annotation()]},
        "panels": panels,
    })
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn panel_json(panel: &Panel, id: usize, place: &Value) -> Value {
    let letters = ('A'..='Z').map(String::from);
    let targets: Vec<Value> = letters
        .zip(panel.expressions)
        .map(|(letter, (expression, legend))| {
            json!({"refId": letter, "expr": expression, "legendFormat": legend, "datasource": datasource()})
        })
        .collect();
    let kind = match panel.drawn {
        Drawn::Lines => "timeseries",
        Drawn::Number => "stat",
    };
    json!({
        "id": id, "type": kind, "title": panel.title, "description": panel.description,
        "datasource": datasource(), "gridPos": place, "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    })
}

/// What is chosen above the dashboard: which Prometheus, which nodes, which targets.
fn variables() -> Value {
    let choice = |name: &str, query: &str| {
        json!({
            "name": name, "type": "query", "query": query, "datasource": datasource(), "refresh": 2,
            "multi": true, "includeAll": true, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        })
    };
    json!([
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        choice("instance", "label_values(sexton_build_info, instance)"),
        choice("target", "label_values(sexton_target_up{instance=~\"$instance\"}, target)"),
    ])
}

/// Actions that were done, as marks on every panel.
fn annotation() -> Value {
    json!({
        "name": "Actions", "enable": true, "iconColor": "purple", "datasource": datasource(),
        "expr": ANNOTATION, "titleFormat": "{{target}}: action done",
    })
}

/// What makes a mark.
pub const ANNOTATION: &str = r#"increase(sexton_actions_total{instance=~"$instance", target=~"$target", state="done"}[$__interval]) > 0"#;

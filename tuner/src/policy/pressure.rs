//! The part of a policy about what a target is under pressure by. How signals are combined is in
//! [`crate::limits::pressure`].

use super::error::Complaint;
use super::written::{Written, deserialize, serialize, shown};
use super::{TimeSpan, present};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strum::IntoStaticStr;

/// What a target is under pressure by, from 0, none, to 1, full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PressurePolicy {
    /// How signals become one number. One that cannot be read does not count; where none can, pressure is
    /// full. Default: maximum.
    #[serde(default)]
    pub combine: Combine,
    /// What is looked at.
    pub signals: Vec<SignalPolicy>,
}

/// How signals become one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Combine {
    /// The greatest of them.
    #[default]
    Maximum,
    /// Their mean, by their weights.
    Weights,
}

/// One signal, and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalPolicy {
    /// Name of the signal.
    pub name: String,
    /// What is read.
    pub kind: SignalKind,
    /// Up to here there is no pressure: a share such as 20%, a time such as 5ms, or a number, as the kind
    /// has it.
    pub low: Level,
    /// From here on pressure is full.
    pub high: Level,
    /// How much it counts, with `combine: weights`. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: f64,
    /// Where the target's own Prometheus endpoint is, with `kind: metric`: on this host's loopback interface,
    /// such as http://127.0.0.1:9874/prom.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Name of the metric, with `kind: metric`, with labels where it has any: `queue_length{queue="rpc"}`
    /// means all series that have these. The greatest of several counts.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
}

/// What a signal is made of.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SignalKind {
    /// Share of the last 10 seconds in which some task of the node waited for a processor (PSI).
    NodeCpuPressure,
    /// The same for input and output.
    NodeIoPressure,
    /// The same for memory.
    NodeMemoryPressure,
    /// Share of the last 10 seconds in which some task of the target's cgroup waited for a processor (PSI).
    CgroupCpuPressure,
    /// The same for input and output.
    CgroupIoPressure,
    /// The same for memory.
    CgroupMemoryPressure,
    /// Share of the time since the last reading in which the block device of the target's databases was busy;
    /// the busiest one of several.
    DeviceUtilization,
    /// Mean time that a request to this device took.
    DeviceLatency,
    /// Share of the time that the processors were busy which the target may run on, with whatever.
    CoreUtilization,
    /// The 99th percentile of the target's seeks in windows of late.
    SeekLatency,
    /// The 99th percentile of its block reads from files.
    BlockReadLatency,
    /// A metric of the target's own.
    Metric,
}

impl SignalKind {
    /// As in a policy: `node_io_pressure`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What its levels are, for messages.
    pub(super) fn level_example(self) -> &'static str {
        match self {
            SignalKind::DeviceLatency | SignalKind::SeekLatency | SignalKind::BlockReadLatency => {
                "a time such as 5ms"
            }
            SignalKind::Metric => "a number such as 100",
            _ => "a share such as 20%",
        }
    }

    /// Whether a level is written as this kind has it.
    pub(super) fn takes(self, level: &Level) -> bool {
        match self {
            SignalKind::DeviceLatency | SignalKind::SeekLatency | SignalKind::BlockReadLatency => {
                matches!(level, Level::Time(_))
            }
            SignalKind::Metric => matches!(level, Level::Number(_)),
            _ => matches!(level, Level::Share(_)),
        }
    }
}

/// A level of a signal: a share, a time or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// Written `20%`; kept in percent.
    Share(f64),
    /// Written `5ms`.
    Time(TimeSpan),
    /// Written `100`.
    Number(f64),
}

impl Level {
    /// As signals are measured: a share of 1, seconds, or the number.
    pub fn value(&self) -> f64 {
        match self {
            Level::Share(percent) => percent / 100.0,
            Level::Time(span) => span.duration().as_secs_f64(),
            Level::Number(number) => *number,
        }
    }
}

impl Written for Level {
    const EXPECTED: &'static str = "a share such as 20%, a time such as 5ms, or a number";

    fn read(text: &str) -> Result<Level, Complaint> {
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            text.parse::<f64>().ok().filter(|number| is_plain && number.is_finite())
        };
        if let Some(percent) = text.strip_suffix('%').and_then(number) {
            return Ok(Level::Share(percent));
        }
        if let Some(number) = number(text) {
            return Ok(Level::Number(number));
        }
        let complaint = || {
            Complaint::new(
                format!("{} is no level of a signal", shown(text)),
                format!("write {}", Self::EXPECTED),
            )
        };
        TimeSpan::read(text).map(Level::Time).map_err(|_| complaint())
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Level::Share(percent) => write!(formatter, "{percent}%"),
            Level::Time(span) => span.fmt(formatter),
            Level::Number(number) => number.fmt(formatter),
        }
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Level, D::Error> {
        deserialize(deserializer)
    }
}

impl JsonSchema for Level {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Level".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "pattern": "^[0-9]+([.][0-9]+)?%?$|^[0-9]+(ns|us|ms|s|m|h|d)$",
            "minimum": 0,
            "description": "A share such as 20%, a time such as 5ms, or a number.",
        })
    }
}

fn one() -> f64 {
    1.0
}

fn is_one(weight: &f64) -> bool {
    *weight == 1.0
}

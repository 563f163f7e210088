//! What is played: a description, or a recording.

use crate::failure::Failure;
use clap::Args;
use sexton_sst::{DatabaseOptions, OPTIONS_BYTES_MAX};
use sexton_tuner::rank::AssessError;
use sexton_tuner::simulation::trace::{MAGIC, RECORD_HEADER_BYTES};
use sexton_tuner::simulation::workload::{
    BUILTIN, Recording, Report, Strategy, Untold, Workload, builtin, play, play_recording,
};
use sexton_tuner::words;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest description: the longest that anybody writes by hand has some hundred lines.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;

/// Bytes of all traces: ten million operations with keys and values of a hundred bytes.
const TRACES_BYTES_MAX: u64 = 1 << 30;

/// Column families that an error lists.
const FAMILIES_SHOWN_MAX: usize = 20;

/// Arguments about what a trace does not say.
#[derive(Args, Debug)]
pub(super) struct UntoldArguments {
    /// Keys that an iterator goes on after each seek of a trace.
    #[arg(long, value_name = "KEYS", default_value_t = 100)]
    list: u64,
    /// The OPTIONS file of the traced database. Default: RocksDB's defaults.
    #[arg(long, value_name = "FILE")]
    options: Option<PathBuf>,
    /// Column family in that file.
    #[arg(long, value_name = "NAME", default_value = "default")]
    column_family: String,
    /// Number of the traced column family. Default: the one with the most seeks.
    #[arg(long, value_name = "ID")]
    column_family_id: Option<u32>,
}

/// What is played.
pub(super) enum Script {
    Described(Workload),
    Recorded(Box<Recording>),
}

impl Script {
    /// A built-in workload, a description, or traces.
    pub(super) fn of(workload: &[String], untold: &UntoldArguments) -> Result<Script, Failure> {
        if let [one] = workload {
            if let Some(builtin) = builtin(one) {
                return Ok(Script::Described(builtin));
            }
            if !is_trace(Path::new(one))? {
                return described(Path::new(one)).map(Script::Described);
            }
        }
        Ok(Script::Recorded(Box::new(recorded(workload, untold)?)))
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Script::Described(workload) => &workload.name,
            Script::Recorded(recording) => &recording.name,
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            Script::Described(workload) => format!("{} for {}, simulated", workload.name, workload.duration),
            Script::Recorded(recording) => format!(
                "{}: {} calls in {} of column family {}, simulated; {} calls of others are left out",
                recording.name,
                recording.calls(),
                words::seconds(recording.duration().as_secs_f64()),
                recording.column_family_id,
                recording.calls_of_others
            ),
        }
    }

    pub(super) fn play(&self, strategy: Strategy, seed: u64) -> Result<Report, AssessError> {
        match self {
            Script::Described(workload) => play(workload, strategy, seed),
            Script::Recorded(recording) => play_recording(recording, strategy, seed),
        }
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let cause =
        format!("there is no built-in workload {}, and no such file can be read: {error}", path.display());
    Failure::usage(cause, format!("name a file, or one of {}", BUILTIN.join(", ")))
}

fn is_trace(path: &Path) -> Result<bool, Failure> {
    let mut beginning = Vec::new();
    let length = (RECORD_HEADER_BYTES + MAGIC.len()) as u64;
    let read = File::open(path).and_then(|file| file.take(length).read_to_end(&mut beginning));
    read.map_err(|error| unreadable(path, &error))?;
    Ok(beginning.get(RECORD_HEADER_BYTES..) == Some(MAGIC))
}

fn described(path: &Path) -> Result<Workload, Failure> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let read = file.take(DESCRIPTION_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| unreadable(path, &error))?;
    Workload::parse(&text).map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display()), "sexton simulate --help shows a description")
    })
}

fn recorded(paths: &[String], arguments: &UntoldArguments) -> Result<Recording, Failure> {
    let (mut traces, mut left) = (Vec::new(), TRACES_BYTES_MAX);
    for path in paths {
        let path = Path::new(path);
        let mut trace = Vec::new();
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let read = file.take(left + 1).read_to_end(&mut trace);
        read.map_err(|error| unreadable(path, &error))?;
        left = left.checked_sub(trace.len() as u64).ok_or_else(|| {
            let cause = format!("the traces have more than {}", words::bytes(TRACES_BYTES_MAX));
            Failure::usage(cause, "record a shorter time: TraceOptions::max_trace_file_size")
        })?;
        traces.push(trace);
    }
    let untold = Untold {
        name: paths.join(" "),
        list: arguments.list,
        column_family_id: arguments.column_family_id,
        options: stated(arguments)?,
    };
    let slices: Vec<&[u8]> = traces.iter().map(Vec::as_slice).collect();
    Recording::of(&slices, untold).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", paths.join(" ")),
            "a query trace is what DB::StartTrace writes; sexton simulate --help says more",
        )
    })
}

/// What the OPTIONS file says of the column family.
fn stated(arguments: &UntoldArguments) -> Result<BTreeMap<String, String>, Failure> {
    let Some(path) = &arguments.options else { return Ok(BTreeMap::new()) };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(OPTIONS_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| {
        let cause = format!("cannot read the options {}: {error}", path.display());
        Failure::usage(cause, "name the newest OPTIONS file in the database's directory")
    })?;
    let mut families = DatabaseOptions::parse(&text).column_families;
    let family = families.remove(&arguments.column_family).ok_or_else(|| {
        let known: Vec<&str> = families.keys().map(String::as_str).take(FAMILIES_SHOWN_MAX).collect();
        let cause = format!("{} has no column family {}", path.display(), arguments.column_family);
        Failure::usage(cause, format!("--column-family NAME, one of: {}", known.join(", ")))
    })?;
    Ok(family.stated)
}

//! The bench's directory: filled databases, and a file for each run as soon as it is over, so that a bench
//! which was cut off goes on where it was.

use crate::agent::AgentFigures;
use crate::contender::Contender;
use crate::hand_over;
use crate::order::{Filled, Healthy, Measured, Verified};
use crate::workload::{Scale, Workload};
use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Counts up with each change after which runs can no longer be compared with earlier ones.
const FORM: u32 = 1;

/// What all runs in a directory have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Common {
    form: u32,
    pub seed: u64,
    pub scale: Scale,
}

impl Common {
    pub fn new(seed: u64, scale: Scale) -> Common {
        Common { form: FORM, seed, scale }
    }
}

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub workload: String,
    pub contender: String,
    /// Counts from 1.
    pub repetition: u32,
    /// From the opening of the databases to the end of the verification.
    pub took_seconds: f64,
    pub measured: Measured,
    pub verified: Verified,
    pub agent: Option<AgentFigures>,
}

pub struct Results {
    directory: PathBuf,
}

impl Results {
    /// Opens a directory, new or with runs in it; fails where those were made in another way.
    pub fn open(directory: &Path, common: &Common) -> Result<Results> {
        std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
        let directory = directory.canonicalize().context("finding the bench's directory")?;
        let results = Results { directory };
        let file = results.directory.join("bench.json");
        match read::<Common>(&file)? {
            Some(before) => ensure!(
                before == *common,
                "{} holds runs of another seed or size: give another --directory, or remove it",
                results.directory.display()
            ),
            None => write(&file, common)?,
        }
        Ok(results)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Databases that a contender begins with.
    pub fn filled_directory(&self, workload: &Workload, contender: &Contender) -> PathBuf {
        self.directory.join("filled").join(workload.name).join(contender.filled_name())
    }

    /// `None` until they are whole.
    pub fn filled(&self, workload: &Workload, contender: &Contender) -> Result<Option<Filled>> {
        read(&self.filled_directory(workload, contender).join("filled.json"))
    }

    pub fn save_filled(&self, workload: &Workload, contender: &Contender, filled: &Filled) -> Result<()> {
        write(&self.filled_directory(workload, contender).join("filled.json"), filled)
    }

    /// Removes what was filled for a workload.
    pub fn remove_filled(&self, workload: &Workload) -> Result<()> {
        hand_over::remove(&self.directory.join("filled").join(workload.name))
    }

    fn runs(&self, workload: &Workload) -> PathBuf {
        self.directory.join("runs").join(workload.name)
    }

    pub fn healthy(&self, workload: &Workload) -> Result<Option<Healthy>> {
        read(&self.runs(workload).join("healthy.json"))
    }

    pub fn save_healthy(&self, workload: &Workload, healthy: &Healthy) -> Result<()> {
        write(&self.runs(workload).join("healthy.json"), healthy)
    }

    fn run_file(&self, workload: &Workload, contender: &str, repetition: u32) -> PathBuf {
        self.runs(workload).join(format!("{contender}-{repetition}.json"))
    }

    pub fn run(&self, workload: &Workload, contender: &str, repetition: u32) -> Result<Option<Run>> {
        read(&self.run_file(workload, contender, repetition))
    }

    pub fn save(&self, workload: &Workload, run: &Run) -> Result<()> {
        write(&self.run_file(workload, &run.contender, run.repetition), run)
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<Option<T>> {
    match std::fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .with_context(|| format!("reading {}: remove it, and it is made again", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", file.display())),
    }
}

/// Whole or not at all.
fn write<T: Serialize>(file: &Path, value: &T) -> Result<()> {
    let beside = file.with_extension("new");
    let make = || -> Result<()> {
        std::fs::create_dir_all(file.parent().context("a file without a directory")?)?;
        std::fs::write(&beside, serde_json::to_vec(value)?)?;
        Ok(std::fs::rename(&beside, file)?)
    };
    make().with_context(|| format!("writing {}", file.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::workload;

    #[test]
    fn what_was_saved_is_found_and_nothing_of_another_seed_is() {
        let directory = tempfile::tempdir().unwrap();
        let common = Common::new(1, Scale::Quick);
        let results = Results::open(directory.path(), &common).unwrap();
        let workload = &workload::selected("prefixes").unwrap()[0];
        assert!(results.run(workload, "nothing", 1).unwrap().is_none());
        let run = Run { contender: "nothing".to_owned(), repetition: 1, took_seconds: 2.5, ..Run::default() };
        results.save(workload, &run).unwrap();
        let again = Results::open(directory.path(), &common).unwrap();
        assert_eq!(again.run(workload, "nothing", 1).unwrap().unwrap().took_seconds, 2.5);
        assert!(again.run(workload, "nothing", 2).unwrap().is_none());
        let refused = Results::open(directory.path(), &Common::new(2, Scale::Quick));
        assert!(refused.is_err_and(|error| error.to_string().contains("another seed or size")));
    }
}

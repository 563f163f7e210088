//! The signals of all targets: who reads them, and when.

use super::sampler::{Sampler, Sensed, SignalReadings, Site};
use crate::inbox::{Event, Post};
use crate::observe::Watched;
use sexton_inspect::facts::TargetId;
use sexton_tuner::latency::LatencyHistogram;
use sexton_tuner::policy::{SignalKind, SignalPolicy};
use sexton_tuner::pressure::Pressure;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::trace;

/// Shortest time between two readings of a target: shares of less time say little, and an endpoint of some
/// megabytes costs its server some ten milliseconds.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// What is older is not believed: a reading takes as long as its endpoints, and cycles may be far apart.
const AGE_MAX: Duration = Duration::from_secs(60);

/// Readings until there is one of everything: shares are of the time since the last reading.
const READINGS_MIN: u64 = 2;

/// Threads that read at the same time; on a node with more targets than that some wait for the next cycle.
const THREADS_MAX: usize = 32;

/// Of the latencies that windows have seen.
const QUANTILE: f64 = 0.99;

/// The signals of all targets.
#[derive(Default)]
pub struct Signals {
    targets: BTreeMap<TargetId, Sampled>,
}

/// What is known of one target's signals.
struct Sampled {
    /// `None` while a thread has it.
    sampler: Option<Sampler>,
    asked: Instant,
    read: Instant,
    readings: u64,
    values: SignalReadings,
}

impl Signals {
    /// Begins to read the signals of these targets, and forgets the others.
    pub fn ask(&mut self, watched: &[Watched], post: &Post) {
        let is_watched = |id: &TargetId| watched.iter().any(|watched| watched.target.id == *id);
        self.targets.retain(|id, _| is_watched(id));
        for watched in watched {
            let Some(site) = site_of(watched) else {
                self.targets.remove(&watched.target.id);
                continue;
            };
            let reading = self.targets.values().filter(|sampled| sampled.sampler.is_none()).count();
            let now = Instant::now();
            let sampled = self.targets.entry(watched.target.id).or_insert_with(|| Sampled {
                sampler: Some(Sampler::default()),
                asked: now.checked_sub(INTERVAL_MIN).unwrap_or(now),
                read: now,
                readings: 0,
                values: SignalReadings::default(),
            });
            if reading >= THREADS_MAX || sampled.asked.elapsed() < INTERVAL_MIN {
                continue;
            }
            let Some(mut sampler) = sampled.sampler.take() else { continue };
            sampled.asked = now;
            let (post, target) = (post.clone(), watched.target.id);
            let read = move || {
                let values = sampler.read(&site);
                post.send(Event::Sensed { target, sensed: Sensed { sampler, values } });
            };
            if std::thread::Builder::new().name("signals".to_owned()).spawn(read).is_err() {
                sampled.sampler = Some(Sampler::default());
            }
        }
    }

    /// A thread has read them.
    pub fn take(&mut self, target: TargetId, sensed: Sensed) {
        let Some(sampled) = self.targets.get_mut(&target) else { return };
        trace!(?target, values = ?sensed.values, "signals");
        sampled.sampler = Some(sensed.sampler);
        (sampled.values, sampled.read) = (sensed.values, Instant::now());
        sampled.readings = sampled.readings.saturating_add(1);
    }

    /// What a target is under pressure by now; `None` before everything could be read.
    pub fn pressure_of(&self, watched: &Watched) -> Option<Pressure> {
        let Some(policy) = &watched.entry.pressure else { return Some(Pressure::default()) };
        let sampled = self.targets.get(&watched.target.id);
        sampled.filter(|sampled| sampled.readings >= READINGS_MIN)?;
        Some(Pressure::of(policy, |signal| match signal.kind {
            SignalKind::SeekLatency => quantile(&watched.latencies.seeks),
            SignalKind::BlockReadLatency => quantile(&watched.latencies.block_reads),
            _ => sampled.map_or_else(|| Err("it was not read yet".to_owned()), |it| it.value(signal)),
        }))
    }
}

impl Sampled {
    fn value(&self, signal: &SignalPolicy) -> Result<f64, String> {
        let age = self.read.elapsed();
        if age > AGE_MAX {
            return Err(format!("it was not read for {} s", age.as_secs()));
        }
        let value = self.values.get(&signal.name).cloned();
        value.unwrap_or_else(|| Err("it was not read yet".to_owned()))
    }
}

/// What is read of a target; `None` where its policy asks for nothing.
fn site_of(watched: &Watched) -> Option<Site> {
    let pressure = watched.entry.pressure.as_ref()?;
    let target = &watched.target;
    Some(Site {
        pid: target.process.pid,
        cgroup: target.cgroup.clone(),
        devices: target.databases.iter().filter_map(|database| database.device).collect(),
        signals: pressure.signals.clone(),
    })
}

fn quantile(latencies: &LatencyHistogram) -> Result<f64, String> {
    let quantile_ns = latencies.quantile_ns(QUANTILE);
    quantile_ns.map(|ns| ns / 1e9).ok_or_else(|| "no window has seen any yet".to_owned())
}

//! Go only if it pays: reader time that a job saves against reader time that it costs.
//!
//! It saves its relief for as long as the tombstones stay away. It costs readers what they wait longer for
//! the block device while the job reads and writes, and the misses of blocks that were in the cache and are
//! in no live file any more.

use super::{Prospect, Ranker, Unworthy};
use crate::words;

/// Goes by the reader time that a job saves less the one that it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// How many times what it costs a job has to save.
    pub benefit_cost_ratio_min: f64,
    /// No relief counts for longer than that.
    pub horizon_seconds: f64,
}

impl Margin {
    /// How long the relief lasts.
    fn lasts_seconds(&self, job: &Prospect) -> f64 {
        job.regrowth_seconds.unwrap_or(f64::INFINITY).min(self.horizon_seconds).max(0.0)
    }

    /// Reader time that the job saves.
    fn benefit_seconds(&self, job: &Prospect) -> f64 {
        job.relief_seconds_per_second * self.lasts_seconds(job)
    }
}

/// Reader time that the job costs: while the device works for it, and for blocks that leave the cache.
fn cost_seconds(job: &Prospect) -> (f64, f64) {
    let (bytes, readers) = (job.cost_bytes as f64, &job.readers);
    // What is read is written again.
    let busy_seconds = 2.0 * bytes / readers.device_bytes_per_second.max(1.0);
    let blocks = bytes / readers.block_bytes.max(1.0);
    (busy_seconds * readers.threads_reading, blocks * readers.cache_hit_ratio * readers.seconds_per_miss)
}

impl Ranker for Margin {
    fn value(&self, job: &Prospect) -> f64 {
        let (device, cache) = cost_seconds(job);
        self.benefit_seconds(job) - self.benefit_cost_ratio_min * (device + cache)
    }

    fn judge(&self, job: &Prospect) -> Result<Option<String>, Unworthy> {
        let (device, cache) = cost_seconds(job);
        let lasts_seconds = self.lasts_seconds(job);
        let lasts = words::span(lasts_seconds.round() as i64);
        let why = match job.regrowth_seconds {
            Some(_) if lasts_seconds < self.horizon_seconds => {
                format!("{lasts} until the tombstones are back, by what came after earlier actions")
            }
            _ => format!("the horizon of {lasts}"),
        };
        let (benefit, cost) = (words::seconds(self.benefit_seconds(job)), words::seconds(device + cache));
        let sides = format!(
            "saves readers {benefit} in {why}, and costs them {cost} ({} for the device, {} for blocks that leave \
             the cache)",
            words::seconds(device),
            words::seconds(cache),
        );
        if self.value(job) <= 0.0 {
            let ratio = self.benefit_cost_ratio_min;
            return Err(Unworthy::DoesNotPay(format!("{sides}: less than {ratio} times as much")));
        }
        Ok(Some(sides))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]
    use super::super::Readers;
    use super::*;

    const MIB: u64 = 1 << 20;
    const MARGIN: Margin = Margin { benefit_cost_ratio_min: 2.0, horizon_seconds: 3600.0 };

    /// 5 ms/s for 64 MiB of blocks of 16 KiB.
    fn job(seconds_per_miss: f64, regrowth_seconds: Option<f64>) -> Prospect {
        Prospect {
            relief_seconds_per_second: 0.005,
            cost_bytes: 64 * MIB,
            regrowth_seconds,
            readers: Readers {
                block_bytes: 16_384.0,
                cache_hit_ratio: 1.0,
                seconds_per_miss,
                ..Readers::default()
            },
            ..Prospect::default()
        }
    }

    #[test]
    fn what_pays_on_a_fast_disk_does_not_on_a_slow_one() {
        assert!(MARGIN.judge(&job(100e-6, None)).is_ok());
        let Err(Unworthy::DoesNotPay(why)) = MARGIN.judge(&job(5e-3, None)) else { panic!("it pays") };
        assert!(why.contains("saves readers 18.0 s") && why.contains("costs them 20.5 s"), "{why}");
    }

    #[test]
    fn what_is_back_in_seconds_does_not_pay() {
        assert!(MARGIN.judge(&job(100e-6, Some(600.0))).is_ok());
        let Err(Unworthy::DoesNotPay(why)) = MARGIN.judge(&job(100e-6, Some(60.0))) else {
            panic!("it pays")
        };
        assert!(why.contains("saves readers 300.0 ms in 1m until"), "{why}");
    }

    #[test]
    fn readers_who_wait_for_the_disk_wait_longer() {
        let mut busy = job(100e-6, Some(600.0));
        busy.readers.threads_reading = 8.0;
        assert!(MARGIN.judge(&busy).is_err());
        let free = Margin { benefit_cost_ratio_min: 0.0, ..MARGIN };
        assert!(free.judge(&busy).is_ok(), "with 0 every job pays that relieves anything");
    }
}

//! Guards: whether a target can bear an action now, and whether it still can while one runs.
//!
//! Readings and the policy's limits go in, a verdict comes out. A reading that cannot be had objects to
//! nothing; [`Readings::unread`] says which these are. Reading is the agent's, and so is stopping what runs.

pub use super::readings::{FamilyReadings, Readings};

use crate::facts::latency::LatencyReading;
use crate::policy::GuardPolicy;
use crate::words;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// Why a target is left alone, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Guard {
    /// RocksDB has stopped writes.
    WriteStopped,
    /// RocksDB delays writes.
    WriteDelayed,
    /// L0 is near the number of files at which writes are delayed.
    Level0Files,
    /// Pending compaction bytes are near the limit at which writes are delayed.
    PendingCompactionBytes,
    /// A memtable waits to be flushed.
    FlushPending,
    /// The file system has no room for the slice.
    DiskSpace,
    /// As many compactions run on the block device as may.
    DeviceBusy,
    /// The process has only just started.
    TargetAge,
    /// The day's bytes have been rewritten.
    BytesPerDay,
    /// Seeks have become slower.
    SeekLatency,
    /// Block reads have become slower.
    BlockReadLatency,
    /// The lock that an action runs under is not had, or is lost.
    Hold,
    /// The command that is asked before an action has said no.
    Command,
}

impl Guard {
    /// Short name, as in the API and in metrics: `level0_files`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An objection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardRefusal {
    pub guard: Guard,
    pub reason: String,
}

/// What becomes of a slice that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Course {
    /// It goes on.
    Go,
    /// It is stopped, and what is left of it goes on when nothing objects any more.
    Pause(GuardRefusal),
    /// It is stopped, and what is left of it goes on in halves.
    Halve(GuardRefusal),
    /// It is stopped for good.
    Stop(GuardRefusal),
}

/// What an action takes of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskPrice {
    /// Bytes that it writes.
    pub written_bytes: u64,
    /// Bytes that it replaces and that stay all the same, because files have hard links elsewhere.
    pub linked_bytes: u64,
}

/// Whether an action of this price may begin; the gravest objection.
pub fn before(policy: &GuardPolicy, readings: &Readings, price: DiskPrice) -> Result<(), GuardRefusal> {
    let check = Check { policy, readings };
    let objections = [
        check.write_stopped(),
        check.write_delayed(),
        check.level0_files(),
        check.pending_compaction_bytes(),
        check.flush_pending(),
        check.disk_space(price),
        check.device_busy(),
        check.target_age(),
        check.bytes_per_day(price.written_bytes),
    ];
    gravest(objections)
}

/// Whether a flush that writes up to `flush_bytes` may begin; the gravest objection. It adds a file to L0 and
/// more to compact; compactions that run are none of its business.
pub fn before_flush(policy: &GuardPolicy, readings: &Readings, flush_bytes: u64) -> Result<(), GuardRefusal> {
    let check = Check { policy, readings };
    gravest([
        check.write_stopped(),
        check.write_delayed(),
        check.level0_files(),
        check.pending_compaction_bytes(),
        check.flush_pending(),
        check.disk_space(DiskPrice { written_bytes: flush_bytes, linked_bytes: 0 }),
        check.target_age(),
        check.bytes_per_day(flush_bytes),
    ])
}

/// Whether an option may be set; the gravest objection. It writes nothing by itself, but what is in trouble
/// already is not changed.
pub fn before_option(policy: &GuardPolicy, readings: &Readings) -> Result<(), GuardRefusal> {
    let check = Check { policy, readings };
    gravest([check.write_stopped(), check.write_delayed(), check.target_age()])
}

/// The first one, if any.
fn gravest<const COUNT: usize>(objections: [Objection; COUNT]) -> Result<(), GuardRefusal> {
    objections.into_iter().flatten().next().map_or(Ok(()), Err)
}

/// What becomes of a slice that runs and was stopped `interruptions` times already: paused at the first
/// objection, halved at the second, given up at the third. Where writes are stopped or the disk is full it is
/// given up at once.
///
/// What the slice itself brings about is no objection: it flushes, and it is a compaction on the device.
pub fn during(policy: &GuardPolicy, readings: &Readings, interruptions: u32) -> Course {
    let check = Check { policy, readings };
    // Half of the reserve may be taken by what others write meanwhile.
    let grave = [check.write_stopped(), check.disk_space_left()];
    if let Some(refusal) = grave.into_iter().flatten().next() {
        return Course::Stop(refusal);
    }
    let objections = [
        check.write_delayed(),
        check.level0_files(),
        check.pending_compaction_bytes(),
        check.latency(Guard::SeekLatency, readings.seek_latency),
        check.latency(Guard::BlockReadLatency, readings.block_read_latency),
    ];
    match (objections.into_iter().flatten().next(), interruptions) {
        (None, _) => Course::Go,
        (Some(refusal), 0) => Course::Pause(refusal),
        (Some(refusal), 1) => Course::Halve(refusal),
        (Some(refusal), _) => Course::Stop(refusal),
    }
}

struct Check<'a> {
    policy: &'a GuardPolicy,
    readings: &'a Readings,
}

type Objection = Option<GuardRefusal>;

fn objection(guard: Guard, reason: String) -> Objection {
    Some(GuardRefusal { guard, reason })
}

impl Check<'_> {
    fn write_stopped(&self) -> Objection {
        self.readings.is_write_stopped.filter(|is_stopped| *is_stopped)?;
        objection(Guard::WriteStopped, "RocksDB has stopped writes (rocksdb.is-write-stopped)".to_owned())
    }

    fn write_delayed(&self) -> Objection {
        let rate = self.readings.delayed_write_bytes_per_second.filter(|rate| *rate > 0)?;
        let rate = words::bytes(rate);
        objection(
            Guard::WriteDelayed,
            format!("RocksDB delays writes to {rate}/s (rocksdb.actual-delayed-write-rate)"),
        )
    }

    fn level0_files(&self) -> Objection {
        let of = |family: &FamilyReadings| family.level0(self.policy.level0_slowdown_ratio_max);
        let (name, (files, limit, trigger)) = self.worst(of)?;
        objection(
            Guard::Level0Files,
            format!(
                "L0 has {files} files in column family {name}, the limit is {limit}: writes are slowed down at {trigger}"
            ),
        )
    }

    fn pending_compaction_bytes(&self) -> Objection {
        let of = |family: &FamilyReadings| family.pending(self.policy.pending_compaction_ratio_max);
        let (name, (pending, limit, soft)) = self.worst(of)?;
        let (pending, limit, soft) = (words::bytes(pending), words::bytes(limit), words::bytes(soft));
        objection(
            Guard::PendingCompactionBytes,
            format!(
                "{pending} wait for compaction in column family {name}, the limit is {limit}: writes are slowed down at \
                 {soft}"
            ),
        )
    }

    /// The column family that is furthest over its limit, with what there is, the limit, and what it is a
    /// share of.
    fn worst(
        &self,
        of: impl Fn(&FamilyReadings) -> Option<(u64, u64, u64)>,
    ) -> Option<(&str, (u64, u64, u64))> {
        let read =
            self.readings.families.iter().filter_map(|family| Some((family.name.as_str(), of(family)?)));
        let over = read.filter(|(_, (count, limit, _))| count >= limit);
        let excess = |(_, (count, limit, _)): &(&str, (u64, u64, u64))| *count as f64 / *limit as f64;
        over.max_by(|one, two| excess(one).total_cmp(&excess(two)))
    }

    fn flush_pending(&self) -> Objection {
        self.readings.is_flush_pending.filter(|is_pending| *is_pending)?;
        objection(
            Guard::FlushPending,
            "a memtable waits to be flushed (rocksdb.mem-table-flush-pending)".to_owned(),
        )
    }

    /// A slice is written anew before the files that it replaces are removed. What hard links keep of these
    /// is not given back, so that much more has to be free.
    fn disk_space(&self, price: DiskPrice) -> Objection {
        let DiskPrice { written_bytes, linked_bytes } = price;
        let free = self.readings.disk_free_bytes?;
        let wanted =
            written_bytes.saturating_add(linked_bytes).saturating_add(self.policy.disk_free_min.bytes());
        if free >= wanted {
            return None;
        }
        let (slice, free, reserve) =
            (words::bytes(written_bytes), words::bytes(free), self.policy.disk_free_min);
        let kept = match linked_bytes {
            0 => String::new(),
            bytes => format!(", and hard links keep {} of what it replaces", words::bytes(bytes)),
        };
        objection(
            Guard::DiskSpace,
            format!("{free} are free, and the slice writes {slice} beside a reserve of {reserve}{kept}"),
        )
    }

    fn disk_space_left(&self) -> Objection {
        let free = self.readings.disk_free_bytes?;
        let reserve = self.policy.disk_free_min;
        if free >= reserve.bytes() / 2 {
            return None;
        }
        let free = words::bytes(free);
        objection(Guard::DiskSpace, format!("{free} are free, less than half of the reserve of {reserve}"))
    }

    fn device_busy(&self) -> Objection {
        let running = self.readings.compactions_on_device?;
        let most = u64::from(self.policy.compactions_per_device_max);
        if running < most {
            return None;
        }
        let what = if self.policy.count_rocksdb_compactions { "compactions" } else { "slices" };
        objection(
            Guard::DeviceBusy,
            format!("{what} running on its block device: {running}; the most is {most}"),
        )
    }

    fn target_age(&self) -> Objection {
        let age = self.readings.target_age_seconds?;
        let least = self.policy.process_uptime_min;
        if u128::from(age) * 1_000_000_000 >= u128::from(least.nanoseconds()) {
            return None;
        }
        objection(Guard::TargetAge, format!("the process started {age} s ago, it is left alone for {least}"))
    }

    fn bytes_per_day(&self, slice_bytes: u64) -> Objection {
        let (spent, most) = (self.readings.bytes_of_day, self.policy.bytes_per_day_max);
        if spent.saturating_add(slice_bytes) <= most.bytes() {
            return None;
        }
        let (spent, slice) = (words::bytes(spent), words::bytes(slice_bytes));
        objection(
            Guard::BytesPerDay,
            format!("{spent} were rewritten in the last 24 hours, {slice} more would exceed {most}"),
        )
    }

    fn latency(&self, guard: Guard, reading: Option<LatencyReading>) -> Objection {
        let LatencyReading { before_ns, now_ns } = reading?;
        let slack_ns = self.policy.latency_increase_min.nanoseconds() as f64;
        if now_ns <= before_ns * self.policy.latency_ratio_max || now_ns <= before_ns + slack_ns {
            return None;
        }
        let (before, now) = (words::seconds(before_ns / 1e9), words::seconds(now_ns / 1e9));
        let factor = self.policy.latency_ratio_max;
        objection(
            guard,
            format!("the 99th percentile is {now}, more than {factor} times the {before} before"),
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// A target that is at rest, everything known of it.
    fn at_rest() -> Readings {
        Readings {
            families: vec![family(Some(2), Some(0))],
            is_flush_pending: Some(false),
            delayed_write_bytes_per_second: Some(0),
            is_write_stopped: Some(false),
            compactions_on_device: Some(0),
            disk_free_bytes: Some(100 << 30),
            target_age_seconds: Some(3600),
            bytes_of_day: 0,
            seek_latency: Some(LatencyReading { before_ns: 1e5, now_ns: 1e5 }),
            block_read_latency: Some(LatencyReading { before_ns: 1e5, now_ns: 1e5 }),
        }
    }

    /// One of RocksDB's default limits, with so many files in L0 and bytes that wait.
    fn family(level0_files: Option<u64>, pending_compaction_bytes: Option<u64>) -> FamilyReadings {
        FamilyReadings {
            name: "keyTable".to_owned(),
            level0_files,
            level0_slowdown_files: Some(20),
            pending_compaction_bytes,
            pending_compaction_bytes_soft: Some(64 << 30),
            disable_auto_compactions: false,
        }
    }

    /// At rest, but for this of its one column family.
    fn with_family(family: FamilyReadings) -> Readings {
        Readings { families: vec![family], ..at_rest() }
    }

    fn writing(written_bytes: u64) -> DiskPrice {
        DiskPrice { written_bytes, linked_bytes: 0 }
    }

    fn refused(readings: &Readings) -> Option<Guard> {
        before(&GuardPolicy::default(), readings, writing(64 * MIB)).err().map(|refusal| refusal.guard)
    }

    #[test]
    fn a_target_at_rest_is_acted_on() {
        assert_eq!(refused(&at_rest()), None);
        assert_eq!(during(&GuardPolicy::default(), &at_rest(), 0), Course::Go);
        assert!(at_rest().unread().is_empty());
    }

    #[test]
    fn each_reading_has_its_guard() {
        let rest = at_rest;
        let cases = [
            (Guard::WriteStopped, Readings { is_write_stopped: Some(true), ..rest() }),
            (Guard::WriteDelayed, Readings { delayed_write_bytes_per_second: Some(1), ..rest() }),
            (Guard::Level0Files, with_family(family(Some(14), Some(0)))),
            (Guard::PendingCompactionBytes, with_family(family(Some(2), Some(32 << 30)))),
            (Guard::FlushPending, Readings { is_flush_pending: Some(true), ..rest() }),
            (Guard::DiskSpace, Readings { disk_free_bytes: Some((1 << 30) + 63 * MIB), ..rest() }),
            (Guard::DeviceBusy, Readings { compactions_on_device: Some(1), ..rest() }),
            (Guard::TargetAge, Readings { target_age_seconds: Some(59), ..rest() }),
            (Guard::BytesPerDay, Readings { bytes_of_day: (256 << 30) - 63 * MIB, ..rest() }),
        ];
        for (guard, readings) in cases {
            assert_eq!(refused(&readings), Some(guard), "{readings:?}");
        }
    }

    /// The reserve of 1 GiB and the slice fit, but what it replaces would stay.
    #[test]
    fn what_hard_links_keep_needs_room_as_well() {
        let readings = Readings { disk_free_bytes: Some((1 << 30) + 64 * MIB), ..at_rest() };
        let verdict = |linked_bytes| {
            let price = DiskPrice { written_bytes: 64 * MIB, linked_bytes };
            before(&GuardPolicy::default(), &readings, price)
        };
        assert_eq!(verdict(0), Ok(()));
        let refusal = verdict(MIB).unwrap_err();
        assert!(
            refusal.guard == Guard::DiskSpace && refusal.reason.contains("hard links keep 1.0 MiB"),
            "{refusal:?}"
        );
        // They are not written: the day's bytes do not count them.
        let readings = Readings { bytes_of_day: (256 << 30) - 64 * MIB, ..at_rest() };
        let price = DiskPrice { written_bytes: 64 * MIB, linked_bytes: 64 * MIB };
        assert_eq!(before(&GuardPolicy::default(), &readings, price), Ok(()));
    }

    #[test]
    fn other_remedies_have_the_guards_that_concern_them() {
        let policy = GuardPolicy::default();
        let guards = |readings: &Readings| {
            let guard = |verdict: Result<(), GuardRefusal>| verdict.err().map(|refusal| refusal.guard);
            (guard(before_flush(&policy, readings, 64 * MIB)), guard(before_option(&policy, readings)))
        };
        let rest = at_rest;
        let (pending, age) = (Some(Guard::FlushPending), Some(Guard::TargetAge));
        assert_eq!(guards(&rest()), (None, None));
        assert_eq!(guards(&Readings { is_flush_pending: Some(true), ..rest() }), (pending, None));
        assert_eq!(guards(&Readings { target_age_seconds: Some(1), ..rest() }), (age, age));
        assert_eq!(guards(&Readings { compactions_on_device: Some(9), ..rest() }), (None, None));
        let stopped = Readings { is_write_stopped: Some(true), ..pending_everything() };
        assert_eq!(guards(&stopped), (Some(Guard::WriteStopped), Some(Guard::WriteStopped)));
        let (files, space) = (Some(Guard::Level0Files), Some(Guard::DiskSpace));
        assert_eq!(guards(&with_family(family(Some(14), Some(0)))), (files, None));
        assert_eq!(guards(&Readings { disk_free_bytes: Some(MIB), ..rest() }), (space, None));
    }

    /// A target in which everything waits.
    fn pending_everything() -> Readings {
        Readings { is_flush_pending: Some(true), ..with_family(family(Some(2), Some(u64::MAX))) }
    }

    #[test]
    fn just_below_a_limit_nothing_objects() {
        let readings = Readings {
            families: vec![family(Some(13), Some((32 << 30) - 1))],
            disk_free_bytes: Some((1 << 30) + 64 * MIB),
            target_age_seconds: Some(60),
            bytes_of_day: (256 << 30) - 64 * MIB,
            ..at_rest()
        };
        assert_eq!(refused(&readings), None);
    }

    #[test]
    fn limits_that_the_target_has_not_object_to_nothing() {
        let many = || family(Some(1000), Some(u64::MAX));
        let none = FamilyReadings {
            level0_slowdown_files: Some(-1),
            pending_compaction_bytes_soft: Some(0),
            ..many()
        };
        assert_eq!(refused(&with_family(none)), None);
        // Not known: RocksDB's defaults.
        let default = FamilyReadings { level0_slowdown_files: None, ..family(Some(14), Some(0)) };
        assert_eq!(refused(&with_family(default)), Some(Guard::Level0Files));
    }

    /// RocksDB then delays no write for them, and nobody but Sexton would ever compact them.
    #[test]
    fn with_automatic_compactions_disabled_level0_and_pending_bytes_do_not_object() {
        let disabled =
            FamilyReadings { disable_auto_compactions: true, ..family(Some(1000), Some(u64::MAX)) };
        let readings = with_family(disabled);
        assert_eq!(refused(&readings), None);
        assert_eq!(before_flush(&GuardPolicy::default(), &readings, MIB), Ok(()));
        assert_eq!(during(&GuardPolicy::default(), &readings, 0), Course::Go);
    }

    /// RocksDB delays the writes of the whole database for one column family, whichever is acted on.
    #[test]
    fn the_column_family_that_is_worst_off_counts() {
        let named = |name: &str, family: FamilyReadings| FamilyReadings { name: name.to_owned(), ..family };
        let (few, more, most) =
            (family(Some(2), Some(0)), family(Some(15), Some(0)), family(Some(19), Some(0)));
        let families = vec![few.clone(), named("more", more), named("most", most), few.clone()];
        let refusal =
            before(&GuardPolicy::default(), &Readings { families, ..at_rest() }, writing(MIB)).unwrap_err();
        assert_eq!(refusal.guard, Guard::Level0Files);
        assert!(refusal.reason.contains("19 files in column family most"), "{}", refusal.reason);
        let waits = named("waits", family(Some(0), Some(60 << 30)));
        let readings = Readings { families: vec![few, waits], ..at_rest() };
        let Course::Pause(refusal) = during(&GuardPolicy::default(), &readings, 0) else {
            unreachable!("it does not object")
        };
        assert_eq!(refusal.guard, Guard::PendingCompactionBytes);
        assert!(refusal.reason.contains("in column family waits"), "{}", refusal.reason);
    }

    #[test]
    fn a_slice_is_paused_then_halved_then_stopped() {
        let policy = GuardPolicy::default();
        let slow = LatencyReading { before_ns: 1.5e6, now_ns: 3.6e6 };
        let readings = Readings { seek_latency: Some(slow), ..at_rest() };
        let of = |course: Course| match course {
            Course::Go => ("go", None),
            Course::Pause(refusal) => ("pause", Some(refusal.guard)),
            Course::Halve(refusal) => ("halve", Some(refusal.guard)),
            Course::Stop(refusal) => ("stop", Some(refusal.guard)),
        };
        let guard = Some(Guard::SeekLatency);
        assert_eq!(of(during(&policy, &readings, 0)), ("pause", guard));
        assert_eq!(of(during(&policy, &readings, 1)), ("halve", guard));
        assert_eq!(of(during(&policy, &readings, 2)), ("stop", guard));
        let stopped = Readings { is_write_stopped: Some(true), ..at_rest() };
        assert_eq!(of(during(&policy, &stopped, 0)), ("stop", Some(Guard::WriteStopped)));
        let full = Readings { disk_free_bytes: Some(511 * MIB), ..at_rest() };
        assert_eq!(of(during(&policy, &full, 0)), ("stop", Some(Guard::DiskSpace)));
    }

    #[test]
    fn a_latency_that_rises_a_little_hurts_nobody() {
        let policy = GuardPolicy::default();
        for (before_ns, now_ns) in [(1e4, 1e6), (1e7, 1.9e7), (5e6, 1e6)] {
            let reading = Some(LatencyReading { before_ns, now_ns });
            let readings = Readings { block_read_latency: reading, ..at_rest() };
            assert_eq!(during(&policy, &readings, 0), Course::Go, "{before_ns} -> {now_ns}");
        }
    }

    #[test]
    fn what_a_slice_does_itself_does_not_stop_it() {
        let own = Readings { compactions_on_device: Some(1), is_flush_pending: Some(true), ..at_rest() };
        assert_eq!(during(&GuardPolicy::default(), &own, 0), Course::Go);
    }

    #[test]
    fn names_are_those_of_the_json() {
        use strum::VariantArray;
        for guard in Guard::VARIANTS {
            assert_eq!(serde_json::to_value(guard).unwrap(), guard.name());
        }
    }

    fn readings() -> impl Strategy<Value = Readings> {
        let maybe = || proptest::option::of(any::<u64>());
        let flag = || proptest::option::of(any::<bool>());
        let latency = || {
            proptest::option::of((any::<f64>(), any::<f64>()))
                .prop_map(|pair| pair.map(|(before_ns, now_ns)| LatencyReading { before_ns, now_ns }))
        };
        let family = (maybe(), proptest::option::of(any::<i64>()), maybe(), maybe(), any::<bool>()).prop_map(
            |(level0_files, slowdown, pending, soft, disable_auto_compactions)| FamilyReadings {
                name: "cf".to_owned(),
                level0_files,
                level0_slowdown_files: slowdown,
                pending_compaction_bytes: pending,
                pending_compaction_bytes_soft: soft,
                disable_auto_compactions,
            },
        );
        let counts = (proptest::collection::vec(family, 0..4), maybe(), maybe(), maybe());
        (counts, flag(), flag(), maybe(), any::<u64>(), latency(), latency()).prop_map(
            |(counts, flush, stopped, age, day, seek_latency, block_read_latency)| Readings {
                families: counts.0,
                is_flush_pending: flush,
                delayed_write_bytes_per_second: counts.1,
                is_write_stopped: stopped,
                compactions_on_device: counts.2,
                disk_free_bytes: counts.3,
                target_age_seconds: age,
                bytes_of_day: day,
                seek_latency,
                block_read_latency,
            },
        )
    }

    proptest! {
        #[test]
        fn any_readings_give_a_verdict_with_a_reason(readings in readings(), slice: u64, interruptions: u32) {
            let policy = GuardPolicy::default();
            if let Err(refusal) = before(&policy, &readings, writing(slice)) {
                prop_assert!(!refusal.reason.is_empty() && !readings.unread().contains(&refusal.guard));
            }
            match during(&policy, &readings, interruptions) {
                Course::Go => {}
                Course::Pause(_) => prop_assert_eq!(interruptions, 0),
                Course::Halve(_) => prop_assert_eq!(interruptions, 1),
                Course::Stop(refusal) => prop_assert!(!refusal.reason.is_empty()),
            }
        }

        /// A larger slice is never easier to bear.
        #[test]
        fn what_a_slice_may_not_a_larger_one_may_not(readings in readings(), slice: u64, more: u64) {
            let policy = GuardPolicy::default();
            if before(&policy, &readings, writing(slice)).is_err() {
                prop_assert!(before(&policy, &readings, writing(slice.saturating_add(more))).is_err());
            }
        }
    }
}

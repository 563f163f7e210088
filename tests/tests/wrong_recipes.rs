//! A recipe that is wrong writes nothing: not one byte but perf levels is ever raised.
//!
//! Method: real programs whose perf level is off, held still. The facts of each are changed at random, ten
//! thousand times in all: other offsets, other blocks, other ways to the block. By each recipe that comes of
//! it the kernel reads the program's threads, what was read goes through the checks that come before any
//! write, and what they let pass is written as the keeper writes it. In the end all memory that the program
//! can write to is what it was.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sexton_execute::perf_level::{LEVEL_COUNTS, LEVEL_OFF, child::begins_at_the_default, doubt};
use sexton_inspect::facts::{Target, TlsRecipe};
use sexton_inspect::program_memory::ProgramMemory;
use sexton_probe::{KernelFeatures, Sentinel, SentinelReading};
use sexton_tests::inspected;
use sexton_tests::musl_host::MuslHost;
use sexton_tests::static_host::StaticHost;
use sexton_tests::{agent, process};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Wrong recipes for each of the two programs; `SEXTON_RECIPES` asks for another number.
const RECIPES: usize = 5_000;

/// Numbers of no great randomness, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Not zero, and at most so far from it, in steps.
    fn shift(&mut self, most: u64, step: u64) -> i64 {
        let distance = i64::try_from((1 + self.below(most / step)) * step).unwrap_or(8);
        if self.below(2) == 0 { distance } else { -distance }
    }
}

/// The same target with something wrong about where its counters and levels are.
fn wrong(target: &Target, random: &mut Random) -> Target {
    let mut target = target.clone();
    let module = &mut target.module;
    let moved = |offset: Option<u64>, by: i64| offset.map(|offset| offset.saturating_add_signed(by));
    for _ in 0..=random.below(2) {
        match random.below(6) {
            0 => module.perf_level_offset = moved(module.perf_level_offset, random.shift(64, 1)),
            1 => module.perf_level_offset = moved(module.perf_level_offset, random.shift(4096, 1)),
            2 => module.perf_context_offset = moved(module.perf_context_offset, random.shift(4096, 8)),
            3 => {
                module.tls = module.tls.map(|tls| match tls {
                    TlsRecipe::Static { offset } => {
                        TlsRecipe::Static { offset: offset + random.shift(1 << 16, 8) }
                    }
                    TlsRecipe::DynamicThreadVector { .. } => {
                        TlsRecipe::DynamicThreadVector { module_id: random.below(32) }
                    }
                    TlsRecipe::MuslThreadVector { .. } => {
                        TlsRecipe::MuslThreadVector { module_id: random.below(32) }
                    }
                });
            }
            4 => {
                let module_id = random.below(32);
                module.tls = Some(match random.below(3) {
                    0 => TlsRecipe::DynamicThreadVector { module_id },
                    1 => TlsRecipe::MuslThreadVector { module_id },
                    _ => TlsRecipe::Static { offset: -i64::try_from(random.below(1 << 20)).unwrap_or(0) },
                });
            }
            _ => {
                let by = random.shift(512, 8);
                if let Some(layout) = &mut module.layout {
                    let all = [
                        &mut layout.block_cache_hit_count,
                        &mut layout.block_read_count,
                        &mut layout.block_read_byte,
                        &mut layout.internal_key_skipped_count,
                        &mut layout.internal_delete_skipped_count,
                    ];
                    all.into_iter().for_each(|field| {
                        *field = field.saturating_add_signed(i32::try_from(by).unwrap_or(8))
                    });
                }
            }
        }
    }
    target
}

fn read(target: &Target, sentinel: &mut Sentinel) -> Result<SentinelReading> {
    sentinel.watch(target, 0)?;
    let reading = sentinel.read(0);
    sentinel.forget(0);
    Ok(reading?)
}

/// What the checks before a write say of a reading, those of the keeper included.
fn passes(target: &Target, reading: &SentinelReading, memory: &ProgramMemory) -> bool {
    let initial = target.module.initial_perf_level();
    doubt(&target.module, &reading.thread_counters(), &reading.levels).is_none()
        && initial.is_some_and(|initial| begins_at_the_default(memory, initial))
}

/// All memory that a process can write to and shares with nobody.
fn private_memory(pid: u32) -> Result<Vec<(u64, Vec<u8>)>> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut parts = Vec::new();
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let (range, rest) = line.split_once(' ').context("no range")?;
        let (begin, end) = range.split_once('-').context("no end")?;
        let (begin, end) = (u64::from_str_radix(begin, 16)?, u64::from_str_radix(end, 16)?);
        if rest.starts_with("rw-p") {
            let mut bytes = vec![0; usize::try_from(end - begin)?];
            memory.read_exact_at(&mut bytes, begin).with_context(|| line.to_owned())?;
            parts.push((begin, bytes));
        }
    }
    Ok(parts)
}

fn nothing_is_written(pid: u32, random: &mut Random) -> Result<()> {
    let recipes =
        std::env::var("SEXTON_RECIPES").ok().map(|text| text.parse()).transpose()?.unwrap_or(RECIPES);
    let target = inspected::target(pid)?;
    let mut sentinel = Sentinel::load(&KernelFeatures::probe())?;
    process::signal(pid, Signal::STOP)?;
    let memory = ProgramMemory::open(target.process)?;
    let right = read(&target, &mut sentinel)?;
    ensure!(passes(&target, &right, &memory), "the right recipe is doubted: {right:?}");
    let levels: BTreeSet<u64> = right.levels.iter().map(|level| level.address).collect();
    ensure!(right.levels.iter().any(|level| level.level == LEVEL_OFF), "no level is off: {right:?}");
    let before = private_memory(pid)?;
    let (mut read_all, mut passed, mut written) = (0, 0, Vec::new());
    for _ in 0..recipes {
        let target = wrong(&target, random);
        // Where there is no sentinel, or no such layout, there is no reading and nothing to write.
        let Ok(reading) = read(&target, &mut sentinel) else { continue };
        read_all += 1;
        if !passes(&target, &reading, &memory) {
            continue;
        }
        passed += 1;
        for level in reading.levels {
            let is_raised = level.level == LEVEL_OFF && !levels.contains(&level.address);
            if is_raised && memory.write_u8(level.address, LEVEL_COUNTS).is_ok() {
                written.push((target.module.tls, target.module.perf_level_offset, level));
            }
        }
    }
    println!("{read_all} readings by wrong recipes, {passed} of them pass and mean right levels or none");
    ensure!(written.is_empty(), "{} bytes were written: {:x?}", written.len(), written);
    ensure!(read_all > recipes / 2, "only {read_all} recipes were read by");
    ensure!(private_memory(pid)? == before, "the process has other memory than before");
    process::signal(pid, Signal::CONT)
}

#[test]
fn ten_thousand_wrong_recipes_write_nothing() -> Result<()> {
    let _turn = agent::beside_others()?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    println!("seed {seed}");
    let mut random = Random(u64::from(seed));
    let directory = tempfile::tempdir()?;
    let mut host = StaticHost::start(&directory.path().join("db"), &["--perf-level", "1", "--threads", "4"])?;
    host.list()?;
    nothing_is_written(host.pid(), &mut random).context("a static program")?;
    host.quit()?;
    let mut host = MuslHost::start(directory.path(), LEVEL_OFF)?;
    host.list()?;
    nothing_is_written(host.pid(), &mut random).context("a program on musl")?;
    host.end()
}

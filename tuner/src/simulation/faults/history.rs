//! One history: turns in which time passes, something fails, the agent hears of what there is to hear, and
//! wants something; in the end all is quiet.

use super::agent::{Agent, Models};
use super::fault::Fault;
use super::locks::Locks;
use super::oracle::{Disk, Oracle};
use super::world::{SECOND_NS, World};
use crate::policy::{ByteRate, ByteSize, HoldPolicy, Policy, TimeSpan};
use crate::run::{ProcessId, SettingEvent};
use crate::simulation::random::Random;
use std::collections::BTreeMap;

/// Turns of a history.
pub const TURNS: usize = 64;

/// Turns until all is quiet, at most: a job lasts some hundred seconds, and these turns fifteen.
const LAST_TURNS: usize = 200;

/// Bytes that may be written a second.
const RATE_BYTES_PER_SECOND: u64 = 1 << 20;

/// Bytes that may be written at once.
const BURST_BYTES: u64 = 64 << 20;

/// What has to be seen in some thousand histories.
pub const EXPECTED: [&str; 24] = [
    "done",
    "skipped",
    "failed",
    "cancelled",
    "stopped",
    "interrupted",
    "helped",
    "did_not_help",
    "paused",
    "in doubt",
    "went on in halves",
    "retried",
    "orphan",
    "killed between effects",
    "disk full",
    "not written",
    "clock set",
    "target gone",
    "silent",
    "reply lost",
    "setting restored",
    "rejected",
    "lock not had",
    "lock lost",
];

/// One history.
pub struct History {
    pub(super) seed: u64,
    pub(super) fault: Fault,
    pub(super) policy: Policy,
    pub(super) models: Models,
    pub(super) locks: Locks,
    pub(super) world: World,
    pub(super) disk: Disk,
    pub(super) oracle: Oracle,
    pub(super) agent: Option<Agent>,
    pub(super) random: Random,
    /// Whether nothing fails any more.
    pub(super) is_calm: bool,
    told: Option<Vec<String>>,
    counts: BTreeMap<&'static str, u64>,
}

impl History {
    pub fn new(seed: u64, fault: Fault) -> History {
        let mut policy = Policy { cooldown: TimeSpan::from_seconds(120), ..Policy::default() };
        policy.io_budget.rate = ByteRate::from_bytes_per_second(RATE_BYTES_PER_SECOND);
        policy.io_budget.burst = ByteSize::from_bytes(BURST_BYTES);
        let run = vec!["lock".to_owned()];
        policy.guards.hold = Some(HoldPolicy { run, acquire_timeout: TimeSpan::from_seconds(60) });
        let oracle = Oracle::new(&policy);
        match fault {
            Fault::NoCooldown => policy.cooldown = TimeSpan::from_seconds(0),
            Fault::NothingCharged => policy.io_budget.rate = ByteRate::from_bytes_per_second(BURST_BYTES),
            _ => {}
        }
        History {
            seed,
            fault,
            policy,
            models: Models::new(),
            locks: Locks::default(),
            world: World::new(),
            disk: Disk::default(),
            oracle,
            agent: None,
            random: Random::of(seed, 0),
            is_calm: false,
            told: None,
            counts: BTreeMap::new(),
        }
    }

    /// The same, with a trace.
    pub fn told(mut self) -> History {
        self.told = Some(Vec::new());
        self
    }

    pub fn trace(&self) -> &[String] {
        self.told.as_deref().unwrap_or_default()
    }

    /// Adds what has happened in it.
    pub fn count(&self, seen: &mut BTreeMap<&'static str, u64>) {
        for (name, count) in &self.counts {
            *seen.entry(name).or_default() += count;
        }
    }

    pub(super) fn note(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    pub(super) fn tell(&mut self, what: impl FnOnce() -> String) {
        let seconds = self.world.now_ns as f64 / SECOND_NS as f64;
        if let Some(told) = &mut self.told {
            told.push(format!("{seconds:>9.3} {}", what()));
        }
    }

    /// Runs it, without the turns that are left out. Gives what was wrong, if anything.
    pub fn run(&mut self, left_out: &[bool; TURNS]) -> Result<(), String> {
        self.start_agent();
        for (turn, is_left_out) in (1..).zip(left_out) {
            if !is_left_out {
                self.random = Random::of(self.seed, turn);
                self.turn();
                self.is_right()?;
            }
        }
        self.random = Random::of(self.seed, u64::MAX);
        self.come_to_rest()
    }

    fn is_right(&self) -> Result<(), String> {
        self.oracle.wrong().map_or(Ok(()), |wrong| Err(wrong.to_owned()))
    }

    fn turn(&mut self) {
        self.something_fails();
        let longest_s = match self.random.index(10) {
            0..=5 => 2,
            6..=8 => 15,
            _ => 200,
        };
        let nanoseconds = self.random.between(SECOND_NS / 20, longest_s * SECOND_NS);
        self.pass(nanoseconds);
        if self.agent.is_none() && self.random.per_mille(400) {
            self.start_agent();
        }
        self.hear();
        for _ in 0..self.random.index(4) {
            self.want();
        }
    }

    pub(super) fn pass(&mut self, nanoseconds: u64) {
        let mut left_ns = nanoseconds;
        while left_ns > 0 {
            let step_ns = left_ns.min(SECOND_NS);
            let bytes = self.world.pass(step_ns);
            self.oracle.passed(step_ns, bytes);
            left_ns -= step_ns;
        }
    }

    fn something_fails(&mut self) {
        if self.random.per_mille(20) {
            self.kill_agent("the agent is killed");
        }
        if self.random.per_mille(20) {
            self.process_ends();
        }
        if self.random.per_mille(40) {
            let at = self.random.index(self.world.processes.len());
            let until_ns = self.world.now_ns + self.random.between(SECOND_NS, 100 * SECOND_NS);
            if let Some(process) = self.world.processes.get_mut(at) {
                process.silent_until_ns = until_ns;
                let pid = process.id.pid;
                self.note("silent");
                self.tell(|| format!("process {pid} is silent until {}", until_ns / SECOND_NS));
            }
        }
        if self.random.per_mille(20) {
            let (days, is_back) = (self.random.between(0, 10), self.random.per_mille(500));
            let seconds = i64::try_from(days * 86_400 + self.random.between(1, 2_000)).unwrap_or(0);
            self.world.ahead_s += if is_back { -seconds } else { seconds };
            self.note("clock set");
            let ahead_s = self.world.ahead_s;
            self.tell(|| format!("the wall clock is {ahead_s} s ahead"));
        }
        if self.random.per_mille(if self.disk.is_full { 200 } else { 20 }) {
            self.disk.is_full = !self.disk.is_full;
            self.note("disk full");
            let is_full = self.disk.is_full;
            self.tell(|| if is_full { "the disk is full" } else { "the disk has room" }.to_owned());
        }
        if self.random.per_mille(10) {
            let at = self.random.index(self.world.databases.len());
            let value = self.random.between(1_000_000, 2_000_000);
            if let Some(database) = self.world.databases.get_mut(at) {
                (database.option, database.owners_option) = (value, value);
                self.tell(|| format!("the owner of database {at} sets its option to {value}"));
            }
        }
    }

    fn process_ends(&mut self) {
        let at = self.random.index(self.world.processes.len());
        let Some(gone) = self.world.replace_process(at) else { return };
        self.note("target gone");
        self.tell(|| format!("process {} ends and is started again", gone.pid));
        if let Some(agent) = &mut self.agent {
            agent.gone.push(gone);
        }
    }

    pub(super) fn kill_agent(&mut self, why: &'static str) {
        self.locks.all_end();
        if self.agent.take().is_some() {
            self.tell(|| why.to_owned());
        }
    }

    /// Nothing fails any more, and nothing is wanted: what is under way ends, the agent ends in good order,
    /// and nothing is left.
    fn come_to_rest(&mut self) -> Result<(), String> {
        self.is_calm = true;
        self.disk.is_full = false;
        let now_ns = self.world.now_ns;
        self.world.processes.iter_mut().for_each(|process| process.silent_until_ns = now_ns);
        self.tell(|| "nothing fails any more".to_owned());
        if self.agent.is_none() {
            self.start_agent();
        }
        let mut is_ending = false;
        for _ in 0..LAST_TURNS {
            self.hear();
            self.is_right()?;
            if is_ending && self.agent.as_ref().is_some_and(Agent::is_quiet) {
                break;
            }
            if !is_ending && self.agent.as_ref().is_some_and(Agent::is_idle) {
                is_ending = true;
                self.tell(|| "the agent ends".to_owned());
                self.unwant("the agent ends", |_| true);
            }
            self.pass(15 * SECOND_NS);
        }
        self.oracle.at_the_end(&self.world, &self.disk);
        self.is_right()
    }

    /// Settings that are not wanted any more, for this reason.
    pub(super) fn unwant(&mut self, reason: &str, of: impl Fn(&ProcessId) -> bool) {
        let now = self.world.now();
        let Some(agent) = &mut self.agent else { return };
        let effects =
            agent.ledger.step_settings(&SettingEvent::Unwanted(reason), now, |kept| of(&kept.process));
        self.carry_out(effects);
    }
}

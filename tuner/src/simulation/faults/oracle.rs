//! What must never happen, and whether it has. It looks at the world and at the disk, never into the agent.

use super::locks::Locks;
use super::world::{Job, SECOND_NS, Work, World};
use crate::policy::Policy;
use crate::run::{Action, ActionId, JobResult, KeptSetting, News, Record, SettingRecord};
use std::collections::BTreeMap;

/// What is on the disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub actions: BTreeMap<ActionId, Action>,
    pub settings: BTreeMap<(u64, String), KeptSetting>,
    pub budget: Option<crate::run::Budget>,
    pub daily: Option<crate::daily::DailyBytes>,
    pub is_full: bool,
}

/// Names a setting on the disk.
pub fn key_of(setting: &KeptSetting) -> (u64, String) {
    let inode = setting.database.as_ref().map_or(0, |database| database.inode);
    (inode, setting.setting.name.clone())
}

/// Watches a history.
#[derive(Debug)]
pub struct Oracle {
    /// Bytes that may be written by the policy, in billionths, by the time that has really passed.
    tokens: i128,
    rate: i128,
    burst: i128,
    cooldown_ns: u64,
    /// How often each action has been told to have ended.
    ends: BTreeMap<ActionId, u32>,
    wrong: Option<String>,
}

impl Oracle {
    pub fn new(policy: &Policy) -> Oracle {
        let burst = i128::from(policy.io_budget.burst.bytes()) * i128::from(SECOND_NS);
        Oracle {
            tokens: burst,
            burst,
            rate: i128::from(policy.io_budget.rate.bytes_per_second()),
            cooldown_ns: policy.cooldown.nanoseconds(),
            ends: BTreeMap::new(),
            wrong: None,
        }
    }

    pub fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    fn note(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }

    /// A second at most has passed, in which jobs have written so much.
    pub fn passed(&mut self, nanoseconds: u64, bytes: u64) {
        self.tokens += i128::from(nanoseconds) * self.rate - i128::from(bytes) * i128::from(SECOND_NS);
        if self.tokens < 0 {
            let over = -self.tokens / i128::from(SECOND_NS);
            self.note(format!("the budget is exceeded by {over} bytes"));
        }
        self.tokens = self.tokens.min(self.burst);
    }

    /// A job is about to begin.
    pub fn begins(&mut self, job: &Job, world: &World, disk: &Disk) {
        let id = job.action;
        match disk.actions.get(&id) {
            None => self.note(format!("#{id} begins and is not written down")),
            Some(action) if !action.state.is_open() => self.note(format!("#{id} begins after its end")),
            Some(_) => {}
        }
        if !job.work.writes() {
            return;
        }
        let others = world.jobs.iter().filter(|other| other.runs() && other.work.writes());
        if let Some(other) = others.into_iter().find(|other| other.device == job.device) {
            let device = job.device.0;
            self.note(format!("#{id} and #{} run on device {device} at the same time", other.action));
        }
        let since = |then: u64| world.now_ns.saturating_sub(then);
        let is_same = |other: &&Job| {
            other.action != id
                && other.work == job.work
                && other.database == job.database
                && other.keys.0 < job.keys.1
                && job.keys.0 < other.keys.1
        };
        let done = world.jobs.iter().filter(is_same).filter_map(|other| match &other.ended {
            Some((ended_ns, JobResult::Done)) => {
                Some((other.action, other.lost_ns.unwrap_or(u64::MAX).min(*ended_ns)))
            }
            _ => None,
        });
        if let Some((other, ended_ns)) = done.max_by_key(|(_, ended_ns)| *ended_ns)
            && since(ended_ns) < self.cooldown_ns
        {
            let ago_s = since(ended_ns) / SECOND_NS;
            self.note(format!("#{id} begins within its cooldown: #{other} ended {ago_s} s ago"));
        }
    }

    /// A job is about to begin, which needs the lock of its action.
    pub fn is_locked(&mut self, job: &Job, locks: &Locks) {
        let id = job.action;
        if job.work != Work::SetThrottle && !locks.is_held(id) {
            self.note(format!("#{id} begins without its lock"));
        }
    }

    /// What has lost its lock has been told to stop.
    pub fn runs_locked(&mut self, id: ActionId, world: &World, locks: &Locks) {
        let mut jobs = world.jobs.iter().filter(|job| job.action == id && job.runs());
        if locks.is_lost(id) && jobs.any(|job| job.stop_ns.is_none() && job.lost_ns.is_none()) {
            self.note(format!("#{id} runs on although its lock is lost"));
        }
    }

    /// An action is written down, with what is told.
    pub fn recorded(&mut self, action: &Action, record: &Record, before: Option<&Action>) {
        let id = action.id;
        if before.is_some_and(|before| !before.state.is_open()) && action.state.is_open() {
            self.note(format!("#{id} is open again after its end"));
        }
        let told = record.news.iter().filter(|news| matches!(news, News::Ended | News::Interrupted));
        let told = u32::try_from(told.count()).unwrap_or(u32::MAX);
        let ends = self.ends.entry(id).or_default();
        *ends += told;
        if *ends > 1 {
            self.note(format!("#{id} has ended twice"));
        }
    }

    /// All is quiet: nothing is under way any more, and the agent has gone.
    pub fn at_the_end(&mut self, world: &World, disk: &Disk) {
        for (id, action) in &disk.actions {
            if action.state.is_open() || self.ends.get(id) != Some(&1) {
                self.note(format!("#{id} has no end"));
            }
        }
        if let Some(job) = world.jobs.iter().find(|job| !disk.actions.contains_key(&job.action)) {
            self.note(format!("#{} was begun and is forgotten", job.action));
        }
        for database in &world.databases {
            if database.option != database.owners_option {
                let path = database.identity.path.display();
                self.note(format!(
                    "the option of {path} is {}, and is not restored to {}",
                    database.option, database.owners_option
                ));
            }
        }
        if let Some(setting) = disk.settings.values().next() {
            self.note(format!("the setting of #{} stays written down", setting.action));
        }
    }

    /// A change of an option is about to be carried out.
    pub fn changes(&mut self, job: &Job, disk: &Disk) {
        let is_kept = disk.settings.values().any(|setting| setting.action == job.action);
        if matches!(job.work, Work::SetOption(_)) && !is_kept {
            self.note(format!("#{} changes an option whose former value is not written down", job.action));
        }
    }
}

impl Disk {
    /// Writes a batch.
    pub fn write(&mut self, action: &Action, record: &Record, budget: &crate::run::Budget) {
        self.actions.insert(action.id, action.clone());
        if record.spent_bytes > 0 {
            self.budget = Some(*budget);
        }
        self.write_setting(&record.setting);
    }

    pub fn write_setting(&mut self, setting: &SettingRecord) {
        match setting {
            SettingRecord::Unchanged => {}
            SettingRecord::Put(setting) => {
                self.settings.insert(key_of(setting), (**setting).clone());
            }
            SettingRecord::Remove(setting) => {
                self.settings.remove(&key_of(setting));
            }
        }
    }
}

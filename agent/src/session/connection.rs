//! The connection to the hook: the one that listens already, or one that is brought in.

use super::{Access, Session};
use jiff::Timestamp;
use sexton_execute::{CompactTask, ExecuteError, HookClient, HookOptions, Task};
use sexton_hook_protocol::ColumnFamilyPointers;
use sexton_inspect::facts::Gap;
use sexton_sst::Order;
use sexton_tuner::back_off::BackOff;
use sexton_tuner::policy::ExecutorKind;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Pauses after tries to bring the hook in: some of it is over in seconds, and what is wrong in a target for
/// longer is put right by people.
const BACK_OFF: BackOff = BackOff { first_seconds: 5, longest_seconds: 10 * 60 };

impl Session {
    /// Where a column family is, by the last probe that has seen it.
    ///
    /// # Errors
    /// When none has.
    pub fn pointers_of(
        &self,
        database: &Path,
        column_family: &str,
    ) -> Result<ColumnFamilyPointers, ExecuteError> {
        let handles = self.identities.handles(database, column_family);
        let handles = handles.ok_or_else(|| ExecuteError::Request {
            reason: format!("no probe has seen the column family {column_family} being opened yet"),
        })?;
        Ok(handles.of(column_family))
    }

    /// A compaction of what is where it was last seen. Ranges are bytewise: in another order their ends would
    /// be the wrong way round, or somewhere else; `all_keys` are all keys in any order.
    ///
    /// # Errors Where the order is another one, or not known.
    pub fn located(&self, task: CompactTask, all_keys: bool) -> Result<Task, ExecuteError> {
        let orders = self.orders.get(&task.database);
        let order = orders.and_then(|orders| orders.get(&task.column_family).copied().flatten());
        if !all_keys && order != Some(Order::Bytewise) {
            let reason = format!(
                "column family {} is not known to be in bytewise order, and only such are compacted by range",
                task.column_family
            );
            return Err(ExecuteError::Request { reason });
        }
        Ok(Task::Compact(CompactTask {
            handles: self.identities.handles(&task.database, &task.column_family),
            others: self.identities.all_pointers(&task.database),
            ..task
        }))
    }

    /// A hook changes the target, if only by its thread: it is called in only where the policy says act. One
    /// that is there already, preloaded or linked by the target's own people, is used in any mode. The hook
    /// serves one copy of RocksDB in a process. After a failure it is left alone for a while, longer each
    /// time: a JVM that cannot load the library would get a copy of it, and be asked to, after each window.
    pub fn connect_hook(&mut self, access: Access) {
        let is_served = access.executor == ExecutorKind::Hook && self.target.is_primary;
        if self.hook.is_some() || !is_served || !self.connects.may_try(BACK_OFF, Timestamp::now()) {
            return;
        }
        let options = HookOptions { library: self.hook_library.clone(), may_attach: access.may_act };
        match HookClient::connect(&self.target, &options) {
            Ok(hook) => {
                self.hook = Some(Arc::new(Mutex::new(hook)));
                self.hook_gap = None;
                self.connects.succeed();
            }
            Err(error) => self.note_not_connected(&error, access.may_act),
        }
    }

    /// Connects to a hook that is there already.
    pub fn try_hook(&mut self) {
        match HookClient::connect(&self.target, &HookOptions { library: None, may_attach: false }) {
            Ok(hook) => self.hook = Some(Arc::new(Mutex::new(hook))),
            Err(error) => self.note_silence(&error),
        }
    }

    /// A hook that does not answer one question will not answer the next.
    pub(super) fn note_silence(&self, error: &ExecuteError) {
        if error.is_silence() {
            self.silence.replace(Some(format!("its hook does not answer: {error}")));
        }
    }

    /// No hook answers, and why. What has taken some doing, in the target or here, is not tried again at
    /// once. It is a gap where one `is_wanted`.
    fn note_not_connected(&mut self, error: &ExecuteError, is_wanted: bool) {
        self.note_silence(error);
        let mut reason = error.to_string();
        if error.is_worth_a_pause() {
            let now = Timestamp::now();
            self.connects.fail(BACK_OFF, now);
            let (tries, seconds) =
                (self.connects.failures_in_a_row, self.connects.seconds_left(BACK_OFF, now));
            reason.push_str(&format!(" (tried {tries} times, again after {seconds} s)"));
        }
        let what = "no hook answers in the target".into();
        self.hook_gap = is_wanted.then(|| Gap { what, reason, remedy: error.remedy() });
    }
}

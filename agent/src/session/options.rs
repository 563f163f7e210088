//! Options of a column family in the target: what is in force, and putting one back.
//!
//! What is in force is read from the database's own OPTIONS file, never assumed: somebody else may have set
//! it meanwhile.

use super::{Access, Session};
use sexton_execute::{ExecuteError, HookClient};
use sexton_hook_protocol::{ChangedOption, ColumnFamilyPointers, OptionChange, OptionsScope};
use sexton_journal::OptionRecord;
use sexton_tuner::run::is_same_value;
use std::path::Path;
use std::time::Duration;

/// Longest that one option may take: a directory is read, and the hook is asked some questions or brought in
/// anew.
pub const OPTION_LIMIT: Duration = Duration::from_secs(30);

/// An option's value by the OPTIONS file, `None` where that does not name it; or why it cannot be read.
pub type ValueInForce = Result<Option<String>, String>;

impl Session {
    /// The option's value by the database's newest OPTIONS file.
    pub fn value_in_force(&self, record: &OptionRecord) -> ValueInForce {
        let database = self.database(&record.database.path).ok_or("its database is not open")?;
        let read = sexton_sst::read_database(&database.path_from_agent).map_err(|error| error.to_string())?;
        let family = read.column_families.into_iter().find(|family| family.name == record.column_family);
        Ok(family.and_then(|mut family| family.options.run_time_options.remove(&record.name)))
    }

    /// Notes a value as the next OPTIONS file will have it.
    pub fn note_value(&mut self, record: &OptionRecord, value: &str) {
        let families = self.options.get_mut(&record.database.path);
        if let Some(options) = families.and_then(|families| families.get_mut(&record.column_family)) {
            options.run_time_options.insert(record.name.clone(), value.to_owned());
        }
    }

    /// Tells the hook that this agent is still there; gives those of its options that the hook does not know
    /// of any more, with what is in force. `None`: it does not answer now.
    pub fn lost_options(&self, kept: Vec<OptionRecord>) -> Option<Vec<(OptionRecord, ValueInForce)>> {
        let changed = self.changed_options()?;
        let is_lost = |record: &OptionRecord| {
            !self.pointers(record).is_some_and(|pointers| is_among(&changed, &pointers, &record.name))
        };
        let lost = kept.into_iter().filter(is_lost);
        let with_values = lost.map(|record| {
            let value = self.value_in_force(&record);
            (record, value)
        });
        Some(with_values.collect())
    }

    /// Puts an option back, unless somebody else has changed it since. Gives the value that is in force then.
    pub fn put_back(&mut self, record: &OptionRecord, access: Access) -> Result<String, String> {
        self.connect_hook(access);
        let in_force = self.value_in_force(record)?;
        let is_ours = in_force.as_ref().is_some_and(|value| is_same_value(value, &record.value));
        let changed = self.changed_options().unwrap_or_default();
        let pointers = self.pointers(record);
        let is_known = pointers.as_ref().is_some_and(|pointers| is_among(&changed, pointers, &record.name));
        let value = in_force.filter(|_| !is_ours).unwrap_or_else(|| record.restore.clone());
        if !is_ours && !is_known {
            return Ok(value);
        }
        // Where it is another value by now, the hook is to leave it alone as well.
        let pointers = pointers.ok_or_else(|| "no hook knows its column family".to_owned())?;
        let change = OptionChange { name: record.name.clone(), value: value.clone(), restore: None };
        let set = |hook: &mut HookClient| hook.set_options(&pointers, OptionsScope::ColumnFamily, &[change]);
        let set = self.converse(set).ok_or_else(|| "no hook answers, or it is busy".to_owned())?;
        if let Err(ExecuteError::Hook { .. }) = set {
            self.identities.forget(pointers.database);
        }
        set.map_err(|error| error.to_string())?;
        self.note_value(record, &value);
        Ok(value)
    }

    /// What the hook would put back; `None` where it does not answer now.
    fn changed_options(&self) -> Option<Vec<ChangedOption>> {
        self.ask("changed options", HookClient::changed_options)
    }

    /// Where the record's column family is: from a probe, else from the hook itself.
    fn pointers(&self, record: &OptionRecord) -> Option<ColumnFamilyPointers> {
        if let Some(handles) = self.identities.handles(&record.database.path, &record.column_family) {
            return Some(handles.of(&record.column_family));
        }
        let known = self.ask("databases", HookClient::databases)?;
        let is_it = |directory: &str| Path::new(directory) == record.database.path;
        let families = known.into_iter().filter(|family| family.directory.as_deref().is_some_and(is_it));
        families.map(|family| family.pointers).find(|pointers| pointers.name == record.column_family)
    }
}

fn is_among(changed: &[ChangedOption], pointers: &ColumnFamilyPointers, name: &str) -> bool {
    changed.iter().any(|option| {
        option.database == pointers.database && option.column_family_id == pointers.id && option.name == name
    })
}

//! Options of a column family in the target: what is in force, and putting one back.
//!
//! What is in force is read from the database's own OPTIONS file, never assumed: somebody else may have set
//! it meanwhile.

use super::{Access, Session};
use sexton_execute::{ExecuteError, HookClient};
use sexton_hook_protocol::{ChangedOption, ColumnFamilyPointers, OptionChange};
use sexton_inspect::facts::DatabaseDirectory;
use sexton_sst::Place;
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::run::{KeptSetting, Restoration, SettingKind};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Longest that one option may take: a directory is read, and the hook is asked some questions or brought in
/// anew.
pub const OPTION_LIMIT: Duration = Duration::from_secs(30);

/// Where a database is read, and which one has to be there.
pub(super) fn place_of(database: &DatabaseDirectory) -> Place<'_> {
    Place { path: &database.path_from_agent, identity: database.place() }
}

/// An option's value by the OPTIONS file, `None` where that does not name it; or why it cannot be read.
pub type ValueInForce = Result<Option<String>, String>;

impl Session {
    /// The option's value by the database's newest OPTIONS file.
    pub fn value_in_force(&self, kept: &KeptSetting) -> ValueInForce {
        let (database, column_family) = place(kept).ok_or("it is no option")?;
        let database = self.database(database).ok_or("its database is not open")?;
        let read = sexton_sst::read_database(place_of(database)).map_err(|error| error.to_string())?;
        let family = read.column_families.into_iter().find(|family| family.name == column_family);
        Ok(family.and_then(|mut family| family.options.run_time_options.remove(&kept.setting.name)))
    }

    /// Notes a value as the next OPTIONS file will have it.
    pub fn note_value(&mut self, kept: &KeptSetting, value: &str) {
        let families = place(kept).and_then(|(database, _)| self.options.get_mut(database));
        note(families, kept, value);
    }

    /// Tells the hook that this agent is still there; gives those of its options that the hook does not know
    /// of any more, with what is in force. `None`: it does not answer now.
    pub fn lost_options(&self, kept: Vec<KeptSetting>) -> Option<Vec<(KeptSetting, ValueInForce)>> {
        let changed = self.changed_options()?;
        let is_lost = |kept: &KeptSetting| {
            !self.pointers(kept).is_some_and(|pointers| is_among(&changed, &pointers, &kept.setting.name))
        };
        let lost = kept.into_iter().filter(is_lost);
        let with_values = lost.map(|kept| {
            let value = self.value_in_force(&kept);
            (kept, value)
        });
        Some(with_values.collect())
    }

    /// Puts an option back, unless somebody else has changed it since. Gives the value that is in force then.
    pub fn put_back(&mut self, kept: &KeptSetting, access: Access) -> ValueInForce {
        self.connect_hook(access);
        let in_force = self.value_in_force(kept)?;
        let changed = self.changed_options().unwrap_or_default();
        let pointers = self.pointers(kept);
        let name = &kept.setting.name;
        let is_known = pointers.as_ref().is_some_and(|pointers| is_among(&changed, pointers, name));
        let value = match kept.restoration(in_force.as_deref(), is_known) {
            Restoration::Leave(value) => return Ok(value),
            Restoration::Set(value) => value,
        };
        // Where it is another value by now, the hook is to leave it alone as well.
        let pointers = pointers.ok_or_else(|| "no hook knows its column family".to_owned())?;
        let change = OptionChange { name: name.clone(), value: value.clone(), restore: None };
        let set = |hook: &mut HookClient| hook.set_options(&pointers, &[change]);
        let set = self.converse(set).ok_or_else(|| "no hook answers, or it is busy".to_owned())?;
        if let Err(ExecuteError::Hook { .. }) = set {
            self.identities.forget(pointers.database);
        }
        set.map_err(|error| error.to_string())?;
        self.note_value(kept, &value);
        Ok(Some(value))
    }

    /// What the hook would put back; `None` where it does not answer now.
    fn changed_options(&self) -> Option<Vec<ChangedOption>> {
        self.ask("changed options", HookClient::changed_options)
    }

    /// Where the option's column family is: from a probe, else from the hook itself.
    fn pointers(&self, kept: &KeptSetting) -> Option<ColumnFamilyPointers> {
        let (database, column_family) = place(kept)?;
        if let Some(handles) = self.identities.handles(database, column_family) {
            return Some(handles.of(column_family));
        }
        let known = self.ask("databases", HookClient::databases)?;
        let is_it = |directory: &str| Path::new(directory) == database;
        let families = known.into_iter().filter(|family| family.directory.as_deref().is_some_and(is_it));
        families.map(|family| family.pointers).find(|pointers| pointers.name == column_family)
    }
}

/// Database and column family of an option.
fn place(kept: &KeptSetting) -> Option<(&Path, &str)> {
    let SettingKind::Option { database, column_family } = &kept.setting.kind else { return None };
    Some((Path::new(database), column_family))
}

/// Notes a value in what is known of the options of a database's column families.
pub fn note(families: Option<&mut BTreeMap<String, ColumnFamilyOptions>>, kept: &KeptSetting, value: &str) {
    let column_family = place(kept).map_or("", |(_, column_family)| column_family);
    if let Some(options) = families.and_then(|families| families.get_mut(column_family)) {
        options.run_time_options.insert(kept.setting.name.clone(), value.to_owned());
    }
}

fn is_among(changed: &[ChangedOption], pointers: &ColumnFamilyPointers, name: &str) -> bool {
    changed.iter().any(|option| {
        option.database == pointers.database && option.column_family_id == pointers.id && option.name == name
    })
}

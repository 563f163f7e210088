//! An option that is set: one question.

use super::steps::{Step, Stepwise};
use crate::error::ExecuteError;
use crate::hook::HookClient;
use crate::task::{JobOutcome, OptionTask, Progress};
use sexton_hook_protocol::OptionChange;

/// One option to set.
pub struct SetOption(pub OptionTask);

impl Stepwise for SetOption {
    fn step(&mut self, hook: &mut HookClient, _: &mut Progress) -> Result<Step, ExecuteError> {
        let OptionTask { column_family, name, value, restore, .. } = &self.0;
        let change = OptionChange { name: name.clone(), value: value.clone(), restore: restore.clone() };
        hook.set_options(column_family, &[change])?;
        Ok(Step::Ended(JobOutcome { value: Some(value.clone()), ..JobOutcome::default() }))
    }

    fn cancel(&mut self) {}
}

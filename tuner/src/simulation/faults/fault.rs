//! Ways to break the rules on purpose. Each is noticed by the oracle, or the oracle is no good.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Jobs begin although nothing was written down.
    NotWrittenAhead,
    /// Ends are not written down.
    EndsForgotten,
    /// Each end is written down twice.
    EndsTwice,
    /// The block device is not looked at.
    DevicesIgnored,
    /// Nothing rests.
    NoCooldown,
    /// Nothing is charged to the budget.
    NothingCharged,
    /// What was changed is forgotten at once.
    SettingsForgotten,
    /// An agent that is started again does not ask what an earlier one has begun.
    NothingInDoubt,
    /// Actions begin although nobody holds their lock.
    LockIgnored,
    /// Nobody tells an action that its lock is lost.
    LossNotTold,
}

impl Fault {
    /// All of them, with a word of the invariant that each breaks.
    pub const ALL: [(Fault, &'static str); 10] = [
        (Fault::NotWrittenAhead, "not written down"),
        (Fault::EndsForgotten, "has no end"),
        (Fault::EndsTwice, "has ended twice"),
        (Fault::DevicesIgnored, "run on device"),
        (Fault::NoCooldown, "within its cooldown"),
        (Fault::NothingCharged, "budget"),
        (Fault::SettingsForgotten, "is not restored"),
        (Fault::NothingInDoubt, ""),
        (Fault::LockIgnored, "without its lock"),
        (Fault::LossNotTold, "lock is lost"),
    ];
}

//! Which key comes next.

use super::description::Choice;
use crate::simulation::random::Random;

/// Keys that there are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    /// The least that was not deleted as the oldest.
    pub(super) oldest: u64,
    /// Behind the greatest that was written.
    pub(super) end: u64,
}

impl Extent {
    /// A key; `None` where there is none at present.
    pub(super) fn choose(&mut self, choice: Choice, run: u64, random: &mut Random) -> Option<u64> {
        match choice {
            Choice::Any => Some(random.between(0, self.end)),
            Choice::Next => {
                self.end += run;
                Some(self.end - run)
            }
            Choice::Oldest { keep } => {
                let oldest = self.oldest;
                if oldest + run + keep > self.end {
                    return None;
                }
                self.oldest += run;
                Some(oldest)
            }
            Choice::First => Some(0),
            Choice::GroupOf(keys) => Some(random.between(0, self.end.div_ceil(keys.max(1))) * keys),
            Choice::Within { from, count } => Some(from + random.between(0, count)),
            Choice::Skewed(share) => {
                let tenth = (self.end / 10).max(1);
                let is_in_tenth = random.per_mille((share.clamp(0.0, 1.0) * 1_000.0) as u64);
                Some(if is_in_tenth { random.between(0, tenth) } else { random.between(tenth, self.end) })
            }
        }
    }
}

//! Who gives way where there are more targets than places.
//!
//! What stands first in the policy comes first. Among those of one entry every user has a share: whoever
//! starts hundreds of processes takes places from himself and not from the others. A target that may be acted
//! on never gives way: its actions would end in doubt.

/// What matters of a target for its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Where its entry stands in the policy.
    pub rank: usize,
    pub user_id: u32,
    /// When its process started, clock ticks since boot.
    pub start_time_ticks: u64,
    /// Whether it may be acted on.
    pub may_be_acted_on: bool,
}

/// Which of those that have a place gives it to `new`; `None`: `new` gets none.
pub fn gives_way(holders: &[Claim], new: &Claim) -> Option<usize> {
    let held_by = |user_id| holders.iter().filter(|holder| holder.user_id == user_id).count();
    let own = held_by(new.user_id);
    let yields = |holder: &Claim| {
        let is_greedy = held_by(holder.user_id) > own + 1;
        !holder.may_be_acted_on && (holder.rank > new.rank || holder.rank == new.rank && is_greedy)
    };
    let candidates = holders.iter().enumerate().filter(|(_, holder)| yields(holder));
    let last = candidates
        .max_by_key(|(_, holder)| (holder.rank, held_by(holder.user_id), holder.start_time_ticks))?;
    Some(last.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(rank: usize, user_id: u32, start_time_ticks: u64) -> Claim {
        Claim { rank, user_id, start_time_ticks, may_be_acted_on: false }
    }

    #[test]
    fn what_the_policy_names_first_comes_first() {
        let holders = [claim(1, 5, 10), claim(2, 5, 10), claim(2, 5, 11), claim(0, 5, 99)];
        assert_eq!(gives_way(&holders, &claim(1, 5, 50)), Some(2));
        assert_eq!(gives_way(&holders, &claim(2, 5, 50)), None);
        let acting = holders.map(|holder| Claim { may_be_acted_on: true, ..holder });
        assert_eq!(gives_way(&acting, &claim(0, 6, 50)), None);
    }

    #[test]
    fn who_starts_masses_of_processes_keeps_nobody_out() {
        let mut holders: Vec<Claim> = (0..510).map(|number| claim(0, 1000, number)).collect();
        holders.push(claim(0, 113, 0));
        assert_eq!(gives_way(&holders, &claim(0, 113, 5_000)), Some(509));
        assert_eq!(gives_way(&holders, &claim(0, 1000, 5_000)), None);
        // All of one user: there is nobody to take from.
        assert_eq!(gives_way(&holders[..510], &claim(0, 1000, 5_000)), None);
    }

    proptest! {
        /// Taking turns comes to an end: nobody takes back what was taken from him.
        #[test]
        fn nobody_takes_a_place_back(
            holders in proptest::collection::vec((0..3usize, 0..4u32, 0..9u64, any::<bool>()), 1..20),
            new in (0..3usize, 0..4u32, 0..9u64),
        ) {
            let mut holders: Vec<Claim> = holders
                .into_iter()
                .map(|(rank, user, start, acts)| Claim { may_be_acted_on: acts, ..claim(rank, user, start) })
                .collect();
            let new = claim(new.0, new.1, new.2);
            if let Some(at) = gives_way(&holders, &new) {
                let former = std::mem::replace(&mut holders[at], new);
                prop_assert!(!former.may_be_acted_on && former.rank >= new.rank);
                let next = gives_way(&holders, &former);
                prop_assert!(next.is_none_or(|next| holders[next] != new), "{:?} takes it back", former);
            }
        }
    }
}

//! How much an open window's probes may cost before the programs skip.

use super::abi::SEXTON_SITES_MAX;
use super::site::Site;
use sexton_inspect::facts::{ProbeSites, SiteKind};

/// What a window is granted, and what is taken from it at each site.
///
/// Once the credit is gone the programs skip: a firing then costs its trap and little more. The sums stay
/// exact, but what happens meanwhile is charged to nobody, and an operation of which a part was skipped is
/// none. More can be granted while the window is open ([`super::Windows::grant`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credit {
    pub(super) granted_ns: u64,
    /// What an entry that is followed takes, its return included; by site number.
    pub(super) price_ns: [u32; SEXTON_SITES_MAX as usize],
}

impl Credit {
    pub fn unlimited() -> Credit {
        Credit { granted_ns: u64::MAX, price_ns: Default::default() }
    }

    /// `granted_ns` nanoseconds, of which an entry at a site takes what `price_ns` says, its return included.
    pub fn limited(granted_ns: u64, sites: &ProbeSites, price_ns: impl Fn(Site, SiteKind) -> u64) -> Credit {
        let mut credit = Credit { granted_ns, price_ns: Default::default() };
        for site in Site::ALL {
            let place = site.place(sites);
            let room = credit.price_ns.get_mut(site.number() as usize);
            if let (Some(place), Some(room)) = (place, room) {
                *room = u32::try_from(price_ns(site, place.kind)).unwrap_or(u32::MAX);
            }
        }
        credit
    }
}

//! How often one address may ask: so many requests a second, and those that are refused count for many.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Requests a second from one address: a dashboard and a scraper ask some ten times a second at most.
const REQUESTS_PER_SECOND_MAX: f64 = 100.0;
/// Requests that may come at once: a page with all that it asks for, many times.
const REQUESTS_AT_ONCE_MAX: f64 = 400.0;
/// A request without a valid token or certificate counts for so many: five tries a second.
const REFUSED_COSTS: f64 = 20.0;
/// Addresses that are told apart; further ones have one allowance in common.
const ADDRESSES_MAX: usize = 4_096;

/// What addresses have asked of late.
#[derive(Debug, Default)]
pub struct Rates {
    allowances: Mutex<HashMap<Option<IpAddr>, Allowance>>,
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    requests: f64,
    at: Instant,
}

impl Allowance {
    fn at(self, now: Instant) -> Allowance {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        let requests = (self.requests + seconds * REQUESTS_PER_SECOND_MAX).min(REQUESTS_AT_ONCE_MAX);
        Allowance { requests, at: now }
    }
}

impl Rates {
    /// Takes a request of this address off its allowance; `false`: there is none left.
    pub fn take(&self, address: IpAddr, now: Instant) -> bool {
        self.charge(address, 1.0, now)
    }

    /// The request that was taken is refused.
    pub fn refuse(&self, address: IpAddr, now: Instant) {
        self.charge(address, REFUSED_COSTS, now);
    }

    /// Where less is left than it costs, it costs all.
    fn charge(&self, address: IpAddr, cost: f64, now: Instant) -> bool {
        let mut allowances = self.allowances.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = Some(network(address));
        if !allowances.contains_key(&key) && allowances.len() >= ADDRESSES_MAX {
            // Who has all of it again is as one who was never here.
            allowances.retain(|_, allowance| allowance.at(now).requests < REQUESTS_AT_ONCE_MAX);
            if allowances.len() >= ADDRESSES_MAX {
                key = None;
            }
        }
        let whole = Allowance { requests: REQUESTS_AT_ONCE_MAX, at: now };
        let allowance = allowances.entry(key).or_insert(whole);
        let left = allowance.at(now);
        let is_enough = left.requests >= cost;
        *allowance = Allowance { requests: (left.requests - cost).max(0.0), at: now };
        is_enough
    }
}

/// Whoever has one IPv6 address has a whole network of them.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::time::Duration;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn an_address_that_asks_too_often_waits_and_others_do_not() {
        let (rates, now) = (Rates::default(), Instant::now());
        let taken = (0..1_000).filter(|_| rates.take(address(1), now)).count();
        assert_eq!(taken, 400);
        assert!(rates.take(address(2), now));
        let later = now + Duration::from_millis(100);
        assert_eq!((0..100).filter(|_| rates.take(address(1), later)).count(), 10);
    }

    #[test]
    fn guessing_costs_more_than_asking() {
        let (rates, now) = (Rates::default(), Instant::now());
        let mut tries = 0;
        while rates.take(address(1), now) {
            rates.refuse(address(1), now);
            tries += 1;
        }
        assert_eq!(tries, 20);
    }

    #[test]
    fn a_network_counts_as_one_and_their_number_is_bounded() {
        let (rates, now) = (Rates::default(), Instant::now());
        let in_network = |number: u128| IpAddr::V6(Ipv6Addr::from((1_u128 << 96) + number));
        assert_eq!((0..1_000).filter(|at| rates.take(in_network(*at), now)).count(), 400);
        for number in 0..100_000 {
            rates.take(address(number), now);
        }
        assert_eq!(rates.allowances.lock().unwrap().len(), ADDRESSES_MAX + 1);
        let later = now + Duration::from_secs(60);
        assert!(rates.take(address(200_000), later));
        assert_eq!(rates.allowances.lock().unwrap().len(), 1);
    }
}

//! How probes are put into a target, chosen by what the kernel has.

use super::{Answer, KernelFeatures, ProbeError};
use serde::Serialize;

/// A way to arm the window's programs, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Mechanism {
    /// One uprobe session (Linux 6.13): a call that is not wanted arms no return probe.
    Session,
    /// Two uprobe-multi links (6.6.35), entries and returns.
    Multi,
    /// A perf event for each probe, with cookies (5.15). Needs CAP_SYS_ADMIN.
    PerfCookie,
    /// A perf event for each probe and no cookies: one RocksDB in each process. Needs CAP_SYS_ADMIN.
    Perf,
}

impl Mechanism {
    /// All of them, best first.
    pub const ALL: [Mechanism; 4] =
        [Mechanism::Session, Mechanism::Multi, Mechanism::PerfCookie, Mechanism::Perf];

    /// The best one that the kernel is known to have.
    /// Errors: [`ProbeError::Kernel`] where the kernel lacks what all of them need, or could not be asked.
    pub fn choose(features: &KernelFeatures) -> Result<Mechanism, ProbeError> {
        Mechanism::choose_among(&Mechanism::ALL, features)
    }

    /// The first of `mechanisms` that the kernel is known to have.
    pub fn choose_among(
        mechanisms: &[Mechanism],
        features: &KernelFeatures,
    ) -> Result<Mechanism, ProbeError> {
        let has = |mechanism: &&Mechanism| mechanism.missing(features).is_none();
        mechanisms.iter().find(has).copied().ok_or_else(|| {
            let reason = Mechanism::Perf.missing(features).map(Answer::reason).unwrap_or_default();
            ProbeError::Kernel { what: "probes", reason: reason.to_owned() }
        })
    }

    /// This one, where the kernel has it.
    /// Errors: [`ProbeError::Kernel`] where it has not.
    pub fn check(self, features: &KernelFeatures) -> Result<Mechanism, ProbeError> {
        match self.missing(features) {
            None => Ok(self),
            Some(answer) => {
                Err(ProbeError::Kernel { what: self.describe(), reason: answer.reason().to_owned() })
            }
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What it is, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Mechanism::Session => "uprobe sessions",
            Mechanism::Multi => "uprobe-multi links",
            Mechanism::PerfCookie => "perf uprobes with cookies",
            Mechanism::Perf => "perf uprobes",
        }
    }

    /// The first thing it needs and is not known to be there.
    fn missing(self, features: &KernelFeatures) -> Option<&Answer> {
        let own: &[&Answer] = match self {
            Mechanism::Session => &[&features.uprobe_session, &features.uprobe_multi_process_filter],
            Mechanism::Multi => &[&features.uprobe_multi, &features.uprobe_multi_process_filter],
            Mechanism::PerfCookie => &[&features.attach_cookie],
            Mechanism::Perf => &[],
        };
        let all = [&features.btf, &features.ring_buffer];
        all.into_iter().chain(own.iter().copied()).find(|answer| !answer.is_yes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn features(has: impl Fn(&str) -> bool) -> KernelFeatures {
        let answer = |name: &str| if has(name) { Answer::Yes } else { Answer::No(format!("no {name}")) };
        KernelFeatures {
            release: "0.0".into(),
            btf: answer("btf"),
            ring_buffer: answer("ring_buffer"),
            attach_cookie: answer("attach_cookie"),
            task_iterator: answer("task_iterator"),
            uprobe_multi: answer("uprobe_multi"),
            uprobe_multi_process_filter: answer("uprobe_multi_process_filter"),
            uprobe_session: answer("uprobe_session"),
            thread_end_reading: answer("thread_end_reading"),
        }
    }

    #[test]
    fn the_best_one_that_is_there_is_taken() {
        let without = |missing: &'static [&'static str]| {
            Mechanism::choose(&features(move |name| !missing.contains(&name))).unwrap()
        };
        assert_eq!(without(&[]), Mechanism::Session);
        assert_eq!(without(&["uprobe_session"]), Mechanism::Multi);
        assert_eq!(without(&["uprobe_session", "uprobe_multi_process_filter"]), Mechanism::PerfCookie);
        let old = ["uprobe_session", "uprobe_multi", "uprobe_multi_process_filter", "attach_cookie"];
        assert_eq!(Mechanism::choose(&features(|name| !old.contains(&name))).unwrap(), Mechanism::Perf);
    }

    #[test]
    fn what_all_of_them_need_is_named_when_it_is_missing() {
        let error = Mechanism::choose(&features(|name| name != "btf")).unwrap_err();
        assert!(error.to_string().contains("no btf"), "{error}");
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        use clap::ValueEnum;
        for mechanism in Mechanism::ALL {
            assert_eq!(Mechanism::from_str(mechanism.name(), false), Ok(mechanism));
        }
    }

    #[test]
    fn one_that_could_not_be_found_out_is_not_taken() {
        let mut features = features(|_| true);
        features.uprobe_session = Answer::Unknown("not permitted".into());
        assert_eq!(Mechanism::choose(&features).unwrap(), Mechanism::Multi);
        assert!(Mechanism::Session.check(&features).is_err());
        assert_eq!(Mechanism::Perf.check(&features).unwrap(), Mechanism::Perf);
    }
}

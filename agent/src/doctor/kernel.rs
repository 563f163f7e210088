//! What follows from the kernel's features.

use super::finding::Finding;
use super::report::KernelReport;
use sexton_probe::{KernelFeatures, Mechanism};

/// The features, and what they make possible.
pub fn report(features: &KernelFeatures) -> KernelReport {
    KernelReport {
        release: features.release.clone(),
        mechanism: Mechanism::choose(features).ok().map(|mechanism| mechanism.name().to_owned()),
        findings: findings(features),
    }
}

fn findings(features: &KernelFeatures) -> Vec<Finding> {
    let of = Finding::of_kernel;
    vec![
        of(
            &features.btf,
            "type information",
            "programs find their way in this kernel",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions' are",
        )
        .essential(),
        of(&features.ring_buffer, "ring buffers", "records come out of the kernel", "use Linux 5.8 or newer")
            .essential(),
        mechanism(features).essential(),
        of(
            &features.uprobe_session,
            "uprobe sessions",
            "calls that are not sampled cost no return",
            "nothing to do: another mechanism is used; Linux 6.13 has them",
        ),
        of(
            &features.uprobe_multi,
            "uprobe-multi links",
            "all probes of a target in one link, without CAP_SYS_ADMIN",
            "nothing to do: perf uprobes are used; Linux 6.6.35 has them",
        ),
        of(
            &features.uprobe_multi_process_filter,
            "process filter of uprobe-multi",
            "other processes with the same library do not pay",
            "nothing to do: perf uprobes are used; Linux 6.6.35 has it right",
        ),
        of(
            &features.attach_cookie,
            "attach cookies",
            "one program serves all sites, and two copies of RocksDB in a process are told apart",
            "nothing to do: a program for each site is used; Linux 5.15 has them",
        ),
        of(
            &features.task_iterator,
            "sentinel",
            "exact totals with no probe in the target",
            "use Linux 6.1 or newer; until then only what windows see is counted",
        ),
        of(
            &features.thread_end_reading,
            "last reading of ending threads",
            "nothing of short-lived threads is lost",
            "use Linux 6.16 or newer, or shorten loop.interval; what is lost is counted",
        ),
    ]
}

fn mechanism(features: &KernelFeatures) -> Finding {
    let (name, note) = ("a way to place probes", "windows");
    match Mechanism::choose(features) {
        Ok(mechanism) => Finding::yes(name, format!("{note}, by {}", mechanism.name())),
        Err(error) => Finding::no(name, note, error.to_string(), error.remedy()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Answer;
    use sexton_probe::Answer as KernelAnswer;

    fn features(answer: &KernelAnswer) -> KernelFeatures {
        KernelFeatures {
            release: "6.18.44".into(),
            btf: answer.clone(),
            ring_buffer: answer.clone(),
            attach_cookie: answer.clone(),
            task_iterator: answer.clone(),
            uprobe_multi: answer.clone(),
            uprobe_multi_process_filter: answer.clone(),
            uprobe_session: answer.clone(),
            thread_end_reading: answer.clone(),
        }
    }

    #[test]
    fn a_kernel_with_everything_has_no_obstacle() {
        let report = report(&features(&KernelAnswer::Yes));
        assert!(report.findings.iter().all(|finding| finding.answer == Answer::Yes), "{report:?}");
        assert!(report.mechanism.is_some());
    }

    #[test]
    fn without_a_sentinel_there_are_still_windows() {
        let old = KernelFeatures {
            task_iterator: KernelAnswer::No("old".into()),
            uprobe_session: KernelAnswer::No("old".into()),
            ..features(&KernelAnswer::Yes)
        };
        let report = report(&old);
        assert!(!report.findings.iter().any(Finding::is_obstacle), "{report:?}");
        let missing = report.findings.iter().filter(|finding| finding.answer == Answer::No);
        assert!(missing.clone().count() == 2, "{report:?}");
        assert!(missing.clone().all(|finding| finding.reason.is_some() && finding.remedy.is_some()));
    }

    #[test]
    fn what_could_not_be_found_out_is_neither_yes_nor_no() {
        let report = report(&features(&KernelAnswer::Unknown("EPERM".into())));
        assert!(report.findings.iter().any(Finding::is_obstacle), "{report:?}");
        let btf = report.findings.iter().find(|finding| finding.name == "type information");
        assert!(btf.is_some_and(|btf| btf.answer == Answer::Unknown), "{report:?}");
    }
}

//! Help for errors that come from serde itself: unknown fields, unknown variants, wrong types.

/// Typing errors up to this many edits away are taken for the field that was meant.
const EDITS_MAX: usize = 3;

/// Fields of the last release that are called differently now.
const RENAMED: [(&str, &str); 11] = [
    ("actuator", "executor"),
    ("bytes_per_day", "bytes_per_day_max"),
    ("compactions_per_device", "compactions_per_device_max"),
    ("disk_free", "disk_free_min"),
    ("latency_factor", "latency_ratio_max"),
    ("latency_slack", "latency_increase_min"),
    ("level0_files", "level0_slowdown_ratio_max"),
    ("max_slice_bytes", "slice_bytes_max"),
    ("pending_compaction_bytes", "pending_compaction_ratio_max"),
    ("relief_share", "relief_ratio_min"),
    ("target_age", "process_uptime_min"),
];

/// What to do about an error whose message is serde's or libyaml's.
pub(super) fn help_for(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if message.contains("unknown field") || message.contains("unknown variant") {
        return match quoted.split_first() {
            Some((written, known)) => unknown(written, known),
            None => "take it out, or look it up in the policy's JSON Schema".to_owned(),
        };
    }
    if message.contains("missing field") {
        return format!("add `{}` here", quoted.first().copied().unwrap_or("the field"));
    }
    if message.contains("invalid type") || message.contains("invalid value") {
        return "write a value of the expected kind, or leave the field out for its default".to_owned();
    }
    if message.contains("EOF") || message.contains("end of stream") || message.contains("did not find") {
        return "the text breaks off or its indentation is off: compare it with the copy it came from"
            .to_owned();
    }
    if message.contains("more than one document") {
        return "a policy is one YAML document: take out the `---` between them".to_owned();
    }
    "mend the YAML here; the policy's JSON Schema lists every field".to_owned()
}

fn unknown(written: &str, known: &[&str]) -> String {
    if written == "off_peak" && known.contains(&"schedule") {
        return "`off_peak` is an entry of the list `schedule` now: write `schedule:` and below it \
                `- name: off-peak` with the same fields"
            .to_owned();
    }
    if let Some((_, now)) = RENAMED.iter().find(|(was, now)| was == &written && known.contains(now)) {
        return format!("`{written}` is called `{now}` now, and means the same");
    }
    match nearest(written, known) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known here: {}", known.join(", ")),
    }
}

fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let best = known.iter().map(|name| (strsim::levenshtein(written, name), *name)).min()?;
    (best.0 <= EDITS_MAX && (best.0 < best.1.chars().count() || written.starts_with(best.1)))
        .then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_field_that_was_meant() {
        let help = help_for("unknown field `tresholds`, expected one of `mode`, `targets`, `thresholds`");
        assert_eq!(help, "did you mean `thresholds`?");
        let help = help_for("unknown field `zzzzzzzz`, expected one of `mode`, `targets`");
        assert_eq!(help, "known here: mode, targets");
    }
}

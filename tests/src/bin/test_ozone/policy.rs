//! The policy that is shipped, with the few changes that an operator makes, and a faster pace.

use crate::cluster::{Cluster, USER};
use anyhow::{Result, ensure};
use sexton_tests::artifact;

/// When the period of the schedule is open, `HH:MM` in UTC.
pub struct Period {
    pub from: String,
    pub to: String,
}

/// The policy's text. Pressure is what `endpoint` tells.
pub fn text(cluster: &Cluster, mode: &str, endpoint: &str, period: &Period) -> Result<String> {
    let mut text = std::fs::read_to_string(artifact::repository().join("policies/ozone.yaml"))?;
    let bin = cluster.base().join("bin");
    let signal = format!(
        "- {{ name: queue, kind: metric, low: 10, high: 60, endpoint: \"{endpoint}\", metric: queue_length }}"
    );
    for (shipped, here) in [
        // What an operator changes.
        ("\nmode: advise\n", format!("\nmode: {mode}\n")),
        ("/usr/lib/sexton/ozone-reconfigure.sh", bin.join("reconfigure").display().to_string()),
        ("/etc/hadoop/conf/ozone-site.xml", cluster.site().display().to_string()),
        ("/usr/bin/sexton", bin.join("sexton").display().to_string()),
        ("commands_user: hdfs", format!("commands_user: {USER}")),
        ("Europe/Berlin", "UTC".to_owned()),
        // When it is night.
        ("from: \"00:00\"", format!("from: \"{}\"", period.from)),
        ("to: \"05:00\"", format!("to: \"{}\"", period.to)),
        // What is under pressure here is for the test to say.
        ("- { name: disk_latency, kind: device_latency, low: 2ms, high: 20ms }", signal),
        ("- { name: disk_utilization, kind: device_utilization, low: 70%, high: 100% }", String::new()),
        ("- { name: own_io, kind: cgroup_io_pressure, low: 10%, high: 50% }", String::new()),
        // Seconds instead of minutes.
        ("        inside_ratio:", "        read_interval: 5s\n        inside_ratio:".to_owned()),
    ] {
        ensure!(
            text.contains(shipped),
            "policies/ozone.yaml has no {shipped:?} any more: put this test right"
        );
        text = text.replace(shipped, &here);
    }
    let pace = ", step_ratio_max: 1, interval_min: 1s, calm: 1s }";
    let lines = text.lines().map(|line| match line.trim_start().starts_with("control: {") {
        true => line.replace(" }", pace),
        false => line.to_owned(),
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    Ok(
        text + "\nloop: { interval: 1s, window: 1s, survey: 5s }\nguards: { process_uptime_min: 1s }\ncooldown: 10m\n"
    )
}

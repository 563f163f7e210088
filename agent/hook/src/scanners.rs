//! The data scanners of an Ozone DataNode, one a volume: how many bytes a second each may read.
//!
//! Ozone reads that number once, when it starts, and has no way to change it. Each scanner is what its thread
//! runs, and its throttler is a field of it; the throttler itself takes another number at any time.

use crate::access::Failure;
use crate::jvm::{self, Environment, Object, for_each_task};
use sexton_hook_protocol::{
    ErrorKind, SCANNERS_MAX, SCRUB_BYTES_PER_SECOND_MAX, SCRUB_BYTES_PER_SECOND_MIN, Scanner,
};

/// Since Ozone 1.4.
const SCANNER: &str = "org.apache.hadoop.ozone.container.ozoneimpl.BackgroundContainerDataScanner";

/// Its bandwidths, scanner by scanner.
///
/// # Errors
/// [`ErrorKind::NotFound`] where no scanner runs, and those of [`jvm::ask`].
pub fn read() -> Result<Vec<Scanner>, Failure> {
    jvm::ask(|machine| visit(machine, |_| Ok(())))
}

/// Gives each scanner another bandwidth; what they have afterwards.
///
/// # Errors
/// As [`read`], and [`ErrorKind::BadRequest`] for a bandwidth that is out of bounds.
pub fn set(bytes_per_second: u64) -> Result<Vec<Scanner>, Failure> {
    let bounds = SCRUB_BYTES_PER_SECOND_MIN..=SCRUB_BYTES_PER_SECOND_MAX;
    let wanted = i64::try_from(bytes_per_second).ok().filter(|_| bounds.contains(&bytes_per_second));
    let Some(wanted) = wanted else {
        let (least, most) = (bounds.start(), bounds.end());
        return Err((ErrorKind::BadRequest, format!("a bandwidth is {least} to {most} bytes a second")));
    };
    jvm::ask(move |machine| {
        visit(machine, |throttler| machine.call_with_long(throttler, c"setBandwidth", wanted))
    })
}

/// Calls `change` with each scanner's throttler, and reads what it says then.
fn visit<'machine>(
    machine: &'machine Environment,
    change: impl Fn(Object<'machine>) -> Result<(), Failure>,
) -> Result<Vec<Scanner>, Failure> {
    let mut scanners = Vec::new();
    for_each_task(machine, |thread, task| {
        if scanners.len() >= SCANNERS_MAX || machine.class_name(task)? != SCANNER {
            return Ok(());
        }
        let class = c"Lorg/apache/hadoop/hdfs/util/DataTransferThrottler;";
        let Some(throttler) = machine.field(task, c"throttler", class)? else {
            let message = "this Ozone's data scanners have no throttler that is known";
            return Err((ErrorKind::Unsupported, message.to_owned()));
        };
        change(throttler)?;
        let bytes_per_second = machine.call_long(throttler, c"getBandwidth")?;
        let name = machine.call(thread, c"getName", c"()Ljava/lang/String;")?;
        let name = name.map(|name| machine.string(name)).transpose()?.unwrap_or_default();
        scanners.push(Scanner { name, bytes_per_second: u64::try_from(bytes_per_second).unwrap_or(0) });
        Ok(())
    })?;
    if scanners.is_empty() {
        let message = "no data scanner runs here: this is no DataNode of Ozone, it is still starting, or its \
                       hdds.container.scrub.enabled is false";
        return Err((ErrorKind::NotFound, message.to_owned()));
    }
    Ok(scanners)
}

//! Five weeks that nobody has waited for: what an agent would have stored of them.

use anyhow::{Result, ensure};
use sexton_tuner::history::{Amounts, Bucket, Cell, History, LAYERS, Metric, Place};
use sexton_tuner::key::Key;
use sexton_tuner::range::KeyRange;
use std::path::Path;

/// Column families in which readers lose time.
const FAMILIES: u64 = 4;
/// Keys of a column family that borders lie at.
const BORDERS: u64 = 4_000;

/// The history of five weeks up to `now_s`, with about as many intervals as wanted over all its stretches.
///
/// In each stretch readers lose time in neighbouring ranges of each column family. Where these lie moves with
/// time, as the head of a queue does.
pub fn five_weeks(now_s: i64, cells_wanted: usize) -> Result<History> {
    let stretches = stretches(now_s);
    let in_each = u64::try_from(cells_wanted / stretches.len().max(1))?.div_ceil(FAMILIES);
    let mut history = History::default();
    for (layer, begin_s) in &stretches {
        let width_s = LAYERS.get(*layer).map_or(1, |layer| layer.width_s);
        let hour = u64::try_from(begin_s / 3_600)?;
        let bucket = Bucket::of((0..FAMILIES).flat_map(|family| {
            (0..in_each).map(move |number| cell(family, hour + number, number, width_s as f64))
        }));
        history.restore(*layer, *begin_s, &bucket);
    }
    let cells = history.cells();
    ensure!(cells * 10 >= cells_wanted * 9, "{cells} intervals, wanted {cells_wanted}");
    Ok(history)
}

/// All stretches of all layers, the widest layer first: where one ends the next finer one begins.
fn stretches(now_s: i64) -> Vec<(usize, i64)> {
    let mut all = Vec::new();
    let mut begin_s = now_s;
    if let Some(widest) = LAYERS.last() {
        begin_s -= widest.span_s - widest.width_s;
    }
    for (number, layer) in LAYERS.iter().enumerate().rev() {
        begin_s -= begin_s.rem_euclid(layer.width_s);
        let finer = number.checked_sub(1).and_then(|finer| LAYERS.get(finer));
        let end_s = finer.map_or(now_s, |finer| now_s - finer.span_s);
        while begin_s + layer.width_s <= end_s {
            all.push((number, begin_s));
            begin_s += layer.width_s;
        }
    }
    all
}

fn cell(family: u64, border: u64, number: u64, seconds: f64) -> (Place, Cell) {
    let key = |border: u64| Key::new(format!("/vol1/bucket{family}/{:012}", border % BORDERS));
    // The last key of all has none behind it.
    let end = Some(key(border % BORDERS + 1)).filter(|_| !(border + 1).is_multiple_of(BORDERS));
    let range = KeyRange { begin: key(border), end };
    let operations = 10.0 * seconds;
    let sums = Amounts::default()
        .with(Metric::Pain, seconds * 0.001 * (number % 97 + 1) as f64)
        .with(Metric::Operations, operations)
        .with(Metric::TombstonesSkipped, operations * 1_000.0)
        .with(Metric::BlockMisses, operations * (number % 7) as f64)
        .with(Metric::Actions, if number % 50 == 7 { 1.0 } else { 0.0 })
        .with(Metric::BytesCompacted, if number % 50 == 7 { 67_108_864.0 } else { 0.0 });
    let place = Place {
        target: "queue-1".to_owned(),
        database: "/var/lib/queue/db".to_owned(),
        column_family: format!("family{family}"),
    };
    (place, Cell::new(&range, sums, seconds))
}

/// Stores it where an agent with this state directory reads it.
pub fn store(state_directory: &Path, history: &History) -> Result<()> {
    let directory = state_directory.join("history");
    // As an agent does: the widest layer first.
    (0..LAYERS.len()).rev().try_for_each(|layer| sexton::history::store(&directory, layer, history))?;
    Ok(())
}

/// Bytes that the history takes on disk.
pub fn bytes_on_disk(state_directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(state_directory.join("history"))? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

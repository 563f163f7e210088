//! What the parts of a file hold, by its index block.
//!
//! The index says how many bytes lie between which keys, and not whether these are a few rows or many
//! deletions. Deletions take hardly any bytes. So they are thought to be where other files have more keys
//! than the bytes there would suffice for, were all of them rows.

use crate::facts::evidence::SstFile;
use crate::lsm::placed::File;

/// Fewest bytes of a deletion: its key's beginning is shared with the one before, and lengths, sequence
/// number and type are not.
const DELETION_BYTES_MIN: f64 = 12.0;

/// What every part is thought to hold, as a share of what it would if its bytes were those of all: of nothing
/// no comparison with what was met makes anything again.
const SHARE_MIN: f64 = 1e-3;

/// What a part holds. Counts are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Contents {
    pub(crate) size_bytes: f64,
    /// Entries that are no deletions.
    pub(crate) live: f64,
    pub(crate) deletions: f64,
}

impl Contents {
    pub(crate) fn entries(&self) -> f64 {
        self.live + self.deletions
    }
}

/// What the parts of a file hold, by the bytes of each and the entries that other files have there. They
/// add up to the file.
pub(crate) fn contents(file: &SstFile, parts: &[(u64, f64)]) -> Vec<Contents> {
    let entries = file.entries.max(1);
    let deletions = file.deletions.min(entries) as f64;
    let live = entries as f64 - deletions;
    let bytes: Vec<f64> = parts.iter().map(|(bytes, _)| *bytes as f64).collect();
    let live_bytes = file.size_bytes.saturating_sub(File::of(file, (0.0, 0.0)).deletions_bytes()) as f64;
    // Rows that the bytes of a part would suffice for.
    let rows = |bytes: f64| if live_bytes > 0.0 { bytes * live / live_bytes } else { 0.0 };
    let hidden = parts
        .iter()
        .zip(&bytes)
        .map(|((_, others), bytes)| (others - rows(*bytes)).clamp(0.0, bytes / DELETION_BYTES_MIN));
    let of_deletions = in_sum(hidden.collect(), deletions, &bytes);
    let left =
        bytes.iter().zip(&of_deletions).map(|(bytes, own)| (bytes - own * DELETION_BYTES_MIN).max(0.0));
    let of_live = in_sum(left.collect(), live, &bytes);
    let of_file = in_sum(bytes.clone(), file.size_bytes as f64, &bytes);
    let parts = of_file.into_iter().zip(of_live).zip(of_deletions);
    parts.map(|((size_bytes, live), deletions)| Contents { size_bytes, live, deletions }).collect()
}

/// Parts in some proportion that add up to a sum, none of them without anything: by another one where
/// this has nothing at all.
fn in_sum(parts: Vec<f64>, sum: f64, otherwise: &[f64]) -> Vec<f64> {
    let (all, all_otherwise) = (parts.iter().sum::<f64>(), otherwise.iter().sum::<f64>());
    let even = 1.0 / parts.len().max(1) as f64;
    let share = |part: f64, all: f64| if all > 0.0 { part / all } else { even };
    let shares = parts.iter().zip(otherwise).map(|(part, other)| {
        let least = share(*other, all_otherwise);
        if all > 0.0 { share(*part, all).max(least * SHARE_MIN) } else { least }
    });
    let shares: Vec<f64> = shares.collect();
    let all: f64 = shares.iter().sum();
    shares.into_iter().map(|share| sum * share / all.max(f64::MIN_POSITIVE)).collect()
}

//! How much a compaction has flushed before it began.

use super::hook::HookClient;
use sexton_hook_protocol::ColumnFamilyPointers;
use sexton_tuner::evidence::SstFile;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// A flush comes before everything else: what is flushed later is none of this compaction's.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// Times that the live files are listed for it: RocksDB holds its mutex for as long as that takes.
const FLUSH_LISTS_MAX: u32 = 3;

/// Looks for the file that a compaction has the memtables flushed to before it begins. It is live until the
/// compaction has taken it: in the lists before and after it is not to be found.
pub struct FlushWatch {
    /// Files of the column family's L0, by number.
    level0_before: HashSet<u64>,
    memtable_bytes_before: Option<u64>,
    until: Instant,
    lists_left: u32,
    found_bytes: Option<u64>,
}

impl FlushWatch {
    pub fn new(client: &mut HookClient, pointers: &ColumnFamilyPointers, before: &[SstFile]) -> FlushWatch {
        let level0 = before.iter().filter(|file| file.column_family == pointers.name && file.level == 0);
        FlushWatch {
            level0_before: level0.map(|file| file.number).collect(),
            memtable_bytes_before: number(client, pointers, MEMTABLE_BYTES),
            until: Instant::now() + FLUSH_WITHIN,
            lists_left: FLUSH_LISTS_MAX,
            found_bytes: None,
        }
    }

    pub fn is_over(&self) -> bool {
        self.found_bytes.is_some() || self.lists_left == 0 || Instant::now() >= self.until
    }

    pub fn look(&mut self, client: &mut HookClient, pointers: &ColumnFamilyPointers) {
        if self.is_over() {
            return;
        }
        let files = number(client, pointers, LEVEL0_FILES);
        let known = u64::try_from(self.level0_before.len()).unwrap_or(u64::MAX);
        if files.is_none_or(|files| files <= known) {
            return;
        }
        self.lists_left -= 1;
        let Ok(files) = client.sst_files(pointers) else { return };
        let is_new = |file: &&SstFile| {
            let is_own = file.column_family == pointers.name && file.level == 0;
            is_own && !self.level0_before.contains(&file.number)
        };
        let bytes: u64 = files.iter().filter(is_new).map(|file| file.size_bytes).sum();
        self.found_bytes = (bytes > 0).then_some(bytes);
    }

    /// Bytes that were flushed: of the file, where it was seen; else what the memtables have lost, which is
    /// somewhat more than the file had.
    pub fn bytes(&self, client: &mut HookClient, pointers: &ColumnFamilyPointers) -> u64 {
        self.found_bytes.unwrap_or_else(|| {
            let after = number(client, pointers, MEMTABLE_BYTES);
            let lost =
                self.memtable_bytes_before.zip(after).map(|(before, after)| before.saturating_sub(after));
            lost.unwrap_or_default()
        })
    }
}

/// Memory of the memtables that are not flushed yet.
const MEMTABLE_BYTES: &str = "rocksdb.cur-size-all-mem-tables";

/// Files in L0.
const LEVEL0_FILES: &str = "rocksdb.num-files-at-level0";

fn number(client: &mut HookClient, pointers: &ColumnFamilyPointers, name: &str) -> Option<u64> {
    client.property(pointers, name).ok().flatten()?.trim().parse().ok()
}

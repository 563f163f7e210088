//! SST files of real databases in every format version, whole, damaged and cut.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::*;
use proptest::prelude::*;
use rust_rocksdb::{BlockBasedOptions, DB, Options};

/// An SST file of a real database: 1,000 puts, 250 deletions, 10 merges, 3 range deletions.
fn real_sst(format_version: i32) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let mut table = BlockBasedOptions::default();
    table.set_format_version(format_version);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(rust_rocksdb::DBCompressionType::Zstd);
    options.set_merge_operator_associative("append", |_, _, operands| {
        Some(operands.iter().flatten().copied().collect())
    });
    let mut database = DB::open(&options, directory.path()).unwrap();
    database.create_cf("keyTable", &options).unwrap();
    let family = database.cf_handle("keyTable").unwrap();
    for at in 0..1000 {
        database.put_cf(family, format!("put-{at:05}"), "x".repeat(40)).unwrap();
    }
    for at in 0..250 {
        database.delete_cf(family, format!("delete-{at:05}")).unwrap();
    }
    for at in 0..10 {
        database.merge_cf(family, format!("merge-{at:05}"), "y").unwrap();
    }
    for at in 0..3 {
        database.delete_range_cf(family, format!("range-{at}0"), format!("range-{at}9")).unwrap();
    }
    database.flush_cf(family).unwrap();
    let files = database.live_files().unwrap();
    assert_eq!(files.len(), 1);
    std::fs::read(directory.path().join(files[0].name.trim_start_matches('/'))).unwrap()
}

fn expected() -> TableProperties {
    TableProperties {
        entries: 1263,
        deletions: 253,
        merge_operands: 10,
        range_deletions: 3,
        // Keys with 8 bytes behind each, and values; a range's value is its end.
        raw_bytes: 1000 * (9 + 8 + 40) + 250 * (12 + 8) + 10 * (11 + 8 + 1) + 3 * (8 + 8 + 8),
        created_unix_s: 0,
        collectors: "[]".to_owned(),
        column_family_id: Some(1),
        column_family: Some("keyTable".to_owned()),
    }
}

fn read_bytes(bytes: &[u8]) -> Result<TableProperties, PropertiesError> {
    read(bytes, bytes.len() as u64)
}

/// The same of a file that was written just now, but for that.
fn read_timeless(bytes: &[u8]) -> TableProperties {
    let properties = read_bytes(bytes).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!((now - 3600..=now).contains(&properties.created_unix_s), "{properties:?}");
    TableProperties { created_unix_s: 0, ..properties }
}

/// The same table with the footer that versions before 2 wrote.
fn with_legacy_footer(mut sst: Vec<u8>) -> Vec<u8> {
    let footer = sst.split_off(sst.len() - FOOTER_BYTES);
    sst.extend_from_slice(&footer[1..41]);
    sst.extend_from_slice(&MAGIC_LEGACY.to_le_bytes());
    sst
}

#[test]
fn reads_every_format_version_that_rocksdb_writes() {
    for format_version in 2..=8 {
        let sst = real_sst(format_version);
        let stated = u32_at(&sst, sst.len() - 12).unwrap();
        assert_eq!(stated, format_version as u32, "the file has the format asked for");
        assert_eq!(read_timeless(&sst), expected(), "format version {format_version}");
    }
}

#[test]
fn reads_the_legacy_footer() {
    assert_eq!(read_timeless(&with_legacy_footer(real_sst(2))), expected());
}

#[test]
fn says_what_it_cannot_read() {
    let sst = real_sst(5);
    let mut other_kind = sst.clone();
    let length = other_kind.len();
    other_kind[length - 8..].copy_from_slice(&0x8242_2296_63f4_ed0f_u64.to_le_bytes());
    assert!(matches!(
        read_bytes(&other_kind),
        Err(PropertiesError::Unsupported { what: "magic number", value: 0x8242_2296_63f4_ed0f })
    ));
    let mut newer = sst.clone();
    newer[length - 12] = 9;
    assert!(matches!(
        read_bytes(&newer),
        Err(PropertiesError::Unsupported { what: "format version", value: 9 })
    ));
    assert!(matches!(read_bytes(&[]), Err(PropertiesError::Damaged { .. })));
    assert!(matches!(read(&sst[..100], length as u64), Err(PropertiesError::Read { .. })));
}

#[test]
fn a_varint_ends_within_ten_bytes() {
    assert_eq!(take_varint64(&mut [0xff; 9].as_slice()), None);
    assert_eq!(take_varint64(&mut [0xff; 11].as_slice()), None);
    let greatest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(take_varint64(&mut greatest.as_slice()), Some(u64::MAX));
}

/// One file of an old and one of a new footer, made once.
fn samples() -> &'static [Vec<u8>; 2] {
    static SAMPLES: std::sync::OnceLock<[Vec<u8>; 2]> = std::sync::OnceLock::new();
    SAMPLES.get_or_init(|| [real_sst(5), real_sst(8)])
}

proptest! {
    /// Damage anywhere in the file's last bytes gives an answer or an error, never a panic, and never
    /// more memory than a meta block may have.
    #[test]
    fn mutated_bytes_never_panic(
        sample in 0..2_usize,
        changes in prop::collection::vec((0..4096_usize, any::<u8>()), 1..16),
    ) {
        let mut sst = samples()[sample].clone();
        for (back, byte) in changes {
            let at = sst.len() - 1 - back % sst.len();
            sst[at] = byte;
        }
        let _ = read_bytes(&sst);
    }

    #[test]
    fn truncated_bytes_are_an_error(sample in 0..2_usize, cut in 1..100_000_usize) {
        let sst = &samples()[sample];
        let kept = sst.len() - 1 - cut % sst.len();
        prop_assert!(read_bytes(&sst[..kept]).is_err());
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512), legacy: bool) {
        let mut bytes = bytes;
        let magic = if legacy { MAGIC_LEGACY } else { MAGIC };
        bytes.extend_from_slice(&magic.to_le_bytes());
        let _ = read_bytes(&bytes);
    }
}

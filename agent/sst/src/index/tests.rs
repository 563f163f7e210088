//! Indexes of SST files that RocksDB has written, in every form that it has, whole, damaged and cut.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::*;
use proptest::prelude::*;
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, ChecksumType, DBCompressionType, Options, SliceTransform,
    SstFileWriter,
};
use sexton_tuner::index_marks::MARKS_MAX;

const ENTRIES: u64 = 4_000;

/// Bytes of a value: 20 or so in each block.
const VALUE_BYTES: usize = 150;

/// How a file is written.
#[derive(Clone, Copy)]
struct Way {
    format_version: i32,
    kind: Kind,
    compression: DBCompressionType,
    checksum: Checksum,
    /// Keys between two restart points of the index.
    restart_interval: i32,
}

/// `BlockBasedIndexType`, which cannot be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    BinarySearch,
    HashSearch,
    TwoLevels,
}

impl Kind {
    fn of_rocksdb(self) -> BlockBasedIndexType {
        match self {
            Kind::BinarySearch => BlockBasedIndexType::BinarySearch,
            Kind::HashSearch => BlockBasedIndexType::HashSearch,
            Kind::TwoLevels => BlockBasedIndexType::TwoLevelIndexSearch,
        }
    }
}

/// `ChecksumType`, which cannot be copied either.
#[derive(Clone, Copy, Debug)]
enum Checksum {
    None,
    Crc32c,
    Xxh32,
    Xxh64,
    Xxh3,
}

impl Checksum {
    fn of_rocksdb(self) -> ChecksumType {
        match self {
            Checksum::None => ChecksumType::NoChecksum,
            Checksum::Crc32c => ChecksumType::CRC32c,
            Checksum::Xxh32 => ChecksumType::XXHash,
            Checksum::Xxh64 => ChecksumType::XXHash64,
            Checksum::Xxh3 => ChecksumType::XXH3,
        }
    }
}

const PLAIN: Way = Way {
    format_version: 5,
    kind: Kind::BinarySearch,
    compression: DBCompressionType::None,
    checksum: Checksum::Xxh3,
    restart_interval: 1,
};

fn key(number: u64) -> Vec<u8> {
    format!("directory/{number:08}").into_bytes()
}

/// An SST file with keys from 0 on, whose values do not compress.
fn written(way: Way) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("000001.sst");
    let mut table = BlockBasedOptions::default();
    table.set_format_version(way.format_version);
    table.set_index_type(way.kind.of_rocksdb());
    table.set_checksum_type(way.checksum.of_rocksdb());
    table.set_index_block_restart_interval(way.restart_interval);
    // Several parts where there are two levels.
    table.set_metadata_block_size(512);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_compression_type(way.compression);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(9));
    let mut writer = SstFileWriter::create(&options);
    writer.open(&path).unwrap();
    let mut random = 7_u64;
    for number in 0..ENTRIES {
        let mut value = Vec::new();
        while value.len() < VALUE_BYTES {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            value.push((random >> 56) as u8);
        }
        writer.put(key(number), value).unwrap();
    }
    writer.finish().unwrap();
    std::fs::read(path).unwrap()
}

fn read_bytes(bytes: &[u8]) -> Result<Read, PropertiesError> {
    read(bytes, bytes.len() as u64)
}

/// Marks lie where the keys do, by the bytes of equal entries.
fn hold(read: &Read, bytes: &[u8], what: &str) {
    let marks: Vec<_> = read.marks.iter().collect();
    assert!((MARKS_MAX / 2..=MARKS_MAX).contains(&marks.len()), "{what}: {} marks", marks.len());
    for mark in marks {
        let before = (0..ENTRIES).take_while(|number| key(*number).as_slice() <= mark.key.as_bytes()).count();
        let by_bytes = mark.bytes_before as f64 / bytes.len() as f64 * ENTRIES as f64;
        // Behind the data there are some hundredths of it.
        assert!((before as f64 - by_bytes).abs() < 200.0, "{what}: {before} entries, {by_bytes} by bytes");
    }
}

#[test]
fn reads_every_form_that_rocksdb_writes() {
    for format_version in 2..=7 {
        for kind in [Kind::BinarySearch, Kind::HashSearch, Kind::TwoLevels] {
            for restart_interval in [1, 8] {
                // RocksDB has no hash index with other restart points.
                if kind == Kind::HashSearch && restart_interval > 1 {
                    continue;
                }
                let bytes = written(Way { format_version, kind, restart_interval, ..PLAIN });
                let what = format!("version {format_version}, {kind:?}, restarts {restart_interval}");
                hold(&read_bytes(&bytes).expect(&what), &bytes, &what);
            }
        }
    }
}

#[test]
fn reads_what_is_compressed_and_verified() {
    use DBCompressionType::{Lz4, Lz4hc, None, Snappy, Zlib, Zstd};
    for compression in [None, Snappy, Lz4, Lz4hc, Zstd] {
        for format_version in [2, 5, 6, 7] {
            let bytes = written(Way { compression, format_version, ..PLAIN });
            let what = format!("{compression:?}, version {format_version}");
            hold(&read_bytes(&bytes).expect(&what), &bytes, &what);
        }
    }
    let all = [Checksum::None, Checksum::Crc32c, Checksum::Xxh32, Checksum::Xxh64, Checksum::Xxh3];
    for checksum in all {
        for format_version in [5, 6] {
            let bytes = written(Way { checksum, format_version, ..PLAIN });
            let what = format!("{checksum:?}, version {format_version}");
            hold(&read_bytes(&bytes).expect(&what), &bytes, &what);
        }
    }
    let error = read_bytes(&written(Way { format_version: 8, ..PLAIN })).unwrap_err();
    assert!(error.to_string().contains("index of format version 0x8"), "{error}");
    let error = read_bytes(&written(Way { compression: Zlib, ..PLAIN })).unwrap_err();
    assert!(error.to_string().contains("index block of compression 0x2"), "{error}");
}

/// Each byte of the index is under the checksum, and so a changed one is told.
#[test]
fn a_changed_index_is_told() {
    for (checksum, format_version) in [(Checksum::Crc32c, 5), (Checksum::Xxh3, 5), (Checksum::Xxh3, 6)] {
        let mut bytes = written(Way { checksum, format_version, ..PLAIN });
        // The last that stands there of a key but for the properties, which have none: the index.
        let text = b"directory/0000";
        let place = bytes.windows(text.len()).rposition(|window| window == text).unwrap();
        bytes[place] ^= 1;
        let error = read_bytes(&bytes).unwrap_err();
        assert!(error.to_string().contains("checksum of an index block"), "{error}");
    }
}

/// Without checksums, so that damage comes through.
fn samples() -> &'static [Vec<u8>; 4] {
    static SAMPLES: std::sync::OnceLock<[Vec<u8>; 4]> = std::sync::OnceLock::new();
    SAMPLES.get_or_init(|| {
        let way = |format_version, kind, compression| {
            written(Way { format_version, kind, compression, checksum: Checksum::None, restart_interval: 8 })
        };
        [
            way(3, Kind::BinarySearch, DBCompressionType::None),
            way(5, Kind::TwoLevels, DBCompressionType::None),
            way(6, Kind::BinarySearch, DBCompressionType::Snappy),
            way(7, Kind::BinarySearch, DBCompressionType::Lz4),
        ]
    })
}

proptest! {
    /// Damage anywhere behind the data gives an answer or an error, never a panic.
    #[test]
    fn mutated_bytes_never_panic(
        sample in 0..4_usize,
        changes in prop::collection::vec((0..12_000_usize, any::<u8>()), 1..8),
    ) {
        let mut sst = samples()[sample].clone();
        for (back, byte) in changes {
            let at = sst.len() - 1 - back;
            sst[at] = byte;
        }
        if let Ok(read) = read_bytes(&sst) {
            prop_assert!(read.marks.len() <= MARKS_MAX);
            prop_assert!(read.bytes <= INDEX_BYTES_MAX);
        }
    }

    #[test]
    fn truncated_bytes_are_an_error(sample in 0..4_usize, cut in 1..100_000_usize) {
        let sst = &samples()[sample];
        prop_assert!(read_bytes(&sst[..sst.len() - cut]).is_err());
    }
}

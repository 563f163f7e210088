//! One Parquet file a layer: a row a cell, and a row a column family with how long its operations took. It is
//! replaced whole, so whoever reads it sees a whole one.

use parquet::basic::Compression;
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::{ListAccessor, Row, RowAccessor};
use parquet::schema::parser::parse_message_type;
use sexton_tuner::history::{
    Bucket, CELLS_MAX, Cell, History, LAYERS, Layer, Metric, Place, TIMES_IN_ALL_MAX,
};
use sexton_tuner::key::Key;
use sexton_tuner::latency::BUCKETS_MAX;
use sexton_tuner::range::KeyRange;
use sexton_tuner::waits::Times;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Keys of foreign databases are in there whole.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A file with all cells that there may be has a quarter of that; what is larger is none of ours.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// Columns before those of the metrics.
const KEY_COLUMNS: usize = 7;

/// Columns of how long operations took, behind those of the metrics: at index n so many that took from 2^n to
/// 2^(n+1) nanoseconds. Files of earlier versions have none.
const SEEKS_COLUMN: usize = KEY_COLUMNS + 2 * Metric::ALL.len();
const LISTS_COLUMN: usize = SEEKS_COLUMN + 1;

fn schema() -> String {
    let metrics = Metric::ALL.iter().map(|metric| {
        let name = metric.name();
        format!("REQUIRED DOUBLE {name}_sum; REQUIRED DOUBLE {name}_per_second_max;")
    });
    format!(
        "message history {{
            REQUIRED INT64 begin (TIMESTAMP(MILLIS,true));
            REQUIRED INT32 length_seconds;
            REQUIRED BYTE_ARRAY target (STRING);
            REQUIRED BYTE_ARRAY database (STRING);
            REQUIRED BYTE_ARRAY column_family (STRING);
            REQUIRED BYTE_ARRAY key_begin;
            OPTIONAL BYTE_ARRAY key_end;
            {}
            REPEATED INT64 seeks_by_latency;
            REPEATED INT64 lists_by_latency;
        }}",
        metrics.collect::<String>()
    )
}

fn path(directory: &Path, layer: &Layer) -> PathBuf {
    directory.join(format!("{}.parquet", layer.name))
}

/// Replaces the file of a layer.
pub fn store(directory: &Path, layer: usize, history: &History) -> Result<()> {
    let Some(description) = LAYERS.get(layer) else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    let path = path(directory, description);
    let new = path.with_extension("new");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&new)?;
    let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
    let schema = Arc::new(parse_message_type(&schema())?);
    let mut writer = SerializedFileWriter::new(&file, schema, Arc::new(properties))?;
    let nothing = Cell::default();
    let mut rows: Vec<Stored<'_>> = Vec::new();
    for (begin_s, bucket) in history.layer(layer) {
        rows.extend(bucket.cells().map(|(place, cell)| Stored { begin_s, place, cell, times: None }));
        let times = bucket.times();
        rows.extend(times.map(|(place, times)| Stored {
            begin_s,
            place,
            cell: &nothing,
            times: Some(times),
        }));
    }
    let mut group = writer.next_row_group()?;
    write_rows(&mut group, &rows, description)?;
    group.close()?;
    writer.close()?;
    file.sync_all()?;
    std::fs::rename(&new, &path)?;
    File::open(directory)?.sync_all()?;
    Ok(())
}

struct Stored<'a> {
    begin_s: i64,
    place: &'a Place,
    cell: &'a Cell,
    /// How long operations in the whole column family took; its cell is empty then.
    times: Option<&'a Times>,
}

fn write_rows(
    group: &mut SerializedRowGroupWriter<'_, &File>,
    rows: &[Stored<'_>],
    layer: &Layer,
) -> Result<()> {
    let mut number = 0;
    while let Some(mut column) = group.next_column()? {
        let bytes = |of: fn(&Place) -> &str| -> Vec<ByteArray> {
            rows.iter().map(|row| ByteArray::from(of(row.place))).collect()
        };
        match (number, column.untyped()) {
            (0, ColumnWriter::Int64ColumnWriter(column)) => {
                let begins: Vec<i64> = rows.iter().map(|row| row.begin_s.saturating_mul(1_000)).collect();
                column.write_batch(&begins, None, None)?;
            }
            (1, ColumnWriter::Int32ColumnWriter(column)) => {
                let length = i32::try_from(layer.width_s).unwrap_or(i32::MAX);
                column.write_batch(&vec![length; rows.len()], None, None)?;
            }
            (6, ColumnWriter::ByteArrayColumnWriter(column)) => {
                let ends = rows.iter().map(|row| row.cell.range.end.as_ref());
                let levels: Vec<i16> = ends.clone().map(|end| i16::from(end.is_some())).collect();
                let ends: Vec<ByteArray> = ends.flatten().map(array).collect();
                column.write_batch(&ends, Some(&levels), None)?;
            }
            (SEEKS_COLUMN, ColumnWriter::Int64ColumnWriter(column)) => {
                write_lists(column, rows, |times| times.seeks.buckets())?;
            }
            (LISTS_COLUMN, ColumnWriter::Int64ColumnWriter(column)) => {
                write_lists(column, rows, |times| times.lists.buckets())?;
            }
            (_, ColumnWriter::ByteArrayColumnWriter(column)) => {
                let values = match number {
                    2 => bytes(|place| &place.target),
                    3 => bytes(|place| &place.database),
                    4 => bytes(|place| &place.column_family),
                    _ => rows.iter().map(|row| array(&row.cell.range.begin)).collect(),
                };
                column.write_batch(&values, None, None)?;
            }
            (_, ColumnWriter::DoubleColumnWriter(column)) => {
                let values: Vec<f64> = rows.iter().map(|row| amount(row.cell, number)).collect();
                column.write_batch(&values, None, None)?;
            }
            _ => return Err(ParquetError::General(format!("column {number} has another type"))),
        }
        column.close()?;
        number += 1;
    }
    Ok(())
}

/// A list of counts for each row, empty where it has none.
fn write_lists(
    column: &mut ColumnWriterImpl<'_, Int64Type>,
    rows: &[Stored<'_>],
    of: fn(&Times) -> &[u64],
) -> Result<()> {
    let (mut counts, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let list = row.times.map(of).unwrap_or_default();
        if list.is_empty() {
            definitions.push(0);
            repetitions.push(0);
        }
        for (index, count) in list.iter().enumerate() {
            counts.push(i64::try_from(*count).unwrap_or(i64::MAX));
            definitions.push(1);
            repetitions.push(i16::from(index > 0));
        }
    }
    column.write_batch(&counts, Some(&definitions), Some(&repetitions))?;
    Ok(())
}

fn array(key: &Key) -> ByteArray {
    ByteArray::from(key.as_bytes().to_vec())
}

/// What stands in a metric's column.
fn amount(cell: &Cell, column: usize) -> f64 {
    let number = column.saturating_sub(KEY_COLUMNS);
    let amounts = if number.is_multiple_of(2) { &cell.sums } else { &cell.peaks };
    Metric::ALL.get(number / 2).map_or(0.0, |metric| amounts.get(*metric))
}

/// What there is of all layers. A file that is broken is set aside.
pub fn load(directory: &Path) -> History {
    let mut history = History::default();
    // The widest first: what it has, the finer ones may have still.
    for (number, layer) in LAYERS.iter().enumerate().rev() {
        let path = path(directory, layer);
        let read = catch_unwind(AssertUnwindSafe(|| read_layer(&path)));
        let read = read.unwrap_or_else(|_| Err(ParquetError::General("it is damaged".to_owned())));
        match read {
            Ok(stretches) => {
                stretches.into_iter().for_each(|(begin_s, Read { cells, times })| {
                    history.restore(number, begin_s, &Bucket::of(cells).with_times(times));
                });
            }
            Err(error) => {
                let aside = path.with_extension("broken");
                tracing::warn!(%error, path = %path.display(), "a layer of the history is not read, and set aside");
                if let Err(error) = std::fs::rename(&path, aside) {
                    tracing::warn!(%error, "it stays where it is until it is written anew");
                }
            }
        }
    }
    history
}

/// What was read of one stretch of time.
#[derive(Default)]
struct Read {
    cells: Vec<(Place, Cell)>,
    times: Vec<(Place, Times)>,
}

fn read_layer(path: &Path) -> Result<BTreeMap<i64, Read>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened?,
    };
    if file.metadata()?.len() > FILE_BYTES_MAX {
        return Err(ParquetError::General(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let reader = SerializedFileReader::new(file)?;
    let mut stretches: BTreeMap<i64, Read> = BTreeMap::new();
    for row in reader.get_row_iter(None)?.take(CELLS_MAX + TIMES_IN_ALL_MAX) {
        let row = row?;
        let read = stretches.entry(row.get_timestamp_millis(0)?.div_euclid(1_000)).or_default();
        let times = times_of(&row)?;
        if times.is_empty() {
            read.cells.extend(cell_of(&row)?);
        } else {
            read.times.push((place_of(&row)?, times));
        }
    }
    Ok(stretches)
}

fn place_of(row: &Row) -> Result<Place> {
    Ok(Place {
        target: row.get_string(2)?.clone(),
        database: row.get_string(3)?.clone(),
        column_family: row.get_string(4)?.clone(),
    })
}

/// How long operations took; empty in the row of a cell.
fn times_of(row: &Row) -> Result<Times> {
    if row.len() <= LISTS_COLUMN {
        return Ok(Times::default());
    }
    let counts = |column: usize| -> Result<Vec<u64>> {
        let list = row.get_list(column)?;
        let count = |index: usize| Ok(u64::try_from(list.get_long(index)?).unwrap_or(0));
        (0..list.len().min(BUCKETS_MAX)).map(count).collect()
    };
    Ok(Times::new(&counts(SEEKS_COLUMN)?, &counts(LISTS_COLUMN)?))
}

/// A row as it was written; `None`: its range holds no key.
fn cell_of(row: &Row) -> Result<Option<(Place, Cell)>> {
    let place = place_of(row)?;
    let begin = Key::new(row.get_bytes(5)?.data());
    let end = row.get_bytes(6).ok().map(|end| Key::new(end.data()));
    let mut cell = KeyRange::new(begin, end).map(|range| Cell { range, ..Cell::default() });
    for (number, metric) in Metric::ALL.into_iter().enumerate() {
        let read = |column: usize| row.get_double(KEY_COLUMNS + column);
        let (sum, peak) = (read(2 * number)?, read(2 * number + 1)?);
        if let Some(cell) = &mut cell {
            cell.sums = cell.sums.with(metric, sum);
            cell.peaks = cell.peaks.with(metric, peak);
        }
    }
    Ok(cell.map(|cell| (place, cell)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use sexton_tuner::history::Amounts;

    fn place() -> Place {
        Place { target: "java-1".into(), database: "/db".into(), column_family: "default".into() }
    }

    fn counted(pain: f64, end: Option<&str>) -> Bucket {
        let range = KeyRange::new(Key::new("a"), end.map(Key::new)).unwrap();
        let sums = Amounts::default().with(Metric::Pain, pain).with(Metric::Actions, 1.0);
        let times = [(place(), Times::new(&[1, 2], &[0, 0, 3]))];
        Bucket::of([(place(), Cell::new(&range, sums, 2.0))]).with_times(times)
    }

    fn history() -> History {
        let mut history = History::default();
        for minute in 0..200 {
            let end = if minute % 2 == 0 { Some("b") } else { None };
            history.record(1_790_000_000 + minute * 60, &counted(minute as f64, end));
        }
        history
    }

    fn store_all(directory: &Path, history: &History) {
        (0..LAYERS.len()).for_each(|layer| store(directory, layer, history).unwrap());
    }

    #[test]
    fn what_is_stored_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("history");
        assert_eq!(load(&directory), History::default());
        let history = history();
        store_all(&directory, &history);
        assert_eq!(load(&directory), history);
        assert_eq!(
            std::fs::read_dir(&directory).unwrap().count(),
            LAYERS.len(),
            "nothing else is left there"
        );
    }

    #[test]
    fn a_damaged_layer_is_set_aside_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let history = history();
        store_all(folder.path(), &history);
        std::fs::write(folder.path().join("1min.parquet"), b"PAR1 no more").unwrap();
        let read = load(folder.path());
        assert_eq!(read.layer(1).count(), history.layer(1).count());
        assert_eq!(read.layer(0).count(), 0);
        assert!(folder.path().join("1min.broken").exists());
        store_all(folder.path(), &read);
        assert_eq!(load(folder.path()), read);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_damage_ends_the_agent(at in 0usize..20_000, byte: u8, cut in 0usize..20_000) {
            let folder = tempfile::tempdir().unwrap();
            store(folder.path(), 0, &history()).unwrap();
            let path = folder.path().join("1min.parquet");
            let mut bytes = std::fs::read(&path).unwrap();
            let length = bytes.len();
            bytes[at % length] = byte;
            if cut % 3 == 0 {
                bytes.truncate(cut % length);
            }
            std::fs::write(&path, bytes).unwrap();
            prop_assert!(load(folder.path()).cells() <= CELLS_MAX);
        }
    }
}

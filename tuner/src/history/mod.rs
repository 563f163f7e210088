//! What was seen of readers and actions, by time and by keys: weeks of it in bounded memory.
//!
//! A [`Cell`] has what was counted in one interval of keys, a [`Bucket`] the cells of one stretch of time,
//! and a [`History`] its buckets, the older the wider. Wherever something is merged, sums are added and peaks
//! compared, so that nothing is lost but detail, and an average is kept nowhere. No two column families are
//! ever merged. Beside the cells, which know of lost time only, a bucket has how long all operations of a
//! column family took. What is drawn of it is a [`Heatmap`]. Where it is stored, and who may see its keys, is
//! not known here.

mod amounts;
mod axis;
mod bucket;
mod cell;
mod heatmap;
mod layers;

pub use amounts::{Amounts, Metric};
pub use bucket::{Bucket, INTERVALS_MAX, Place, TIMES_MAX};
pub use cell::{Cell, KEY_BYTES_MAX};
pub use heatmap::{Column, Drawn, Heatmap, ROWS_MAX, Row, Statistic, Stretch};
pub use layers::{CELLS_MAX, History, LAYERS, Layer, TIMES_IN_ALL_MAX};

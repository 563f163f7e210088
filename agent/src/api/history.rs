//! The history: pain by keys and time, and sums of column families.

use super::drawings::{BEGIN_MOVES_S, Encoded, Picture};
use super::problem::Problem;
use super::reading::bad_query;
use super::shared::Shared;
use crate::history::Shown;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton_tuner::history::{Drawn, Metric, ROWS_MAX, Statistic};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// How far back a query may look: from the shortest stretch to all that is kept.
const SPAN_SECONDS: RangeInclusive<u64> = 60..=3_024_000;
const SPAN_SECONDS_DEFAULT: u64 = 3_600;
/// `rows` where the query has none: as many as a small screen has room for.
const ROWS_DEFAULT: usize = 256;

const HEATMAP_HELP: &str = "parameters are target, database, column_family, metric (pain, operations, tombstones_skipped, \
     block_misses, bytes_compacted, actions), statistic (max, sum), span_seconds (60 to 3024000) and rows (1 to 1536)";
const HISTORY_HELP: &str = "parameters are target, database, column_family and span_seconds (60 to 3024000)";

/// Query of `/api/v1/heatmap`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeatmapQuery {
    /// Only keys of this target, which may be gone.
    target: Option<String>,
    /// Only keys of this database, by the path of its directory.
    database: Option<String>,
    /// Only keys of column families of this name.
    column_family: Option<String>,
    #[serde(default)]
    metric: Metric,
    #[serde(default)]
    statistic: Statistic,
    /// How far back, seconds.
    #[serde(default = "span_seconds_default")]
    #[schemars(range(min = 60, max = 3_024_000))]
    span_seconds: u64,
    /// So many intervals of keys at most; neighbours in which little was lost are merged.
    #[serde(default = "rows_default")]
    #[schemars(range(min = 1, max = 1536))]
    rows: usize,
}

/// Query of `/api/v1/history`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// Only column families of this target, which may be gone.
    target: Option<String>,
    /// Only column families of this database, by the path of its directory.
    database: Option<String>,
    /// Only column families of this name.
    column_family: Option<String>,
    /// How far back, seconds.
    #[serde(default = "span_seconds_default")]
    #[schemars(range(min = 60, max = 3_024_000))]
    span_seconds: u64,
}

fn span_seconds_default() -> u64 {
    SPAN_SECONDS_DEFAULT
}

fn rows_default() -> usize {
    ROWS_DEFAULT
}

/// `/api/v1/heatmap`.
pub async fn heatmap(
    State(shared): State<Shared>,
    query: Result<Query<HeatmapQuery>, QueryRejection>,
) -> Result<Encoded, Problem> {
    let Query(query) = query.map_err(|rejection| bad_query(rejection.body_text(), HEATMAP_HELP))?;
    let HeatmapQuery { target, database, column_family, metric, statistic, rows, .. } = query;
    if !(1..=ROWS_MAX).contains(&rows) {
        return Err(bad_query(format!("rows is {rows} but must be 1 to {ROWS_MAX}"), HEATMAP_HELP));
    }
    let since_s = since(query.span_seconds, HEATMAP_HELP)?;
    let drawn = Drawn { target, database, column_family, metric, statistic, since_s, rows_max: rows };
    drawn_once(shared, Picture::Heatmap, drawn, Shown::heatmap).await
}

/// `/api/v1/history`.
pub async fn history(
    State(shared): State<Shared>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Encoded, Problem> {
    let Query(query) = query.map_err(|rejection| bad_query(rejection.body_text(), HISTORY_HELP))?;
    let HistoryQuery { target, database, column_family, span_seconds } = query;
    let since_s = since(span_seconds, HISTORY_HELP)?;
    let drawn = Drawn { target, database, column_family, since_s, ..Drawn::default() };
    drawn_once(shared, Picture::Families, drawn, Shown::families).await
}

fn since(span_seconds: u64, help: &'static str) -> Result<i64, Problem> {
    let span = i64::try_from(span_seconds).ok().filter(|_| SPAN_SECONDS.contains(&span_seconds));
    let span = span.ok_or_else(|| {
        let (least, most) = SPAN_SECONDS.into_inner();
        bad_query(format!("span_seconds is {span_seconds} but must be {least} to {most}"), help)
    })?;
    let since = Timestamp::now().as_second().saturating_sub(span);
    Ok(since - since.rem_euclid(BEGIN_MOVES_S))
}

/// Weeks take tens of milliseconds: other answers do not wait for that, and who asks for the same has the
/// picture before, or waits for the first to have it.
async fn drawn_once<T: Serialize + 'static>(
    shared: Shared,
    picture: Picture,
    drawn: Drawn,
    draw: fn(&Shown, &Drawn) -> T,
) -> Result<Encoded, Problem> {
    let snapshot = shared.snapshot();
    let place = shared.drawings.place((picture, drawn.clone()), &snapshot.history);
    if let Some(encoded) = place.encoded.get() {
        return Ok(encoded.clone());
    }
    let encoded = Arc::clone(&place.encoded);
    let drawing = async move {
        let encode = move || Encoded::of(&draw(&snapshot.history, &drawn));
        let encoded = encoded.get_or_try_init(|| async {
            match tokio::task::spawn_blocking(encode).await {
                Ok(Ok(encoded)) => Ok(encoded),
                Ok(Err(error)) => Err(not_drawn(&error)),
                Err(error) => Err(not_drawn(&error)),
            }
        });
        encoded.await.cloned()
    };
    match place.former() {
        None => drawing.await,
        Some(former) => {
            if place.begin() {
                tokio::spawn(drawing);
            }
            Ok(former.clone())
        }
    }
}

fn not_drawn(error: &dyn std::error::Error) -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "history_not_drawn",
        format!("the history could not be drawn: {error}"),
        "this is a bug in Sexton: please report it with this message",
    )
}

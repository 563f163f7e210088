//! The ranges: filtered, sorted, in pages; and one of them in depth.

use super::answers::{Ranges, in_depth};
use super::problem::Problem;
use super::shared::Shared;
use crate::snapshot::{RANGES_PUBLISHED_MAX, RangeView, Snapshot};
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

/// Greatest `limit` of `/api/v1/ranges`: as many as the engine publishes.
pub const RANGES_PAGE_MAX: usize = RANGES_PUBLISHED_MAX;
/// `limit` of `/api/v1/ranges` where the query has none: a screenful.
const RANGES_PAGE_DEFAULT: usize = 50;

/// How much of its history a range in depth comes with: what somebody who looks at it now wants to compare.
const HISTORY_SECONDS: i64 = 24 * 3_600;

/// By what ranges are sorted; greatest first.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// Pain relieved per byte rewritten, as the plan ranks them.
    #[default]
    Rank,
    Pain,
    /// Bytes that compacting would rewrite; ranges whose cost is not known come last.
    Cost,
    Density,
    TombstonesPerSeek,
}

/// Query of `/api/v1/ranges`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangesQuery {
    /// Only ranges of this target.
    target: Option<String>,
    /// Only ranges of this database, by the path of its directory.
    database: Option<String>,
    /// Only ranges of column families of this name.
    column_family: Option<String>,
    /// Only ranges with at least this seek pain, seconds per second.
    #[serde(default)]
    pain_min: f64,
    /// By what they are sorted, greatest first.
    #[serde(default)]
    sort: Sort,
    /// So many at most.
    #[serde(default = "ranges_page_default")]
    #[schemars(range(min = 1, max = 200))]
    limit: usize,
    /// Leave out so many of the first.
    #[serde(default)]
    offset: usize,
    /// Leave out all up to the range with this id: `next` of the page before. It fails where that range is
    /// there no more.
    after: Option<String>,
}

fn ranges_page_default() -> usize {
    RANGES_PAGE_DEFAULT
}

/// `/api/v1/ranges`.
pub async fn ranges(
    State(shared): State<Shared>,
    query: Result<Query<RangesQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let bad_query = |message: String| {
        let help = "parameters are target (a name from /api/v1/targets), database, column_family, pain_min, sort (rank, \
                    pain, cost, density, tombstones_per_seek), limit (1 to 200), offset and after";
        Problem::new(StatusCode::BAD_REQUEST, "bad_query", message, help)
    };
    let Query(query) = query.map_err(|rejection| bad_query(rejection.body_text()))?;
    if !(1..=RANGES_PAGE_MAX).contains(&query.limit) {
        return Err(bad_query(format!("limit is {} but must be 1 to {RANGES_PAGE_MAX}", query.limit)));
    }
    let snapshot = shared.snapshot();
    if let Some(name) = &query.target
        && !snapshot.targets.iter().any(|target| target.name == *name)
    {
        return Err(unknown_target(name));
    }
    let matching = select(&snapshot, &query);
    let offset = match &query.after {
        None => query.offset,
        Some(id) => {
            let last = matching.iter().position(|range| range.id == *id).ok_or_else(|| unknown_range(id))?;
            last.saturating_add(1).saturating_add(query.offset)
        }
    };
    let page: Vec<&RangeView> = matching.iter().skip(offset).take(query.limit).copied().collect();
    let is_last = offset.saturating_add(page.len()) >= matching.len();
    let answer = Ranges {
        at: &snapshot.at,
        total: matching.len(),
        offset,
        limit: query.limit,
        next: page.last().filter(|_| !is_last).map(|range| range.id.as_str()),
        ranges: page,
    };
    Ok(Json(answer).into_response())
}

/// The ranges that the query asks for, in its order.
fn select<'s>(snapshot: &'s Snapshot, query: &RangesQuery) -> Vec<&'s RangeView> {
    let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
    let wanted = snapshot.ranges.iter().filter(|range| {
        is(&query.target, &range.target)
            && is(&query.database, &range.database)
            && is(&query.column_family, &range.column_family)
            && range.pain_seconds_per_second >= query.pain_min
    });
    let mut ranges: Vec<&RangeView> = wanted.collect();
    let key = |range: &RangeView| match query.sort {
        Sort::Rank => 0.0,
        Sort::Pain => range.pain_seconds_per_second,
        Sort::Cost => range.cost_bytes.map_or(-1.0, |bytes| bytes as f64),
        Sort::Density => range.density,
        Sort::TombstonesPerSeek => range.tombstones_per_seek,
    };
    // Stable: equal ones stay in the order of their rank.
    ranges.sort_by(|one, two| key(two).total_cmp(&key(one)));
    ranges
}

/// `/api/v1/ranges/{id}`.
pub async fn range(
    State(shared): State<Shared>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id.map_err(|rejection| unknown_range(&rejection.body_text()))?;
    let snapshot = shared.snapshot();
    let range = snapshot.ranges.iter().find(|range| range.id == id).ok_or_else(|| unknown_range(&id))?;
    let since_s = Timestamp::now().as_second().saturating_sub(HISTORY_SECONDS);
    Ok(Json(in_depth(&snapshot, range, since_s)).into_response())
}

pub fn unknown_target(name: &str) -> Problem {
    let help = "GET /api/v1/targets lists the targets";
    Problem::new(StatusCode::NOT_FOUND, "unknown_target", format!("no target is called {name:?}"), help)
}

fn unknown_range(id: &str) -> Problem {
    let help = "GET /api/v1/ranges lists the ranges; one in which nobody loses time any more is not among them, and ids \
                are other ones once the agent is started again";
    Problem::new(StatusCode::NOT_FOUND, "unknown_range", format!("no range has the id {id:?}"), help)
}

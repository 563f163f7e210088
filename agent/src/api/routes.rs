//! Paths, and what each answers.

use super::Shared;
use super::guard::keep_browsers_out;
use super::metrics;
use super::problem::Problem;
use crate::snapshot::{
    ActionView, Command, EVENTS_PUBLISHED_MAX, PlanView, RANGES_PUBLISHED_MAX, RangeView, Snapshot,
    TargetView,
};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sexton_journal::Event;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;

/// Greatest `limit` of `/api/v1/ranges`: as many as the engine publishes for one target.
pub const RANGES_PAGE_MAX: usize = RANGES_PUBLISHED_MAX;
/// `limit` of `/api/v1/ranges` where the query has none: a screenful.
const RANGES_PAGE_DEFAULT: usize = 50;
/// Greatest `limit` of `/api/v1/events`, and the one where the query has none: as many as are published.
pub const EVENTS_PAGE_MAX: usize = EVENTS_PUBLISHED_MAX;
/// Body of a request; none has anything to say yet.
const BODY_BYTES_MAX: usize = 1 << 10;
/// How long answering may take, receiving the body included; all answers come from memory.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// What changes nothing.
    Reading,
    Everything,
}

/// All paths of the API.
pub fn router(shared: Shared, access: Access) -> Router {
    let changing = match access {
        Access::Reading => Router::new()
            .route("/api/v1/actions/cancel", post(ask_elsewhere))
            .route("/api/v1/cycle", post(ask_elsewhere)),
        Access::Everything => Router::new()
            .route("/api/v1/actions/cancel", post(cancel_action))
            .route("/api/v1/cycle", post(run_cycle)),
    };
    Router::new()
        .merge(changing)
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics_text))
        .route("/api/v1/targets", get(targets))
        .route("/api/v1/ranges", get(ranges))
        .route("/api/v1/plan", get(plan))
        .route("/api/v1/actions", get(actions))
        .route("/api/v1/events", get(events))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(limit_time))
        .layer(from_fn(keep_browsers_out))
        .with_state(shared)
}

/// Who asks is not known on a TCP connection.
async fn ask_elsewhere() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "control_socket_required",
        "what changes something is not asked for here, where nobody is known",
        "curl --unix-socket /run/sexton/control.sock -X POST -H 'Content-Type: application/json' \
         http://localhost/api/v1/cycle, as root or as the agent's user",
    )
}

async fn limit_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_TIME_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            format!("not answered within {} s", ANSWER_TIME_MAX.as_secs()),
            "send the whole request at once; if it was, the agent is overloaded: see its log",
        )
        .into_response(),
    }
}

async fn unknown_path(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown_path",
        format!("nothing is served at {}", uri.path()),
        "GET /healthz, /metrics, /api/v1/targets, /api/v1/ranges, /api/v1/plan, /api/v1/actions, \
         /api/v1/events; \
         POST /api/v1/cycle, /api/v1/actions/cancel",
    )
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} does not take {method}", uri.path()),
        "what is read is read with GET; /api/v1/cycle and /api/v1/actions/cancel take POST",
    )
}

impl Shared {
    /// The newest snapshot. The lock of the channel is held only to copy the pointer.
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshots.borrow())
    }
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    at: String,
    cycles: u64,
}

/// Healthy as long as the engine lives and its cycles end.
async fn healthz(State(shared): State<Shared>) -> Result<Json<Health>, Problem> {
    let snapshot = shared.snapshot();
    match shared.snapshots.has_changed() {
        Ok(_) if Instant::now() > snapshot.cycle_due.unwrap_or(shared.first_cycle_due) => Err(cycle_late()),
        Ok(_) => Ok(Json(Health { status: "ok", at: snapshot.at.clone(), cycles: snapshot.agent.cycles })),
        Err(_) => Err(engine_stopped()),
    }
}

async fn metrics_text(State(shared): State<Shared>) -> Result<Response, Problem> {
    let snapshot = shared.snapshot();
    let text = {
        let mut labels = shared.labels.lock().unwrap_or_else(PoisonError::into_inner);
        labels.observe(&snapshot);
        metrics::encode(&snapshot, &labels)
    };
    match text {
        Ok(text) => Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response()),
        Err(error) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "metrics_not_encoded",
            format!("the metrics could not be written: {error}"),
            "this is a bug in Sexton: please report it with this message",
        )),
    }
}

#[derive(Serialize)]
struct Targets<'snapshot> {
    at: &'snapshot str,
    targets: &'snapshot [TargetView],
}

async fn targets(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    Json(Targets { at: &snapshot.at, targets: &snapshot.targets }).into_response()
}

/// Query of `/api/v1/ranges`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RangesQuery {
    /// Only ranges of this target.
    target: Option<String>,
    /// So many at most.
    #[serde(default = "ranges_page_default")]
    limit: usize,
    /// Leave out so many of the best ranked.
    #[serde(default)]
    offset: usize,
}

fn ranges_page_default() -> usize {
    RANGES_PAGE_DEFAULT
}

#[derive(Serialize)]
struct Ranges<'snapshot> {
    at: &'snapshot str,
    /// Ranges that the query matches on all pages.
    total: usize,
    offset: usize,
    limit: usize,
    ranges: Vec<&'snapshot RangeView>,
}

async fn ranges(
    State(shared): State<Shared>,
    query: Result<Query<RangesQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let bad_query = |message: String| {
        let help = "parameters are target (a name from /api/v1/targets), limit (1 to 200) and offset";
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
        let message = format!("no target is called {name:?}");
        let help = "GET /api/v1/targets lists the targets";
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_target", message, help));
    }
    let matching = || {
        let wanted = |range: &&RangeView| query.target.as_ref().is_none_or(|name| range.target == *name);
        snapshot.ranges.iter().filter(wanted)
    };
    let page = Ranges {
        at: &snapshot.at,
        total: matching().count(),
        offset: query.offset,
        limit: query.limit,
        ranges: matching().skip(query.offset).take(query.limit).collect(),
    };
    Ok(Json(page).into_response())
}

#[derive(Serialize)]
struct Plan<'snapshot> {
    at: &'snapshot str,
    plan: &'snapshot PlanView,
}

async fn plan(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    Json(Plan { at: &snapshot.at, plan: &snapshot.plan }).into_response()
}

#[derive(Serialize)]
struct Actions<'snapshot> {
    at: &'snapshot str,
    actions: &'snapshot [ActionView],
}

async fn actions(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    Json(Actions { at: &snapshot.at, actions: &snapshot.actions }).into_response()
}

/// Query of `/api/v1/events`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// Only events with a greater id.
    #[serde(default)]
    since: u64,
    /// So many at most.
    #[serde(default = "events_page_default")]
    limit: usize,
}

fn events_page_default() -> usize {
    EVENTS_PAGE_MAX
}

#[derive(Serialize)]
struct Events<'snapshot> {
    at: &'snapshot str,
    /// Id of the oldest event that can still be had here; older ones are in the audit log.
    oldest_id: Option<u64>,
    /// Oldest first. Where there are more than `limit`, ask again since the last one's id.
    events: Vec<&'snapshot Event>,
}

async fn events(
    State(shared): State<Shared>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let bad_query = |message: String| {
        let help = "parameters are since (an event's id) and limit (1 to 256)";
        Problem::new(StatusCode::BAD_REQUEST, "bad_query", message, help)
    };
    let Query(query) = query.map_err(|rejection| bad_query(rejection.body_text()))?;
    if !(1..=EVENTS_PAGE_MAX).contains(&query.limit) {
        return Err(bad_query(format!("limit is {} but must be 1 to {EVENTS_PAGE_MAX}", query.limit)));
    }
    let snapshot = shared.snapshot();
    let later = snapshot.events.iter().filter(|event| event.id > query.since);
    let page = Events {
        at: &snapshot.at,
        oldest_id: snapshot.events.first().map(|event| event.id),
        events: later.take(query.limit).collect(),
    };
    Ok(Json(page).into_response())
}

async fn cancel_action(
    State(shared): State<Shared>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    refuse_content(body)?;
    send(&shared, Command::CancelAction)
}

async fn run_cycle(
    State(shared): State<Shared>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    refuse_content(body)?;
    send(&shared, Command::RunCycleNow)
}

/// These requests have no parameters: what somebody believes to be one must not pass unnoticed.
fn refuse_content(body: Result<Bytes, BytesRejection>) -> Result<(), Problem> {
    let help = "send no body, or {}";
    let body =
        body.map_err(|rejection| Problem::new(rejection.status(), "bad_body", rejection.body_text(), help))?;
    match body.trim_ascii() {
        b"" | b"{}" => Ok(()),
        _ => Err(Problem::new(StatusCode::BAD_REQUEST, "bad_body", "this request takes no parameters", help)),
    }
}

fn send(shared: &Shared, command: Command) -> Result<Response, Problem> {
    match shared.commands.try_send(command.clone()) {
        // Accepted, not done: the next snapshots show what came of it.
        Ok(()) => Ok((StatusCode::ACCEPTED, Json(command)).into_response()),
        Err(TrySendError::Full(_)) => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "engine_busy",
            "too many commands wait for the engine",
            "try again after its next cycle",
        )),
        Err(TrySendError::Closed(_)) => Err(engine_stopped()),
    }
}

fn cycle_late() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "cycle_late",
        "no cycle has ended for a long time: what is shown is old",
        "the agent's log says what it waits for; restart it",
    )
}

fn engine_stopped() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "engine_stopped",
        "the engine has ended; what is shown is its last state",
        "the agent's log says why; restart it",
    )
}

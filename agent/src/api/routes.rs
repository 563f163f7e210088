//! Paths, and what each answers.

use super::answers::Health;
use super::guard::{Hosts, keep_browsers_out};
use super::problem::Problem;
use super::shared::Shared;
use super::{dashboard, entity_tag, event_stream, history, metrics, policy_check, ranges, reading};
use crate::snapshot::{ActionView, Command};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;

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

/// All paths of the API, for whoever is on this node.
pub fn router(shared: Shared, access: Access) -> Router {
    paths(shared, access)
        .layer(from_fn(limit_time))
        .layer(from_fn_with_state(Hosts::Loopback, keep_browsers_out))
}

/// All paths of the API; who asks, and how long it takes, is not looked at.
pub fn paths(shared: Shared, access: Access) -> Router {
    let changing = match access {
        Access::Reading => Router::new()
            .route("/api/v1/actions/cancel", post(ask_elsewhere))
            .route("/api/v1/actions/{id}/cancel", post(ask_elsewhere))
            .route("/api/v1/policy/check", post(ask_elsewhere))
            .route("/api/v1/policy/reload", post(ask_elsewhere))
            .route("/api/v1/cycle", post(ask_elsewhere)),
        Access::Everything => Router::new()
            .route("/api/v1/actions/cancel", post(cancel_action))
            .route("/api/v1/actions/{id}/cancel", post(cancel_one_action))
            .route(
                "/api/v1/policy/check",
                post(policy_check::check).layer(DefaultBodyLimit::max(policy_check::BODY_BYTES_MAX)),
            )
            .route("/api/v1/policy/reload", post(reload_policy))
            .route("/api/v1/cycle", post(run_cycle)),
    };
    Router::new()
        .merge(changing)
        .route("/", get(dashboard::page))
        .route("/app.js", get(dashboard::script))
        .route("/app.css", get(dashboard::style))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics_text))
        .route("/api/v1/build", get(reading::build))
        .route("/api/v1/openapi.json", get(reading::document))
        .route("/api/v1/targets", get(reading::targets))
        .route("/api/v1/targets/{name}", get(reading::target))
        .route("/api/v1/databases", get(reading::all_databases))
        .route("/api/v1/column_families", get(reading::all_column_families))
        .route("/api/v1/ranges", get(ranges::ranges))
        .route("/api/v1/ranges/{id}", get(ranges::range))
        .route("/api/v1/plan", get(reading::plan))
        .route("/api/v1/advice", get(reading::advice))
        .route("/api/v1/actions", get(reading::actions))
        .route("/api/v1/actions/{id}", get(reading::action))
        .route("/api/v1/settings", get(reading::settings))
        .route("/api/v1/throttles", get(reading::throttles))
        .route("/api/v1/schedule", get(reading::schedule))
        .route("/api/v1/policy", get(reading::policy))
        .route("/api/v1/heatmap", get(history::heatmap))
        .route("/api/v1/history", get(history::history))
        .route("/api/v1/doctor", get(reading::doctor))
        .route("/api/v1/events", get(reading::events))
        .route("/api/v1/events/stream", get(event_stream::stream))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(entity_tag::mark))
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

/// Refuses what takes too long.
pub async fn limit_time(request: Request, next: Next) -> Response {
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
        "GET /api/v1/openapi.json describes all paths; /healthz, /metrics, /api/v1/targets are some",
    )
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} does not take {method}", uri.path()),
        "what is read is read with GET; what changes something is a POST; /api/v1/openapi.json has all paths",
    )
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

async fn cancel_action(
    State(shared): State<Shared>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    refuse_content(body)?;
    send(&shared, Command::CancelAction)
}

async fn cancel_one_action(
    State(shared): State<Shared>,
    id: Result<Path<u64>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    refuse_content(body)?;
    let snapshot = shared.snapshot();
    let ActionView { id, ended_at, state, .. } = reading::known_action(&snapshot, id)?;
    if ended_at.is_some() {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "action_ended",
            format!("action {id} has ended: {state}"),
            "GET /api/v1/actions?state=running lists what can be cancelled",
        ));
    }
    send(&shared, Command::CancelOneAction { id: *id })
}

async fn run_cycle(
    State(shared): State<Shared>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    refuse_content(body)?;
    send(&shared, Command::RunCycleNow)
}

async fn reload_policy(
    State(shared): State<Shared>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    refuse_content(body)?;
    send(&shared, Command::ReloadPolicy)
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
            StatusCode::TOO_MANY_REQUESTS,
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

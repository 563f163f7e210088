//! What is read: each answer from the newest published snapshot, never from a target.

use super::answers::{
    Action, Actions, Advices, Build, ColumnFamilies, Databases, Doctor, Events, Plan, Policy, Schedule,
    Settings, Target, Targets, Throttles, column_families, databases,
};
use super::openapi;
use super::problem::Problem;
use super::ranges::unknown_target;
use super::shared::Shared;
use crate::snapshot::{ActionView, EVENTS_PUBLISHED_MAX, Snapshot};
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use sexton_tuner::advice::Advice;

/// Greatest `limit` of `/api/v1/events`, and the one where the query has none: as many as are published.
pub const EVENTS_PAGE_MAX: usize = EVENTS_PUBLISHED_MAX;

pub async fn targets(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    Json(Targets { at: &snapshot.at, targets: &snapshot.targets }).into_response()
}

pub async fn target(
    State(shared): State<Shared>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(name) = name.map_err(|rejection| unknown_target(&rejection.body_text()))?;
    let snapshot = shared.snapshot();
    let target = snapshot.targets.iter().find(|target| target.name == name);
    let target = target.ok_or_else(|| unknown_target(&name))?;
    Ok(Json(Target { at: &snapshot.at, target }).into_response())
}

pub async fn all_databases(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    Json(Databases { at: &snapshot.at, databases: databases(&snapshot) }).into_response()
}

pub async fn all_column_families(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    Json(ColumnFamilies { at: &snapshot.at, column_families: column_families(&snapshot) }).into_response()
}

pub async fn plan(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    Json(Plan { at: &snapshot.at, plan: &snapshot.plan }).into_response()
}

/// Query of `/api/v1/advice`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdviceQuery {
    /// Only advice on this target.
    target: Option<String>,
}

pub async fn advice(
    State(shared): State<Shared>,
    query: Result<Query<AdviceQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) =
        query.map_err(|rejection| bad_query(rejection.body_text(), "the only parameter is target"))?;
    let snapshot = shared.snapshot();
    let is_known = |name: &String| snapshot.targets.iter().any(|target| target.name == *name);
    if let Some(name) = query.target.as_ref().filter(|name| !is_known(name)) {
        return Err(unknown_target(name));
    }
    let is_wanted = |advice: &&Advice| query.target.as_ref().is_none_or(|name| advice.target == *name);
    let advice = snapshot.advice.iter().filter(is_wanted).collect();
    Ok(Json(Advices { at: &snapshot.at, advice }).into_response())
}

/// Query of `/api/v1/actions`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionsQuery {
    /// Only actions on this target, which may be gone.
    target: Option<String>,
    /// Only actions in this state: `running`, `done`, `helped`, ...
    state: Option<String>,
}

pub async fn actions(
    State(shared): State<Shared>,
    query: Result<Query<ActionsQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|rejection| {
        bad_query(rejection.body_text(), "parameters are target and state (running, done, helped, ...)")
    })?;
    let snapshot = shared.snapshot();
    let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
    let is_wanted =
        |action: &&ActionView| is(&query.target, &action.target) && is(&query.state, &action.state);
    let actions = snapshot.actions.iter().filter(is_wanted).collect();
    Ok(Json(Actions { at: &snapshot.at, actions }).into_response())
}

pub async fn action(
    State(shared): State<Shared>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<Response, Problem> {
    let snapshot = shared.snapshot();
    let action = known_action(&snapshot, id)?;
    Ok(Json(Action { at: &snapshot.at, action }).into_response())
}

/// The action that a path names.
pub fn known_action(
    snapshot: &Snapshot,
    id: Result<Path<u64>, PathRejection>,
) -> Result<&ActionView, Problem> {
    let help = "GET /api/v1/actions lists the actions; older ones are in the audit log";
    let not_there = |message: String| Problem::new(StatusCode::NOT_FOUND, "unknown_action", message, help);
    let Path(id) = id.map_err(|_| not_there("actions have whole numbers as ids".to_owned()))?;
    let action = snapshot.actions.iter().find(|action| action.id == id);
    action.ok_or_else(|| not_there(format!("no action has the id {id}")))
}

pub async fn settings(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    Json(Settings { at: &snapshot.at, settings: &snapshot.settings }).into_response()
}

pub async fn throttles(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    let Snapshot { at, throttles, pressures, .. } = &*snapshot;
    Json(Throttles { at, throttles, pressures }).into_response()
}

pub async fn schedule(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    let agent = &snapshot.agent;
    let budget_bytes_per_second = agent.budget_bytes_per_second;
    Json(Schedule { at: &snapshot.at, periods: &agent.schedule, budget_bytes_per_second }).into_response()
}

pub async fn policy(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    let trouble = snapshot.agent.policy_trouble.as_deref();
    let path = snapshot.agent.policy.as_deref();
    let policy = &*snapshot.agent.policy_content;
    Json(Policy { at: &snapshot.at, path, is_current: trouble.is_none(), trouble, policy }).into_response()
}

pub async fn doctor(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshot();
    let gaps = snapshot.targets.iter().map(|target| (target.name.as_str(), target.gaps.as_slice()));
    Json(Doctor { at: &snapshot.at, state: &snapshot.agent.state, gaps: gaps.collect() }).into_response()
}

pub async fn build() -> Json<Build> {
    Json(Build { version: env!("CARGO_PKG_VERSION"), architecture: std::env::consts::ARCH })
}

pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi::DOCUMENT).into_response()
}

/// Query of `/api/v1/events`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only events with a greater id.
    #[serde(default)]
    since: u64,
    /// So many at most.
    #[serde(default = "events_page_default")]
    #[schemars(range(min = 1, max = 256))]
    limit: usize,
}

fn events_page_default() -> usize {
    EVENTS_PAGE_MAX
}

pub async fn events(
    State(shared): State<Shared>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let help = "parameters are since (an event's id) and limit (1 to 256)";
    let Query(query) = query.map_err(|rejection| bad_query(rejection.body_text(), help))?;
    if !(1..=EVENTS_PAGE_MAX).contains(&query.limit) {
        let message = format!("limit is {} but must be 1 to {EVENTS_PAGE_MAX}", query.limit);
        return Err(bad_query(message, help));
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

pub fn bad_query(message: String, help: &'static str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad_query", message, help)
}

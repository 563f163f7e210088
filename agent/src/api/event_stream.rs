//! The events as they are told: `text/event-stream`, one message an event, from where the client has stopped.

use super::problem::Problem;
use super::shared::Shared;
use crate::snapshot::Snapshot;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::watch;

/// What a browser sends when it connects again: the id of the last message that it has.
const LAST_EVENT_ID: &str = "last-event-id";

/// Query of `/api/v1/events/stream`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamQuery {
    /// Only events with a greater id; by default what `Last-Event-ID` says, else all that there are.
    since: Option<u64>,
}

/// What has still to be sent, and where more comes from.
struct Following {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    waiting: VecDeque<Message>,
    last_id: u64,
}

/// `/api/v1/events/stream`.
pub async fn stream(
    State(shared): State<Shared>,
    headers: HeaderMap,
    query: Result<Query<StreamQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let bad_query = |message: String| {
        let help = "the only parameter is since (an event's id)";
        Problem::new(StatusCode::BAD_REQUEST, "bad_query", message, help)
    };
    let Query(query) = query.map_err(|rejection| bad_query(rejection.body_text()))?;
    let seen = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse().ok());
    let mut snapshots = shared.snapshots.clone();
    snapshots.mark_changed();
    let last_id = query.since.or(seen).unwrap_or_default();
    let following = Following { snapshots, waiting: VecDeque::new(), last_id };
    Ok(Sse::new(messages(following)).keep_alive(KeepAlive::default()).into_response())
}

fn messages(following: Following) -> impl Stream<Item = Result<Message, Infallible>> {
    stream::unfold(following, |mut following| async move {
        while following.waiting.is_empty() {
            // An error means that the engine has ended, and so does the stream.
            following.snapshots.changed().await.ok()?;
            following.collect();
        }
        let message = following.waiting.pop_front()?;
        Some((Ok(message), following))
    })
}

impl Following {
    /// Takes what the newest snapshot has beyond the last one sent.
    fn collect(&mut self) {
        let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
        let sent = self.last_id;
        for event in snapshot.events.iter().filter(|event| event.id > sent) {
            self.last_id = event.id;
            let message = Message::default().id(event.id.to_string()).json_data(event);
            self.waiting.extend(message);
        }
    }
}

//! Errors as the API shows them: a stable code, what happened, and what to do.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// Stable name of the error, for programs.
    pub code: &'static str,
    pub message: String,
    pub help: &'static str,
}

#[derive(Serialize)]
struct Body<'text> {
    code: &'text str,
    message: &'text str,
    help: &'text str,
}

impl Problem {
    pub fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        help: &'static str,
    ) -> Problem {
        Problem { status, code, message: message.into(), help }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body { code: self.code, message: &self.message, help: self.help };
        (self.status, Json(body)).into_response()
    }
}

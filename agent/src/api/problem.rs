//! Errors as the API shows them (RFC 9457): a stable code, what happened, and what to do.

use crate::text::json_in_ascii;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

/// Media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// Stable name of the error, for programs.
    pub code: &'static str,
    pub message: String,
    pub help: &'static str,
}

/// What is sent of a problem.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemBody<'text> {
    /// Always `about:blank`: `code` says what it is.
    r#type: &'static str,
    /// The status in words.
    title: &'text str,
    status: u16,
    /// Stable name of the error, for programs.
    code: &'text str,
    /// What happened.
    detail: &'text str,
    /// What to do.
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
        let body = ProblemBody {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.message,
            help: self.help,
        };
        // It repeats what was asked. A body of few bytes that are not ASCII is taken for another encoding by
        // clients that guess, and is no JSON then.
        let body = serde_json::to_string(&body).map(|document| json_in_ascii(&document));
        let mut response = (self.status, body.unwrap_or_default()).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        response
    }
}

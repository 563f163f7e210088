//! `ETag` on what is polled: who has an answer already is told so, and gets no body.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::hash::{DefaultHasher, Hasher};

/// Answers beyond that would be put together from too much; none is nearly as long.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Marks JSON answers by what is in them, where they are not marked yet, and leaves out the body where the
/// client has it.
pub async fn mark(request: Request, next: Next) -> Response {
    let is_read = *request.method() == Method::GET;
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let response = next.run(request).await;
    if !is_read || response.status() != StatusCode::OK || !is_json(response.headers()) {
        return response;
    }
    let (mut head, mut body) = response.into_parts();
    let tag = match head.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()) {
        Some(tag) => tag.to_owned(),
        None => {
            let Ok(bytes) = to_bytes(body, BODY_BYTES_MAX).await else {
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            };
            let tag = of(&bytes);
            body = Body::from(bytes);
            tag
        }
    };
    if let Ok(value) = HeaderValue::from_str(&tag) {
        head.headers.insert(header::ETAG, value);
    }
    if known.is_some_and(|known| names(&known, &tag)) {
        head.status = StatusCode::NOT_MODIFIED;
        head.headers.remove(header::CONTENT_TYPE);
        head.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(head, Body::empty());
    }
    Response::from_parts(head, body)
}

/// The tag of an answer with this body.
pub fn of(body: &[u8]) -> String {
    let mut hash = DefaultHasher::new();
    hash.write(body);
    format!("\"{:016x}\"", hash.finish())
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|media_type| media_type == "application/json")
}

/// Whether an `If-None-Match` names this tag; weak ones compare as strong ones here.
fn names(header: &HeaderValue, tag: &str) -> bool {
    let Ok(header) = header.to_str() else { return false };
    header.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use super::names;
    use axum::http::HeaderValue;

    #[test]
    fn one_of_several_tags_is_enough() {
        let tag = "\"a1\"";
        for (header, expected) in [
            ("\"a1\"", true),
            ("\"b\", W/\"a1\"", true),
            ("*", true),
            ("a1", false),
            ("", false),
            ("\"a\"", false),
        ] {
            assert_eq!(names(&HeaderValue::from_static(header), tag), expected, "{header}");
        }
    }
}

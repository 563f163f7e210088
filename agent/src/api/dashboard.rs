//! The dashboard: three files that are part of the program. They ask this API and nobody else.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

/// A page that loads nothing from elsewhere, sends nothing there, and is shown in no other page.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub async fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("../../web/dist/index.html"))
}

pub async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../../web/dist/app.js"))
}

pub async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../../web/dist/app.css"))
}

fn file(media_type: &'static str, text: &'static str) -> Response {
    let head = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    (head, text).into_response()
}

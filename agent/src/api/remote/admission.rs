//! Whether a request over TLS is let in: not too many of an address, by somebody who is known, for something
//! that he may ask for, and a change once only.

use super::access_file::{Caller, Scopes};
use super::keyring::Keyring;
use super::rates::Rates;
use super::replays::Replays;
use crate::api::pair::request::Peer;
use crate::api::problem::Problem;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Instant;

/// What requests are judged by.
#[derive(Debug)]
pub struct Admission {
    keyring: Arc<Keyring>,
    rates: Rates,
    replays: Replays,
}

impl Admission {
    pub fn new(keyring: Arc<Keyring>) -> Admission {
        Admission { keyring, rates: Rates::default(), replays: Replays::since(Timestamp::now()) }
    }

    fn judge(&self, peer: &Peer, method: &Method, headers: &HeaderMap) -> Result<Caller, Problem> {
        let now = Instant::now();
        if !self.rates.take(peer.address, now) {
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_requests",
                "this address asks too often",
                "ask less often; refused requests count for many",
            ));
        }
        let keys = self.keyring.keys();
        let caller = match credentials(headers) {
            Some((name, token)) => keys.access.by_token(&token, name.as_deref()),
            None => keys.access.by_certificate(&peer.names),
        };
        let Some(caller) = caller else {
            self.rates.refuse(peer.address, now);
            return Err(unknown_caller());
        };
        let Scopes { read, act, .. } = caller.scopes;
        let is_reading = matches!(*method, Method::GET | Method::HEAD);
        if !(if is_reading { read } else { act }) {
            return Err(scope_missing(caller, if is_reading { "read" } else { "act" }));
        }
        if !is_reading {
            self.replays.take(&caller.name, headers, Timestamp::now())?;
            tracing::info!(caller = &*caller.name, address = %peer.address, "asked for something over TLS");
        }
        Ok(caller.clone())
    }
}

/// Lets a request in, with who asks, or says why not.
pub async fn admit(
    State(admission): State<Arc<Admission>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    match admission.judge(&peer, request.method(), request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => {
            let is_unknown = problem.status == StatusCode::UNAUTHORIZED;
            let mut response = problem.into_response();
            if is_unknown {
                // A browser asks its user then: name and token.
                let scheme = HeaderValue::from_static("Basic realm=\"sexton\", charset=\"UTF-8\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
                response.headers_mut().append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
    }
}

/// The token that a request carries, and the name with it: `Bearer TOKEN`, or `Basic` of `NAME:TOKEN`, as
/// browsers send it. Credentials that are none are as a wrong token.
fn credentials(headers: &HeaderMap) -> Option<(Option<String>, Vec<u8>)> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().unwrap_or_default();
    let wrong = (None, Vec::new());
    let Some((scheme, rest)) = text.split_once(' ') else { return Some(wrong) };
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((None, rest.as_bytes().to_vec()));
    }
    let decoded = STANDARD.decode(rest).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"));
    let Some(decoded) = decoded.and_then(|decoded| String::from_utf8(decoded).ok()) else {
        return Some(wrong);
    };
    let Some((name, token)) = decoded.split_once(':') else { return Some(wrong) };
    Some((Some(name.to_owned()), token.as_bytes().to_vec()))
}

fn unknown_caller() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "unknown_caller",
        "the request has no token or client certificate that the access file knows",
        "with curl: -H \"Authorization: Bearer $TOKEN\"; in a browser: a name of the access file, and its token",
    )
}

fn scope_missing(caller: &Caller, scope: &str) -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "scope_missing",
        format!("{:?} has not the scope {scope}", caller.name),
        "whoever has the access file can add the scope to the caller's line",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn credentials_are_a_token_with_or_without_a_name() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(text.as_bytes()).unwrap());
            credentials(&headers)
        };
        let wrong = Some((None, Vec::new()));
        assert_eq!(of("Bearer secret"), Some((None, b"secret".to_vec())));
        assert_eq!(of("bearer  secret "), Some((None, b"secret".to_vec())));
        assert_eq!(of("Basic b3BzOmE6Yg=="), Some((Some("ops".to_owned()), b"a:b".to_vec())));
        for text in ["", "Bearer", "Basic b3Bz", "Basic ?", "Basic /w==", "Digest b3BzOmE6Yg==", "é"] {
            assert_eq!(of(text), wrong, "{text:?}");
        }
        assert_eq!(credentials(&HeaderMap::new()), None);
    }
}

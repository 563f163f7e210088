//! Keeps web pages out: a browser on this machine can reach loopback too.
//!
//! - A page whose own name was made to resolve to 127.0.0.1 (DNS rebinding) still sends its own name in
//!   `Host`: only loopback names and addresses are answered.
//! - A page of another origin can send a simple `POST` without asking first: only `POST`s with JSON content
//!   type are taken, which a browser sends across origins only after a preflight that is never granted,
//!   and an `Origin`, where there is one, must be our own.

use super::problem::Problem;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what a web page could have sent, and marks answers so that no page can use them.
pub async fn keep_browsers_out(request: Request, next: Next) -> Response {
    let mut response = match check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let marks = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in marks {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn check(request: &Request) -> Result<(), Problem> {
    let host = host_of(request)?;
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    let headers = request.headers();
    if let Some(origin) = text(headers, header::ORIGIN)
        && origin != format!("http://{host}")
    {
        return Err(cross_origin(format!("the request comes from a page of {origin:?}")));
    }
    if let Some(site) = text(headers, SEC_FETCH_SITE)
        && site != "same-origin"
        && site != "none"
    {
        return Err(cross_origin(format!("the browser calls the request {site:?}")));
    }
    let content_type = text(headers, header::CONTENT_TYPE).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    match media_type.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "json_content_type_required",
            "requests that change something need the content type application/json",
            "with curl: -X POST -H 'Content-Type: application/json'",
        )),
    }
}

/// The request's host with its port, if it is a loopback name or address.
fn host_of(request: &Request) -> Result<&str, Problem> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let in_line = request.uri().authority().map(|authority| authority.as_str());
    let consistent = hosts.next().is_none() && in_line.is_none_or(|in_line| in_line == host);
    if consistent && is_loopback(host) {
        return Ok(host);
    }
    let shown: String = host.chars().take(HOST_CHARACTERS_SHOWN).collect();
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "host_not_loopback",
        format!("the Host header is {shown:?}"),
        "address the API as localhost, 127.0.0.1 or [::1]; other names are refused to keep web pages out",
    ))
}

/// Of a foreign `Host` header, this much is repeated in the answer: the longest legal name is 253.
const HOST_CHARACTERS_SHOWN: usize = 253;

/// Whether `host`, with or without a port, names this machine only.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if port.is_empty() || is_port(port) => address,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        },
    };
    let address = name.parse::<IpAddr>().map(|address| address.to_canonical().is_loopback());
    address.unwrap_or_else(|_| name.eq_ignore_ascii_case("localhost"))
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn cross_origin(message: String) -> Problem {
    let help = "send it from a program or from Sexton's own pages";
    Problem::new(StatusCode::FORBIDDEN, "cross_origin", message, help)
}

/// A header's text; what is not text is shown as such, so that it never equals what is allowed.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("(not text)"))
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_loopback_names_pass() {
        let good = [
            "localhost",
            "LOCALHOST:9100",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.8.8.8:1",
            "[::1]",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
        ];
        let bad = [
            "",
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org:80",
            "10.0.0.1",
            "[::1",
            "[::1]x",
            "[::2]:80",
            "localhost:80x",
            "localhost:80:80",
            "0.0.0.0",
            "user@localhost",
            "2130706433",
        ];
        assert!(good.into_iter().all(is_loopback));
        assert!(!bad.into_iter().any(is_loopback));
    }
}

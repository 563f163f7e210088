//! Keeps web pages out: a browser on this machine can reach loopback too.
//!
//! - A page whose own name was made to resolve to 127.0.0.1 (DNS rebinding) still sends its own name in
//!   `Host`: only loopback names and addresses are answered, over TLS only those in the agent's certificate.
//! - A page of another origin can send a simple `POST` without asking first: only `POST`s with JSON content
//!   type are taken, which a browser sends across origins only after a preflight that is never granted.
//! - An `Origin`, where there is one, must be our own.

use super::problem::Problem;
use super::remote::Keyring;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// By which names the agent is addressed.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// Those of this machine for itself.
    Loopback,
    /// Those in the server's certificate.
    OfCertificate(Arc<Keyring>),
}

impl Hosts {
    fn include(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        match self {
            Hosts::Loopback => is_loopback(name),
            Hosts::OfCertificate(keyring) => keyring.keys().is_for(name),
        }
    }

    fn scheme(&self) -> &'static str {
        match self {
            Hosts::Loopback => "http",
            Hosts::OfCertificate(_) => "https",
        }
    }

    fn refused(&self, host: &str) -> Problem {
        let shown: String = host.chars().take(HOST_CHARACTERS_SHOWN).collect();
        let (code, help) = match self {
            Hosts::Loopback => (
                "host_not_loopback",
                "address the API as localhost, 127.0.0.1 or [::1]; other names are refused to keep web pages out",
            ),
            Hosts::OfCertificate(_) => (
                "host_not_in_certificate",
                "address the API by a name or an address that the agent's certificate is for",
            ),
        };
        Problem::new(StatusCode::FORBIDDEN, code, format!("the Host header is {shown:?}"), help)
    }
}

/// Refuses what a web page could have sent, and marks answers so that no page can use them.
pub async fn keep_browsers_out(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let mut response = match check(&hosts, &request) {
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

fn check(hosts: &Hosts, request: &Request) -> Result<(), Problem> {
    let host = host_of(hosts, request)?;
    let headers = request.headers();
    if let Some(origin) = text(headers, header::ORIGIN)
        && origin != format!("{}://{host}", hosts.scheme())
    {
        return Err(cross_origin(format!("the request comes from a page of {origin:?}")));
    }
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
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

/// The request's host with its port, if the agent is addressed so.
fn host_of<'r>(hosts: &Hosts, request: &'r Request) -> Result<&'r str, Problem> {
    let mut given = request.headers().get_all(header::HOST).iter();
    let host = given.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let in_line = request.uri().authority().map(|authority| authority.as_str());
    let consistent = given.next().is_none() && in_line.is_none_or(|in_line| in_line == host);
    if consistent && hosts.include(host) { Ok(host) } else { Err(hosts.refused(host)) }
}

/// Of a foreign `Host` header, this much is repeated in the answer: the longest legal name is 253.
const HOST_CHARACTERS_SHOWN: usize = 253;

/// The name or address in a `Host` header, without port and brackets; `None` where it is none.
fn without_port(host: &str) -> Option<&str> {
    match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if port.is_empty() || is_port(port) => Some(address),
            _ => None,
        },
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some(name),
            Some(_) => None,
            None => Some(host),
        },
    }
}

/// Whether the name is of this machine only.
fn is_loopback(name: &str) -> bool {
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
    use super::Hosts;

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
        assert!(good.into_iter().all(|host| Hosts::Loopback.include(host)));
        assert!(!bad.into_iter().any(|host| Hosts::Loopback.include(host)));
    }
}

//! A request as it goes over the pair: who asks, where, and what stands before its body.

use super::{Door, Malformed, bytes_of, text_of};
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Headers of a message: hyper takes a hundred of a request.
const HEADERS_MAX: usize = 128;

/// Who is at the other end of a connection over TLS, by the listener's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    pub address: IpAddr,
    /// DNS names of the certificate that it has shown; empty: none.
    pub names: Vec<String>,
}

/// Names and values, in their order; the values as texts of bytes.
pub type Headers = Vec<(String, String)>;

/// What stands before a request's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    pub door: Door,
    /// At [`Door::Remote`] alone.
    pub peer: Option<Peer>,
    method: String,
    target: String,
    headers: Headers,
}

impl Asked {
    pub fn of(parts: &Parts, door: Door, peer: Option<Peer>) -> Asked {
        let (method, target) = (parts.method.to_string(), parts.uri.to_string());
        Asked { door, peer, method, target, headers: texts(&parts.headers) }
    }

    /// The request, as a router takes it.
    pub fn request(&self, body: Body) -> Result<Request, Malformed> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::from_bytes(self.method.as_bytes()).map_err(Malformed::of)?;
        *request.uri_mut() = self.target.parse::<Uri>().map_err(Malformed::of)?;
        *request.headers_mut() = headers(&self.headers)?;
        Ok(request)
    }
}

/// Headers as they are sent.
pub fn texts(headers: &HeaderMap) -> Headers {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text_of(value.as_bytes()))).collect()
}

/// Headers as they were sent.
pub fn headers(texts: &Headers) -> Result<HeaderMap, Malformed> {
    if texts.len() > HEADERS_MAX {
        return Err(Malformed(format!("{} headers", texts.len())));
    }
    let mut headers = HeaderMap::with_capacity(texts.len());
    for (name, value) in texts {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(Malformed::of)?;
        let value = HeaderValue::from_bytes(&bytes_of(value)?).map_err(Malformed::of)?;
        headers.append(name, value);
    }
    Ok(headers)
}

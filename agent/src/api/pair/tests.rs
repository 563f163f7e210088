//! Messages there and back, and what a listener that somebody else has taken over might send.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::answer::{Answer, Part};
use super::request::{Asked, Peer};
use super::socket::{MESSAGE_BYTES_MAX, Message, Socket, pair};
use super::tls::TlsFiles;
use super::*;
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use proptest::prelude::*;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A header's value: all bytes but control characters.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![32_u8..127, 128_u8..=255, Just(b'\t')], 0..40)
}

fn headers() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    prop::collection::vec(("[a-z][a-z0-9-]{0,20}", value()), 0..20)
}

fn peer() -> impl Strategy<Value = Option<Peer>> {
    let names = prop::collection::vec("[a-z.]{1,20}", 0..5);
    prop::option::of((any::<u32>(), names).prop_map(|(address, names)| {
        let address = std::net::Ipv4Addr::from(address).into();
        Peer { address, names }
    }))
}

fn with_headers(map: &mut axum::http::HeaderMap, headers: &[(String, Vec<u8>)]) {
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value).unwrap());
    }
}

proptest! {
    #[test]
    fn a_request_arrives_as_it_was(
        method in "GET|POST|HEAD|OPTIONS|X-OWN",
        target in "/[a-z0-9/%]{0,30}(\\?[a-z=&%0-9]{0,20})?|\\*|http://[a-z]{1,9}/[a-z]{0,9}",
        headers in headers(),
        peer in peer(),
    ) {
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = target.parse().unwrap();
        with_headers(request.headers_mut(), &headers);
        let (parts, ()) = request.into_parts();
        let sent = Asked::of(&parts, Door::Remote, peer);
        let message = encode(&ToAgent::Request(sent.clone())).unwrap();
        let ToAgent::Request(received) = decode(&message).unwrap() else { panic!("another message") };
        prop_assert_eq!(&received, &sent);
        let request = received.request(Body::empty()).unwrap();
        prop_assert_eq!(request.method(), &parts.method);
        prop_assert_eq!(request.uri(), &parts.uri);
        prop_assert_eq!(request.headers(), &parts.headers);
    }

    #[test]
    fn an_answer_arrives_as_it_was(status in 100_u16..1000, headers in headers(), body: Vec<u8>) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        with_headers(response.headers_mut(), &headers);
        let (parts, ()) = response.into_parts();
        let head = Part::Head(Answer::of(&parts));
        let Part::Head(received) = Part::decode(head.encode().unwrap()).unwrap() else { panic!("no head") };
        let response = received.response(Body::empty()).unwrap();
        prop_assert_eq!((response.status(), response.headers()), (parts.status, &parts.headers));
        let body = [&[0], &body[..]].concat();
        let part = Part::Body(Bytes::from(body));
        prop_assert_eq!(Part::decode(part.encode().unwrap()).unwrap(), part);
    }

    #[test]
    fn no_bytes_end_the_agent(bytes: Vec<u8>, kind in "[hbe]") {
        let _ = decode::<ToAgent>(&bytes);
        let _ = decode::<ToListener>(&bytes);
        let _ = Part::decode(bytes.clone());
        let _ = Part::decode([kind.as_bytes(), &bytes].concat());
    }

    /// What is cut off anywhere, or changed at one place, is refused or another message, and never more.
    #[test]
    fn no_damaged_message_ends_the_agent(at in 0_usize..200, byte: u8, headers in headers()) {
        let mut request = Request::new(());
        with_headers(request.headers_mut(), &headers);
        let asked = Asked::of(&request.into_parts().0, Door::Control, None);
        let mut message = encode(&ToAgent::Request(asked)).unwrap();
        prop_assert!(decode::<ToAgent>(&message[..at.min(message.len() - 1)]).is_err());
        if let Some(place) = message.get_mut(at) {
            *place = byte;
        }
        if let Ok(ToAgent::Request(asked)) = decode(&message) {
            let _ = asked.request(Body::empty());
        }
    }
}

#[test]
fn what_is_no_request_is_refused() {
    let of = |method: &str, target: &str, headers: &str| {
        let text = format!(
            r#"{{"Request": {{"door": "Reading", "peer": null, "method": "{method}", "target": "{target}",
                "headers": {headers}}}}}"#
        );
        match decode::<ToAgent>(text.as_bytes())? {
            ToAgent::Request(asked) => asked.request(Body::empty()),
            other => panic!("{other:?}"),
        }
    };
    assert!(of("GET", "/", r#"[["a", "b"]]"#).is_ok());
    let many = format!("[{}]", vec![r#"["a", "b"]"#; 129].join(","));
    let wrong = [
        ("", "/", "[]"),
        ("G T", "/", "[]"),
        ("GET", "", "[]"),
        ("GET", "/ /", "[]"),
        ("GET", "/", r#"[["a b", "c"]]"#),
        ("GET", "/", r#"[["", "c"]]"#),
        ("GET", "/", r#"[["a", "\r\nb"]]"#),
        ("GET", "/", r#"[["a", "\u0000"]]"#),
        ("GET", "/", r#"[["a", "☠"]]"#),
        ("GET", "/", r#"[["a"]]"#),
        ("GET", "/", &many),
    ];
    for (method, target, headers) in wrong {
        assert!(of(method, target, headers).is_err(), "{method} {target} {headers}");
    }
    for text in
        ["", "{}", "null", "\"Request\"", r#"{"Other": 1}"#, r#"{"Failed": {"reason": 1}}"#, "[[[[[[["]
    {
        assert!(decode::<ToAgent>(text.as_bytes()).is_err(), "{text}");
    }
    let deep = "[".repeat(MESSAGE_BYTES_MAX);
    assert!(decode::<ToAgent>(deep.as_bytes()).is_err());
    for part in [&b""[..], b"b", b"e1", b"h", b"h{}", b"x"] {
        assert!(Part::decode(part.to_vec()).is_err(), "{part:?}");
    }
}

#[test]
fn messages_stay_apart_and_pass_descriptors() {
    runtime().block_on(async {
        let (ours, theirs) = pair().unwrap();
        let (ours, theirs) = (Socket::new(ours).unwrap(), Socket::new(theirs).unwrap());
        let file = tempfile::tempfile().unwrap();
        ours.send(b"one", &[file.as_fd(), file.as_fd()]).await.unwrap();
        ours.send(&vec![7; MESSAGE_BYTES_MAX], &[]).await.unwrap();
        let Message { bytes, descriptors } = theirs.receive().await.unwrap().unwrap();
        assert_eq!((bytes.as_slice(), descriptors.len()), (&b"one"[..], 2));
        assert_eq!(theirs.receive().await.unwrap().unwrap().bytes.len(), MESSAGE_BYTES_MAX);
        assert!(ours.send(&vec![7; MESSAGE_BYTES_MAX + 1], &[]).await.is_err());
        assert!(ours.send(b"", &[]).await.is_err());
        ours.send(b"last", &[]).await.unwrap();
        // What is not read of the other direction keeps nothing of this one back.
        theirs.send(b"unread", &[]).await.unwrap();
        drop(ours);
        assert_eq!(theirs.receive().await.unwrap().unwrap().bytes, b"last");
        assert!(theirs.receive().await.unwrap().is_none());
        assert!(theirs.send(b"x", &[]).await.is_err());
    });
}

#[test]
fn what_is_longer_than_a_message_is_refused_and_its_descriptors_are_closed() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let (ours, theirs) = pair().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let send = |bytes: usize, descriptors: usize| {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let passed = vec![writer.as_fd(); descriptors];
        if descriptors > 0 {
            assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
        }
        let bytes = vec![b'x'; bytes];
        sendmsg(&ours, &[io::IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
    };
    runtime().block_on(async {
        let socket = Socket::new(theirs).unwrap();
        send(MESSAGE_BYTES_MAX + 1, 2);
        assert_eq!(socket.receive().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        send(1, 3);
        assert_eq!(socket.receive().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    });
    drop(writer);
    let mut left = Vec::new();
    io::Read::read_to_end(&mut &reader, &mut left).unwrap();
}

#[test]
fn another_descriptor_is_no_end_of_a_pair() {
    runtime().block_on(async {
        let others: [OwnedFd; 4] = [
            std::fs::File::open("/").unwrap().into(),
            io::pipe().unwrap().0.into(),
            std::os::unix::net::UnixStream::pair().unwrap().0.into(),
            std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
        ];
        for other in others {
            assert!(Socket::new(other).is_err());
        }
    });
}

#[test]
fn certificate_and_key_are_handed_over_and_cannot_be_changed() {
    let text = |text: &str| text.to_owned();
    let files = TlsFiles { chain: text("chain\n"), key: text("secret"), authority: Some(text("authority")) };
    let handed_over = files.hand_over().unwrap();
    let mut other = std::fs::File::from(handed_over.try_clone().unwrap());
    assert!(other.write_all(b"x").is_err() && other.set_len(0).is_err());
    assert_eq!(TlsFiles::taken_over(handed_over).unwrap(), files);
    assert!(!format!("{files:?}").contains("secret"));
    assert!(files.config().is_err());
}

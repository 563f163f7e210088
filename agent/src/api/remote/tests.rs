//! Drives the real listener over TLS, with tokens and client certificates.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::api::tests::in_process;
use crate::api::{Place, Serving, serve_by};
use crate::snapshot::{ActionView, COMMANDS_QUEUED_MAX, RangeView, TargetView};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use tokio_rustls::rustls;

/// A name that the server's certificate is for; `127.0.0.1` is the other one.
const HOST: &str = "sexton.test";
/// A key that only the scope `keys` may show.
const KEY: &str = "/vol/very-secret/key";

/// Issues certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certificate and key for these names, PEM.
    fn issue(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

struct Server {
    directory: TempDir,
    authority: Authority,
    address: SocketAddr,
    keyring: Arc<Keyring>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    commands: mpsc::Receiver<Command>,
    _runtime: tokio::runtime::Runtime,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn code(&self) -> String {
        let json: Value = serde_json::from_str(&self.body).unwrap_or_default();
        json["code"].as_str().unwrap_or_default().to_owned()
    }
}

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A line of the access file; the token is the caller's name with `-token`.
fn line(name: &str, scopes: &str) -> String {
    let digest = Sha256::digest(format!("{name}-token"));
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name} {scopes} sha256:{digits}\n")
}

fn bearer(name: &str) -> String {
    format!("Authorization: Bearer {name}-token\r\n")
}

/// What a request for a change carries, another id each time.
fn once() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let now = jiff::Timestamp::now();
    format!("Sexton-Request-Id: request-{number:016}\r\nSexton-Request-Time: {now}\r\n")
}

fn snapshot() -> Snapshot {
    let range = RangeView { id: "1".into(), begin: KEY.into(), reason: KEY.into(), ..RangeView::default() };
    Snapshot {
        shows_keys: true,
        targets: vec![TargetView { name: "java-1".into(), ..TargetView::default() }],
        ranges: vec![range],
        actions: vec![ActionView { id: 1, ..ActionView::default() }],
        ..Snapshot::default()
    }
}

/// An address that nobody had a moment ago.
fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Server {
    fn start() -> Server {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let (certificate, key) = authority.issue(&[HOST, "127.0.0.1"]);
        let lines =
            [("reader", "read"), ("actor", "act"), ("owner", "read,act,keys"), ("looker", "read,keys")];
        let lines: String = lines.iter().map(|(name, scopes)| line(name, scopes)).collect();
        let files = KeyringFiles {
            certificate: write(directory.path(), "server.pem", &certificate),
            key: write(directory.path(), "server.key", &key),
            access: write(
                directory.path(),
                "access",
                &(lines + "ops read,act certificate:ops.example.org\n"),
            ),
            client_authority: Some(write(directory.path(), "clients.pem", &authority.0.pem())),
        };
        let keyring = Arc::new(Keyring::open(files).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = free_address();
        let (publisher, snapshots) = watch::channel(Arc::new(snapshot()));
        let (sender, commands) = mpsc::channel(COMMANDS_QUEUED_MAX);
        let serving = Serving {
            reading: Place::reading(free_address(), None),
            control: None,
            remote: Some((address, Arc::clone(&keyring))),
        };
        let served = serve_by(in_process(&runtime), serving, snapshots, sender, std::future::pending::<()>());
        runtime.spawn(served);
        // It binds its address itself.
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while StdStream::connect(address).is_err() {
            assert!(std::time::Instant::now() < until, "nobody listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        let server = Server {
            directory,
            authority,
            address,
            keyring,
            snapshots: publisher,
            commands,
            _runtime: runtime,
        };
        // Requests from before it serves are refused.
        assert_eq!(server.get("/healthz", &bearer("reader")).status, 200);
        server
    }

    /// Sends a request as it is, with a client certificate where there is one.
    fn ask(&self, certificate: Option<&(String, String)>, request: &str) -> io::Result<Answer> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.0.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let mut socket = StdStream::connect(self.address)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let name = ServerName::try_from(HOST).unwrap();
        let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
    }

    fn get(&self, path: &str, headers: &str) -> Answer {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{headers}\r\n");
        self.ask(None, &request).unwrap()
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Answer {
        self.ask(None, &post_request(path, headers, body)).unwrap()
    }
}

fn post_request(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    )
}

#[test]
fn each_path_takes_its_scope_and_no_other() {
    let mut server = Server::start();
    let document: Value = serde_json::from_str(crate::api::openapi::DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap();
    for (path, methods) in paths {
        let path = &path.replace("{name}", "java-1").replace("{id}", "1");
        if methods.get("post").is_some() {
            let check = path.ends_with("/check");
            let (body, status) = if check { (r#"{"policy": "mode: observe"}"#, 200) } else { ("", 202) };
            let ask = |headers: &str| server.post(path, &(headers.to_owned() + &once()), body);
            assert_eq!((ask("").status, ask("").code()), (401, "unknown_caller".to_owned()), "{path}");
            let refused = ask(&bearer("looker"));
            assert_eq!((refused.status, refused.code()), (403, "scope_missing".to_owned()), "{path}");
            assert!(server.commands.try_recv().is_err(), "{path}");
            for name in ["actor", "owner"] {
                assert_eq!(server.post(path, &(bearer(name) + &once()), body).status, status, "{path}");
                assert_eq!(server.commands.try_recv().is_ok(), !check, "{path}");
            }
        } else if path != "/api/v1/events/stream" {
            assert_eq!(server.get(path, "").status, 401, "{path}");
            let refused = server.get(path, &bearer("actor"));
            assert_eq!((refused.status, refused.code()), (403, "scope_missing".to_owned()), "{path}");
            assert_eq!(server.get(path, &bearer("reader")).status, 200, "{path}");
        }
        // Refused requests count for many: those of this test are not what is to be tested here.
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(paths.len() > 15, "{}", paths.len());
}

#[test]
fn who_asks_is_told_by_token_or_certificate() {
    let server = Server::start();
    let unknown = server.get("/api/v1/plan", "Authorization: Bearer guessed\r\n");
    assert_eq!((unknown.status, unknown.code()), (401, "unknown_caller".to_owned()));
    assert!(unknown.head.contains("www-authenticate: basic"), "{}", unknown.head);
    assert!(!unknown.head.contains("access-control"), "{}", unknown.head);
    // reader:reader-token, then another caller's name with it.
    assert_eq!(server.get("/", "Authorization: Basic cmVhZGVyOnJlYWRlci10b2tlbg==\r\n").status, 200);
    assert_eq!(server.get("/", "Authorization: Basic b3duZXI6cmVhZGVyLXRva2Vu\r\n").status, 401);

    let ask = |names: &[&str], authority: &Authority, headers: &str| {
        let request =
            format!("GET /api/v1/plan HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{headers}\r\n");
        server.ask(Some(&authority.issue(names)), &request)
    };
    assert_eq!(ask(&["a.org", "ops.example.org"], &server.authority, "").unwrap().status, 200);
    assert_eq!(ask(&["others.example.org"], &server.authority, "").unwrap().status, 401);
    assert_eq!(ask(&["others.example.org"], &server.authority, &bearer("reader")).unwrap().status, 200);
    assert!(ask(&["ops.example.org"], &Authority::new(), "").is_err(), "another authority's certificate");
}

#[test]
fn a_change_is_asked_for_once() {
    let mut server = Server::start();
    let headers = bearer("actor") + &once();
    assert_eq!(server.post("/api/v1/cycle", &headers, "").status, 202);
    for path in ["/api/v1/cycle", "/api/v1/actions/cancel"] {
        let replayed = server.post(path, &headers, "");
        assert_eq!((replayed.status, replayed.code()), (409, "request_replayed".to_owned()), "{path}");
    }
    let old = "Sexton-Request-Id: 0123456789abcdef\r\nSexton-Request-Time: 2026-01-01T00:00:00Z\r\n";
    let old = server.post("/api/v1/cycle", &(bearer("actor") + old), "");
    assert_eq!((old.status, old.code()), (409, "request_out_of_time".to_owned()));
    let bare = server.post("/api/v1/cycle", &bearer("actor"), "");
    assert_eq!((bare.status, bare.code()), (400, "request_id_required".to_owned()));
    assert_eq!(server.commands.try_recv(), Ok(Command::RunCycleNow));
    assert!(server.commands.try_recv().is_err(), "nothing else has come through");
}

#[test]
fn another_host_or_origin_is_refused_whoever_asks() {
    let mut server = Server::start();
    let get = |host: &str, headers: &str| {
        let caller = bearer("owner");
        let head = format!(
            "GET /api/v1/plan HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{caller}{headers}\r\n"
        );
        let answer = server.ask(None, &head).unwrap();
        (answer.status, answer.code())
    };
    for host in [HOST, "sexton.test:9777", "127.0.0.1", "127.0.0.1:1"] {
        assert_eq!(get(host, "").0, 200, "{host}");
    }
    for host in ["evil.example", "localhost", "127.0.0.2", "sexton.test.evil.example", "", "[::1]"] {
        assert_eq!(get(host, ""), (403, "host_not_in_certificate".to_owned()), "{host}");
    }
    for origin in ["https://evil.example", "http://sexton.test", "null", "https://sexton.test:1"] {
        let cross = (403, "cross_origin".to_owned());
        assert_eq!(get(HOST, &format!("Origin: {origin}\r\n")), cross, "{origin}");
        let headers = format!("{}{}Origin: {origin}\r\n", bearer("owner"), once());
        assert_eq!(server.post("/api/v1/cycle", &headers, "").code(), cross.1, "{origin}");
    }
    assert_eq!(get(HOST, &format!("Origin: https://{HOST}\r\n")).0, 200);
    assert!(server.commands.try_recv().is_err(), "nothing of this reached the engine");
}

#[test]
fn whole_keys_are_shown_by_policy_and_scope_only() {
    let server = Server::start();
    let secret = |name: &str| server.get("/api/v1/ranges", &bearer(name)).body.contains("secret");
    assert!(!secret("reader"));
    assert!(secret("owner") && secret("looker"));
    let newer = RangeView { begin: format!("{KEY}/newer"), ..RangeView::default() };
    let newer = Snapshot { ranges: vec![newer], ..snapshot() };
    server.snapshots.send(Arc::new(newer)).unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !server.get("/api/v1/ranges", &bearer("reader")).body.contains("(26 bytes)") {
        assert!(std::time::Instant::now() < until, "the newer state is not shown");
    }
    assert!(!secret("reader"));
}

#[test]
fn an_address_that_guesses_tokens_is_put_off() {
    let server = Server::start();
    let answers: Vec<Answer> =
        (0..60).map(|number| server.get("/", &format!("Authorization: Bearer {number}\r\n"))).collect();
    assert_eq!(answers.first().unwrap().status, 401);
    let put_off = answers.iter().find(|answer| answer.status == 429).unwrap();
    assert_eq!(put_off.code(), "too_many_requests");
}

#[test]
fn certificate_and_access_file_are_read_again() {
    let server = Server::start();
    let status = |name: &str| server.get("/", &bearer(name)).status;
    assert_eq!((status("reader"), status("newcomer")), (200, 401));
    let access = server.directory.path().join("access");
    std::fs::write(&access, line("newcomer", "read")).unwrap();
    server.keyring.renew(false);
    assert_eq!((status("reader"), status("newcomer")), (401, 200));
    std::fs::write(&access, "no line\n").unwrap();
    server.keyring.renew(true);
    assert_eq!(status("newcomer"), 200, "the last good one stays");
    std::fs::write(&access, line("reader", "read")).unwrap();
    std::fs::set_permissions(&access, std::fs::Permissions::from_mode(0o644)).unwrap();
    server.keyring.renew(true);
    assert_eq!(status("newcomer"), 200, "a file that others can read is not taken");
    std::fs::set_permissions(&access, std::fs::Permissions::from_mode(0o600)).unwrap();
    server.keyring.renew(false);
    assert_eq!((status("reader"), status("newcomer")), (200, 401));

    let (certificate, key) = server.authority.issue(&[HOST]);
    write(server.directory.path(), "server.pem", &certificate);
    server.keyring.renew(true);
    assert_eq!(status("reader"), 200, "a certificate without its key is not taken");
    write(server.directory.path(), "server.key", &key);
    server.keyring.renew(false);
    assert!(!server.keyring.keys().is_for("127.0.0.1") && server.keyring.keys().is_for(HOST));
    assert_eq!(status("reader"), 200);
}

#[test]
fn what_is_no_tls_gets_nothing() {
    let server = Server::start();
    let mut stream = StdStream::connect(server.address).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let answered = String::from_utf8_lossy(&bytes);
    assert!(!answered.contains("HTTP/1.1 200"), "{answered}");
    assert_eq!(server.get("/healthz", &bearer("reader")).status, 200);
}

#[test]
fn a_keyring_that_cannot_be_used_says_why() {
    let server = Server::start();
    let at = |name: &str| server.directory.path().join(name);
    let files = KeyringFiles {
        certificate: at("server.pem"),
        key: at("server.key"),
        access: at("access"),
        client_authority: Some(at("clients.pem")),
    };
    let reason = |files: KeyringFiles| Keyring::open(files).unwrap_err();
    assert!(reason(KeyringFiles { key: at("nothing"), ..files.clone() }).contains("nothing"));
    assert!(reason(KeyringFiles { key: at("access"), ..files.clone() }).contains("no private key"));
    assert!(reason(KeyringFiles { certificate: at("access"), ..files.clone() }).contains("no certificate"));
    assert!(
        reason(KeyringFiles { certificate: at("clients.pem"), ..files.clone() }).contains("cannot be used")
    );
    assert!(reason(KeyringFiles { access: at("server.pem"), ..files.clone() }).contains("line 1"));
    assert!(reason(KeyringFiles { client_authority: None, ..files }).contains("no authority"));
}

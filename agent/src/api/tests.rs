//! Drives the real server over a loopback socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::pair::socket;
use super::*;
use crate::snapshot::{ActionView, COMMANDS_QUEUED_MAX, PlanStepView, RangeView, TargetView};
use serde_json::{Value, json};
use sexton_journal::{ActionCounts, Event, EventKind};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A running server and the engine's ends of its channels.
struct Server {
    address: SocketAddr,
    control: PathBuf,
    _directory: tempfile::TempDir,
    snapshots: Option<watch::Sender<Arc<Snapshot>>>,
    commands: Option<mpsc::Receiver<Command>>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<tokio::task::JoinHandle<()>>,
    runtime: tokio::runtime::Runtime,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Status and code of a problem, which must have message and help as well.
    fn problem(&self) -> (u16, String) {
        let json = self.json();
        for field in ["title", "detail", "help"] {
            assert!(json[field].as_str().is_some_and(|text| text.len() > 5), "{json}");
        }
        assert_eq!(json["status"], self.status);
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        (self.status, json["code"].as_str().unwrap().to_owned())
    }
}

/// A way to a listener that is no process of its own, and that gives up no right.
pub fn in_process(
    runtime: &tokio::runtime::Runtime,
) -> impl Fn() -> io::Result<Running> + Send + Sync + 'static {
    let handle = runtime.handle().clone();
    move || {
        let (ours, theirs) = socket::pair()?;
        handle.spawn(listener::listen(theirs));
        Running::new(ours, None)
    }
}

impl Server {
    fn start(snapshot: Snapshot) -> Server {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (snapshots, receiver) = watch::channel(Arc::new(snapshot));
        let (sender, commands) = mpsc::channel(COMMANDS_QUEUED_MAX);
        let (stop, stopped) = oneshot::channel::<()>();
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path().join("control.sock");
        let reading = Place::reading(address, Some(listener));
        let bound = bind_control(&control).unwrap();
        let serving = Serving { reading, control: Some((control.clone(), Some(bound))), remote: None };
        let task = runtime.spawn(serve_by(in_process(&runtime), serving, receiver, sender, async {
            let _ = stopped.await;
        }));
        let (snapshots, commands, stop, task) = (Some(snapshots), Some(commands), Some(stop), Some(task));
        Server { address, control, _directory: directory, snapshots, commands, stop, task, runtime }
    }

    /// Sends `request` as it is and reads until the server closes.
    fn send(&self, request: &str) -> Answer {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Server::ask(stream, request)
    }

    fn ask(mut stream: impl Read + Write, request: &str) -> Answer {
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Answer {
        let stream = UnixStream::connect(&self.control).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Server::ask(stream, &self.post_request(path, headers, body))
    }

    fn post_request(&self, path: &str, headers: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Length: {length}\r\n{headers}\r\n{body}",
            self.address
        )
    }

    fn received(&mut self) -> Option<Command> {
        self.commands.as_mut().unwrap().try_recv().ok()
    }
}

const JSON: &str = "Content-Type: application/json\r\n";

fn snapshot() -> Snapshot {
    let target = |name: &str| TargetView { name: name.to_owned(), ..TargetView::default() };
    let range = |at: usize| RangeView {
        target: if at.is_multiple_of(3) { "mariadbd-2" } else { "java-1" }.to_owned(),
        id: format!("r{at}"),
        begin: format!("{at:04}"),
        pain_seconds_per_second: (at % 7) as f64,
        ..RangeView::default()
    };
    let event = |id: u64| Event {
        id,
        at: "2026-11-20T10:00:00Z".to_owned(),
        kind: EventKind::PolicyLoaded { path: "policy.yaml".to_owned() },
    };
    let mut snapshot = Snapshot {
        at: "2026-11-20T10:00:00Z".to_owned(),
        targets: vec![target("java-1"), target("mariadbd-2")],
        ranges: (0..300).map(range).collect(),
        events: (11..=30).map(event).collect(),
        actions: vec![ActionView { id: 1, target: "java-1".to_owned(), ..ActionView::default() }],
        ..Snapshot::default()
    };
    snapshot.agent.cycles = 3;
    snapshot.plan.steps =
        vec![PlanStepView { action: "compact_range".to_owned(), ..PlanStepView::default() }];
    snapshot
}

#[test]
fn shows_the_published_snapshot() {
    let server = Server::start(snapshot());
    let health = server.get("/healthz");
    assert_eq!(health.status, 200);
    assert_eq!(health.json(), json!({"status": "ok", "at": "2026-11-20T10:00:00Z", "cycles": 3}));
    let targets = server.get("/api/v1/targets").json();
    assert_eq!(targets["targets"][1]["name"], "mariadbd-2");
    assert_eq!(server.get("/api/v1/plan").json()["plan"]["steps"][0]["action"], "compact_range");
    assert_eq!(server.get("/api/v1/actions").json()["actions"][0]["id"], 1);
    let metrics = server.get("/metrics");
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(metrics.body.contains("\nsexton_target_up{target=\"java-1\"} 1\n"), "{}", metrics.body);

    let mut newer = snapshot();
    newer.agent.cycles = 4;
    newer.action_counts.insert("java-1".to_owned(), ActionCounts { done: 1, ..ActionCounts::default() });
    server.snapshots.as_ref().unwrap().send(Arc::new(newer)).unwrap();
    assert_eq!(server.get("/healthz").json()["cycles"], 4);
    let counted = "sexton_actions_total{state=\"done\",target=\"java-1\"} 1";
    assert!(server.get("/metrics").body.contains(counted), "the ended action is not counted");
}

#[test]
fn ranges_come_in_pages() {
    let server = Server::start(snapshot());
    let begins = |answer: &Value| -> Vec<String> {
        let ranges = answer["ranges"].as_array().unwrap();
        ranges.iter().map(|range| range["begin"].as_str().unwrap().to_owned()).collect()
    };
    let first = server.get("/api/v1/ranges").json();
    assert_eq!((&first["total"], &first["limit"], &first["offset"]), (&json!(300), &json!(50), &json!(0)));
    assert_eq!(begins(&first).len(), 50);
    let page = server.get("/api/v1/ranges?target=mariadbd-2&limit=2&offset=98").json();
    assert_eq!(page["total"], 100);
    assert_eq!(begins(&page), ["0294", "0297"]);
    let beyond = server.get("/api/v1/ranges?offset=18446744073709551615").json();
    assert_eq!(begins(&beyond).len(), 0);
    assert_eq!(begins(&server.get("/api/v1/ranges?limit=200").json()).len(), 200);
    for query in ["limit=0", "limit=201", "limit=-1", "limit=many", "offset=1e9", "page=2", "limit=1&limit=2"]
    {
        let answer = server.get(&format!("/api/v1/ranges?{query}"));
        assert_eq!(answer.problem(), (400, "bad_query".to_owned()), "{query}");
    }
    assert_eq!(server.get("/api/v1/ranges?target=java-9").problem(), (404, "unknown_target".to_owned()));
}

#[test]
fn an_agent_whose_cycles_do_not_end_is_not_healthy() {
    let server = Server::start(snapshot());
    let due = |at| {
        let late = Snapshot { cycle_due: at, ..snapshot() };
        server.snapshots.as_ref().unwrap().send(Arc::new(late)).unwrap();
        server.get("/healthz")
    };
    assert_eq!(due(Some(Instant::now() + Duration::from_secs(600))).status, 200);
    let past = Instant::now().checked_sub(Duration::from_secs(1));
    assert_eq!(due(past).problem(), (503, "cycle_late".to_owned()));
    assert_eq!(server.get("/api/v1/targets").status, 200, "what is known is still shown");
    assert_eq!(due(None).status, 200, "the first cycle has its time");
}

#[test]
fn commands_go_to_the_engine() {
    let mut server = Server::start(snapshot());
    let answer = server.post("/api/v1/cycle", JSON, "");
    assert_eq!((answer.status, answer.json()), (202, json!({"command": "run_cycle_now"})));
    assert_eq!(server.received(), Some(Command::RunCycleNow));
    let answer =
        server.post("/api/v1/actions/cancel", "Content-Type: Application/JSON; charset=utf-8\r\n", "{}");
    assert_eq!((answer.status, answer.json()), (202, json!({"command": "cancel_action"})));
    assert_eq!(server.received(), Some(Command::CancelAction));

    for _ in 0..COMMANDS_QUEUED_MAX {
        assert_eq!(server.post("/api/v1/cycle", JSON, "").status, 202);
    }
    assert_eq!(server.post("/api/v1/cycle", JSON, "").problem(), (429, "engine_busy".to_owned()));
    server.commands = None;
    assert_eq!(server.post("/api/v1/cycle", JSON, "").problem(), (503, "engine_stopped".to_owned()));
    assert_eq!(server.get("/healthz").status, 200, "the engine still publishes");
    server.snapshots = None;
    assert_eq!(server.get("/healthz").problem(), (503, "engine_stopped".to_owned()));
    assert_eq!(server.get("/api/v1/targets").status, 200, "the last state is still shown");
}

#[test]
fn what_a_web_page_could_send_is_refused() {
    let mut server = Server::start(snapshot());
    for host in ["evil.example", "localhost.evil.example:80", "10.0.0.1", ""] {
        let answer =
            server.send(&format!("GET /api/v1/plan HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert_eq!(answer.problem(), (403, "host_not_loopback".to_owned()), "{host:?}");
        assert!(!answer.body.contains("compact_range"));
    }
    let requests = [
        ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost", 403),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", 403),
        ("GET /metrics HTTP/1.0", 403),
        ("GET /metrics HTTP/1.1\r\nHost: [::1]:9105", 200),
    ];
    for (request, status) in requests {
        let answer = server.send(&format!("{request}\r\nConnection: close\r\n\r\n"));
        assert_eq!(answer.status, status, "{request:?}");
    }
    let origin = format!("Origin: http://{}\r\n", server.address);
    let refused = [
        (String::new(), 415, "json_content_type_required"),
        ("Content-Type: text/plain\r\n".to_owned(), 415, "json_content_type_required"),
        ("Content-Type: application/jsonp\r\n".to_owned(), 415, "json_content_type_required"),
        (format!("{JSON}Origin: http://evil.example\r\n"), 403, "cross_origin"),
        (format!("{JSON}Origin: null\r\n"), 403, "cross_origin"),
        (format!("{JSON}Origin: http://127.0.0.1:1\r\n"), 403, "cross_origin"),
        (format!("{JSON}{origin}Sec-Fetch-Site: cross-site\r\n"), 403, "cross_origin"),
        (format!("{JSON}Sec-Fetch-Site: same-site\r\n"), 403, "cross_origin"),
    ];
    for (headers, status, code) in refused {
        let answer = server.post("/api/v1/cycle", &headers, "");
        assert_eq!(answer.problem(), (status, code.to_owned()), "{headers:?}");
    }
    assert_eq!(server.received(), None, "nothing of this reached the engine");
    let own = server.post("/api/v1/cycle", &format!("{JSON}{origin}Sec-Fetch-Site: same-origin\r\n"), "");
    assert_eq!(own.status, 202);
    let preflight = server.send(&format!(
        "OPTIONS /api/v1/cycle HTTP/1.1\r\nHost: {}\r\nOrigin: http://evil.example\r\n\
         Connection: close\r\n\r\n",
        server.address
    ));
    assert_eq!(preflight.status, 403);
    assert!(!preflight.head.contains("access-control-allow"), "{}", preflight.head);
    let reading = format!("GET /api/v1/plan HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", server.address);
    assert_eq!(server.send(&format!("{reading}{origin}\r\n")).status, 200);
    let foreign = server.send(&format!("{reading}Origin: http://evil.example\r\n\r\n"));
    assert_eq!(foreign.problem(), (403, "cross_origin".to_owned()));
    for mark in [
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(server.get("/nothing").head.contains(mark), "{mark}");
    }
}

#[test]
fn the_dashboard_is_served_and_may_load_nothing_from_elsewhere() {
    let server = Server::start(snapshot());
    let page = server.get("/");
    assert!(page.status == 200 && page.head.contains("content-security-policy: default-src 'none'"));
    assert!(page.body.contains("/app.js") && page.body.contains("/app.css"));
    for (path, media_type) in [("/app.js", "text/javascript"), ("/app.css", "text/css")] {
        let file = server.get(path);
        assert!(file.status == 200 && file.head.contains(media_type) && !file.body.is_empty(), "{path}");
    }
    let others = server.send("GET / HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n");
    assert_eq!(others.problem(), (403, "host_not_loopback".to_owned()));
}

#[test]
fn bad_requests_get_a_clear_answer() {
    let mut server = Server::start(snapshot());
    for path in ["/index.html", "/api/v2/plan", "/api/v1/ranges/", "/metrics/../plan", "/%00"] {
        assert_eq!(server.get(path).problem(), (404, "unknown_path".to_owned()), "{path}");
    }
    assert_eq!(server.get("/api/v1/cycle").problem(), (405, "method_not_allowed".to_owned()));
    assert_eq!(server.post("/api/v1/plan", JSON, "").problem(), (405, "method_not_allowed".to_owned()));
    let answer = server.post("/api/v1/cycle", JSON, r#"{"target": "java-1"}"#);
    assert_eq!(answer.problem(), (400, "bad_body".to_owned()));
    assert_eq!(server.post("/api/v1/cycle", JSON, &" ".repeat(1025)).problem(), (413, "bad_body".to_owned()));
    let long = server.send(&format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(20_000)));
    assert_eq!(long.status / 100, 4);
    assert_eq!(server.send("nonsense\r\n\r\n").status, 400);
    assert_eq!(server.received(), None);
    assert_eq!(server.get("/healthz").status, 200, "the server is still there");
}

#[test]
fn events_come_in_pages_and_none_twice() {
    let server = Server::start(snapshot());
    let page = |query: &str| {
        let json = server.get(&format!("/api/v1/events{query}")).json();
        let ids: Vec<u64> =
            json["events"].as_array().unwrap().iter().map(|event| event["id"].as_u64().unwrap()).collect();
        assert_eq!(json["oldest_id"], 11);
        ids
    };
    assert_eq!(page(""), (11..=30).collect::<Vec<_>>());
    assert_eq!(page("?since=14&limit=3"), [15, 16, 17]);
    assert_eq!(page("?since=17&limit=256"), (18..=30).collect::<Vec<_>>());
    assert!(page("?since=30").is_empty() && page("?since=18446744073709551615").is_empty());
    let event = &server.get("/api/v1/events").json()["events"][0];
    assert_eq!((&event["event"], &event["path"]), (&json!("policy_loaded"), &json!("policy.yaml")));
    for query in ["?limit=0", "?limit=257", "?since=-1", "?until=3"] {
        let problem = server.get(&format!("/api/v1/events{query}")).problem();
        assert_eq!(problem, (400, "bad_query".to_owned()), "{query}");
    }
}

#[test]
fn only_loopback_addresses_are_listened_on() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9105", "[::ffff:192.0.2.1]:9105"] {
        let error = bind(address.parse().unwrap()).unwrap_err();
        assert!(matches!(error, ApiError::NotLoopback { .. }), "{error}");
        assert!(error.to_string().contains(address), "{error}");
    }
    let taken = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = bind(taken.local_addr().unwrap()).unwrap_err();
    assert!(matches!(error, ApiError::PortInUse { .. }), "{error}");
    assert!(!error.to_string().contains('\n'));

    let open = TcpListener::bind("0.0.0.0:0").unwrap();
    let handed_over = Place::handed_over(open).map(|place| place.door);
    assert!(matches!(handed_over, Err(ApiError::NotLoopback { .. })), "one handed over is checked as well");
}

#[test]
fn what_changes_something_is_not_asked_for_by_tcp() {
    let mut server = Server::start(snapshot());
    for path in ["/api/v1/cycle", "/api/v1/actions/cancel", "/api/v1/actions/1/cancel"] {
        let answer = server.send(&server.post_request(path, JSON, ""));
        assert_eq!(answer.problem(), (403, "control_socket_required".to_owned()), "{path}");
        assert_eq!(server.received(), None);
        assert_eq!(server.post(path, JSON, "").status, 202, "{path}");
        assert!(server.received().is_some());
    }
}

#[test]
fn one_action_is_cancelled_as_long_as_it_runs() {
    let mut snapshot = snapshot();
    let ended = Some("2026-11-20T10:00:00Z".to_owned());
    snapshot.actions.push(ActionView { id: 2, ended_at: ended, ..ActionView::default() });
    let mut server = Server::start(snapshot);
    let cancel = |server: &Server, id: &str| server.post(&format!("/api/v1/actions/{id}/cancel"), JSON, "");
    let answer = cancel(&server, "1");
    assert_eq!((answer.status, answer.json()), (202, json!({"command": "cancel_one_action", "id": 1})));
    assert_eq!(server.received(), Some(Command::CancelOneAction { id: 1 }));
    assert_eq!(cancel(&server, "2").problem(), (409, "action_ended".to_owned()));
    for id in ["3", "-1", "one"] {
        assert_eq!(cancel(&server, id).problem(), (404, "unknown_action".to_owned()), "{id}");
    }
    assert_eq!(server.received(), None);
}

#[test]
fn who_holds_all_connections_keeps_nobody_out() {
    let server = Server::start(snapshot());
    let mut held: Vec<_> =
        (0..2 * listener::CONNECTIONS_MAX).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for stream in &mut held {
        // An oldest one may be closed already.
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\n");
    }
    assert_eq!(server.get("/healthz").status, 200);
    let mut first = held.remove(0);
    first.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)), "the oldest was closed");
}

#[test]
fn shutdown_ends_idle_connections_and_frees_the_port() {
    let mut server = Server::start(snapshot());
    let mut kept = TcpStream::connect(server.address).unwrap();
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = [0; 12];
    kept.read_exact(&mut text).unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    let task = server.task.take().unwrap();
    let ended = server.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), task).await });
    ended.expect("ends without waiting for idle connections").unwrap();
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn ranges_are_filtered_and_sorted_and_followed_page_by_page() {
    let server = Server::start(snapshot());
    let page = |query: &str| server.get(&format!("/api/v1/ranges?{query}")).json();
    let ids = |page: &Value| -> Vec<String> {
        let ranges = page["ranges"].as_array().unwrap();
        ranges.iter().map(|range| range["id"].as_str().unwrap().to_owned()).collect()
    };
    let hurting = page("pain_min=6&limit=200");
    assert_eq!(hurting["total"], (0..300).filter(|at| at % 7 == 6).count());
    let by_pain = page("sort=pain&limit=3");
    assert_eq!(ids(&by_pain), ["r6", "r13", "r20"], "equal ones stay in the order of their rank");
    assert_eq!(page("column_family=other")["total"], 0);
    for query in ["sort=worst", "pain_min=much", "after=r1&after=r2"] {
        let answer = server.get(&format!("/api/v1/ranges?{query}"));
        assert_eq!(answer.problem(), (400, "bad_query".to_owned()), "{query}");
    }

    let mut seen = Vec::new();
    let mut query = "target=java-1&limit=70".to_owned();
    loop {
        let page = page(&query);
        seen.extend(ids(&page));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("target=java-1&limit=70&after={next}");
    }
    let all: Vec<String> = (0..300).filter(|at| at % 3 != 0).map(|at| format!("r{at}")).collect();
    assert_eq!(seen, all);
    assert_eq!(server.get("/api/v1/ranges?after=r301").problem(), (404, "unknown_range".to_owned()));
}

#[test]
fn one_of_many_is_found_or_named_as_missing() {
    let server = Server::start(snapshot());
    assert_eq!(server.get("/api/v1/targets/mariadbd-2").json()["target"]["name"], "mariadbd-2");
    assert_eq!(server.get("/api/v1/actions/1").json()["action"]["target"], "java-1");
    let range = server.get("/api/v1/ranges/r5").json();
    assert_eq!((&range["range"]["begin"], &range["range"]["target"]), (&json!("0005"), &json!("java-1")));
    let missing = [
        ("/api/v1/targets/java-9", "unknown_target"),
        ("/api/v1/targets/%ff", "unknown_target"),
        ("/api/v1/ranges/r300", "unknown_range"),
        ("/api/v1/ranges/%ff", "unknown_range"),
        ("/api/v1/actions/2", "unknown_action"),
        ("/api/v1/actions/-1", "unknown_action"),
        ("/api/v1/actions/99999999999999999999", "unknown_action"),
    ];
    for (path, code) in missing {
        assert_eq!(server.get(path).problem(), (404, code.to_owned()), "{path}");
    }
    let of = |query: &str| {
        server.get(&format!("/api/v1/actions?{query}")).json()["actions"].as_array().unwrap().len()
    };
    assert_eq!((of("target=java-1"), of("target=mariadbd-2"), of("state=done")), (1, 0, 0));
}

#[test]
fn databases_and_column_families_add_up_their_ranges() {
    let mut snapshot = snapshot();
    snapshot.targets[0].databases = vec!["/db/a".to_owned(), "/db/idle".to_owned()];
    snapshot.ranges.truncate(30);
    for (at, range) in snapshot.ranges.iter_mut().enumerate() {
        range.database = "/db/a".to_owned();
        range.column_family = ["keyTable", "fileTable"][at % 2].to_owned();
    }
    let pain: f64 = snapshot.ranges.iter().map(|range| range.pain_seconds_per_second).sum();
    let server = Server::start(snapshot);
    let sum = |path: &str, list: &str| -> (f64, u64, usize) {
        let answer = server.get(path).json();
        let list = answer[list].as_array().unwrap();
        let pains: Vec<f64> =
            list.iter().map(|one| one["pain_seconds_per_second"].as_f64().unwrap()).collect();
        assert!(pains.is_sorted_by(|one, two| one >= two), "{pains:?}");
        (pains.iter().sum(), list.iter().map(|one| one["ranges"].as_u64().unwrap()).sum(), list.len())
    };
    assert_eq!(sum("/api/v1/databases", "databases"), (pain, 30, 3));
    assert_eq!(sum("/api/v1/column_families", "column_families"), (pain, 30, 4));
}

#[test]
fn a_policy_is_checked_and_its_mistake_is_an_answer() {
    let mut server = Server::start(snapshot());
    let check =
        |policy: &str| server.post("/api/v1/policy/check", JSON, &json!({"policy": policy}).to_string());
    let good = check("mode: advise\n");
    assert_eq!((good.status, good.json()["is_valid"].as_bool()), (200, Some(true)));
    let everybody = "mode: act\ntargets: [{ name: a, match: { executable: x } }]\n";
    assert_eq!(check(everybody).json()["warnings"].as_array().unwrap().len(), 1);
    let bad = check("mode: advise\nloop: { intervall: 1s }\n").json();
    assert_eq!((&bad["is_valid"], &bad["error"]["line"]), (&json!(false), &json!(2)), "{bad}");
    assert!(bad["error"]["help"].as_str().unwrap().contains("interval"), "{bad}");
    let long = "#".repeat(sexton_tuner::policy::POLICY_BYTES_MAX + 1);
    assert_eq!(check(&long).problem(), (400, "bad_body".to_owned()));
    for body in ["", "{}", "[]", r#"{"policy": 1}"#, r#"{"policy": "", "path": "/etc/shadow"}"#] {
        let answer = server.post("/api/v1/policy/check", JSON, body);
        assert_eq!(answer.problem(), (400, "bad_body".to_owned()), "{body}");
    }
    assert_eq!(server.received(), None, "nothing comes into force");
}

#[test]
fn who_has_an_answer_already_gets_no_body() {
    let server = Server::start(snapshot());
    let first = server.get("/api/v1/plan");
    let tag = first.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let again = |tag: &str| {
        server.send(&format!(
            "GET /api/v1/plan HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIf-None-Match: {tag}\r\n\r\n"
        ))
    };
    let unchanged = again(&tag);
    assert_eq!((unchanged.status, unchanged.body.as_str()), (304, ""));
    assert!(unchanged.head.contains(&tag) && unchanged.head.contains("nosniff"), "{}", unchanged.head);
    assert_eq!(again("\"other\"").body, first.body);
    let mut newer = snapshot();
    newer.plan.steps.clear();
    server.snapshots.as_ref().unwrap().send(Arc::new(newer)).unwrap();
    assert_eq!(again(&tag).status, 200, "the plan is another one");
    let missing = server.get("/api/v1/actions/7");
    assert!(!missing.head.contains("etag"), "a problem is not kept: {}", missing.head);
}

#[test]
fn events_are_followed_as_they_are_told() {
    let server = Server::start(snapshot());
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = "GET /api/v1/events/stream HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 28\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    let mut until = |end: &str| {
        let mut byte = [0];
        while !text.contains(end) {
            stream.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        text.clone()
    };
    let told = until("id: 30");
    assert!(told.to_lowercase().contains("content-type: text/event-stream"), "{told}");
    assert!(told.contains("id: 29") && !told.contains("id: 28"), "{told}");
    let mut newer = snapshot();
    newer.events.push(Event { id: 31, ..newer.events[0].clone() });
    server.snapshots.as_ref().unwrap().send(Arc::new(newer)).unwrap();
    let told = until("id: 31");
    assert_eq!(told.matches("id: 30").count(), 1, "{told}");
    assert_eq!(server.get("/api/v1/events/stream?until=3").problem(), (400, "bad_query".to_owned()));
}

#[test]
fn every_path_of_the_document_is_served_and_commands_only_on_the_socket() {
    let mut server = Server::start(snapshot());
    let document = server.get("/api/v1/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    for (path, methods) in paths {
        let path = &path.replace("{id}", "1");
        if methods.get("post").is_some() {
            let request = server.post_request(path, JSON, "");
            assert_eq!(
                server.send(&request).problem(),
                (403, "control_socket_required".to_owned()),
                "{path}"
            );
            let (body, status) = match path.ends_with("/check") {
                true => (r#"{"policy": "mode: observe"}"#, 200),
                false => ("", 202),
            };
            assert_eq!(server.post(path, JSON, body).status, status, "{path}");
            assert_eq!(server.received().is_some(), status == 202, "{path}");
        } else if path != "/api/v1/events/stream" {
            let path = path.replace("{name}", "java-1");
            let status = server.get(&path).status;
            assert!(status == 200 || path == "/api/v1/ranges/1", "{path}: {status}");
        }
    }
    assert!(paths.len() > 15, "{}", paths.len());
}

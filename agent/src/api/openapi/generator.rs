//! Makes the document.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use crate::api::answers::{
    Action, Actions, Advices, Build, ColumnFamilies, Databases, Doctor, Events, Health, Plan, Policy,
    PolicyCheck, RangeInDepth, Ranges, Schedule, Settings, Target, Targets, Throttles,
};
use crate::api::event_stream::StreamQuery;
use crate::api::history::{HeatmapQuery, HistoryQuery};
use crate::api::policy_check::PolicyText;
use crate::api::problem::{self, ProblemBody};
use crate::api::ranges::RangesQuery;
use crate::api::reading::{ActionsQuery, AdviceQuery, EventsQuery};
use crate::history::{FamiliesView, HeatmapView};
use crate::snapshot::Command;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Map, Value, json};
use std::path::Path;

/// One path with one method.
struct Operation {
    path: &'static str,
    /// Stable name, for programs that are made from the document.
    id: &'static str,
    summary: &'static str,
    parameters: Value,
    /// Schema and media type of what is answered when all is well.
    answer: Value,
    /// Statuses of problems that are its own; those of any request are added.
    problems: &'static [u16],
}

/// What any request may meet: nobody knows who asks, a foreign `Host` or a scope that is missing, a slow
/// client, one that asks too often, an agent that ends.
const PROBLEMS_OF_ALL: [u16; 6] = [401, 403, 408, 429, 500, 503];
const JSON: &str = "application/json";

/// Makes schemas; what they name is collected.
struct Schemas(SchemaGenerator);

impl Schemas {
    fn new() -> Schemas {
        let settings = SchemaSettings::draft2020_12().for_serialize();
        Schemas(
            settings
                .with(|settings| settings.definitions_path = "/components/schemas".into())
                .into_generator(),
        )
    }

    fn json<T: JsonSchema>(&mut self) -> Value {
        json!({JSON: {"schema": self.0.subschema_for::<T>()}})
    }

    fn get<T: JsonSchema>(
        &mut self,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Operation {
        Operation { path, id, summary, parameters: json!([]), answer: self.json::<T>(), problems: &[] }
    }

    /// The fields of a query as parameters.
    fn parameters<T: JsonSchema>(&mut self) -> Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
        let fields = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let parameters = fields.into_iter().map(|(name, mut schema)| {
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            // A parameter that is not given is left out, not null.
            if let Some(kinds) = schema.get("type").and_then(Value::as_array) {
                let kind = kinds.iter().find(|kind| *kind != "null").cloned();
                schema["type"] = kind.unwrap_or_default();
            }
            json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
        });
        parameters.collect()
    }
}

fn path_parameter(name: &str, description: &str, schema: &Schema) -> Value {
    json!([{"name": name, "in": "path", "required": true, "description": description, "schema": schema}])
}

fn reading(schemas: &mut Schemas) -> Vec<Operation> {
    let text = json_schema!({"type": "string"});
    let metrics = json!({"text/plain": {"schema": text}});
    let messages = json!({"text/event-stream": {"schema": text}});
    let document = json!({JSON: {"schema": json_schema!({"type": "object"})}});
    vec![
        schemas.get::<Health>("/healthz", "health", "Whether the engine lives."),
        Operation {
            answer: metrics,
            ..schemas.get::<String>("/metrics", "metrics", "Metrics for Prometheus.")
        },
        schemas.get::<Build>("/api/v1/build", "build", "The running program."),
        Operation {
            answer: document,
            ..schemas.get::<String>("/api/v1/openapi.json", "openapi", "This document.")
        },
        schemas.get::<Targets>("/api/v1/targets", "targets", "All targets."),
        Operation {
            parameters: path_parameter("name", "Name of the target.", &text),
            problems: &[400, 404],
            ..schemas.get::<Target>("/api/v1/targets/{name}", "target", "One target.")
        },
        schemas.get::<Databases>("/api/v1/databases", "databases", "The databases of all targets."),
        schemas.get::<ColumnFamilies>(
            "/api/v1/column_families",
            "column_families",
            "The column families in which readers lose time.",
        ),
        Operation {
            parameters: schemas.parameters::<RangesQuery>(),
            problems: &[400, 404],
            ..schemas.get::<Ranges>("/api/v1/ranges", "ranges", "Key ranges in which readers lose time.")
        },
        Operation {
            parameters: path_parameter("id", "Id of the range, as in /api/v1/ranges.", &text),
            problems: &[400, 404],
            ..schemas.get::<RangeInDepth>("/api/v1/ranges/{id}", "range", "One range in depth.")
        },
        schemas.get::<Plan>("/api/v1/plan", "plan", "What is to be done, and what is left alone and why."),
        Operation {
            parameters: schemas.parameters::<AdviceQuery>(),
            problems: &[400, 404],
            ..schemas.get::<Advices>(
                "/api/v1/advice",
                "advice",
                "What column families are used for, and which compaction suits that.",
            )
        },
        Operation {
            parameters: schemas.parameters::<ActionsQuery>(),
            problems: &[400, 404],
            ..schemas.get::<Actions>("/api/v1/actions", "actions", "What was done.")
        },
        Operation {
            parameters: path_parameter("id", "Id of the action.", &action_id()),
            problems: &[400, 404],
            ..schemas.get::<Action>("/api/v1/actions/{id}", "action", "One action.")
        },
        Operation {
            parameters: schemas.parameters::<HeatmapQuery>(),
            problems: &[400],
            ..schemas.get::<HeatmapView>("/api/v1/heatmap", "heatmap", "Pain and actions by keys and time.")
        },
        Operation {
            parameters: schemas.parameters::<HistoryQuery>(),
            problems: &[400],
            ..schemas.get::<FamiliesView>("/api/v1/history", "history", "Sums of column families over time.")
        },
        schemas.get::<Throttles>(
            "/api/v1/throttles",
            "throttles",
            "Throttles: which values they should have and have, and what pressure has to do with it.",
        ),
        schemas.get::<Settings>(
            "/api/v1/settings",
            "settings",
            "What is changed in targets, to be restored.",
        ),
        schemas.get::<Schedule>("/api/v1/schedule", "schedule", "What the policy's clock says now."),
        schemas.get::<Policy>("/api/v1/policy", "policy", "Whether the policy's file is in force."),
        schemas.get::<Doctor>("/api/v1/doctor", "doctor", "What is missing, why, and what to do."),
        Operation {
            parameters: schemas.parameters::<EventsQuery>(),
            problems: &[400],
            ..schemas.get::<Events>("/api/v1/events", "events", "What happened, in pages.")
        },
        Operation {
            answer: messages,
            parameters: schemas.parameters::<StreamQuery>(),
            problems: &[400],
            ..schemas.get::<String>("/api/v1/events/stream", "events_stream", "What happens, as it happens.")
        },
    ]
}

fn action_id() -> Schema {
    json_schema!({"type": "integer", "minimum": 0, "maximum": u64::MAX})
}

/// What a request for a change carries over TLS; on the unix socket it is not looked at.
fn request_parameters() -> Vec<Value> {
    let id = json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{16,64}$"});
    let time = json!({"type": "string", "format": "date-time"});
    [
        ("Sexton-Request-Id", "Over TLS, where it is required: tells the request from all others.", id),
        ("Sexton-Request-Time", "Over TLS, where it is required: when it was made, a minute ago at most.", time),
    ]
    .map(|(name, description, schema)| {
        json!({"name": name, "in": "header", "required": false, "description": description, "schema": schema})
    })
    .into()
}

fn answers(schemas: &mut Schemas, status: &str, answer: Value, problems: &[u16]) -> Value {
    let problem = schemas.0.subschema_for::<ProblemBody>();
    let mut answers = Map::new();
    answers.insert(status.to_owned(), json!({"description": "As asked.", "content": answer}));
    for status in problems.iter().chain(&PROBLEMS_OF_ALL) {
        let content = json!({problem::MEDIA_TYPE: {"schema": problem}});
        answers.insert(status.to_string(), json!({"description": "A problem.", "content": content}));
    }
    Value::from(answers)
}

/// What asks the engine to do something: on the unix socket only.
fn asking(schemas: &mut Schemas) -> [(&'static str, Value); 4] {
    let command = schemas.json::<Command>();
    let one = "/api/v1/actions/{id}/cancel";
    [
        ("/api/v1/cycle", "run_cycle", "Run the next cycle now."),
        ("/api/v1/actions/cancel", "cancel_action", "Cancel the running actions and plan anew."),
        (one, "cancel_one_action", "Cancel one action."),
        ("/api/v1/policy/reload", "reload_policy", "Read the policy's file again."),
    ]
    .map(|(path, id, summary)| {
        let problems: &[u16] = if path == one { &[400, 404, 409, 413, 415] } else { &[400, 409, 413, 415] };
        let mut responses = answers(schemas, "202", command.clone(), problems);
        responses["202"]["description"] = json!("Taken on; the next states show what came of it.");
        let body =
            json!({"required": false, "content": {JSON: {"schema": {"type": "object", "maxProperties": 0}}}});
        let mut parameters = request_parameters();
        if path == one {
            parameters
                .extend(path_parameter("id", "Id of the action.", &action_id()).as_array().cloned().unwrap());
        }
        let operation = json!({
            "operationId": id, "summary": summary, "tags": ["control"], "parameters": parameters,
            "requestBody": body, "responses": responses,
        });
        (path, json!({"post": operation}))
    })
}

/// What is asked with a text, on the unix socket only too: whoever sends one has it parsed by the agent.
fn checking(schemas: &mut Schemas) -> Value {
    let answer = schemas.json::<PolicyCheck>();
    let responses = answers(schemas, "200", answer, &[400, 409, 413, 415]);
    let body = json!({"required": true, "content": schemas.json::<PolicyText>()});
    json!({"post": {
        "operationId": "check_policy", "summary": "Whether a text is a policy.", "tags": ["control"],
        "parameters": request_parameters(), "requestBody": body, "responses": responses,
    }})
}

/// How callers over TLS are told from each other; elsewhere nobody is asked.
fn security_schemes() -> Value {
    json!({
        "token": {"type": "http", "scheme": "bearer", "description": "A token of the access file."},
        "name_and_token": {"type": "http", "scheme": "basic", "description": "The same, as browsers send it."},
        "certificate": {"type": "mutualTLS", "description": "A client certificate that the access file names."},
    })
}

/// The whole document.
fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for Operation { path, id, summary, parameters, answer, problems } in reading(&mut schemas) {
        let mut responses = answers(&mut schemas, "200", answer, problems);
        responses["304"] = json!({"description": "The client has it already (If-None-Match)."});
        let operation = json!({
            "operationId": id, "summary": summary, "tags": ["reading"], "parameters": parameters,
            "responses": responses,
        });
        paths.insert(path.to_owned(), json!({"get": operation}));
    }
    paths.extend(asking(&mut schemas).map(|(path, item)| (path.to_owned(), item)));
    paths.insert("/api/v1/policy/check".to_owned(), checking(&mut schemas));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sexton",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the agent on a node knows. Reading is served on the loopback interface; what changes \
                            something is taken on the unix socket. Over TLS callers have scopes: read, act, keys. Keys \
                            are redacted unless the policy shows them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://localhost:9776"}],
        "tags": [
            {"name": "reading", "description": "What changes nothing."},
            {"name": "control", "description": "What asks the engine to do something: on the unix socket, or over TLS."},
        ],
        "paths": paths,
        "components": {"schemas": schemas.0.take_definitions(true), "securitySchemes": security_schemes()},
        "security": [{}, {"token": []}, {"name_and_token": []}, {"certificate": []}],
    })
}

/// `agent/openapi.json` says what the types say; `BLESS=1` writes it anew.
#[test]
fn the_document_is_up_to_date() {
    let document = format!("{:#}\n", document());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    // Not both of them: each has thousands of lines.
    assert!(committed == document, "run this test with BLESS=1 and commit {}", path.display());
}

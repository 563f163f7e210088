//! Whether a text is a policy: the same check as `sexton policy check`, for programs. Nothing comes into
//! force.

use super::answers::{PolicyCheck, PolicyMistake};
use super::problem::Problem;
use crate::policy_file;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use sexton_tuner::policy::{POLICY_BYTES_MAX, Policy};

/// A policy as a text in JSON: escapes make it longer, the longest (`\\u000a`) by six.
pub const BODY_BYTES_MAX: usize = 6 * POLICY_BYTES_MAX + 1024;

/// What is to be checked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyText {
    /// The policy as it would stand in its file, YAML.
    policy: String,
}

/// `/api/v1/policy/check`. A text that is no policy is an answer, not an error.
pub async fn check(body: Result<Bytes, BytesRejection>) -> Result<Json<PolicyCheck>, Problem> {
    let help = "send {\"policy\": TEXT}, at most as long as a policy's file may be";
    let body =
        body.map_err(|rejection| Problem::new(rejection.status(), "bad_body", rejection.body_text(), help))?;
    let bad_body = |message| Problem::new(StatusCode::BAD_REQUEST, "bad_body", message, help);
    let PolicyText { policy } = serde_json::from_slice(&body).map_err(|error| bad_body(error.to_string()))?;
    if policy.len() > POLICY_BYTES_MAX {
        return Err(bad_body(format!("the policy has {} bytes, at most {POLICY_BYTES_MAX}", policy.len())));
    }
    Ok(Json(match Policy::parse(&policy) {
        Ok(policy) => {
            PolicyCheck { is_valid: true, warnings: policy_file::warnings(&policy), ..PolicyCheck::default() }
        }
        Err(error) => {
            let (line, column) = (error.line, error.column);
            let mistake = PolicyMistake { message: error.message, help: error.help, line, column };
            PolicyCheck { error: Some(mistake), ..PolicyCheck::default() }
        }
    }))
}

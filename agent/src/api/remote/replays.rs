//! A request that changes something is taken once: it carries an id and a time, and neither an id that was
//! there before nor a time of long ago is taken. What a proxy sends again, or somebody has recorded, does
//! nothing.

use crate::api::problem::Problem;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Tells a request from all others of the same caller.
pub const ID_HEADER: HeaderName = HeaderName::from_static("sexton-request-id");
/// When it was made, RFC 3339.
pub const TIME_HEADER: HeaderName = HeaderName::from_static("sexton-request-time");

/// By so much the clocks of caller and agent may differ, the way included.
const AGE_MAX: SignedDuration = SignedDuration::from_secs(60);
/// Ids of one caller that are remembered while their requests could come again: nobody asks for ten changes a
/// second.
const IDS_MAX: usize = 1_024;
/// Long enough that nobody guesses one that is to come.
const ID_BYTES_MIN: usize = 16;
const ID_BYTES_MAX: usize = 64;

const HELP: &str = "send Sexton-Request-Id (16 to 64 letters, digits, - and _; another one each time) and \
                    Sexton-Request-Time (now, such as 2026-11-20T10:00:00Z)";

/// The ids that were taken, by caller.
#[derive(Debug)]
pub struct Replays {
    /// What was asked for before cannot be known.
    since: Timestamp,
    taken: Mutex<HashMap<Arc<str>, HashMap<String, Timestamp>>>,
}

impl Replays {
    pub fn since(since: Timestamp) -> Replays {
        Replays { since, taken: Mutex::default() }
    }

    /// Takes the request's id, for good. Errors: it has none, or was made too long ago, or was here before.
    pub fn take(&self, caller: &Arc<str>, headers: &HeaderMap, now: Timestamp) -> Result<(), Problem> {
        let missing = |what: &str| Problem::new(StatusCode::BAD_REQUEST, "request_id_required", what, HELP);
        let id = single(headers, &ID_HEADER).filter(|id| is_id(id));
        let id = id.ok_or_else(|| missing("the request has no id, or one that is none"))?;
        let at = single(headers, &TIME_HEADER).and_then(|text| text.parse::<Timestamp>().ok());
        let at = at.ok_or_else(|| missing("the request does not say when it was made"))?;
        let refused = |code, what: String| Problem::new(StatusCode::CONFLICT, code, what, HELP);
        if now.duration_since(at).abs() > AGE_MAX {
            let what = format!("the request was made at {at}, and now it is {now}");
            return Err(refused("request_out_of_time", what));
        }
        if at < self.since {
            let what = format!("the request was made before the agent was started at {}", self.since);
            return Err(refused("request_out_of_time", what));
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = taken.entry(Arc::clone(caller)).or_default();
        ids.retain(|_, at| now.duration_since(*at) <= AGE_MAX);
        if ids.contains_key(id) {
            return Err(refused("request_replayed", "a request with this id was taken already".to_owned()));
        }
        if ids.len() >= IDS_MAX {
            let what = format!("{IDS_MAX} changes were asked for within {} s", AGE_MAX.as_secs());
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_requests",
                what,
                "wait a minute",
            ));
        }
        ids.insert(id.to_owned(), at);
        Ok(())
    }
}

/// The header's value where there is exactly one.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn is_id(id: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (ID_BYTES_MIN..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const NOW: &str = "2026-11-20T10:00:00Z";
    const ID: &str = "0123456789abcdef";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn started() -> Replays {
        Replays::since("2026-11-20T09:59:30Z".parse().unwrap())
    }

    fn code(replays: &Replays, caller: &str, id: &str, time: &str, now: Timestamp) -> &'static str {
        let mut headers = HeaderMap::new();
        headers.insert(ID_HEADER, id.parse().unwrap());
        headers.insert(TIME_HEADER, time.parse().unwrap());
        replays.take(&Arc::from(caller), &headers, now).map_or_else(|problem| problem.code, |()| "taken")
    }

    #[test]
    fn an_id_is_taken_once_from_each_caller() {
        let replays = started();
        assert_eq!(code(&replays, "a", ID, NOW, now()), "taken");
        assert_eq!(code(&replays, "a", ID, NOW, now()), "request_replayed");
        assert_eq!(code(&replays, "a", ID, "2026-11-20T10:00:09Z", now()), "request_replayed");
        assert_eq!(code(&replays, "b", ID, NOW, now()), "taken");
        let late = now() + SignedDuration::from_secs(60);
        assert_eq!(code(&replays, "a", ID, NOW, late), "request_replayed", "it could still be taken");
        let later = now() + SignedDuration::from_secs(61);
        assert_eq!(code(&replays, "a", ID, NOW, later), "request_out_of_time");
    }

    #[test]
    fn a_request_without_id_or_of_another_time_is_refused() {
        let replays = started();
        for (id, time, expected) in [
            ("short", NOW, "request_id_required"),
            ("0123456789abcde/", NOW, "request_id_required"),
            (ID, "today", "request_id_required"),
            (ID, "2026-11-20T09:58:59Z", "request_out_of_time"),
            (ID, "2026-11-20T10:01:01Z", "request_out_of_time"),
            (ID, "2026-11-20T09:59:29Z", "request_out_of_time"),
            (ID, "2026-11-20T10:00:59+00:00", "taken"),
        ] {
            assert_eq!(code(&replays, "a", id, time, now()), expected, "{id} {time}");
        }
        let none = replays.take(&Arc::from("a"), &HeaderMap::new(), now()).unwrap_err();
        assert_eq!(none.code, "request_id_required");
    }

    #[test]
    fn what_one_caller_has_remembered_is_bounded() {
        let replays = started();
        for number in 0..IDS_MAX {
            assert_eq!(code(&replays, "a", &format!("{number:016}"), NOW, now()), "taken");
        }
        assert_eq!(code(&replays, "a", ID, NOW, now()), "too_many_requests");
        assert_eq!(code(&replays, "b", ID, NOW, now()), "taken");
        let later = now() + SignedDuration::from_secs(90);
        assert_eq!(code(&replays, "a", ID, "2026-11-20T10:01:30Z", later), "taken");
    }
}

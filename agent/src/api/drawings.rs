//! What was drawn of the history, encoded: the same picture is drawn once, however many ask for it, until the
//! history is another one.

use super::entity_tag;
use crate::history::Shown;
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sexton_tuner::history::Drawn;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

/// Pictures that are kept: a dashboard asks for two, and each of its settings for others.
const DRAWINGS_MAX: usize = 32;
/// Bytes that they have together; the largest picture has some megabytes.
const BYTES_MAX: usize = 16 << 20;

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    Heatmap,
    Families,
}

/// A picture as it is sent.
#[derive(Clone, Debug)]
pub struct Encoded {
    body: Bytes,
    tag: Option<HeaderValue>,
}

impl Encoded {
    pub fn of(picture: &impl Serialize) -> Result<Encoded, serde_json::Error> {
        let body = serde_json::to_vec(picture)?;
        let tag = HeaderValue::from_str(&entity_tag::of(&body)).ok();
        Ok(Encoded { body: body.into(), tag })
    }
}

impl IntoResponse for Encoded {
    fn into_response(self) -> Response {
        let mut response = self.body.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(tag) = self.tag {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}

/// The pictures, the one that was asked for last behind the others.
#[derive(Debug, Default)]
pub struct Drawings {
    kept: Mutex<VecDeque<Drawing>>,
}

#[derive(Debug)]
struct Drawing {
    what: (Picture, Drawn),
    /// What it was drawn of.
    shown: Shown,
    encoded: Arc<OnceCell<Encoded>>,
}

impl Drawing {
    fn bytes(&self) -> usize {
        self.encoded.get().map_or(0, |encoded| encoded.body.len())
    }
}

impl Drawings {
    /// The place of a picture, to be filled by whoever comes first.
    pub fn place(&self, what: (Picture, Drawn), shown: &Shown) -> Arc<OnceCell<Encoded>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|drawing| drawing.what == what);
        let known =
            known.and_then(|number| kept.remove(number)).filter(|drawing| drawing.shown.is_same(shown));
        let drawing =
            known.unwrap_or_else(|| Drawing { what, shown: shown.clone(), encoded: Arc::default() });
        let encoded = Arc::clone(&drawing.encoded);
        kept.push_back(drawing);
        while kept.len() > DRAWINGS_MAX || kept.iter().map(Drawing::bytes).sum::<usize>() > BYTES_MAX {
            kept.pop_front();
        }
        encoded
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tuner::history::{Amounts, Bucket, Cell, History, Metric, Place};
    use sexton_tuner::policy::KeyDisplay;
    use sexton_tuner::range::KeyRange;

    fn shown(history: &History) -> Shown {
        Shown::new(history.clone(), KeyDisplay::Redacted)
    }

    fn drawn(rows_max: usize) -> (Picture, Drawn) {
        (Picture::Heatmap, Drawn { rows_max, ..Drawn::default() })
    }

    #[test]
    fn a_picture_is_drawn_again_when_the_history_is_another_one() {
        let (drawings, mut history) = (Drawings::default(), History::default());
        let first = drawings.place(drawn(1), &shown(&history));
        first.set(Encoded::of(&1).unwrap()).unwrap();
        assert!(Arc::ptr_eq(&first, &drawings.place(drawn(1), &shown(&history))));
        assert!(!Arc::ptr_eq(&first, &drawings.place(drawn(2), &shown(&history))));
        let other = Shown::new(history.clone(), KeyDisplay::Shown);
        assert!(!Arc::ptr_eq(&first, &drawings.place(drawn(1), &other)), "its keys are whole");
        let again = drawings.place(drawn(1), &shown(&history));
        let cell = Cell::new(&KeyRange::everything(), Amounts::default().with(Metric::Pain, 1.0), 1.0);
        history.record(600, &Bucket::of([(Place::default(), cell)]));
        assert!(!Arc::ptr_eq(&again, &drawings.place(drawn(1), &shown(&history))));
    }

    #[test]
    fn number_and_bytes_are_bounded_and_the_last_one_asked_for_stays() {
        let (drawings, history) = (Drawings::default(), History::default());
        let large = Encoded::of(&"x".repeat(BYTES_MAX / 4)).unwrap();
        for rows in 0..100 {
            let place = drawings.place(drawn(rows), &shown(&history));
            if rows % 2 == 0 {
                place.set(large.clone()).unwrap();
            }
        }
        let kept = drawings.kept.lock().unwrap();
        assert!(kept.len() < DRAWINGS_MAX && kept.iter().map(Drawing::bytes).sum::<usize>() <= BYTES_MAX);
        assert_eq!(kept.back().unwrap().what.1.rows_max, 99);
    }
}

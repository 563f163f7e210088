//! What was drawn of the history, encoded: the same picture is drawn once, however many ask for it, until the
//! history is another one. While it is drawn again those who ask have the one before, if that is not old.

use super::entity_tag;
use crate::history::Shown;
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sexton_tuner::history::Drawn;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// Pictures that are kept: a dashboard asks for two, and each of its settings for others.
const DRAWINGS_MAX: usize = 32;
/// Bytes that they have together; the largest picture has some megabytes.
const BYTES_MAX: usize = 16 << 20;
/// A picture of an earlier history is shown for so long: two cycles, of which each makes another history.
const FORMER_AGE_MAX: Duration = Duration::from_secs(10);

/// By so much the beginning of a picture moves from one to the next: stretches begin and end with minutes, so
/// more exactly said, the same ones would be drawn.
pub const BEGIN_MOVES_S: i64 = 60;

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
    /// What it is drawn of.
    shown: Shown,
    place: Place,
}

impl Drawing {
    fn bytes(&self) -> usize {
        let former = self.place.former.as_ref().map(|(_, former)| former);
        self.place.encoded.get().into_iter().chain(former).map(|encoded| encoded.body.len()).sum()
    }
}

/// Where a picture is put, by whoever asks for it first.
#[derive(Clone, Debug)]
pub struct Place {
    pub encoded: Arc<OnceCell<Encoded>>,
    /// The same of an earlier history, and when that was found to be another one.
    former: Option<(Instant, Encoded)>,
    is_begun: Arc<AtomicBool>,
}

impl Place {
    fn new(former: Option<(Instant, Encoded)>) -> Place {
        Place { encoded: Arc::default(), former, is_begun: Arc::default() }
    }

    /// The picture of the history before, where it is not old.
    pub fn former(&self) -> Option<&Encoded> {
        let (until, former) = self.former.as_ref()?;
        (until.elapsed() < FORMER_AGE_MAX).then_some(former)
    }

    /// Whether nobody has begun to draw it; the one who asks is to do so.
    pub fn begin(&self) -> bool {
        !self.is_begun.swap(true, Ordering::Relaxed)
    }

    /// The last picture that there is, now that the history is another one.
    fn outdated(self) -> Option<(Instant, Encoded)> {
        self.encoded.get().map(|encoded| (Instant::now(), encoded.clone())).or(self.former)
    }
}

impl Drawings {
    /// The place of a picture.
    pub fn place(&self, what: (Picture, Drawn), shown: &Shown) -> Place {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|drawing| is_nearly(&drawing.what, &what));
        let place = match known.and_then(|number| kept.remove(number)) {
            Some(known) if known.what == what && known.shown.is_same(shown) => known.place,
            Some(known) if known.shown.shows_keys_alike(shown) => Place::new(known.place.outdated()),
            _ => Place::new(None),
        };
        kept.push_back(Drawing { what, shown: shown.clone(), place: place.clone() });
        while kept.len() > DRAWINGS_MAX || kept.iter().map(Drawing::bytes).sum::<usize>() > BYTES_MAX {
            kept.pop_front();
        }
        place
    }
}

/// Whether one is the other, or was a minute ago: where a picture begins moves on with time.
fn is_nearly((one, before): &(Picture, Drawn), (two, now): &(Picture, Drawn)) -> bool {
    let moved_s = now.since_s.saturating_sub(before.since_s);
    one == two
        && (0..=BEGIN_MOVES_S).contains(&moved_s)
        && Drawn { since_s: now.since_s, ..before.clone() } == *now
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
        let place = |what, shown: &Shown| drawings.place(what, shown).encoded;
        let first = place(drawn(1), &shown(&history));
        first.set(Encoded::of(&1).unwrap()).unwrap();
        assert!(Arc::ptr_eq(&first, &place(drawn(1), &shown(&history))));
        assert!(!Arc::ptr_eq(&first, &place(drawn(2), &shown(&history))));
        let other = Shown::new(history.clone(), KeyDisplay::Shown);
        assert!(!Arc::ptr_eq(&first, &place(drawn(1), &other)), "its keys are whole");
        let again = place(drawn(1), &shown(&history));
        let cell = Cell::new(&KeyRange::everything(), Amounts::default().with(Metric::Pain, 1.0), 1.0);
        history.record(600, &Bucket::of([(Place::default(), cell)]));
        assert!(!Arc::ptr_eq(&again, &place(drawn(1), &shown(&history))));
    }

    #[test]
    fn while_it_is_drawn_again_the_one_before_is_there_unless_it_shows_keys_otherwise() {
        let (drawings, mut history) = (Drawings::default(), History::default());
        let first = drawings.place(drawn(1), &shown(&history));
        assert!(first.former().is_none() && first.begin() && !first.begin());
        first.encoded.set(Encoded::of(&"first").unwrap()).unwrap();
        let cell = Cell::new(&KeyRange::everything(), Amounts::default().with(Metric::Pain, 1.0), 1.0);
        for begin_s in [600, 660] {
            history.record(begin_s, &Bucket::of([(Place::default(), cell.clone())]));
            let next = drawings.place(drawn(1), &shown(&history));
            assert_eq!(next.former().unwrap().body, "\"first\"", "the one in between was never drawn");
            assert!(next.begin() && next.encoded.get().is_none());
        }
        let (picture, of_an_hour) = drawn(1);
        let later =
            |since_s| drawings.place((picture, Drawn { since_s, ..of_an_hour.clone() }), &shown(&history));
        assert!(later(2 * BEGIN_MOVES_S).former().is_none() && later(BEGIN_MOVES_S).former().is_some());
        let whole = drawings.place(drawn(1), &Shown::new(history.clone(), KeyDisplay::Shown));
        assert!(whole.former().is_none());
    }

    #[test]
    fn a_picture_that_is_old_is_not_shown() {
        let old = Instant::now().checked_sub(FORMER_AGE_MAX).unwrap();
        let place = super::Place::new(Some((old, Encoded::of(&1).unwrap())));
        assert!(place.former().is_none());
    }

    #[test]
    fn number_and_bytes_are_bounded_and_the_last_one_asked_for_stays() {
        let (drawings, history) = (Drawings::default(), History::default());
        let large = Encoded::of(&"x".repeat(BYTES_MAX / 4)).unwrap();
        for rows in 0..100 {
            let place = drawings.place(drawn(rows), &shown(&history));
            if rows % 2 == 0 {
                place.encoded.set(large.clone()).unwrap();
            }
        }
        let kept = drawings.kept.lock().unwrap();
        assert!(kept.len() < DRAWINGS_MAX && kept.iter().map(Drawing::bytes).sum::<usize>() <= BYTES_MAX);
        assert_eq!(kept.back().unwrap().what.1.rows_max, 99);
    }
}

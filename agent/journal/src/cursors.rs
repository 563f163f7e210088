//! Where the survey of each database stands, so that the next run goes on there.

use super::batch::{Batch, Kind};
use super::samples::name;
use super::state::State;
use sexton_tuner::rank::survey::SurveyCursor;
use sexton_tuner::run::DatabaseIdentity;

/// Where it stood when it was written last.
pub fn load(state: &State, database: &DatabaseIdentity) -> Option<SurveyCursor> {
    state.get(Kind::Cursor, &name(database))
}

/// What to write.
pub fn put(database: &DatabaseIdentity, cursor: &SurveyCursor) -> Batch {
    let mut batch = Batch::default();
    batch.put(Kind::Cursor, &name(database), cursor);
    batch
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_survey_outlives_the_agent_and_not_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let database = |inode| DatabaseIdentity { path: "/db".into(), inode };
        let mut cursor = SurveyCursor::default();
        cursor.advance(&[], Duration::from_secs(60), jiff::Timestamp::UNIX_EPOCH);
        {
            let (mut state, _) = State::open(folder.path()).unwrap();
            state.append(put(&database(1), &cursor));
        }
        let (state, _) = State::open(folder.path()).unwrap();
        assert_eq!(load(&state, &database(1)), Some(cursor));
        assert_eq!(load(&state, &database(2)), None);
    }
}

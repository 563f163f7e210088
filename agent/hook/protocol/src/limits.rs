//! Time limits that the agent and its hook keep towards each other, and how they have to relate.

use std::time::Duration;

/// How long an agent that acts may be silent before its hook counts it as gone, lets others act, and puts the
/// options back that it has changed. One that has ended in the hook's sight is gone at once.
pub const LEASE_SILENCE_MAX: Duration = Duration::from_secs(30);

/// How often an agent that has changed options speaks to its hooks.
pub const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// How long the agent waits for one answer; listing 100,000 files takes a second.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long the hook waits for a compaction that it has cancelled before it answers that it still runs.
/// Nearly all end within milliseconds; meanwhile nobody else is answered.
pub const CANCEL_WAIT_MAX: Duration = Duration::from_secs(2);

/// The same before the hook goes: whoever asks for that has nothing else to ask.
pub const STOP_WAIT_MAX: Duration = Duration::from_secs(20);

/// How long the agent waits for the answer to a cancellation, or to being told to go.
pub const STOP_ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long the hook lets one frame take, in either direction.
pub const FRAME_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a client of the hook may be silent between requests before the next one gets its turn. The agent
/// connects anew when it has something to ask.
pub const IDLE_MAX: Duration = Duration::from_secs(60);

/// Longest time that one compaction may take. Its bytes are bounded by the budget; a disk that needs longer
/// for them is hurting already. One whose end nobody saw is taken to run for as long, where its RocksDB
/// cannot be asked.
pub const COMPACTION_TIME_MAX: Duration = Duration::from_secs(600);

// One renewal may be lost and another one late, and the lease still holds.
const _: () = assert!(3 * LEASE_RENEWAL_INTERVAL.as_secs() <= LEASE_SILENCE_MAX.as_secs());
// A hook that takes all the time it has for one answer does not lose its agent for it.
const _: () =
    assert!(ANSWER_WAIT_MAX.as_secs() + LEASE_RENEWAL_INTERVAL.as_secs() < LEASE_SILENCE_MAX.as_secs());
// The agent waits longer than the hook does: what the hook answers is heard.
const _: () = assert!(CANCEL_WAIT_MAX.as_secs() < ANSWER_WAIT_MAX.as_secs());
const _: () = assert!(CANCEL_WAIT_MAX.as_secs() + STOP_WAIT_MAX.as_secs() < STOP_ANSWER_WAIT_MAX.as_secs());
const _: () = assert!(FRAME_TIME_MAX.as_secs() < ANSWER_WAIT_MAX.as_secs());
// A connection that only renews a lease stays open.
const _: () = assert!(LEASE_RENEWAL_INTERVAL.as_secs() < IDLE_MAX.as_secs());

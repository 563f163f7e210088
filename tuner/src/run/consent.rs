//! Consent: what the commands of the guards say of an action in a database, before it begins and while it
//! runs. `guards.hold` is a lock that others take as well, so that of several nodes one acts at a time;
//! `guards.command` is a question that is asked once, with the lock held.
//!
//! What is asked next, how long it is waited for and what comes of the answers is decided here. Commands are
//! started, heard and ended by the agent.

use super::moment::Moment;
use crate::back_off::BackOff;
use crate::guard::{Guard, GuardRefusal};
use crate::policy::GuardPolicy;

/// Pauses after a lock that was not had or a command that said no: others that hold a lock give it back
/// within minutes.
pub const BACK_OFF: BackOff = BackOff { first_seconds: 5, longest_seconds: 5 * 60 };

/// What one command has said so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Answer {
    /// It was not started.
    #[default]
    NotAsked,
    /// It was started then, and has said nothing yet.
    Waiting { since: Moment },
    /// The lock is held; the question was answered with yes.
    Given,
    /// Why not, in words: the lock was not had or is lost, the question was answered with no.
    Refused(String),
}

/// What the commands of the guards have said of an action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consent {
    pub hold: Answer,
    pub command: Answer,
}

/// What is to be done before an action may begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Start the command that holds the lock.
    AskHold,
    /// Start the command that is asked.
    AskCommand,
    /// Nothing, until the answer or this moment.
    Wait { until: Moment },
    /// All that is wanted has been given.
    Begin,
    /// It does not begin now.
    Refuse(GuardRefusal),
}

impl Consent {
    /// What is to be done next.
    pub fn next(&self, policy: &GuardPolicy, now: Moment) -> Next {
        let hold = policy.hold.as_ref().map(|hold| (hold.acquire_timeout, Next::AskHold, Guard::Hold));
        let command =
            policy.command.as_ref().map(|command| (command.timeout, Next::AskCommand, Guard::Command));
        let asked = [(hold, &self.hold), (command, &self.command)];
        for (wanted, answer) in asked {
            let Some((limit, ask, guard)) = wanted else { continue };
            match answer {
                Answer::Given => {}
                Answer::NotAsked => return ask,
                Answer::Waiting { since } => {
                    let until = since.plus(limit.duration());
                    let is_over = now.until(&until).is_zero();
                    let reason = match guard {
                        Guard::Hold => format!("the lock was not had within {limit}"),
                        _ => format!("the command has not answered within {limit}"),
                    };
                    return match is_over {
                        true => Next::Refuse(GuardRefusal { guard, reason }),
                        false => Next::Wait { until },
                    };
                }
                Answer::Refused(reason) => {
                    return Next::Refuse(GuardRefusal { guard, reason: reason.clone() });
                }
            }
        }
        Next::Begin
    }

    /// Whether an action may begin, without anything being asked any more.
    ///
    /// # Errors
    /// What is missing.
    pub fn to_begin(&self, policy: &GuardPolicy, now: Moment) -> Result<(), GuardRefusal> {
        let missing = |guard, reason: &str| Err(GuardRefusal { guard, reason: reason.to_owned() });
        match self.next(policy, now) {
            Next::Begin => Ok(()),
            Next::Refuse(refusal) => Err(refusal),
            Next::AskCommand => missing(Guard::Command, "the command has not been asked"),
            Next::AskHold | Next::Wait { .. } => missing(Guard::Hold, "the lock is not held"),
        }
    }

    /// Whether a lock that an action began with is lost.
    pub fn lost(&self, policy: &GuardPolicy) -> Option<GuardRefusal> {
        match &self.hold {
            Answer::Refused(reason) if policy.hold.is_some() => {
                Some(GuardRefusal { guard: Guard::Hold, reason: reason.clone() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::policy::{CommandPolicy, HoldPolicy, TimeSpan};
    use std::time::Duration;

    fn at(second: i64) -> Moment {
        Moment::of_wall_clock(jiff::Timestamp::from_second(second).unwrap())
    }

    fn policy() -> GuardPolicy {
        let run = vec!["true".to_owned()];
        GuardPolicy {
            hold: Some(HoldPolicy { run: run.clone(), acquire_timeout: TimeSpan::from_seconds(60) }),
            command: Some(CommandPolicy { run, timeout: TimeSpan::from_seconds(10) }),
            ..GuardPolicy::default()
        }
    }

    #[test]
    fn nothing_is_asked_where_the_policy_wants_nothing() {
        assert_eq!(Consent::default().next(&GuardPolicy::default(), at(0)), Next::Begin);
    }

    #[test]
    fn the_question_is_asked_with_the_lock_held() {
        let mut consent = Consent::default();
        assert_eq!(consent.next(&policy(), at(0)), Next::AskHold);
        consent.hold = Answer::Waiting { since: at(0) };
        let until = at(0).plus(Duration::from_secs(60));
        assert_eq!(consent.next(&policy(), at(59)), Next::Wait { until });
        assert_eq!(consent.to_begin(&policy(), at(59)).unwrap_err().guard, Guard::Hold);
        consent.hold = Answer::Given;
        assert_eq!(consent.next(&policy(), at(61)), Next::AskCommand);
        assert_eq!(consent.to_begin(&policy(), at(61)).unwrap_err().guard, Guard::Command);
        consent.command = Answer::Given;
        assert_eq!(consent.next(&policy(), at(62)), Next::Begin);
        assert!(consent.to_begin(&policy(), at(62)).is_ok() && consent.lost(&policy()).is_none());
    }

    #[test]
    fn waiting_has_an_end_and_a_refusal_its_reason() {
        let consent = Consent { hold: Answer::Waiting { since: at(0) }, ..Consent::default() };
        let Next::Refuse(refusal) = consent.next(&policy(), at(60)) else { unreachable!("it waits") };
        assert_eq!((refusal.guard, refusal.reason.as_str()), (Guard::Hold, "the lock was not had within 1m"));
        let no = || Answer::Refused("exit code 1".to_owned());
        let consent = Consent { hold: Answer::Given, command: no() };
        let refusal = consent.to_begin(&policy(), at(0)).unwrap_err();
        assert_eq!((refusal.guard, refusal.reason.as_str()), (Guard::Command, "exit code 1"));
        assert!(consent.lost(&policy()).is_none(), "a question is not asked of what runs");
        let consent = Consent { hold: no(), command: Answer::Given };
        assert_eq!(consent.lost(&policy()).unwrap().guard, Guard::Hold);
        assert!(consent.lost(&GuardPolicy::default()).is_none(), "the policy wants no lock any more");
    }
}

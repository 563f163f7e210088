//! Which agent acts on this target: one at a time, until it has ended or fallen silent.

use sexton_hook_protocol::limits::LEASE_SILENCE_MAX;
use std::time::Instant;

/// An agent at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Drawn by the agent itself.
    pub id: u64,
    /// Process id as it says.
    pub own_pid: u32,
    /// Process id in this process' namespace, from the kernel; 0 from outside of it.
    pub process: u32,
}

#[derive(Default)]
pub struct Lease {
    holder: Option<(Agent, Instant)>,
}

impl Lease {
    /// Notes that an agent has asked for something.
    pub fn seen(&mut self, agent: Agent) {
        if let Some((holder, seen)) = &mut self.holder
            && holder.id == agent.id
        {
            (*holder, *seen) = (agent, Instant::now());
        }
    }

    /// Takes the lease, or keeps it; why not, where another agent has it. `None`: somebody who did not
    /// say who it is, and only wants to know whether the lease is free.
    pub fn take(&mut self, agent: Option<Agent>) -> Result<(), String> {
        if let Some((holder, seen)) = self.holder
            && agent.is_none_or(|agent| agent.id != holder.id)
            && !self.is_over()
        {
            return Err(format!(
                "another agent (process {} in its namespace) acts on this target; it was last heard {} s ago",
                holder.own_pid,
                seen.elapsed().as_secs()
            ));
        }
        self.holder = agent.map(|agent| (agent, Instant::now()));
        Ok(())
    }

    /// Whether nobody acts any more: the one that did has ended, or has been silent for too long.
    pub fn is_over(&self) -> bool {
        self.holder
            .is_none_or(|(holder, seen)| seen.elapsed() >= LEASE_SILENCE_MAX || !is_alive(holder.process))
    }
}

/// Whether there is such a process; one that cannot be seen counts as alive.
fn is_alive(process: u32) -> bool {
    let Some(process) = libc::pid_t::try_from(process).ok().filter(|process| *process > 0) else {
        return true;
    };
    // SAFETY: signal 0 sends nothing and only asks.
    let code = unsafe { libc::kill(process, 0) };
    code == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn agent(id: u64) -> Agent {
        Agent { id, own_pid: 7, process: std::process::id() }
    }

    #[test]
    fn the_second_agent_is_refused_and_the_first_goes_on() {
        let mut lease = Lease::default();
        assert!(lease.is_over());
        assert_eq!(lease.take(None), Ok(()));
        assert_eq!(lease.take(Some(agent(1))), Ok(()));
        assert!(!lease.is_over());
        assert!(lease.take(Some(agent(2))).unwrap_err().contains("process 7"));
        assert!(lease.take(None).is_err());
        lease.seen(agent(2));
        assert_eq!(lease.take(Some(agent(1))), Ok(()));
        let unseen = Agent { process: 0, ..agent(1) };
        assert_eq!(lease.take(Some(unseen)), Ok(()));
        assert!(lease.take(Some(agent(2))).is_err(), "one in another namespace counts as alive");
    }

    #[test]
    fn an_agent_that_has_ended_or_fallen_silent_is_replaced() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        child.wait().unwrap();
        let mut lease = Lease::default();
        lease.take(Some(Agent { process, ..agent(1) })).unwrap();
        assert!(lease.is_over());
        assert_eq!(lease.take(Some(agent(2))), Ok(()));
        let long_ago = Instant::now().checked_sub(LEASE_SILENCE_MAX).unwrap();
        lease.holder = Some((agent(2), long_ago));
        assert!(lease.is_over());
        lease.seen(agent(2));
        assert!(!lease.is_over(), "it has spoken again");
        lease.holder = Some((agent(2), long_ago));
        assert_eq!(lease.take(Some(agent(3))), Ok(()));
    }
}

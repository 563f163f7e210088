//! What the machine's threads run: the object behind each, by which services are found that nobody else holds
//! on to.

use super::environment::{Environment, Object};
use crate::access::Failure;
use sexton_hook_protocol::ErrorKind;

/// Threads that are looked at; a DataNode has some 300.
const THREADS_MAX: i32 = 16 * 1024;

/// Threads that may come while they are listed.
const THREADS_TO_COME: i32 = 64;

/// Groups above a thread's own; there are two as a rule.
const GROUPS_MAX: usize = 64;

/// Calls `visit` with each thread that has been given a task, and with that task.
pub fn for_each_task<'machine>(
    machine: &'machine Environment,
    mut visit: impl FnMut(Object<'machine>, Object<'machine>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    machine.frame(|| {
        let class = machine.class(c"java/lang/Thread")?;
        let group = uppermost_group(machine, class)?;
        let active = machine.call_int(group, c"activeCount")?;
        let room = active.saturating_add(THREADS_TO_COME).clamp(0, THREADS_MAX);
        let threads = machine.array(room, class)?;
        let count = machine.call_with_array(group, c"enumerate", c"([Ljava/lang/Thread;)I", threads)?;
        for index in 0..count.min(room) {
            machine.frame(|| {
                let Some(thread) = machine.element(threads, index)? else { return Ok(()) };
                match task(machine, thread)? {
                    Some(task) => visit(thread, task),
                    None => Ok(()),
                }
            })?;
        }
        Ok(())
    })
}

/// The group that all threads are in.
fn uppermost_group<'machine>(
    machine: &'machine Environment,
    thread_class: Object<'machine>,
) -> Result<Object<'machine>, Failure> {
    let nothing = || (ErrorKind::Failed, "the Java virtual machine names no group of threads".to_owned());
    let own = machine.call_static(thread_class, c"currentThread", c"()Ljava/lang/Thread;")?;
    let own = own.ok_or_else(nothing)?;
    let group = c"()Ljava/lang/ThreadGroup;";
    let mut uppermost = machine.call(own, c"getThreadGroup", group)?.ok_or_else(nothing)?;
    for _ in 0..GROUPS_MAX {
        match machine.call(uppermost, c"getParent", group)? {
            Some(parent) => uppermost = parent,
            None => break,
        }
    }
    Ok(uppermost)
}

/// What a thread runs; `None` where it is its own task, or has ended.
fn task<'machine>(
    machine: &'machine Environment,
    thread: Object<'machine>,
) -> Result<Option<Object<'machine>>, Failure> {
    let runnable = c"Ljava/lang/Runnable;";
    // Since JDK 19 it is kept apart from the thread.
    match machine.field(thread, c"holder", c"Ljava/lang/Thread$FieldHolder;")? {
        Some(holder) => machine.field(holder, c"task", runnable),
        None => machine.field(thread, c"target", runnable),
    }
}

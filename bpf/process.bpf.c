// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Processes that come and go, told as they do: user space looks into a new process at once instead of
 * searching the node all the time, and lets go of one that has ended.
 *
 * One small record an event and nothing else: whether a process is worth a look is decided in user
 * space, which leaves out those that end within the first moments without having read a file of
 * theirs.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "sexton.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SEXTON_PROCESS_EVENTS_BYTES);
} sexton_process_events SEC(".maps");

/* Events that did not fit into the ring buffer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sexton_process_events_lost SEC(".maps");

static __always_inline int
tell(struct task_struct *task, enum sexton_process_change change)
{
	struct sexton_process_event *event;
	__u32 only = 0;
	__u64 *lost;

	event = bpf_ringbuf_reserve(&sexton_process_events, sizeof(*event), 0);
	if (event) {
		event->start_boot_ns = task->group_leader->start_boottime;
		event->process_id = task->tgid;
		event->change = change;
		bpf_ringbuf_submit(event, 0);
		return 0;
	}
	lost = bpf_map_lookup_elem(&sexton_process_events_lost, &only);
	if (lost)
		__sync_fetch_and_add(lost, 1);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sexton_process_exec, struct task_struct *task)
{
	return tell(task, SEXTON_PROCESS_EXEC);
}

/* A daemon forks and goes on in the child, with no exec. A child that shares its parent's memory is a
 * thread, or is about to exec; one without memory is a kernel thread. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(sexton_process_fork, struct task_struct *parent, struct task_struct *child)
{
	if (!child->mm || child->mm == parent->mm)
		return 0;
	return tell(child, SEXTON_PROCESS_FORK);
}

/* Called for each thread; the process ends with the last of them. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(sexton_process_exit, struct task_struct *task)
{
	if (task->signal->live.counter > 0)
		return 0;
	return tell(task, SEXTON_PROCESS_EXIT);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

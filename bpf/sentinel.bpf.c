// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * The sentinel: exact totals of a target's threads, with no probe in the target.
 *
 * sexton_sentinel is a task iterator; it walks threads and writes one sexton_thread_reading for each that
 * belongs to the slot that user space has asked for, with its thread pointer: user space reads the counters out of
 * the thread's memory, which may take as long as a file system that hangs. User space binds the
 * iterator to the one process, so that it meets no other thread; that takes Linux 6.1.
 *
 * A thread takes its counters with it when it ends, so sexton_thread_end reads them a last time at the
 * sched_process_exit tracepoint. Since Linux 6.16 that tracepoint stands before the thread lets go of its
 * address space; on older kernels the reading fails, and user space counts the thread as ended unread.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "sexton.h"
#include "tls.h"

/* By slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEXTON_TARGETS_MAX);
	__type(key, __u32);
	__type(value, struct sexton_recipe);
} sexton_watched SEC(".maps");

/* By process id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEXTON_TARGETS_MAX);
	__type(key, __u32);
	__type(value, struct sexton_process);
} sexton_processes SEC(".maps");

/* The slot that a pass is for, by the thread of the agent that makes it: several may be made at once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEXTON_PASSES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} sexton_passes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SEXTON_ENDED_BYTES);
} sexton_ended SEC(".maps");

/* Endings that did not fit into the ring buffer. */
__u64 sexton_ended_lost;

static __always_inline void
identify(struct task_struct *task, __u32 slot, struct sexton_thread_reading *reading)
{
	reading->slot = slot;
	reading->process_id = task->tgid;
	reading->thread_id = task->pid;
	reading->start_boot_ns = task->start_boottime;
	reading->processor_ns = task->se.sum_exec_runtime;
	reading->thread_pointer = task->thread.fsbase;
}

/* The recipe of a slot, 0 where the slot is not this process'. */
static __always_inline struct sexton_recipe *
recipe_of(__u32 slot, __u32 process_id)
{
	struct sexton_recipe *recipe = bpf_map_lookup_elem(&sexton_watched, &slot);

	return recipe && recipe->process_id == process_id ? recipe : 0;
}

SEC("iter/task")
int sexton_sentinel(struct bpf_iter__task *context)
{
	struct sexton_thread_reading reading = {};
	struct task_struct *task = context->task;
	struct sexton_recipe *recipe;
	__u32 reader = (__u32)bpf_get_current_pid_tgid(), *slot;

	slot = bpf_map_lookup_elem(&sexton_passes, &reader);
	if (!task || !slot)
		return 0;
	recipe = recipe_of(*slot, task->tgid);
	if (!recipe)
		return 0;
	identify(task, *slot, &reading);
	bpf_seq_write(context->meta->seq, &reading, sizeof(reading));
	return 0;
}

/* Of the current thread. */
static __always_inline void
read_counters(const struct sexton_recipe *recipe, struct sexton_thread_reading *reading)
{
	enum tls_result result;
	__u64 block = 0;
	__u8 level = 0;

	result = tls_counters(reading->thread_pointer, recipe, &reading->counters, &block);
	if (result == TLS_UNREADABLE)
		reading->flags |= SEXTON_READING_FAILED;
	if (result != TLS_FOUND)
		return;
	reading->flags |= SEXTON_READING_HAS_COUNTERS;
	if (recipe->perf_level_offset != SEXTON_OFFSET_ABSENT &&
	    !bpf_probe_read_user(&level, sizeof(level), (const void *)(block + recipe->perf_level_offset))) {
		reading->perf_level = level;
		reading->perf_level_address = block + recipe->perf_level_offset;
		reading->flags |= SEXTON_READING_HAS_PERF_LEVEL;
	}
}

static __always_inline void
read_ended(struct task_struct *task, __u32 slot)
{
	struct sexton_recipe *recipe = recipe_of(slot, task->tgid);
	struct sexton_thread_reading *reading;

	if (!recipe)
		return;
	reading = bpf_ringbuf_reserve(&sexton_ended, sizeof(*reading), 0);
	if (!reading) {
		__sync_fetch_and_add(&sexton_ended_lost, 1);
		return;
	}
	__builtin_memset(reading, 0, sizeof(*reading));
	identify(task, slot, reading);
	read_counters(recipe, reading);
	bpf_ringbuf_submit(reading, 0);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sexton_thread_end)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 process_id = task->tgid;
	struct sexton_process *process;

	process = bpf_map_lookup_elem(&sexton_processes, &process_id);
	if (!process)
		return 0;
	for (__u32 index = 0; index < SEXTON_SLOTS_PER_PROCESS_MAX; index++) {
		if (index < process->count)
			read_ended(task, process->slots[index]);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Tiny programs that only ask the running kernel what it has. User space loads them one at a time.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "session.h"

/* What every kernel takes that lets us load anything at all. */
SEC("?uprobe")
int sexton_try_nothing(struct pt_regs *registers)
{
	return 0;
}

SEC("?uprobe")
int sexton_try_cookie(struct pt_regs *registers)
{
	return bpf_get_attach_cookie(registers) != 0;
}

SEC("?uprobe.session")
int sexton_try_session(struct pt_regs *registers)
{
	return is_session_return(registers);
}

/* A task iterator. */
SEC("?iter/task")
int sexton_try_iterator(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	__u64 thread_pointer;

	if (task) {
		thread_pointer = task->thread.fsbase;
		bpf_seq_write(context->meta->seq, &thread_pointer, sizeof(thread_pointer));
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

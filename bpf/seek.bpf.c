// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * The window's programs as pairs of uprobes and uretprobes, for kernels without uprobe sessions. User space
 * decides how they are attached: by uprobe-multi links (it sets their attach type before they are
 * loaded) or one by one through perf events.
 *
 * Where a probe can carry a cookie, sexton_entry and sexton_return serve all sites. Linux 5.10 has none: there each
 * site has programs of its own, and the slot is found by the process, which can have only one.
 */
#include "seek.h"

/* By process id, for probes without cookies. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEXTON_TARGETS_MAX);
	__type(key, __u32);
	__type(value, struct sexton_process);
} sexton_processes SEC(".maps");

/* One program for all entries and one for all returns, told apart by their cookies: two links to
 * attach and detach, and a detach waits some ten milliseconds for the kernel. */
SEC("uprobe")
int sexton_entry(struct pt_regs *registers)
{
	__u64 cookie = bpf_get_attach_cookie(registers);

	on_entry(registers, cookie >> SEXTON_COOKIE_SITE_BITS,
		 cookie & ((1 << SEXTON_COOKIE_SITE_BITS) - 1));
	return 0;
}

SEC("uretprobe")
int sexton_return(struct pt_regs *registers)
{
	__u64 cookie = bpf_get_attach_cookie(registers);

	on_return(registers, cookie >> SEXTON_COOKIE_SITE_BITS,
		  cookie & ((1 << SEXTON_COOKIE_SITE_BITS) - 1));
	return 0;
}

/* The current process' slot, SEXTON_TARGETS_MAX where it has none. */
static __always_inline __u32
slot_of_process(void)
{
	__u32 process_id = bpf_get_current_pid_tgid() >> 32;
	struct sexton_process *process = bpf_map_lookup_elem(&sexton_processes, &process_id);

	return process && process->count ? process->slots[0] : SEXTON_TARGETS_MAX;
}

#define ENTRY_OF(name, site)                                             \
	SEC("uprobe")                                                    \
	int sexton_entry_##name(struct pt_regs *registers)               \
	{                                                                \
		on_entry(registers, slot_of_process(), site);            \
		return 0;                                                \
	}

#define RETURN_OF(name, site)                                            \
	SEC("uretprobe")                                                 \
	int sexton_return_##name(struct pt_regs *registers)              \
	{                                                                \
		on_return(registers, slot_of_process(), site);           \
		return 0;                                                \
	}

ENTRY_OF(seek, SEXTON_SEEK)
ENTRY_OF(seek_for_prev, SEXTON_SEEK_FOR_PREV)
ENTRY_OF(seek_to_first, SEXTON_SEEK_TO_FIRST)
ENTRY_OF(seek_to_last, SEXTON_SEEK_TO_LAST)
ENTRY_OF(iterator_end, SEXTON_SITE_ITERATOR_END)
ENTRY_OF(new_iterator, SEXTON_SITE_NEW_ITERATOR)
ENTRY_OF(read_block, SEXTON_SITE_READ_BLOCK)
ENTRY_OF(counters_reset, SEXTON_SITE_COUNTERS_RESET)
RETURN_OF(seek, SEXTON_SEEK)
RETURN_OF(seek_for_prev, SEXTON_SEEK_FOR_PREV)
RETURN_OF(seek_to_first, SEXTON_SEEK_TO_FIRST)
RETURN_OF(seek_to_last, SEXTON_SEEK_TO_LAST)
RETURN_OF(new_iterator, SEXTON_SITE_NEW_ITERATOR)
RETURN_OF(read_block, SEXTON_SITE_READ_BLOCK)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

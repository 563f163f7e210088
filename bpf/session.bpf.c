// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * The window's programs as one uprobe session (Linux 6.13): one link, and no return probe where none is wanted,
 * which is what makes a skipped call cheap.
 */
#include "seek.h"
#include "session.h"

SEC("uprobe.session")
int sexton_session(struct pt_regs *registers)
{
	__u64 cookie = bpf_get_attach_cookie(registers);
	__u32 slot = cookie >> SEXTON_COOKIE_SITE_BITS;
	__u32 site = cookie & ((1 << SEXTON_COOKIE_SITE_BITS) - 1);

	if (!is_session_return(registers))
		return on_entry(registers, slot, site);
	on_return(registers, slot, site);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

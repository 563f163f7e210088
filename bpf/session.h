/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Uprobe sessions: one program that runs at a function's entry and again at its return, unless it said at the
 * entry that it does not want the return.
 */
#ifndef SEXTON_SESSION_H
#define SEXTON_SESSION_H

/* The kernel function took no argument up to 6.19, and takes the context since: libbpf resolves the one that
 * the running kernel has and leaves the other out (what follows the three underscores is ignored). */
extern bool bpf_session_is_return___without_context(void) __weak __ksym;
extern bool bpf_session_is_return___with_context(void *context) __weak __ksym;

static __always_inline bool
is_session_return(void *context)
{
	if (bpf_ksym_exists(bpf_session_is_return___without_context))
		return bpf_session_is_return___without_context();
	return bpf_session_is_return___with_context(context);
}

#endif

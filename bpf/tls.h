/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * From a thread to its rocksdb::perf_context, by the x86-64 TLS ABI:
 *
 *   static TLS:   block = thread pointer + a distance that is the same in all threads
 *   dynamic TLS:  dtv = *(thread pointer + 8);  block = dtv[module id].pointer
 *
 * glibc's dynamic thread vector (sysdeps/generic/dl-dtv.h) is an array of 16-byte slots; slot -1 holds
 * its length in slots, slot 0 its generation. A slot is -1 before the thread first touched the module:
 * that thread has counted nothing, which is not an error. musl's (ldso/dynlink.c, src/env/__init_tls.c) is an array of
 * pointers; the first word is its length.
 *
 * Read here is the current thread alone, and only memory that is resident: no program of ours sleeps. Other
 * threads' memory is read by user space (agent/probe/src/thread_memory.rs has the same steps): a program that
 * waited for a page of a file system that hangs would hold up the removal of every probe of the node, because the
 * kernel waits for all sleeping programs then.
 */
#ifndef SEXTON_TLS_H
#define SEXTON_TLS_H

enum tls_result {
	/* *block holds the address. */
	TLS_FOUND,
	/* The thread has not touched the module yet. */
	TLS_UNTOUCHED,
	/* Memory could not be read. */
	TLS_UNREADABLE,
};

static __always_inline enum tls_result
tls_block(__u64 thread_pointer, const struct sexton_recipe *recipe, __u64 *block)
{
	__u64 slot_bytes = recipe->has_musl_vector ? SEXTON_DTV_MUSL_SLOT_BYTES : SEXTON_DTV_SLOT_BYTES;
	__u64 length_before = recipe->has_musl_vector ? 0 : SEXTON_DTV_SLOT_BYTES;
	__u64 dtv = 0, length = 0;

	if (!thread_pointer)
		return TLS_UNTOUCHED;
	if (!recipe->module_id) {
		*block = thread_pointer + recipe->static_offset;
		return TLS_FOUND;
	}
	if (bpf_probe_read_user(&dtv, sizeof(dtv), (const void *)(thread_pointer + SEXTON_DTV_OFFSET)))
		return TLS_UNREADABLE;
	if (bpf_probe_read_user(&length, sizeof(length), (const void *)(dtv - length_before)))
		return TLS_UNREADABLE;
	/* A vector that is too short belongs to a thread older than the module. */
	if (recipe->module_id > length)
		return TLS_UNTOUCHED;
	if (bpf_probe_read_user(block, sizeof(*block), (const void *)(dtv + slot_bytes * recipe->module_id)))
		return TLS_UNREADABLE;
	if (!*block || *block == SEXTON_DTV_UNALLOCATED)
		return TLS_UNTOUCHED;
	return TLS_FOUND;
}

/*
 * Reads the counters of the current thread. One that has not touched RocksDB has zeros: *counters must come in
 * zeroed, and it is left so.
 */
static __always_inline enum tls_result
tls_counters(__u64 thread_pointer, const struct sexton_recipe *recipe, struct sexton_counters *counters,
	     __u64 *block)
{
	/* Neighbours in every RocksDB from 5.8 to 11.12; user space checks the layout's row for it. */
	struct { __u64 cache_hits, reads, read_bytes; } blocks = {};
	struct { __u64 keys, tombstones, recent, merges, behind[SEXTON_SKIP_WORDS - 4]; } skips = {};
	enum tls_result result = tls_block(thread_pointer, recipe, block);
	__u64 context;

	if (result != TLS_FOUND)
		return result;
	context = *block + recipe->perf_context_offset;
	if (bpf_probe_read_user(&blocks, sizeof(blocks), (const void *)(context + recipe->block_counters_offset)) ||
	    bpf_probe_read_user(&skips, sizeof(skips), (const void *)(context + recipe->skip_counters_offset)))
		return TLS_UNREADABLE;
	counters->tombstones_skipped = skips.tombstones;
	counters->keys_skipped = skips.keys;
	counters->block_reads = blocks.reads;
	counters->block_read_bytes = blocks.read_bytes;
	counters->block_cache_hits = blocks.cache_hits;
	counters->merge_operands = skips.merges;
	counters->range_deletion_reseeks = recipe->reseek_word == 4   ? skips.behind[0]
					   : recipe->reseek_word == 5 ? skips.behind[1]
								      : 0;
	return TLS_FOUND;
}

#endif

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
 * The functions are the same for a probe (the current thread, no sleeping) and for the sentinel (any
 * thread, sleepable): `sleepable` is a constant at every call, so that only one of the two ways to read
 * user memory is left in a program.
 */
#ifndef SEXTON_TLS_H
#define SEXTON_TLS_H

#define TLS_DTV_OFFSET 8
#define TLS_DTV_SLOT_BYTES 16
#define TLS_DTV_UNALLOCATED (~0ULL)
#define TLS_MUSL_DTV_SLOT_BYTES 8

enum tls_result {
	/* *block holds the address. */
	TLS_FOUND,
	/* The thread has not touched the module yet. */
	TLS_UNTOUCHED,
	/* Memory could not be read. */
	TLS_UNREADABLE,
};

/* 0 on success. Without sleepable, only memory of the current task, and only where it is resident. */
static __always_inline long
read_user(void *destination, __u32 bytes, __u64 address, struct task_struct *task, const bool sleepable)
{
	if (sleepable)
		return bpf_copy_from_user_task(destination, bytes, (const void *)address, task, 0);
	return bpf_probe_read_user(destination, bytes, (const void *)address);
}

static __always_inline enum tls_result
tls_block(struct task_struct *task, __u64 thread_pointer, const struct sexton_recipe *recipe,
	  __u64 *block, const bool sleepable)
{
	__u64 slot_bytes = recipe->has_musl_vector ? TLS_MUSL_DTV_SLOT_BYTES : TLS_DTV_SLOT_BYTES;
	__u64 length_before = recipe->has_musl_vector ? 0 : TLS_DTV_SLOT_BYTES;
	__u64 dtv = 0, length = 0;

	if (!thread_pointer)
		return TLS_UNTOUCHED;
	if (!recipe->module_id) {
		*block = thread_pointer + recipe->static_offset;
		return TLS_FOUND;
	}
	if (read_user(&dtv, sizeof(dtv), thread_pointer + TLS_DTV_OFFSET, task, sleepable))
		return TLS_UNREADABLE;
	if (read_user(&length, sizeof(length), dtv - length_before, task, sleepable))
		return TLS_UNREADABLE;
	/* A vector that is too short belongs to a thread older than the module. */
	if (recipe->module_id > length)
		return TLS_UNTOUCHED;
	if (read_user(block, sizeof(*block), dtv + slot_bytes * recipe->module_id, task, sleepable))
		return TLS_UNREADABLE;
	if (!*block || *block == TLS_DTV_UNALLOCATED)
		return TLS_UNTOUCHED;
	return TLS_FOUND;
}

/*
 * Reads the counters of a thread, which task names where sleepable and is the current one else. A thread
 * that has not touched RocksDB has zeros: *counters must come in zeroed, and it is left so.
 */
static __always_inline enum tls_result
tls_counters(struct task_struct *task, __u64 thread_pointer, const struct sexton_recipe *recipe,
	     struct sexton_counters *counters, __u64 *block, const bool sleepable)
{
	/* Neighbours in every RocksDB from 5.8 to 11.12; user space checks the layout's row for it. */
	struct { __u64 cache_hits, reads, read_bytes; } blocks = {};
	struct { __u64 keys, tombstones, recent, merges, behind[SEXTON_SKIP_WORDS - 4]; } skips = {};
	enum tls_result result = tls_block(task, thread_pointer, recipe, block, sleepable);
	__u64 context;

	if (result != TLS_FOUND)
		return result;
	context = *block + recipe->perf_context_offset;
	if (read_user(&blocks, sizeof(blocks), context + recipe->block_counters_offset, task, sleepable) ||
	    read_user(&skips, sizeof(skips), context + recipe->skip_counters_offset, task, sleepable))
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

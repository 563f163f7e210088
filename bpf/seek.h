/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The window's probes: whom to charge for every tombstone skipped and every block read.
 *
 * A thread's counters only ever grow, but for a host that resets them. At each event of a thread (a
 * positioning call begins, it returns, an iterator is destroyed) what was counted since the last event is
 * charged to exactly one party:
 *
 *   inside a positioning call    to that iterator's operation, as "seek"
 *   after it has returned        to the operation of the iterator that has moved, as "scan" (Next, Prev)
 *   otherwise                    to nobody: "unowned"
 *
 * So attributed + unowned is what was counted in the thread since its first event, to the last unit;
 * user space settles what is still open when a window closes from the sentinel's reading.
 *
 * A thread may have several iterators positioned, and move one that it has not positioned last. An iterator keeps a
 * count of its own of the keys that it has stepped over, tombstones and others together: the one whose count has
 * grown has moved. Where several have, or more tombstones were counted than the one has stepped over, the sum stays
 * right, but whose they are is not known: the operation that is charged says how many of its tombstones these are.
 *
 * Some programs set a thread's counters to zero now and then, MyRocks before each statement. That is an event
 * too, the last at which the old counters can be read: what stands in them is added to what was discarded. So
 * what was counted in all is what user space reads at the end, plus what was discarded, minus what it
 * read at the beginning.
 *
 * Probes cost their target time, so user space grants a slot credit, and each event that is followed takes
 * its price from it. Once it is gone entries are skipped: a pause. What happens in a pause is not seen, so at a
 * thread's first event after one, what was counted since its last event is charged to nobody, and whose the
 * thread was is forgotten; operations from before it end with what was known of them. A pause is named by the
 * credit granted up to it, which only grows: no two have the same name.
 *
 * This is the body of all programs: seek.bpf.c has them as pairs of uprobes and uretprobes,
 * session.bpf.c as one session. They call on_entry() and on_return().
 */
#ifndef SEXTON_SEEK_H
#define SEXTON_SEEK_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "sexton.h"
#include "tls.h"

/* By slot; those that are not armed have no process. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEXTON_TARGETS_MAX);
	__type(key, __u32);
	__type(value, struct sexton_recipe);
} sexton_armed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEXTON_THREADS_MAX);
	__type(key, struct sexton_thread_id);
	__type(value, struct sexton_thread);
} sexton_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEXTON_ITERATORS_MAX);
	__type(key, struct sexton_iterator_id);
	__type(value, struct sexton_operation);
} sexton_operations SEC(".maps");

/* Identities of iterators whose creation was seen; the least recently used give way. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SEXTON_ITERATORS_MAX);
	__type(key, struct sexton_iterator_id);
	__type(value, struct sexton_identity);
} sexton_identities SEC(".maps");

/* Between the entry of DBImpl::NewIterator and its return. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SEXTON_THREADS_MAX);
	__type(key, struct sexton_thread_id);
	__type(value, struct sexton_identity);
} sexton_creations SEC(".maps");

/* By slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEXTON_TARGETS_MAX);
	__type(key, __u32);
	__type(value, struct sexton_learnt);
} sexton_learnt_offsets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEXTON_FILES_MAX);
	__type(key, struct sexton_file_id);
	__type(value, struct sexton_file);
} sexton_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEXTON_FAMILIES_MAX);
	__type(key, struct sexton_family_id);
	__type(value, struct sexton_family);
} sexton_families SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SEXTON_TARGETS_MAX);
	__type(key, __u32);
	__type(value, struct sexton_totals);
} sexton_totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SEXTON_RECORDS_BYTES);
} sexton_records SEC(".maps");

/* Nanoseconds granted to a slot since its window opened; only grows. Written by user space alone, as
 * sexton_spending is by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEXTON_TARGETS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} sexton_granted SEC(".maps");

/* By slot; user space sets it to zero before it arms. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEXTON_TARGETS_MAX);
	__type(key, __u32);
	__type(value, struct sexton_spending);
} sexton_spending SEC(".maps");

/* What an entry says about its return: a session does not even arm one that is not wanted. */
enum {
	RETURN_WANTED = 0,
	RETURN_UNWANTED = 1,
};

/* A key that an iterator stands on is not counted by it once it moves on: tombstones can be one more than the keys that it
 * says it has stepped over. */
#define KEYS_STOOD_ON 1

/* Bytes from DBIter::local_stats_.next_count_ to its skip_count_: the same in all versions that have both. */
#define STEPS_BEFORE_SKIP_COUNT 40

/* Words of a DBIter that are searched for its ColumnFamilyData* and its DBImpl*. */
#define LEARN_WORDS 96

static const struct sexton_operation empty_operation;
static const struct sexton_thread empty_thread;
static const struct sexton_file empty_file;

static const struct sexton_family empty_family;

/* One firing of a probe: who, in which target, with what counters. */
struct event {
	const struct sexton_recipe *recipe;
	struct sexton_totals *totals;
	struct sexton_thread *thread;
	struct sexton_counters now;
	/* Address of the thread's block of thread-local variables, 0 where it has none. */
	__u64 block;
	/* The last pause before this event. */
	__u64 pause;
	struct sexton_thread_id id;
	__u32 process_id;
};

/* A program can be preempted by another thread's on the same CPU: additions have to be atomic even
 * though the totals are per CPU. */
#define ADD(field, amount) __sync_fetch_and_add(&(field), (amount))

/* What other CPUs write is read once and in the order that is written here. */
#define READ_ONCE(field) (*(volatile typeof(field) *)&(field))
#define WRITE_ONCE(field, value) (*(volatile typeof(field) *)&(field) = (value))

static __always_inline void
add_counters(struct sexton_counters *sum, const struct sexton_counters *delta)
{
	ADD(sum->tombstones_skipped, delta->tombstones_skipped);
	ADD(sum->keys_skipped, delta->keys_skipped);
	ADD(sum->block_reads, delta->block_reads);
	ADD(sum->block_read_bytes, delta->block_read_bytes);
	ADD(sum->block_cache_hits, delta->block_cache_hits);
	ADD(sum->merge_operands, delta->merge_operands);
	ADD(sum->range_deletion_reseeks, delta->range_deletion_reseeks);
}

static __always_inline struct sexton_operation *
find_operation(__u32 slot, __u64 iterator)
{
	struct sexton_iterator_id id = { .iterator = iterator, .slot = slot };

	return iterator ? bpf_map_lookup_elem(&sexton_operations, &id) : 0;
}

/* Whether the slot is armed for this process; fills the event's recipe and totals. */
static __always_inline bool
open_target(struct event *event, __u32 slot)
{
	__u64 ids = bpf_get_current_pid_tgid();

	event->process_id = ids >> 32;
	event->id.thread_id = (__u32)ids;
	event->id.slot = slot;
	event->totals = bpf_map_lookup_elem(&sexton_totals, &slot);
	if (!event->totals)
		return false;
	event->recipe = bpf_map_lookup_elem(&sexton_armed, &slot);
	return event->recipe && event->recipe->process_id == event->process_id;
}

/* Whether there is credit for an entry, which is then taken. The pause is read first: one that is seen then has
 * ended, for as long as it lasts there is no credit. */
static __always_inline bool
take_credit(struct event *event, __u32 site)
{
	struct sexton_spending *spending = bpf_map_lookup_elem(&sexton_spending, &event->id.slot);
	__u64 *granted = bpf_map_lookup_elem(&sexton_granted, &event->id.slot);
	__u32 price_ns = event->recipe->price_ns[site & (SEXTON_SITES_MAX - 1)];
	__u64 granted_ns;

	if (!spending || !granted)
		return false;
	event->pause = READ_ONCE(spending->pause);
	granted_ns = READ_ONCE(*granted);
	if (READ_ONCE(spending->spent_ns) >= granted_ns) {
		WRITE_ONCE(spending->pause, granted_ns);
		event->pause = granted_ns;
		return false;
	}
	if (price_ns)
		ADD(spending->spent_ns, price_ns);
	return true;
}

/* The current thread's pointer and start, in the way that the running kernel has. */
static __always_inline __u64
current_thread(__u64 *start_boot_ns)
{
	struct task_struct *task;

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)) {
		task = bpf_get_current_task_btf();
		*start_boot_ns = task->start_boottime;
		return task->thread.fsbase;
	}
	task = (struct task_struct *)bpf_get_current_task();
	*start_boot_ns = BPF_CORE_READ(task, start_boottime);
	return BPF_CORE_READ(task, thread.fsbase);
}

/* Reads the current thread's counters. A module without a perf_context counts nothing. */
static __always_inline bool
read_counters(struct event *event, __u64 *start_boot_ns)
{
	__u64 thread_pointer = current_thread(start_boot_ns);

	if (!event->recipe->has_perf_context ||
	    tls_counters(thread_pointer, event->recipe, &event->now, &event->block) != TLS_UNREADABLE)
		return true;
	ADD(event->totals->read_failures, 1);
	return false;
}

/* Reads the thread's counters and finds its account, which begins with this reading when it is new. */
static __always_inline bool
open_thread(struct event *event)
{
	__u64 start_boot_ns = 0;

	if (!read_counters(event, &start_boot_ns))
		return false;
	event->thread = bpf_map_lookup_elem(&sexton_threads, &event->id);
	if (event->thread && event->thread->start_boot_ns == start_boot_ns)
		return true;
	if (bpf_map_update_elem(&sexton_threads, &event->id, &empty_thread, BPF_ANY)) {
		ADD(event->totals->map_full, 1);
		return false;
	}
	event->thread = bpf_map_lookup_elem(&sexton_threads, &event->id);
	if (!event->thread)
		return false;
	event->thread->start_boot_ns = start_boot_ns;
	event->thread->boundary = event->now;
	event->thread->pause = event->pause;
	return true;
}

/* What was counted between two readings of a counter, all of it where it was set to zero in between. */
static __always_inline __u64
counted(__u64 now, __u64 before)
{
	return now >= before ? now - before : now;
}

/* Whether a counter is smaller than it was. */
static __always_inline bool
fell_below(const struct sexton_counters *now, const struct sexton_counters *before)
{
	return now->tombstones_skipped < before->tombstones_skipped ||
	       now->keys_skipped < before->keys_skipped || now->block_reads < before->block_reads ||
	       now->block_read_bytes < before->block_read_bytes ||
	       now->block_cache_hits < before->block_cache_hits ||
	       now->merge_operands < before->merge_operands ||
	       now->range_deletion_reseeks < before->range_deletion_reseeks;
}

/* The thread's counters are set to zero, or were since its last event. */
static __always_inline void
discard(struct event *event, const struct sexton_counters *counters)
{
	static const struct sexton_counters nothing;

	add_counters(&event->totals->discarded, counters);
	event->thread->boundary = nothing;
}

/* All keys that an iterator has stepped over, by its own count: those of its earlier calls and those of its last one. */
static __always_inline __u64
keys_walked_by(struct event *event, __u64 iterator)
{
	__u64 earlier = 0, last = 0;

	if (bpf_probe_read_user(&earlier, sizeof(earlier),
				(const void *)(iterator + event->recipe->skip_count_offset)) ||
	    bpf_probe_read_user(&last, sizeof(last),
				(const void *)(iterator + event->recipe->keys_skipped_offset)))
		return 0;
	return earlier + last;
}

/* Calls of Next and Prev that an iterator has had, by its own count: DBIter::local_stats_.next_count_ and .prev_count_,
 * the first and the third of six words of which skip_count_ is the last. */
static __always_inline __u64
steps_of(struct event *event, __u64 iterator)
{
	struct { __u64 next, next_found, prev; } steps = {};

	if (bpf_probe_read_user(&steps, sizeof(steps),
				(const void *)(iterator + event->recipe->skip_count_offset - STEPS_BEFORE_SKIP_COUNT)))
		return 0;
	return steps.next + steps.prev;
}

static __always_inline bool
has_own_count(const struct sexton_recipe *recipe)
{
	return recipe->skip_count_offset && recipe->keys_skipped_offset;
}

/* The iterator stands where the positioning call has left it, the others where the last event has seen them. */
static __always_inline void
note_positioned(struct event *event, struct sexton_operation *operation)
{
	struct sexton_thread *thread = event->thread;
	__u64 iterator = operation->iterator, incoming = iterator, before;
	struct sexton_operation *other;

	for (__u32 index = 0; index < SEXTON_POSITIONED_MAX && incoming; index++) {
		before = thread->positioned[index];
		thread->positioned[index] = incoming;
		incoming = before == iterator ? 0 : before;
		if (!incoming || !has_own_count(event->recipe))
			continue;
		other = find_operation(event->id.slot, incoming);
		if (other)
			other->keys_walked = keys_walked_by(event, incoming);
	}
	if (!has_own_count(event->recipe))
		return;
	operation->keys_walked = keys_walked_by(event, iterator);
	operation->steps_before = steps_of(event, iterator);
}

/* The iterator moves no more. */
static __always_inline void
forget_positioned(struct sexton_thread *thread, __u64 iterator)
{
	__u64 next;
	bool is_behind = false;

	for (__u32 index = 0; index < SEXTON_POSITIONED_MAX; index++) {
		next = index + 1 < SEXTON_POSITIONED_MAX ? thread->positioned[index + 1] : 0;
		is_behind |= thread->positioned[index] == iterator;
		if (is_behind)
			thread->positioned[index] = next;
	}
}

/* Looks which of the thread's iterators have moved since its last event. What is found is kept in the thread's account:
 * the verifier then need not follow each outcome to the program's end. */
static __always_inline void
look_for_movers(struct event *event)
{
	struct sexton_thread *thread = event->thread;
	struct sexton_operation *operation;
	__u64 walked, more;

	thread->known = 0;
	thread->moved = 0;
	thread->mover = 0;
	thread->mover_keys = 0;
	for (__u32 index = 0; index < SEXTON_POSITIONED_MAX; index++) {
		operation = find_operation(event->id.slot, thread->positioned[index]);
		if (!operation)
			continue;
		thread->known++;
		if (!has_own_count(event->recipe))
			continue;
		walked = keys_walked_by(event, operation->iterator);
		more = walked - operation->keys_walked;
		operation->keys_walked = walked;
		if ((__s64)more <= 0)
			continue;
		thread->moved++;
		thread->mover = operation->iterator;
		thread->mover_keys = more;
	}
}

/* The iterator that is charged for what was counted since the thread's last event, while no positioning call ran, or 0.
 * Block reads go with the tombstones; without any, the one positioned last is charged. */
static __always_inline __u64
scanner(struct event *event, __u64 tombstones, bool *is_ambiguous)
{
	struct sexton_thread *thread = event->thread;

	if (!thread->positioned[0] || (!tombstones && !thread->positioned[1]))
		return thread->owner;
	look_for_movers(event);
	if (tombstones <= KEYS_STOOD_ON)
		return thread->owner;
	if (!has_own_count(event->recipe)) {
		/* Without the offset iterators that have ended are not told from others. */
		*is_ambiguous = event->recipe->db_iter_offset && thread->known > 1;
		return thread->owner;
	}
	/* One that the window has not seen positioned. */
	if (!thread->moved)
		return 0;
	if (thread->moved == 1 && tombstones <= thread->mover_keys + KEYS_STOOD_ON)
		return thread->mover;
	*is_ambiguous = true;
	return thread->owner ? thread->owner : thread->mover;
}

static __always_inline void
forget_iterators(struct sexton_thread *thread)
{
	thread->owner = 0;
	thread->active = 0;
	for (__u32 index = 0; index < SEXTON_POSITIONED_MAX; index++)
		thread->positioned[index] = 0;
}

/* Charges what was counted since the thread's last event; to nobody where a pause lies between. */
static __always_inline void
settle(struct event *event)
{
	struct sexton_thread *thread = event->thread;
	struct sexton_operation *operation;
	struct sexton_counters delta;
	bool is_ambiguous = false, is_paused;
	__u64 charged;

	/* Set to zero in a way that no probe saw: at least what stood there at the last event is gone. */
	if (fell_below(&event->now, &thread->boundary))
		discard(event, &thread->boundary);
	delta.tombstones_skipped = event->now.tombstones_skipped - thread->boundary.tombstones_skipped;
	delta.keys_skipped = event->now.keys_skipped - thread->boundary.keys_skipped;
	delta.block_reads = event->now.block_reads - thread->boundary.block_reads;
	delta.block_read_bytes = event->now.block_read_bytes - thread->boundary.block_read_bytes;
	delta.block_cache_hits = event->now.block_cache_hits - thread->boundary.block_cache_hits;
	delta.merge_operands = event->now.merge_operands - thread->boundary.merge_operands;
	delta.range_deletion_reseeks =
		event->now.range_deletion_reseeks - thread->boundary.range_deletion_reseeks;
	thread->boundary = event->now;
	is_paused = thread->pause != event->pause;
	if (is_paused) {
		thread->pause = event->pause;
		forget_iterators(thread);
	}
	charged = thread->active;
	if (!charged)
		charged = scanner(event, delta.tombstones_skipped, &is_ambiguous);
	operation = find_operation(event->id.slot, charged);
	if (!operation) {
		add_counters(&event->totals->unowned, &delta);
		if (is_paused)
			add_counters(&event->totals->paused, &delta);
		return;
	}
	add_counters(thread->active ? &operation->seek : &operation->scan, &delta);
	add_counters(&event->totals->attributed, &delta);
	if (is_ambiguous)
		ADD(operation->tombstones_ambiguous, delta.tombstones_skipped);
}

/* Where the iterator stands: DBIter::saved_key_, which outlives a scan that ran off the end. */
static __always_inline void
read_end_key(struct event *event, struct sexton_operation *operation)
{
	struct { __u64 data, bytes; } current = {};
	__u32 bytes;

	if (!event->recipe->current_key_offset ||
	    bpf_probe_read_user(&current, sizeof(current),
				(const void *)(operation->iterator + event->recipe->current_key_offset)))
		return;
	bytes = current.bytes < SEXTON_KEY_BYTES_MAX ? current.bytes : SEXTON_KEY_BYTES_MAX;
	if (bytes && !bpf_probe_read_user(operation->end_key, bytes, (const void *)current.data))
		operation->end_key_bytes = bytes;
}

/* Whether this thread's counters stand still, and there is another count to estimate from. */
static __always_inline bool
wants_estimate(struct event *event)
{
	__u8 level = SEXTON_PERF_LEVEL_COUNTS;

	if (!event->recipe->keys_skipped_offset)
		return false;
	if (!event->recipe->has_perf_context)
		return true;
	if (event->block && event->recipe->perf_level_offset != SEXTON_OFFSET_ABSENT)
		bpf_probe_read_user(&level, sizeof(level),
				    (const void *)(event->block + event->recipe->perf_level_offset));
	return level < SEXTON_PERF_LEVEL_COUNTS;
}

/* What the iterator's last call has stepped over: DBIter::num_internal_keys_skipped_. */
static __always_inline __u64
keys_skipped_by(struct event *event, __u64 iterator)
{
	__u64 count = 0;

	if (bpf_probe_read_user(&count, sizeof(count),
				(const void *)(iterator + event->recipe->keys_skipped_offset)))
		ADD(event->totals->read_failures, 1);
	return count;
}

/* The estimate of a positioning call that has just returned. */
static __always_inline void
estimate_seek(struct event *event, struct sexton_operation *operation)
{
	if (!wants_estimate(event))
		return;
	operation->is_estimated = 1;
	operation->keys_skipped_at_return = keys_skipped_by(event, operation->iterator);
	ADD(operation->seek.tombstones_skipped, operation->keys_skipped_at_return);
	ADD(event->totals->attributed.tombstones_skipped, operation->keys_skipped_at_return);
	ADD(event->totals->operations_estimated, 1);
}

/* The estimate of the scan: its last call's count. Where that is still the positioning call's there was most
 * likely no other. */
static __always_inline void
estimate_scan(struct event *event, struct sexton_operation *operation)
{
	__u64 count;

	if (!operation->is_estimated)
		return;
	count = keys_skipped_by(event, operation->iterator);
	if (count == operation->keys_skipped_at_return)
		return;
	ADD(operation->scan.tombstones_skipped, count);
	ADD(event->totals->attributed.tombstones_skipped, count);
}

/* How often the iterator was moved since it was positioned. */
static __always_inline void
count_steps(struct event *event, struct sexton_operation *operation)
{
	if (has_own_count(event->recipe) && operation->return_ns)
		operation->steps_and_one = steps_of(event, operation->iterator) - operation->steps_before + 1;
}

/* Tombstones that take as long as all that the operation has stepped over in vain: these, older versions at half of one
 * each, merge operands, and seeks behind range tombstones. Among the keys skipped are the live ones that were
 * stepped from, and those that tombstones hide. */
static __always_inline __u64
as_tombstones(const struct sexton_operation *operation)
{
	__u64 tombstones = operation->seek.tombstones_skipped + operation->scan.tombstones_skipped;
	__u64 keys = operation->seek.keys_skipped + operation->scan.keys_skipped;
	__u64 others = operation->steps_and_one + SEXTON_KEYS_PER_TOMBSTONE * tombstones;
	__u64 merges = operation->seek.merge_operands + operation->scan.merge_operands;
	__u64 reseeks = operation->seek.range_deletion_reseeks + operation->scan.range_deletion_reseeks;
	__u64 old_versions = operation->steps_and_one && keys > others ? keys - others : 0;

	return tombstones + old_versions / SEXTON_KEYS_PER_TOMBSTONE + merges +
	       SEXTON_TOMBSTONES_PER_RESEEK * reseeks;
}

/* Operations like this one that a record of it stands for; 0 where there is nothing to record. The sums of what records
 * stand for are those of all operations, but for chance, wherever the operations were and however small. A weight is a
 * whole number, rounded down, so that sums are whole too: of two operations that are nearly large enough for a record of
 * their own each gets one. */
static __always_inline __u64
weight_of(const struct sexton_recipe *recipe, __u64 tombstones, __u64 block_reads)
{
	__u64 weight = ~0ULL, of_reads;

	if (!recipe->tombstones_per_record)
		return 1;
	if (!(tombstones | block_reads))
		return 0;
	if (tombstones)
		weight = recipe->tombstones_per_record / tombstones;
	if (block_reads) {
		of_reads = recipe->block_reads_per_record / block_reads;
		if (of_reads < weight)
			weight = of_reads;
	}
	if (weight > SEXTON_WEIGHT_MAX)
		return 0;
	return weight ? weight : 1;
}

/* Whether an operation is chosen that would stand for so many. */
static __always_inline bool
is_chosen(__u64 weight)
{
	return weight == 1 || (weight && bpf_get_prandom_u32() % (__u32)weight == 0);
}

/* The bucket of a number: floor(log2), 0 of 0, and the last one of all that is greater. Without branches: the verifier
 * follows both sides of each, and what comes after them as often. */
static __always_inline __u32
bucket_of(__u64 number)
{
	__u32 bucket = 0;
	__u64 is_over;

	for (__u32 shift = 32; shift; shift /= 2) {
		is_over = ((1ULL << shift) - 1 - number) >> 63;
		barrier_var(is_over);
		number >>= is_over * shift;
		bucket += is_over * shift;
	}
	return bucket < SEXTON_LATENCY_BUCKETS ? bucket : SEXTON_LATENCY_BUCKETS - 1;
}

/* The account of an operation's column family, which begins now when it is new; 0 where there is no room. */
static __always_inline struct sexton_family *
open_family(struct event *event, const struct sexton_operation *operation)
{
	struct sexton_family_id id = { .column_family_data = operation->column_family_data, .slot = event->id.slot };
	struct sexton_family *family = bpf_map_lookup_elem(&sexton_families, &id);

	if (!family) {
		bpf_map_update_elem(&sexton_families, &id, &empty_family, BPF_NOEXIST);
		family = bpf_map_lookup_elem(&sexton_families, &id);
	}
	if (!family) {
		ADD(event->totals->map_full, 1);
		return 0;
	}
	if (operation->database)
		family->database = operation->database;
	if (operation->column_family_handle)
		family->column_family_handle = operation->column_family_handle;
	return family;
}

/* What an operation waited for, which has ended, and whose positioning call has returned. */
static __always_inline void
charge_family(struct event *event, const struct sexton_operation *operation, __u64 tombstones)
{
	struct sexton_family *family = open_family(event, operation);
	__u64 seek_ns = operation->return_ns - operation->start_ns;
	__u64 list_ns = operation->end_ns - operation->start_ns;

	if (!family)
		return;
	ADD(family->seek_ns, seek_ns);
	ADD(family->seek_histogram[bucket_of(seek_ns)], 1);
	ADD(family->list_ns, list_ns);
	ADD(family->list_histogram[bucket_of(list_ns)], 1);
	ADD(family->tombstones, tombstones);
	ADD(family->tombstone_histogram[bucket_of(tombstones)], 1);
}

/* Ends an operation: counted, and recorded where it is chosen for that. One from before a pause ended nobody knows when
 * and where. */
static __always_inline void
finish(struct event *event, struct sexton_operation *operation)
{
	struct sexton_iterator_id id = { .iterator = operation->iterator, .slot = event->id.slot };
	bool is_known = operation->pause == event->pause;
	__u64 tombstones, block_reads, weight;

	operation->end_ns = is_known ? bpf_ktime_get_ns() : operation->return_ns;
	if (is_known) {
		estimate_scan(event, operation);
		count_steps(event, operation);
	}
	tombstones = as_tombstones(operation);
	block_reads = operation->seek.block_reads + operation->scan.block_reads;
	ADD(event->totals->operations, 1);
	if (is_known && operation->return_ns)
		charge_family(event, operation, tombstones);
	weight = weight_of(event->recipe, tombstones, block_reads);
	if (is_chosen(weight)) {
		ADD(event->totals->operations_recorded, 1);
		operation->weight = weight;
		if (is_known)
			read_end_key(event, operation);
		if (bpf_ringbuf_output(&sexton_records, operation, sizeof(*operation), 0))
			ADD(event->totals->records_lost, 1);
	}
	bpf_map_delete_elem(&sexton_operations, &id);
}

/* The word at an offset of an iterator, 0 where it is not known or cannot be read. */
static __always_inline __u64
word_at(__u64 iterator, __u32 offset)
{
	__u64 word = 0;

	if (offset)
		bpf_probe_read_user(&word, sizeof(word), (const void *)(iterator + offset));
	return word;
}

/* Whose iterator it is: from its creation, or from the fields that a creation has shown. */
static __always_inline void
identify(struct sexton_operation *operation, struct sexton_iterator_id *id)
{
	struct sexton_identity *identity = bpf_map_lookup_elem(&sexton_identities, id);
	struct sexton_learnt *learnt;

	/* One from before a pause may be another iterator's by now. */
	if (identity && identity->pause == operation->pause) {
		operation->database = identity->database;
		operation->column_family_handle = identity->column_family_handle;
		operation->column_family_data = identity->column_family_data;
		return;
	}
	learnt = bpf_map_lookup_elem(&sexton_learnt_offsets, &id->slot);
	if (!learnt)
		return;
	operation->database = word_at(id->iterator, learnt->database_offset);
	operation->column_family_data = word_at(id->iterator, learnt->column_family_data_offset);
}

/* A rocksdb::Slice in memory. */
struct slice {
	__u64 data;
	__u64 bytes;
};

static __always_inline void
read_key(struct event *event, struct sexton_operation *operation, __u64 slice_address)
{
	struct slice slice = {};
	__u32 bytes;

	if (bpf_probe_read_user(&slice, sizeof(slice), (const void *)slice_address)) {
		ADD(event->totals->read_failures, 1);
		return;
	}
	bytes = slice.bytes < SEXTON_KEY_BYTES_MAX ? slice.bytes : SEXTON_KEY_BYTES_MAX;
	if (!bytes)
		return;
	if (bpf_probe_read_user(operation->key, bytes, (const void *)slice.data)) {
		ADD(event->totals->read_failures, 1);
		return;
	}
	operation->key_bytes = bytes;
}

/* A new operation in the map, zeroed, or 0 where the map is full. */
static __always_inline struct sexton_operation *
begin_operation(struct event *event, __u64 iterator, __u32 kind)
{
	struct sexton_iterator_id id = { .iterator = iterator, .slot = event->id.slot };
	struct sexton_operation *operation;

	if (bpf_map_update_elem(&sexton_operations, &id, &empty_operation, BPF_ANY)) {
		ADD(event->totals->map_full, 1);
		return 0;
	}
	operation = bpf_map_lookup_elem(&sexton_operations, &id);
	if (!operation)
		return 0;
	operation->iterator = iterator;
	operation->process_id = event->process_id;
	operation->thread_id = event->id.thread_id;
	operation->slot = event->id.slot;
	operation->kind = kind;
	operation->owner_before = event->thread->owner != iterator ? event->thread->owner : 0;
	operation->start_ns = bpf_ktime_get_ns();
	operation->pause = event->pause;
	identify(operation, &id);
	return operation;
}

static __always_inline int
seek_entry(struct pt_regs *registers, struct event *event, __u32 kind)
{
	struct sexton_operation *operation, *earlier;
	__u64 iterator = registers->di;

	if (!open_thread(event))
		return RETURN_UNWANTED;
	/* SeekToFirst may call Seek on the same iterator: one operation. A call whose frame is gone (left
	 * by an exception) never returned: it is over. */
	if (event->thread->active == iterator &&
	    registers->sp < event->thread->active_stack_pointer)
		return RETURN_UNWANTED;
	settle(event);
	earlier = find_operation(event->id.slot, iterator);
	if (earlier) {
		if (event->thread->owner == iterator)
			event->thread->owner = earlier->owner_before;
		finish(event, earlier);
	}
	operation = begin_operation(event, iterator, kind);
	event->thread->active = operation ? iterator : 0;
	event->thread->active_stack_pointer = registers->sp;
	if (!operation)
		return RETURN_UNWANTED;
	if (kind == SEXTON_SEEK || kind == SEXTON_SEEK_FOR_PREV)
		read_key(event, operation, registers->si);
	return RETURN_WANTED;
}

/* Whether it was waited for. A pause since the entry makes no difference to what the call itself counted; to
 * what comes after it does, and that shows at the thread's next event. */
static __always_inline bool
seek_return(struct pt_regs *registers, struct event *event)
{
	struct sexton_operation *operation;
	__u64 start_boot_ns = 0;

	event->thread = bpf_map_lookup_elem(&sexton_threads, &event->id);
	/* Behind the return the stack is shorter than at the entry; at a nested call's it is not. */
	if (!event->thread || !event->thread->active ||
	    registers->sp <= event->thread->active_stack_pointer)
		return false;
	event->pause = event->thread->pause;
	if (!read_counters(event, &start_boot_ns) || event->thread->start_boot_ns != start_boot_ns)
		return true;
	settle(event);
	operation = find_operation(event->id.slot, event->thread->active);
	if (operation) {
		operation->return_ns = bpf_ktime_get_ns();
		ADD(event->totals->seek_histogram[bucket_of(operation->return_ns - operation->start_ns)], 1);
		estimate_seek(event, operation);
		note_positioned(event, operation);
	}
	event->thread->owner = event->thread->active;
	event->thread->active = 0;
	return true;
}

/* The deleting destructor of ArenaWrappedDBIter: the scan of the DBIter inside is over. */
static __always_inline void
iterator_end(struct pt_regs *registers, struct event *event)
{
	struct sexton_iterator_id id = { .slot = event->id.slot };
	struct sexton_operation *operation;
	__u64 iterator = 0;

	if (!open_thread(event))
		return;
	settle(event);
	if (!event->recipe->db_iter_offset)
		iterator = event->thread->owner;
	else if (bpf_probe_read_user(&iterator, sizeof(iterator),
				     (const void *)(registers->di + event->recipe->db_iter_offset)))
		ADD(event->totals->read_failures, 1);
	id.iterator = iterator;
	forget_positioned(event->thread, iterator);
	bpf_map_delete_elem(&sexton_identities, &id);
	operation = find_operation(event->id.slot, iterator);
	if (!operation)
		return;
	if (event->thread->owner == iterator)
		event->thread->owner = operation->owner_before;
	finish(event, operation);
}

/* PerfContext::Reset(this), which may be called on a copy as well: that is not our business. */
static __always_inline void
counters_reset(struct pt_regs *registers, struct event *event)
{
	if (!open_thread(event) || !event->block ||
	    registers->di != event->block + event->recipe->perf_context_offset)
		return;
	settle(event);
	discard(event, &event->now);
}

/* DBImpl::NewIterator(this, ReadOptions const&, ColumnFamilyHandle*) */
static __always_inline int
new_iterator(struct pt_regs *registers, struct event *event)
{
	struct sexton_identity identity = { .pause = event->pause };

	identity.database = registers->di;
	identity.column_family_handle = registers->dx;
	if (bpf_probe_read_user(&identity.column_family_data, sizeof(__u64),
				(const void *)(identity.column_family_handle +
					       SEXTON_COLUMN_FAMILY_HANDLE_DATA))) {
		ADD(event->totals->read_failures, 1);
		return RETURN_UNWANTED;
	}
	bpf_map_update_elem(&sexton_creations, &event->id, &identity, BPF_ANY);
	return RETURN_WANTED;
}

/* Searches a fresh DBIter for the pointers to its column family and database, once per target. */
static __always_inline void
learn_offsets(__u32 slot, __u64 iterator, const struct sexton_identity *identity)
{
	struct sexton_learnt *learnt = bpf_map_lookup_elem(&sexton_learnt_offsets, &slot);
	__u64 word = 0;
	__u32 offset;

	if (!learnt || learnt->column_family_data_offset)
		return;
	/* From the end, so that the first of several places stays. */
	for (__u32 index = LEARN_WORDS - 1; index; index--) {
		offset = index * 8;
		if (bpf_probe_read_user(&word, sizeof(word), (const void *)(iterator + offset)))
			continue;
		if (word == identity->column_family_data)
			learnt->column_family_data_offset = offset;
		if (word == identity->database)
			learnt->database_offset = offset;
	}
}

/* Whether it was waited for. */
static __always_inline bool
new_iterator_return(struct pt_regs *registers, struct event *event)
{
	struct sexton_iterator_id id = { .slot = event->id.slot };
	struct sexton_identity *creation;

	creation = bpf_map_lookup_elem(&sexton_creations, &event->id);
	if (!creation)
		return false;
	if (event->recipe->db_iter_offset && registers->ax &&
	    !bpf_probe_read_user(&id.iterator, sizeof(__u64),
				 (const void *)(registers->ax + event->recipe->db_iter_offset)) &&
	    id.iterator) {
		bpf_map_update_elem(&sexton_identities, &id, creation, BPF_ANY);
		learn_offsets(event->id.slot, id.iterator, creation);
	}
	bpf_map_delete_elem(&sexton_creations, &event->id);
	return true;
}

/* The account of a file, which begins now when it is new; 0 where there is no room. */
static __always_inline struct sexton_file *
open_file(struct event *event, __u64 address)
{
	struct sexton_file_id id = { .file = address, .slot = event->id.slot };
	struct sexton_file *file = bpf_map_lookup_elem(&sexton_files, &id);

	if (file)
		return file;
	bpf_map_update_elem(&sexton_files, &id, &empty_file, BPF_NOEXIST);
	file = bpf_map_lookup_elem(&sexton_files, &id);
	if (!file)
		ADD(event->totals->map_full, 1);
	return file;
}

/* The file that a BlockFetcher reads from. As long as it is not known where that stands, user space is shown the
 * object. */
static __always_inline long
file_of(struct event *event, __u64 fetcher, __u64 *address)
{
	struct sexton_file *unknown;

	if (event->recipe->fetch_file_offset != SEXTON_FETCH_FILE_UNKNOWN)
		return bpf_probe_read_user(address, sizeof(*address),
					   (const void *)(fetcher + event->recipe->fetch_file_offset));
	unknown = open_file(event, 0);
	return unknown ? bpf_probe_read_user(unknown->fetcher, sizeof(unknown->fetcher), (const void *)fetcher)
		       : 0;
}

/* Who is charged for a block that is read now. After a pause that is known only inside a positioning call that
 * began before it: the call's frame is still there. */
static __always_inline __u64
reader(struct pt_regs *registers, struct event *event)
{
	struct sexton_thread *thread = event->thread;

	if (thread->pause == event->pause)
		return thread->active ? thread->active : thread->owner;
	return registers->sp < thread->active_stack_pointer ? thread->active : 0;
}

/* BlockFetcher::ReadBlockContents(Status *result, this). No event of the thread's account: what was counted is
 * charged at the next one. */
static __always_inline int
read_block(struct pt_regs *registers, struct event *event)
{
	__u64 file = 0;

	if (!open_thread(event))
		return RETURN_UNWANTED;
	if (file_of(event, registers->si, &file)) {
		ADD(event->totals->read_failures, 1);
		return RETURN_UNWANTED;
	}
	event->thread->fetch_iterator = reader(registers, event);
	event->thread->fetch_file = file;
	event->thread->fetch_reads = event->now.block_reads;
	event->thread->fetch_bytes = event->now.block_read_bytes;
	event->thread->fetch_start_ns = bpf_ktime_get_ns();
	return RETURN_WANTED;
}

static __always_inline void
add_fetches(struct sexton_fetches *sum, const struct sexton_fetches *fetched)
{
	ADD(sum->count, fetched->count);
	ADD(sum->bytes, fetched->bytes);
	ADD(sum->latency_ns, fetched->latency_ns);
}

static __always_inline void
charge_file(struct event *event, const struct sexton_fetches *fetched)
{
	struct sexton_file *file = open_file(event, event->thread->fetch_file);
	__u32 bucket = bucket_of(fetched->latency_ns);

	if (!file)
		return;
	add_fetches(&file->fetches, fetched);
	if (fetched->count)
		ADD(file->histogram[bucket], 1);
}

static __always_inline void
charge_block_read(struct event *event, const struct sexton_operation *operation, __u64 latency_ns)
{
	struct sexton_family *family = open_family(event, operation);
	__u32 bucket = bucket_of(latency_ns);

	ADD(event->totals->block_read_histogram[bucket], 1);
	if (!family)
		return;
	ADD(family->block_read_ns, latency_ns);
	ADD(family->block_read_histogram[bucket], 1);
}

/* Whether it was waited for. */
static __always_inline bool
read_block_return(struct event *event)
{
	struct sexton_operation *operation;
	struct sexton_fetches fetched;
	__u64 start_boot_ns = 0;

	event->thread = bpf_map_lookup_elem(&sexton_threads, &event->id);
	if (!event->thread || !event->thread->fetch_start_ns)
		return false;
	fetched.latency_ns = bpf_ktime_get_ns() - event->thread->fetch_start_ns;
	event->thread->fetch_start_ns = 0;
	if (!read_counters(event, &start_boot_ns) || event->thread->start_boot_ns != start_boot_ns)
		return true;
	fetched.count = counted(event->now.block_reads, event->thread->fetch_reads);
	fetched.bytes = counted(event->now.block_read_bytes, event->thread->fetch_bytes);
	ADD(event->totals->block_reads_timed, fetched.count);
	operation = find_operation(event->id.slot, event->thread->fetch_iterator);
	if (operation) {
		add_fetches(&operation->fetches, &fetched);
		if (fetched.count)
			charge_block_read(event, operation, fetched.latency_ns);
	}
	charge_file(event, &fetched);
	return true;
}

static __always_inline struct sexton_site_hits *
hits_at(struct event *event, __u32 site)
{
	return &event->totals->sites[site & (SEXTON_SITES_MAX - 1)];
}

/* A probe at a function's entry has fired. */
static __always_inline int
on_entry(struct pt_regs *registers, __u32 slot, __u32 site)
{
	struct event event = {};
	bool is_armed = open_target(&event, slot);
	bool has_credit = is_armed && take_credit(&event, site);

	if (!event.totals)
		return RETURN_UNWANTED;
	/* Followed in a pause too: what it discards is not to be had a second time. */
	if (is_armed && site == SEXTON_SITE_COUNTERS_RESET) {
		ADD(hits_at(&event, site)->entries, 1);
		counters_reset(registers, &event);
		return RETURN_UNWANTED;
	}
	if (!has_credit) {
		ADD(hits_at(&event, site)->entries_skipped, 1);
		return RETURN_UNWANTED;
	}
	ADD(hits_at(&event, site)->entries, 1);
	if (site < SEXTON_SEEK_KINDS)
		return seek_entry(registers, &event, site);
	if (site == SEXTON_SITE_NEW_ITERATOR)
		return new_iterator(registers, &event);
	if (site == SEXTON_SITE_READ_BLOCK)
		return read_block(registers, &event);
	iterator_end(registers, &event);
	return RETURN_UNWANTED;
}

static __always_inline bool
follow_return(struct pt_regs *registers, struct event *event, __u32 site)
{
	if (site < SEXTON_SEEK_KINDS)
		return seek_return(registers, event);
	if (site == SEXTON_SITE_READ_BLOCK)
		return read_block_return(event);
	return new_iterator_return(registers, event);
}

/* A probe at a function's return has fired. It was paid for at the entry. */
static __always_inline void
on_return(struct pt_regs *registers, __u32 slot, __u32 site)
{
	struct event event = {};
	bool is_open = open_target(&event, slot);

	if (!event.totals)
		return;
	if (is_open && follow_return(registers, &event, site))
		ADD(hits_at(&event, site)->returns, 1);
	else
		ADD(hits_at(&event, site)->returns_skipped, 1);
}

#endif

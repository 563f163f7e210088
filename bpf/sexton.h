/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Every structure that crosses between kernel and user space. This header is the single source of
 * truth: the BPF programs include it, and Rust's types are generated from it at build time.
 *
 * It is self-contained and uses plain integer types only, so that it reads the same behind kernel.h
 * (under clang -target bpf) and alone (under bindgen). Every structure has its size asserted here and,
 * through the generated layout tests, in Rust.
 */
#ifndef SEXTON_H
#define SEXTON_H

/* Targets that can be watched at the same time. Each has a slot, an index into the recipes and the totals:
 * a target is one RocksDB, so a process with two copies of it has two slots. */
#define SEXTON_TARGETS_MAX 512

/* Threads of the agent that read a target's totals at the same time, those among them that wait for ever. */
#define SEXTON_PASSES_MAX 1024

/* Where ColumnFamilyHandleImpl has its ColumnFamilyData*. The crate sexton-rocksdb-layout says so; abi.rs compares. */
#define SEXTON_COLUMN_FAMILY_HANDLE_DATA 8

/* RocksDB copies of one process that are watched. Two were seen in the wild; each costs every ending
 * thread of the process a lookup. */
#define SEXTON_SLOTS_PER_PROCESS_MAX 4

/* Bytes of a seek's key that are kept. Enough for a table prefix and the names below it; a record must
 * stay small, for a node may produce many thousands a second. */
#define SEXTON_KEY_BYTES_MAX 128

/* Threads of all targets whose account is kept while a window is open. */
#define SEXTON_THREADS_MAX 16384

/* Iterators of all targets that are open at the same time in a window. */
#define SEXTON_ITERATORS_MAX 32768

/* Most operations that one record may stand for: smaller ones that would stand for more are not recorded, and
 * show only in the sums. */
#define SEXTON_WEIGHT_MAX (1 << 20)

/* Iterators of one thread that are positioned at the same time and told apart. A merge or a join has two or three;
 * of more, those positioned the longest ago are no longer asked whether they have moved. */
#define SEXTON_POSITIONED_MAX 4

/* SST files of all targets that are read from in a window. A database has some thousands of them; those that do
 * not fit are read all the same, but get no latencies of their own. */
#define SEXTON_FILES_MAX 8192

/* Column families of all targets that operations are counted by in a window. A database has some tens of them; operations
 * in those that do not fit are counted in the sums alone. */
#define SEXTON_FAMILIES_MAX 1024

/* Buckets of a latency histogram: bucket n counts what took from 2^n to 2^(n+1) ns, the last one also all above
 * (nine minutes). */
#define SEXTON_LATENCY_BUCKETS 40

/* Bytes of the ring buffer of recorded operations: some 8,000 records between two drains. */
#define SEXTON_RECORDS_BYTES (4 * 1024 * 1024)

/* Bytes of the ring buffer of ended threads: some 8,000 between two readings. */
#define SEXTON_ENDED_BYTES (512 * 1024)

/* Bytes of the ring buffer of processes that come and go: some 5,000 between two readings. */
#define SEXTON_PROCESS_EVENTS_BYTES (128 * 1024)

/* Words of a perf_context from internal_key_skipped_count on that are read: the count of reseeks is the fifth or
 * the sixth. */
#define SEXTON_SKIP_WORDS 6

/* In sexton_recipe: this offset is not known. */
#define SEXTON_OFFSET_ABSENT 0xffffffffffffffffULL

/*
 * A thread's dynamic thread vector, by the x86-64 TLS ABI: the pointer to it, from the thread pointer; the bytes of
 * its slots in glibc, whose length stands one slot before it, and in musl, whose length is its first word; what
 * glibc has in the slot of a module that the thread has not touched.
 */
#define SEXTON_DTV_OFFSET 8
#define SEXTON_DTV_SLOT_BYTES 16
#define SEXTON_DTV_MUSL_SLOT_BYTES 8
#define SEXTON_DTV_UNALLOCATED 0xffffffffffffffffULL

enum sexton_seek_kind {
	SEXTON_SEEK = 0,
	SEXTON_SEEK_FOR_PREV = 1,
	SEXTON_SEEK_TO_FIRST = 2,
	SEXTON_SEEK_TO_LAST = 3,
	SEXTON_SEEK_KINDS = 4,
};

/* Which function a probe stands at. The first four are enum sexton_seek_kind. */
enum sexton_site {
	/* ArenaWrappedDBIter's deleting destructor. */
	SEXTON_SITE_ITERATOR_END = 4,
	/* DBImpl::NewIterator. */
	SEXTON_SITE_NEW_ITERATOR = 5,
	/* BlockFetcher::ReadBlockContents. */
	SEXTON_SITE_READ_BLOCK = 6,
	/* PerfContext::Reset. */
	SEXTON_SITE_COUNTERS_RESET = 7,
	SEXTON_SITES = 8,
};

/* Room for sites: a power of two, so that a masked number is a valid index to the verifier. */
#define SEXTON_SITES_MAX 8

/* Attach cookie: slot << SEXTON_COOKIE_SITE_BITS | site. */
#define SEXTON_COOKIE_SITE_BITS 8

/* In sexton_recipe: where a BlockFetcher has its file is still to be found out. */
#define SEXTON_FETCH_FILE_UNKNOWN 0xffffffffU

/* Words of a BlockFetcher that user space is shown to find that out; the file is among the first in all versions
 * that were looked at. */
#define SEXTON_FETCHER_WORDS 8

/* Keys that go with a tombstone: itself and the version that it hides, of which RocksDB counts the other one too. */
#define SEXTON_KEYS_PER_TOMBSTONE 2

/* Tombstones that take as long as one seek behind a range tombstone. */
#define SEXTON_TOMBSTONES_PER_RESEEK 10

/* Perf level from which on RocksDB counts (kEnableCount). */
#define SEXTON_PERF_LEVEL_COUNTS 2

/* How to read a target's thread-local counters; written by user space, one per slot. */
struct sexton_recipe {
	/* Module id of a dlopen'ed library, or 0: then static_offset holds. */
	unsigned long long module_id;
	/* Distance from the thread pointer to the module's thread-local block. */
	long long static_offset;
	/* Offset of rocksdb::perf_context in the block. */
	unsigned long long perf_context_offset;
	/* Offset of rocksdb::perf_level in the block, or SEXTON_OFFSET_ABSENT. */
	unsigned long long perf_level_offset;
	/* An operation of so many gets a record of its own; of the smaller ones so many together get one. 0: each
	 * operation does. */
	unsigned long long tombstones_per_record;
	unsigned long long block_reads_per_record;
	/* Offset in perf_context of {block_cache_hit_count, block_read_count, block_read_byte}. */
	unsigned int block_counters_offset;
	/* Offset in perf_context of {internal_key_skipped_count, internal_delete_skipped_count,
	 * internal_recent_skipped_count, internal_merge_count}. */
	unsigned int skip_counters_offset;
	/* Which of the SEXTON_SKIP_WORDS words from there is internal_range_del_reseek_count; 0: none, RocksDB has
	 * none. */
	unsigned int reseek_word;
	unsigned int padding;
	/* Offset of the DBIter pointer in ArenaWrappedDBIter, or 0 when not known. */
	unsigned int db_iter_offset;
	/* Offset in DBIter of the {pointer, length} of its current key, or 0 when not known. */
	unsigned int current_key_offset;
	/* The process that is meant: a probe's breakpoint is inherited by a fork, its recipe is not. 0: none. */
	unsigned int process_id;
	/* Whether threads have a perf_context: else only the estimate can be had, and no offset of theirs holds. */
	unsigned int has_perf_context;
	/* Offset in DBIter of num_internal_keys_skipped_, from which to estimate where nothing is counted, or 0
	 * when not known. */
	unsigned int keys_skipped_offset;
	/* Offset in BlockFetcher of the pointer to its file, or SEXTON_FETCH_FILE_UNKNOWN. */
	unsigned int fetch_file_offset;
	/* Offset in DBIter of local_stats_.skip_count_, which num_internal_keys_skipped_ is added to before each further
	 * call, or 0 when not known. */
	unsigned int skip_count_offset;
	/* Whether the dynamic thread vector is musl's, not glibc's. */
	unsigned int has_musl_vector;
	/* What an entry that is followed takes from the credit, its return included; by enum sexton_site. */
	unsigned int price_ns[SEXTON_SITES_MAX];
};

/* What the probes of a slot have cost since its window opened, by the recipe's prices. They are followed while
 * this is below what user space has granted. */
struct sexton_spending {
	unsigned long long spent_ns;
	/* What had been granted when an event was last skipped for want of credit: names the last pause. */
	unsigned long long pause;
};

/* The slots of one process. */
struct sexton_process {
	unsigned int count;
	unsigned int slots[SEXTON_SLOTS_PER_PROCESS_MAX];
};

/* The counters of rocksdb::PerfContext that Sexton reads: totals of a thread, or a difference. */
struct sexton_counters {
	unsigned long long tombstones_skipped;
	unsigned long long keys_skipped;
	unsigned long long block_reads;
	unsigned long long block_read_bytes;
	unsigned long long block_cache_hits;
	/* Merge operands that iterators have merged. */
	unsigned long long merge_operands;
	/* Times an iterator had to seek behind a range tombstone. */
	unsigned long long range_deletion_reseeks;
};

/* Blocks read by BlockFetcher::ReadBlockContents. */
struct sexton_fetches {
	/* Reads from the file, by block_read_count: what came out of the readahead buffer is not among them. */
	unsigned long long count;
	/* By block_read_byte. */
	unsigned long long bytes;
	/* From entry to return, of all calls. */
	unsigned long long latency_ns;
};

/* One iterator operation: a positioning call and the scan after it. In the map while it runs, in the
 * ring buffer once it has ended and was chosen for a record. */
struct sexton_operation {
	struct sexton_counters seek;
	struct sexton_counters scan;
	/* In the seek and in the scan. */
	struct sexton_fetches fetches;
	/* Address of the DBIter, with the slot the operation's name. */
	unsigned long long iterator;
	/* Address of the ColumnFamilyData, or 0 when not known. */
	unsigned long long column_family_data;
	/* Address of the ColumnFamilyHandle and of the DBImpl, or 0 when the creation was not seen. */
	unsigned long long column_family_handle;
	unsigned long long database;
	/* Iterator that owned the thread before this one was positioned, or 0. */
	unsigned long long owner_before;
	/* Monotonic clock; return_ns and end_ns are 0 until they have happened. */
	unsigned long long start_ns;
	unsigned long long return_ns;
	unsigned long long end_ns;
	/* The pause before it began. After a later one it is not known what has become of it. */
	unsigned long long pause;
	unsigned int process_id;
	unsigned int thread_id;
	/* enum sexton_seek_kind */
	unsigned int kind;
	/* Bytes of key that are valid. */
	unsigned int key_bytes;
	/* Bytes of end_key that are valid. */
	unsigned int end_key_bytes;
	unsigned int slot;
	/* Whether its tombstones are an estimate: the internal keys of all kinds that the calls which were seen
	 * have stepped over. */
	unsigned int is_estimated;
	/* Operations like it that its record stands for: one over the probability with which it was chosen. */
	unsigned int weight;
	/* The iterator's own count at the return of the positioning call. */
	unsigned long long keys_skipped_at_return;
	/* Keys that the iterator had stepped over, by its own count of all its calls, when the thread was last looked
	 * at. */
	unsigned long long keys_walked;
	/* Tombstones of the scan that may be another iterator's: several of the thread had moved. */
	unsigned long long tombstones_ambiguous;
	/* Calls of Next and Prev that the iterator had had, by its own count, when it was positioned. */
	unsigned long long steps_before;
	/* Those that it has had since, and one more; 0 where that is not known. */
	unsigned long long steps_and_one;
	/* What the iterator was positioned by. */
	unsigned char key[SEXTON_KEY_BYTES_MAX];
	/* Where the iterator stood at the end of the operation: what was skipped lies between the two. */
	unsigned char end_key[SEXTON_KEY_BYTES_MAX];
};

/* Names an operation in the map. */
struct sexton_iterator_id {
	unsigned long long iterator;
	unsigned int slot;
	unsigned int padding;
};

/* Names a thread's account in the map. */
struct sexton_thread_id {
	unsigned int thread_id;
	unsigned int slot;
};

/* What the creation of an iterator told about it. */
struct sexton_identity {
	unsigned long long database;
	unsigned long long column_family_handle;
	unsigned long long column_family_data;
	/* The pause before the creation. */
	unsigned long long pause;
};

/* Where a DBIter keeps whose it is, once a creation has shown it; 0 until then. */
struct sexton_learnt {
	/* Offset of ColumnFamilyData*. */
	unsigned int column_family_data_offset;
	/* Offset of DBImpl*; newer versions keep none. */
	unsigned int database_offset;
};

/* A thread's account while a window is open: who is charged for what is counted next. */
struct sexton_thread {
	/* The last reading; everything up to it has been charged to somebody. */
	struct sexton_counters boundary;
	/* Iterator that is charged for the scan, or 0. */
	unsigned long long owner;
	/* Iterator whose positioning call is running, or 0. */
	unsigned long long active;
	/* Stack pointer at the entry of that call, to tell a nested call from an abandoned one. */
	unsigned long long active_stack_pointer;
	/* Start of the thread, so that a reused thread id is not taken for the same thread. */
	unsigned long long start_boot_ns;
	/* The last pause before its last event. After a later one it is not known whose the thread is. */
	unsigned long long pause;
	/* The block read that is running: its start, 0 for none, the iterator it is charged to, or 0, its
	 * RandomAccessFileReader and the counters at the entry. */
	unsigned long long fetch_start_ns;
	unsigned long long fetch_iterator;
	unsigned long long fetch_file;
	unsigned long long fetch_reads;
	unsigned long long fetch_bytes;
	/* Iterators that were positioned, the last one first, without gaps: those that can have moved. */
	unsigned long long positioned[SEXTON_POSITIONED_MAX];
	/* At the last event that looked: how many of them are known, how many of these had moved, one that had, and
	 * how many keys it had stepped over. */
	unsigned int known;
	unsigned int moved;
	unsigned long long mover;
	unsigned long long mover_keys;
};

/* Names a file in the map, for as long as it is open: by its RandomAccessFileReader. */
struct sexton_file_id {
	unsigned long long file;
	unsigned int slot;
	unsigned int padding;
};

/* What was read from one file in a window, by whatever thread: its iterators, point reads, compactions. */
struct sexton_file {
	struct sexton_fetches fetches;
	/* Reads from the file by latency. */
	unsigned long long histogram[SEXTON_LATENCY_BUCKETS];
	/* Only of file 0, which stands for all as long as it is not known where a BlockFetcher has its file: the
	 * beginning of the last one. */
	unsigned long long fetcher[SEXTON_FETCHER_WORDS];
};

/* Names a column family in the map: by its ColumnFamilyData, or 0 where that is not known. */
struct sexton_family_id {
	unsigned long long column_family_data;
	unsigned int slot;
	unsigned int padding;
};

/* What the operations of one column family that ended in a window waited for, recorded or not: by powers of two, and
 * summed. */
struct sexton_family {
	/* Of the last one of which they were known. */
	unsigned long long database;
	unsigned long long column_family_handle;
	/* Positioning calls, from entry to return. */
	unsigned long long seek_ns;
	unsigned long long seek_histogram[SEXTON_LATENCY_BUCKETS];
	/* Positioning calls with the scans behind them. */
	unsigned long long list_ns;
	unsigned long long list_histogram[SEXTON_LATENCY_BUCKETS];
	/* Reads from files for them. */
	unsigned long long block_read_ns;
	unsigned long long block_read_histogram[SEXTON_LATENCY_BUCKETS];
	/* Tombstones that they stepped over, and what takes as long. */
	unsigned long long tombstones;
	unsigned long long tombstone_histogram[SEXTON_LATENCY_BUCKETS];
};

/* How often one site's probe fired. An entry is skipped where its target is not armed or has no credit left, a
 * return where nobody waits for it: either costs little. */
struct sexton_site_hits {
	unsigned long long entries;
	unsigned long long entries_skipped;
	unsigned long long returns;
	unsigned long long returns_skipped;
};

/* Counted per CPU and per target since the agent started. */
struct sexton_totals {
	/* Charged to operations. */
	struct sexton_counters attributed;
	/* Counted in threads with an account, but outside any known operation. */
	struct sexton_counters unowned;
	/* Stood in threads' counters when the program set them to zero: charged by then, or counted before the
	 * window, but no longer to be read. */
	struct sexton_counters discarded;
	/* The part of unowned that was counted around pauses: nobody saw whose it was. */
	struct sexton_counters paused;
	unsigned long long operations;
	/* Operations that were chosen for a record. */
	unsigned long long operations_recorded;
	/* Operations whose tombstones are an estimate. */
	unsigned long long operations_estimated;
	/* Reads of blocks that were timed. */
	unsigned long long block_reads_timed;
	/* Those of them whose record did not fit into the ring buffer. */
	unsigned long long records_lost;
	/* Times a counter or a key could not be read. */
	unsigned long long read_failures;
	/* Times a map was full. */
	unsigned long long map_full;
	/* By enum sexton_site. */
	struct sexton_site_hits sites[SEXTON_SITES_MAX];
	/* Positioning calls by latency, recorded or not. */
	unsigned long long seek_histogram[SEXTON_LATENCY_BUCKETS];
	/* Reads from a file for operations, by latency: those of compactions are not among them. */
	unsigned long long block_read_histogram[SEXTON_LATENCY_BUCKETS];
};

/* Flags of sexton_thread_reading. */
#define SEXTON_READING_HAS_COUNTERS 1u
#define SEXTON_READING_HAS_PERF_LEVEL 2u
/* The thread's memory could not be read: not "no counters", but "could not tell". */
#define SEXTON_READING_FAILED 4u

/* One thread's totals, from the sentinel or from the thread's end. The sentinel leaves the counters to user space. */
struct sexton_thread_reading {
	struct sexton_counters counters;
	unsigned long long start_boot_ns;
	/* Processor time of the thread, up to its last tick or switch. */
	unsigned long long processor_ns;
	unsigned int process_id;
	unsigned int thread_id;
	unsigned int flags;
	unsigned int perf_level;
	unsigned int slot;
	unsigned int padding;
	/* Of the byte perf_level, in the thread's memory. */
	unsigned long long perf_level_address;
	/* Where the way to the thread's counters begins. */
	unsigned long long thread_pointer;
};

enum sexton_process_change {
	/* The process has another program now. */
	SEXTON_PROCESS_EXEC = 0,
	/* The process began as a copy of another one. */
	SEXTON_PROCESS_FORK = 1,
	/* Its last thread has ended. */
	SEXTON_PROCESS_EXIT = 2,
};

/* A process that came, changed or went. */
struct sexton_process_event {
	/* Start of the process, with its id its name. */
	unsigned long long start_boot_ns;
	unsigned int process_id;
	/* enum sexton_process_change */
	unsigned int change;
};

#define SEXTON_ASSERT_SIZE(type, bytes) \
	_Static_assert(sizeof(type) == (bytes), #type " must be " #bytes " bytes in C and in Rust")

SEXTON_ASSERT_SIZE(struct sexton_recipe, 128);
SEXTON_ASSERT_SIZE(struct sexton_process, 20);
SEXTON_ASSERT_SIZE(struct sexton_spending, 16);
SEXTON_ASSERT_SIZE(struct sexton_counters, 56);
SEXTON_ASSERT_SIZE(struct sexton_operation, 536);
SEXTON_ASSERT_SIZE(struct sexton_iterator_id, 16);
SEXTON_ASSERT_SIZE(struct sexton_thread_id, 8);
SEXTON_ASSERT_SIZE(struct sexton_identity, 32);
SEXTON_ASSERT_SIZE(struct sexton_thread, 192);
SEXTON_ASSERT_SIZE(struct sexton_fetches, 24);
SEXTON_ASSERT_SIZE(struct sexton_learnt, 8);
SEXTON_ASSERT_SIZE(struct sexton_file_id, 16);
SEXTON_ASSERT_SIZE(struct sexton_file, 408);
SEXTON_ASSERT_SIZE(struct sexton_family_id, 16);
SEXTON_ASSERT_SIZE(struct sexton_family, 1328);
SEXTON_ASSERT_SIZE(struct sexton_totals, 1176);
SEXTON_ASSERT_SIZE(struct sexton_thread_reading, 112);
SEXTON_ASSERT_SIZE(struct sexton_process_event, 16);
_Static_assert(SEXTON_SITES <= SEXTON_SITES_MAX, "every site has room");
_Static_assert(__builtin_offsetof(struct sexton_operation, end_key) == 408, "the keys end the operation");

#endif

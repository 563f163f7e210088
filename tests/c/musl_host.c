/*
 * A program on musl that opens RocksDB late, with dlopen, as a JVM on Alpine Linux does with RocksDB's Java library.
 *
 * It knows nothing of Sexton. It calls the C API of the library that is named, in two threads of which one is older than
 * the library.
 *
 * Arguments: the library, an empty directory, the perf level to set (0: none, RocksDB's own default stays). It fills a
 * database, prints
 *   ready
 * and at each line on its standard input lists in both threads, each line's lists with iterators of their own. Then it prints
 *   truth LEVEL TOMBSTONES KEYS BLOCK_READS BLOCK_BYTES CACHE_HITS POSITIONINGS
 * where LEVEL is its first thread's perf level and the counters are sums of both threads' perf contexts since they began. It
 * ends when standard input ends.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 3000
#define FIRST_DELETED 1000
#define LAST_DELETED 2000
#define LISTS 8
#define METRICS 5

/* rocksdb/c.h: internal_delete_skipped, internal_key_skipped, block_read, block_read_byte, block_cache_hit. */
static const int metrics[METRICS] = {11, 10, 2, 3, 1};

static void *library;
static void *database, *read_options;
static int perf_level;
static sem_t go, done;
static uint64_t counted[2][METRICS];

/* Arguments of a function of the C API, all of them words. */
#define ARGUMENTS_MAX 7
typedef uintptr_t arguments[ARGUMENTS_MAX];

static uintptr_t
call_with(const char *name, arguments a)
{
	typedef uintptr_t (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
	function called = (function)dlsym(library, name);

	if (!called) {
		fprintf(stderr, "no %s\n", name);
		exit(1);
	}
	return called(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
}

#define CALL(name, ...) call_with(name, (arguments){__VA_ARGS__})
#define WORD(argument) ((uintptr_t)(argument))

static void
check(const char *error)
{
	if (error) {
		fprintf(stderr, "%s\n", error);
		exit(1);
	}
}

static size_t
name_key(char *key, int number)
{
	return (size_t)snprintf(key, 16, "key%09d", number);
}

static void
fill(const char *directory)
{
	uintptr_t options = CALL("rocksdb_options_create", 0);
	uintptr_t write = CALL("rocksdb_writeoptions_create", 0);
	uintptr_t flush = CALL("rocksdb_flushoptions_create", 0);
	char *error = 0, key[16];
	int number;

	CALL("rocksdb_options_set_create_if_missing", options, 1);
	/* Compactions would drop the tombstones. */
	CALL("rocksdb_options_set_disable_auto_compactions", options, 1);
	CALL("rocksdb_options_set_compression", options, 0);
	CALL("rocksdb_options_set_max_file_opening_threads", options, 1);
	database = (void *)CALL("rocksdb_open", options, WORD(directory), WORD(&error));
	check(error);
	for (number = 0; number < KEYS; number++) {
		size_t bytes = name_key(key, number);

		CALL("rocksdb_put", WORD(database), write, WORD(key), bytes, WORD(key), bytes, WORD(&error));
	}
	CALL("rocksdb_flush", WORD(database), flush, WORD(&error));
	check(error);
	for (number = FIRST_DELETED; number < LAST_DELETED; number++)
		CALL("rocksdb_delete", WORD(database), write, WORD(key), name_key(key, number), WORD(&error));
	CALL("rocksdb_flush", WORD(database), flush, WORD(&error));
	check(error);
	read_options = (void *)CALL("rocksdb_readoptions_create", 0);
}

static void
read_counters(uint64_t *values)
{
	uintptr_t context = CALL("rocksdb_perfcontext_create", 0);
	int index;

	for (index = 0; index < METRICS; index++)
		values[index] = CALL("rocksdb_perfcontext_metric", context, metrics[index]);
	CALL("rocksdb_perfcontext_destroy", context);
}

static void
list(int thread)
{
	uint64_t before[METRICS], after[METRICS];
	int index;

	if (perf_level) {
		static __thread int is_set;

		if (!is_set)
			CALL("rocksdb_set_perf_level", (uintptr_t)perf_level);
		is_set = 1;
	}
	read_counters(before);
	for (index = 0; index < LISTS; index++) {
		uintptr_t iterator = CALL("rocksdb_create_iterator", WORD(database), WORD(read_options));
		char key[16];
		int step;

		/* One walks the tombstones in the seek, the next one in the scan. */
		CALL("rocksdb_iter_seek", iterator, WORD(key), name_key(key, FIRST_DELETED - index % 2));
		for (step = 0; step < 10; step++)
			CALL("rocksdb_iter_next", iterator);
		CALL("rocksdb_iter_destroy", iterator);
	}
	read_counters(after);
	for (index = 0; index < METRICS; index++)
		counted[thread][index] += after[index] - before[index];
}

static void *
second(void *unused)
{
	for (;;) {
		sem_wait(&go);
		list(1);
		sem_post(&done);
	}
	return unused;
}

int
main(int count, char **words)
{
	unsigned long positionings = 0;
	pthread_t thread;
	char line[64];

	if (count != 4)
		return 2;
	perf_level = atoi(words[3]);
	sem_init(&go, 0, 0);
	sem_init(&done, 0, 0);
	pthread_create(&thread, 0, second, 0);
	library = dlopen(words[1], RTLD_NOW);
	if (!library)
		check(dlerror());
	fill(words[2]);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int index;

		list(0);
		sem_post(&go);
		sem_wait(&done);
		positionings += 2 * LISTS;
		/* C++, but exported: rocksdb::GetPerfLevel(). */
		printf("truth %u", (unsigned)CALL("_ZN7rocksdb12GetPerfLevelEv", 0) & 0xff);
		for (index = 0; index < METRICS; index++)
			printf(" %llu", (unsigned long long)(counted[0][index] + counted[1][index]));
		printf(" %lu\n", positionings);
		fflush(stdout);
	}
	return 0;
}

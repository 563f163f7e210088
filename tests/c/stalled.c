/*
 * A C program whose RocksDB has an automatic compaction that takes as long as the program likes, and so many L0 files
 * that one more would slow its writers down. It knows nothing of Sexton.
 *
 *   stalled DIRECTORY
 *
 * When the compaction has begun it prints
 *   open DATABASE HANDLE ID      (addresses of the C++ objects of the database and its default column family, and its id)
 * A line on its standard input lets the compaction go on. At the end of its standard input it closes the database.
 */
#include <rocksdb/c.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* RocksDB compacts at FILES files in L0, and slows writers down at one more. */
enum { KEYS = 1000, FILES = 4, POLL_MICROSECONDS = 1000 };

static atomic_int has_begun, is_released;

static void check(char *error) {
    if (error) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

/* Keeps every key, and the compaction until it is released. */
static unsigned char filter(void *state, int level, const char *key, size_t key_bytes, const char *value,
                            size_t value_bytes, char **new_value, size_t *new_value_bytes,
                            unsigned char *is_changed) {
    (void)state, (void)level, (void)key, (void)key_bytes, (void)value, (void)value_bytes;
    (void)new_value, (void)new_value_bytes, (void)is_changed;
    atomic_store(&has_begun, 1);
    while (!atomic_load(&is_released))
        usleep(POLL_MICROSECONDS);
    return 0;
}

static void destroy(void *state) { (void)state; }

static const char *name(void *state) {
    (void)state;
    return "one that waits";
}

/* Each struct of the C API begins with the address of the C++ object. */
static void *object(void *handle) { return *(void **)handle; }

static void fill(rocksdb_t *database) {
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    char key[32], value[100] = {0}, *error = NULL;
    for (int file = 0; file < FILES; file++) {
        for (int number = 0; number < KEYS; number++) {
            snprintf(key, sizeof key, "key%09d", number);
            rocksdb_put(database, write, key, strlen(key), value, sizeof value, &error);
            check(error);
        }
        rocksdb_flush(database, flush, &error);
        check(error);
    }
    rocksdb_flushoptions_destroy(flush);
    rocksdb_writeoptions_destroy(write);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_level0_file_num_compaction_trigger(options, FILES);
    rocksdb_options_set_level0_slowdown_writes_trigger(options, FILES + 1);
    rocksdb_options_set_compaction_filter(options,
                                          rocksdb_compactionfilter_create(NULL, destroy, filter, name));
    const char *names[] = {"default"};
    const rocksdb_options_t *family_options[] = {options};
    rocksdb_column_family_handle_t *handles[1];
    char *error = NULL;
    rocksdb_t *database =
        rocksdb_open_column_families(options, argv[1], 1, names, family_options, handles, &error);
    check(error);
    fill(database);
    while (!atomic_load(&has_begun))
        usleep(POLL_MICROSECONDS);
    printf("open %lu %lu %u\n", (unsigned long)object(database), (unsigned long)object(handles[0]),
           rocksdb_column_family_handle_get_id(handles[0]));
    fflush(stdout);
    for (int character = getchar(); character != EOF; character = getchar())
        atomic_store(&is_released, 1);
    atomic_store(&is_released, 1);
    rocksdb_column_family_handle_destroy(handles[0]);
    rocksdb_close(database);
    rocksdb_options_destroy(options);
    return 0;
}

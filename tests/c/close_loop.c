/*
 * A C program that opens and closes its RocksDB again and again, as a host of many tenants does. It knows nothing of
 * Sexton.
 *
 *   close_loop DIRECTORY CYCLES
 *
 * Each cycle opens the database, checks every key of column family keyTable against what the cycle before has
 * left, rewrites them without a write-ahead log, makes a column family scratch, prints
 *   open CYCLE DATABASE KEYTABLE ID SCRATCH ID      (addresses of the C++ objects, ids of the column families)
 * waits up to 12 ms, drops scratch, deletes the handles, closes the database, and prints
 *   closed CYCLE
 * After the last it prints "verified KEYS" and waits for the end of its standard input.
 */
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 1000, SCRATCH_KEYS = 300, VALUE_BYTES = 200, WAIT_MICROSECONDS = 6000 };

static void check(char *error) {
    if (error) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static void fail(const char *what, int cycle, int number) {
    fprintf(stderr, "cycle %d, key %d: %s\n", cycle, number, what);
    exit(1);
}

/* What cycle CYCLE leaves: a third of the keys deleted, the others with its number in their value. */
static int is_deleted(int cycle, int number) { return (cycle + number) % 3 == 0; }

static void value_of(char *value, int cycle, int number) {
    memset(value, 'v', VALUE_BYTES);
    snprintf(value, VALUE_BYTES, "%d of cycle %d", number, cycle);
}

static void verify(rocksdb_t *database, rocksdb_column_family_handle_t *table, int cycle) {
    rocksdb_readoptions_t *read = rocksdb_readoptions_create();
    rocksdb_iterator_t *iterator = rocksdb_create_iterator_cf(database, read, table);
    rocksdb_iter_seek_to_first(iterator);
    for (int number = 0; number < KEYS; number++) {
        char key[32], value[VALUE_BYTES], *error = NULL;
        size_t key_bytes, value_bytes;
        if (is_deleted(cycle, number))
            continue;
        if (!rocksdb_iter_valid(iterator))
            fail("the table ends too early", cycle, number);
        snprintf(key, sizeof key, "key%09d", number);
        value_of(value, cycle, number);
        const char *found = rocksdb_iter_key(iterator, &key_bytes);
        if (key_bytes != strlen(key) || memcmp(found, key, key_bytes) != 0)
            fail("another key is there", cycle, number);
        found = rocksdb_iter_value(iterator, &value_bytes);
        if (value_bytes != VALUE_BYTES || memcmp(found, value, VALUE_BYTES) != 0)
            fail("another value is there", cycle, number);
        rocksdb_iter_next(iterator);
        rocksdb_iter_get_error(iterator, &error);
        check(error);
    }
    if (rocksdb_iter_valid(iterator))
        fail("the table has keys too many", cycle, KEYS);
    rocksdb_iter_destroy(iterator);
    rocksdb_readoptions_destroy(read);
}

/* Writes first and deletes then, with a flush in between; the deletions are still in the memtable. */
static void rewrite(rocksdb_t *database, rocksdb_column_family_handle_t *table, int cycle, int keys) {
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    char key[32], value[VALUE_BYTES], *error = NULL;
    rocksdb_writeoptions_disable_WAL(write, 1);
    for (int number = 0; number < keys; number++) {
        snprintf(key, sizeof key, "key%09d", number);
        value_of(value, cycle, number);
        rocksdb_put_cf(database, write, table, key, strlen(key), value, VALUE_BYTES, &error);
        check(error);
    }
    rocksdb_flush_cf(database, flush, table, &error);
    check(error);
    for (int number = 0; number < keys; number++) {
        if (!is_deleted(cycle, number))
            continue;
        snprintf(key, sizeof key, "key%09d", number);
        rocksdb_delete_cf(database, write, table, key, strlen(key), &error);
        check(error);
    }
    rocksdb_flushoptions_destroy(flush);
    rocksdb_writeoptions_destroy(write);
}

/* Each struct of the C API begins with the address of the C++ object. */
static void *object(void *handle) { return *(void **)handle; }

static void pause_a_little(void) { usleep(rand() % WAIT_MICROSECONDS); }

static void cycle_once(const char *path, int cycle, int is_last) {
    const char *names[] = {"default", "keyTable"};
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_create_missing_column_families(options, 1);
    const rocksdb_options_t *family_options[] = {options, options};
    rocksdb_column_family_handle_t *handles[2], *scratch;
    char *error = NULL;
    rocksdb_t *database = rocksdb_open_column_families(options, path, 2, names, family_options, handles, &error);
    check(error);
    if (cycle > 0)
        verify(database, handles[1], cycle - 1);
    if (!is_last) {
        rewrite(database, handles[1], cycle, KEYS);
        scratch = rocksdb_create_column_family(database, options, "scratch", &error);
        check(error);
        rewrite(database, scratch, cycle, SCRATCH_KEYS);
        printf("open %d %lu %lu %u %lu %u\n", cycle, (unsigned long)object(database),
               (unsigned long)object(handles[1]), rocksdb_column_family_handle_get_id(handles[1]),
               (unsigned long)object(scratch), rocksdb_column_family_handle_get_id(scratch));
        fflush(stdout);
        pause_a_little();
        rocksdb_drop_column_family(database, scratch, &error);
        check(error);
        rocksdb_column_family_handle_destroy(scratch);
        pause_a_little();
    }
    rocksdb_column_family_handle_destroy(handles[1]);
    rocksdb_column_family_handle_destroy(handles[0]);
    rocksdb_close(database);
    rocksdb_options_destroy(options);
    printf("closed %d\n", cycle);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s DIRECTORY CYCLES\n", argv[0]);
        return 2;
    }
    int cycles = atoi(argv[2]);
    srand(1);
    for (int cycle = 0; cycle <= cycles; cycle++)
        cycle_once(argv[1], cycle, cycle == cycles);
    printf("verified %d\n", KEYS);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}

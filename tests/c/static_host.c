/*
 * A C program with RocksDB's C++ linked into its executable. Speaks as `sexton-static-host` does: waits for
 * `list` on its standard input, and prints after each what RocksDB's own PerfContext counted. It knows nothing of
 * Sexton.
 *
 *   static_host --directory DIRECTORY
 */
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 20000, DELETED = 15000, NEXTS = 50, KEY_BYTES = 12 };

static void check(char *error) {
    if (error) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

/* Keys and tombstones are in different files, which nothing compacts. */
static void fill(rocksdb_t *database) {
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    char key[32], value[100] = {0}, *error = NULL;
    for (int number = 0; number < KEYS; number++) {
        snprintf(key, sizeof key, "key%09d", number);
        rocksdb_put(database, write, key, KEY_BYTES, value, sizeof value, &error);
        check(error);
    }
    rocksdb_flush(database, flush, &error);
    check(error);
    for (int number = 0; number < DELETED; number++) {
        snprintf(key, sizeof key, "key%09d", number);
        rocksdb_delete(database, write, key, KEY_BYTES, &error);
        check(error);
    }
    rocksdb_flush(database, flush, &error);
    check(error);
    rocksdb_flushoptions_destroy(flush);
    rocksdb_writeoptions_destroy(write);
}

/* All four kinds of positioning calls, the first twice on one iterator. Gives how many. */
static int list(rocksdb_t *database) {
    rocksdb_readoptions_t *read = rocksdb_readoptions_create();
    for (int kind = 0; kind < 4; kind++) {
        rocksdb_iterator_t *iterator = rocksdb_create_iterator(database, read);
        for (int again = 0; again < (kind == 0 ? 2 : 1); again++) {
            switch (kind) {
            case 0: rocksdb_iter_seek(iterator, "key", 3); break;
            case 1: rocksdb_iter_seek_for_prev(iterator, "key000015020", KEY_BYTES); break;
            case 2: rocksdb_iter_seek_to_first(iterator); break;
            case 3: rocksdb_iter_seek_to_last(iterator); break;
            }
            for (int step = 0; step < NEXTS && rocksdb_iter_valid(iterator); step++)
                kind % 2 ? rocksdb_iter_prev(iterator) : rocksdb_iter_next(iterator);
        }
        rocksdb_iter_destroy(iterator);
    }
    rocksdb_readoptions_destroy(read);
    return 5;
}

int main(int argc, char **argv) {
    if (argc != 3 || strcmp(argv[1], "--directory") != 0) {
        fprintf(stderr, "usage: %s --directory DIRECTORY\n", argv[0]);
        return 2;
    }
    char path[4096], word[64], *error = NULL;
    snprintf(path, sizeof path, "%s/database", argv[2]);
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_disable_auto_compactions(options, 1);
    rocksdb_t *database = rocksdb_open(options, path, &error);
    check(error);
    fill(database);
    rocksdb_perfcontext_t *context = rocksdb_perfcontext_create();
    printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
    fflush(stdout);
    while (fgets(word, sizeof word, stdin) && strcmp(word, "quit\n") != 0) {
        static const int metrics[] = {11, 10, 2, 3, 1};
        unsigned long counted[5];
        for (int i = 0; i < 5; i++)
            counted[i] = rocksdb_perfcontext_metric(context, metrics[i]);
        int operations = list(database);
        for (int i = 0; i < 5; i++)
            counted[i] = rocksdb_perfcontext_metric(context, metrics[i]) - counted[i];
        /* SeekToLast stays behind the tombstones; the other four meet them all. */
        printf("{\"event\":\"listed\",\"operations\":%d,\"tombstones_planned\":%d,\"total\":{\"tombstones_skipped\":%lu,"
               "\"keys_skipped\":%lu,\"block_reads\":%lu,\"block_read_bytes\":%lu,\"block_cache_hits\":%lu},"
               "\"threads\":[],\"iterator_skips\":0}\n",
               operations, 4 * DELETED, counted[0], counted[1], counted[2], counted[3], counted[4]);
        fflush(stdout);
    }
    rocksdb_perfcontext_destroy(context);
    rocksdb_close(database);
    rocksdb_options_destroy(options);
    return 0;
}

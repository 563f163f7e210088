/*
 * A program that links the hook and tells it of its column family.
 *
 *   cc -I agent/hook/include agent/hook/examples/linked.c -o linked -L target/release -lsexton_hook -lrocksdb
 *   LD_LIBRARY_PATH=target/release ./linked DIRECTORY
 *
 * It leaves a queue's tombstones in a new database, prints "ready", and closes the database at the end of its
 * standard input.
 */
#include <rocksdb/c.h>
#include <sexton_hook.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 20000, LEFT = 100 };

static void check(char *error) {
    if (error) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static void fill_and_delete(rocksdb_t *database) {
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    char key[32], value[100] = {0}, *error = NULL;
    for (int number = 0; number < KEYS; number++) {
        snprintf(key, sizeof key, "key%09d", number);
        rocksdb_put(database, write, key, strlen(key), value, sizeof value, &error);
        check(error);
    }
    rocksdb_flush(database, flush, &error);
    check(error);
    for (int number = 0; number < KEYS - LEFT; number++) {
        snprintf(key, sizeof key, "key%09d", number);
        rocksdb_delete(database, write, key, strlen(key), &error);
        check(error);
    }
    rocksdb_flush(database, flush, &error);
    check(error);
    rocksdb_flushoptions_destroy(flush);
    rocksdb_writeoptions_destroy(write);
}

static int count(rocksdb_t *database) {
    int keys = 0;
    rocksdb_readoptions_t *read = rocksdb_readoptions_create();
    rocksdb_iterator_t *iterator = rocksdb_create_iterator(database, read);
    for (rocksdb_iter_seek_to_first(iterator); rocksdb_iter_valid(iterator); rocksdb_iter_next(iterator))
        keys++;
    rocksdb_iter_destroy(iterator);
    rocksdb_readoptions_destroy(read);
    return keys;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    const char *names[] = {"default"};
    char *error = NULL;
    rocksdb_column_family_handle_t *handle;
    rocksdb_options_t *options = rocksdb_options_create();
    const rocksdb_options_t *family_options[] = {options};
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_disable_auto_compactions(options, 1);
    rocksdb_t *database = rocksdb_open_column_families(options, argv[1], 1, names, family_options, &handle, &error);
    check(error);
    fill_and_delete(database);

    if (sexton_hook_start() != SEXTON_HOOK_OK || sexton_hook_register(handle) != SEXTON_HOOK_OK)
        fprintf(stderr, "no hook: the agent will only watch\n");
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    int keys = count(database);
    sexton_hook_unregister(handle);

    rocksdb_column_family_handle_destroy(handle);
    rocksdb_close(database);
    rocksdb_options_destroy(options);
    return keys == LEFT ? 0 : 1;
}

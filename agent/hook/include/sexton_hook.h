/*
 * sexton_hook.h: for programs that link libsexton_hook.so, so that Sexton's agent can compact their RocksDB.
 *
 * The hook runs inside the program, listens on a unix socket in /tmp for the agent, and calls the RocksDB that the
 * program itself uses. That RocksDB's C API must be visible to the dynamic linker: link to a shared librocksdb, or
 * link with -rdynamic. Without an agent the hook sleeps.
 *
 *   cc program.c -lrocksdb -lsexton_hook
 *
 * The functions may be called from any thread.
 */
#ifndef SEXTON_HOOK_H
#define SEXTON_HOOK_H

#include <rocksdb/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the functions return. */
enum {
    SEXTON_HOOK_OK = 0,
    /* Not the handle of a column family, or, in sexton_hook_unregister, not a registered one. */
    SEXTON_HOOK_NOT_A_COLUMN_FAMILY = 1,
    /* The listener could not be started (SEXTON_HOOK_LOG=FILE in the environment says why), or some thousand
     * column families are registered already. */
    SEXTON_HOOK_NOT_POSSIBLE = 2,
    /* A bug of the hook. */
    SEXTON_HOOK_BUG = 3
};

/* Starts the listener where it does not run yet. */
int sexton_hook_start(void);

/* Tells the hook of a column family; the agent needs no probe to find it. */
int sexton_hook_register(const rocksdb_column_family_handle_t *column_family);

/* Takes it back: to be called before the handle is destroyed or the database closed. A compaction that runs in the
 * database is cancelled; when this returns, nothing uses the handle, nor, where it was the last one
 * that was registered, the database. Then end them without delay: a probe of the agent may find them again. */
int sexton_hook_unregister(const rocksdb_column_family_handle_t *column_family);

#ifdef __cplusplus
}
#endif
#endif

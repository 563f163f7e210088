"""A Python program that reads over older versions of keys, merge operands and deleted ranges.

It knows nothing of Sexton. It calls RocksDB's C API.

Arguments: the library and an empty directory. The program makes three column families: in `versions` each key was
written several times, in `merged` each key has several merge operands, in `ranges` the keys of every second hundred
were deleted with one range tombstone. It prints
  ready
and waits for a line on standard input. Then it lists each column family with an iterator of its own, some times,
and prints
  counted DELETES KEYS MERGES RESEEKS POSITIONINGS VERSIONS
by RocksDB's own PerfContext, and how many older versions it has planned to meet. It ends when standard input ends.
"""

import ctypes
import sys

from c_api import CApi, key, slice_of

KEYS = 4_000
VERSIONS = 5
OPERANDS = 4
RANGE = 100
TURNS = 3
# rocksdb/c.h: internal_delete_skipped, internal_key_skipped, internal_merge, internal_range_del_reseek.
METRICS = (11, 10, 13, 75)
POINTERS = (
    "options_create open create_column_family writeoptions_create readoptions_create flushoptions_create "
    "create_iterator_cf perfcontext_create"
)

library = CApi(sys.argv[1], POINTERS)
library.library.rocksdb_perfcontext_metric.restype = ctypes.c_uint64
call, pointer, checked = library.call, library.pointer, library.checked


def counts(context):
    return [call("perfcontext_metric", context, metric) for metric in METRICS]


def fill(database, write, flush, families):
    versions, merged, ranges = families
    for turn in range(VERSIONS):
        for number in range(KEYS):
            # What is in a memtable stays there in all its versions.
            checked("put_cf", database, write, versions, *slice_of(key(number)), *slice_of(b"%08d" % turn))
    for number in range(KEYS):
        for _ in range(OPERANDS):
            operand = (1).to_bytes(8, "little")
            checked("merge_cf", database, write, merged, *slice_of(key(number)), *slice_of(operand))
        checked("put_cf", database, write, ranges, *slice_of(key(number)), *slice_of(b"v" * 100))
    # Range tombstones above the keys that they cover.
    checked("flush_cf", database, flush, ranges)
    for first in range(0, KEYS, 2 * RANGE):
        ends = (*slice_of(key(first)), *slice_of(key(first + RANGE)))
        checked("delete_range_cf", database, write, ranges, *ends)
    checked("flush_cf", database, flush, ranges)


def main():
    options = pointer("options_create")
    call("options_set_create_if_missing", options, 1)
    call("options_set_disable_auto_compactions", options, 1)
    call("options_set_uint64add_merge_operator", options)
    database = ctypes.c_void_p(checked("open", options, sys.argv[2].encode()))
    families = [
        ctypes.c_void_p(checked("create_column_family", database, options, name))
        for name in (b"versions", b"merged", b"ranges")
    ]
    write, flush, read = (pointer(name) for name in ("writeoptions_create", "flushoptions_create", "readoptions_create"))
    call("writeoptions_disable_WAL", write, 1)
    fill(database, write, flush, families)
    context = pointer("perfcontext_create")
    print("ready", flush=True)
    sys.stdin.readline()
    before = counts(context)
    for _ in range(TURNS):
        for family in families:
            iterator = pointer("create_iterator_cf", database, read, family)
            call("iter_seek", iterator, *slice_of(b"key"))
            while call("iter_valid", iterator):
                call("iter_next", iterator)
            call("iter_destroy", iterator)
    counted = [after - earlier for after, earlier in zip(counts(context), before)]
    print("counted", *counted, TURNS * len(families), TURNS * KEYS * (VERSIONS - 1), flush=True)
    sys.stdin.read()


main()

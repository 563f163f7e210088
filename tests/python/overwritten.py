"""A Python program whose one thread lists keys that were overwritten, while it holds a snapshot.

It knows nothing of Sexton, and calls RocksDB's C API. Arguments: an empty directory and the library. In the directory it
makes a database without automatic compactions: each key is written and flushed, a snapshot is taken, and each key is
written and flushed again. It prints "ready" and lists all keys over and over. Then it reads the words of its standard
input:

  say      prints the lists so far, and the keys that they have skipped, by RocksDB's own PerfContext
  release  gives the snapshot back, and writes and flushes each key once more
"""

import ctypes
import sys
import threading

from c_api import CApi, key, slice_of

KEYS = 5_000
# rocksdb/c.h: internal_key_skipped.
METRIC = 10
POINTERS = (
    "options_create open writeoptions_create readoptions_create flushoptions_create create_iterator create_snapshot "
    "perfcontext_create"
)

library = CApi(sys.argv[2], POINTERS)
library.library.rocksdb_perfcontext_metric.restype = ctypes.c_uint64
call, pointer, checked = library.call, library.pointer, library.checked


class Reader:
    def __init__(self, database):
        self.database, self.is_ended = database, False
        self.said = (0, 0)

    def run(self):
        context, read = pointer("perfcontext_create"), pointer("readoptions_create")
        lists = 0
        following = library.library.rocksdb_iter_next
        while not self.is_ended:
            iterator = pointer("create_iterator", self.database, read)
            call("iter_seek", iterator, *slice_of(b"key"))
            for _ in range(KEYS - 1):
                following(iterator)
            if not call("iter_valid", iterator):
                sys.exit("a list ended too early")
            call("iter_destroy", iterator)
            lists += 1
            self.said = (lists, call("perfcontext_metric", context, METRIC))


def write_all(database, write, flush, value):
    for number in range(KEYS):
        checked("put", database, write, *slice_of(key(number)), *slice_of(value))
    checked("flush", database, flush)


def main():
    options = pointer("options_create")
    call("options_set_create_if_missing", options, 1)
    call("options_set_disable_auto_compactions", options, 1)
    database = ctypes.c_void_p(checked("open", options, (sys.argv[1] + "/overwritten").encode()))
    write, flush = pointer("writeoptions_create"), pointer("flushoptions_create")
    call("writeoptions_disable_WAL", write, 1)
    write_all(database, write, flush, b"first")
    snapshot = pointer("create_snapshot", database)
    write_all(database, write, flush, b"second")
    reader = Reader(database)
    thread = threading.Thread(target=reader.run)
    thread.start()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "release":
            call("release_snapshot", database, snapshot)
            write_all(database, write, flush, b"third")
            print("release", flush=True)
        else:
            print("said", *reader.said, flush=True)
    reader.is_ended = True
    thread.join()


main()

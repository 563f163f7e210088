"""A Python program whose one thread positions two iterators, and then moves the one that it positioned first.

It knows nothing of Sexton. It calls RocksDB's C API.

Arguments: the library and an empty directory. The program makes two column families: in `walked` forty thousand keys
between two others are deleted, in `empty` two of three keys. It prints
  ready
and for each word on its standard input does one thing, and prints the word again:
  first   positions an iterator of `walked` before the tombstones, positions one of `empty`, and moves the first one over them
  both    the same, and moves the second one over its two tombstones as well, so that both have moved
It ends when standard input ends.
"""

import ctypes
import sys

from c_api import CApi, slice_of

DELETED = 40_000
POINTERS = (
    "options_create open create_column_family writeoptions_create readoptions_create flushoptions_create create_iterator_cf"
)

library = CApi(sys.argv[1], POINTERS)
call, pointer, checked = library.call, library.pointer, library.checked


def fill(database, family, keys):
    """Writes the keys, and deletes all but the first and the last."""
    write = pointer("writeoptions_create")
    call("writeoptions_disable_WAL", write, 1)
    flush = pointer("flushoptions_create")
    for key in keys:
        checked("put_cf", database, write, family, *slice_of(key), *slice_of(key))
    checked("flush_cf", database, flush, family)
    for key in keys[1:-1]:
        checked("delete_cf", database, write, family, *slice_of(key))
    checked("flush_cf", database, flush, family)


def main():
    options = pointer("options_create")
    call("options_set_create_if_missing", options, 1)
    # Compactions would drop the tombstones.
    call("options_set_disable_auto_compactions", options, 1)
    database = ctypes.c_void_p(checked("open", options, sys.argv[2].encode()))
    walked, empty = (
        ctypes.c_void_p(checked("create_column_family", database, options, name)) for name in (b"walked", b"empty")
    )
    fill(database, walked, [b"key%09d" % number for number in range(DELETED + 2)])
    fill(database, empty, [b"a", b"b", b"c", b"d"])
    read_options = pointer("readoptions_create")
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        first, second = (pointer("create_iterator_cf", database, read_options, family) for family in (walked, empty))
        call("iter_seek", first, *slice_of(b"key%09d" % 0))
        call("iter_seek", second, *slice_of(b"a"))
        call("iter_next", first)
        if word == "both":
            call("iter_next", second)
        call("iter_destroy", second)
        call("iter_destroy", first)
        print(word, flush=True)


main()

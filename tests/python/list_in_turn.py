"""A Python program with several databases in one process, whose one thread lists them in turn, at a pace of its own.

It knows nothing of Sexton, and calls the C API of Debian's librocksdb. Arguments: an empty directory and the library.
In the directory it makes

  often   10,000 tombstones at the front, in a file; listed ten times a round
  rare    the same; listed once a round
  fresh   the same, but the tombstones are in the memtable; listed once a round
  own     as rare, in an Env that keeps its files in memory, so that there are none in the directory
  idle0 to idle4   some keys; nobody lists them

prints "ready", and lists until standard input ends. A list begins at the first key there was, steps over the
tombstones, and returns ten keys.
"""

import ctypes
import os
import sys
import threading

from c_api import CApi, key, slice_of

KEYS = 20_000
DELETED = 10_000
NEXTS = 10
IDLE_DATABASES = 5
LISTS_A_ROUND = (("often", 10), ("rare", 1), ("fresh", 1), ("own", 1))
ROUND_PAUSE_S = 0.02

POINTERS = (
    "options_create open iter_next create_iterator create_mem_env "
    "writeoptions_create readoptions_create flushoptions_create"
)

library = CApi(sys.argv[2], POINTERS)
call, pointer = library.call, library.pointer


def list_keys(database, read):
    iterator = pointer("create_iterator", database, read)
    call("iter_seek", iterator, *slice_of(key(0)))
    for _ in range(NEXTS):
        if not call("iter_valid", iterator):
            sys.exit("a list ended too early")
        call("iter_next", iterator)
    call("iter_destroy", iterator)


def make_options():
    options = pointer("options_create")
    call("options_set_create_if_missing", options, 1)
    call("options_set_disable_auto_compactions", options, 1)
    return options


def main():
    options, own_options = make_options(), make_options()
    call("options_set_env", own_options, pointer("create_mem_env"))
    write = pointer("writeoptions_create")
    call("writeoptions_disable_WAL", write, 1)
    read, flush = pointer("readoptions_create"), pointer("flushoptions_create")
    databases = {}
    for name, _ in LISTS_A_ROUND:
        path = os.path.join(sys.argv[1], name)
        of_it = own_options if name == "own" else options
        databases[name] = library.filled(of_it, write, flush, path, KEYS, DELETED, name != "fresh")
    for index in range(IDLE_DATABASES):
        path = os.path.join(sys.argv[1], f"idle{index}")
        databases[f"idle{index}"] = library.filled(options, write, flush, path, 100, 0, True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    print("ready", flush=True)
    while not ended.wait(ROUND_PAUSE_S):
        for name, lists in LISTS_A_ROUND:
            for _ in range(lists):
                list_keys(databases[name], read)


main()

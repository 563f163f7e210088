"""A Python program whose one thread lists a thousand prefixes at random, a few hundred tombstones each.

It knows nothing of Sexton, and calls the C API of Debian's librocksdb. Arguments: an empty directory, the library, and
how many keys of a prefix are deleted. In the directory it makes a database with 1,000 prefixes, each with so many keys
that are deleted and flushed, and 100 that are not, and one prefix of which none is. It prints "ready" with the processor time that positioning an iterator takes there, in ns.
Then it reads the words of its standard input:

  list   lists on from now on: five keys of a random prefix, over and over
  get    gets keys at random, past the block cache
  rest   does nothing
  say    prints the lists so far, the processor time of their positioning calls, and the time now, in ns
"""

import ctypes
import os
import random
import sys
import threading
import time

from c_api import CApi, slice_of

PREFIXES = 1_000
DELETED = int(sys.argv[3])
KEYS = DELETED + 100
NEXTS = 5
WARM_LISTS = 2_000
# All of it: what lists lose, they lose to tombstones.
CACHE_BYTES = 256 << 20

POINTERS = (
    "options_create open iter_next create_iterator writeoptions_create readoptions_create flushoptions_create "
    "block_based_options_create cache_create_lru"
)

library = CApi(sys.argv[2], POINTERS)
call, pointer = library.call, library.pointer


def key(prefix, number):
    return b"%04d/%05d" % (prefix, number)


def fill():
    options = pointer("options_create")
    call("options_set_create_if_missing", options, 1)
    call("options_set_disable_auto_compactions", options, 1)
    table = pointer("block_based_options_create")
    call("block_based_options_set_block_cache", table, pointer("cache_create_lru", ctypes.c_size_t(CACHE_BYTES)))
    call("options_set_block_based_table_factory", options, table)
    write, flush = pointer("writeoptions_create"), pointer("flushoptions_create")
    call("writeoptions_disable_WAL", write, 1)
    path = os.path.join(sys.argv[1], "small")
    error = ctypes.c_char_p()
    database = pointer("open", options, path.encode(), ctypes.byref(error))
    if error.value:
        sys.exit(error.value.decode())
    for prefix in range(PREFIXES + 1):
        for number in range(KEYS):
            name = key(prefix, number)
            call("put", database, write, *slice_of(name), *slice_of(name), ctypes.byref(error))
    call("flush", database, flush, ctypes.byref(error))
    for prefix in range(PREFIXES):
        for number in range(DELETED):
            call("delete", database, write, *slice_of(key(prefix, number)), ctypes.byref(error))
    call("flush", database, flush, ctypes.byref(error))
    return database


def list_prefix(database, read, prefix):
    """Processor time of the positioning call, nanoseconds."""
    begin = slice_of(key(prefix, 0))
    iterator = pointer("create_iterator", database, read)
    started = time.thread_time_ns()
    call("iter_seek", iterator, *begin)
    took = time.thread_time_ns() - started
    for _ in range(NEXTS):
        if not call("iter_valid", iterator):
            sys.exit("a list ended too early")
        call("iter_next", iterator)
    call("iter_destroy", iterator)
    return took


class Reader:
    def __init__(self, database):
        self.database, self.read = database, pointer("readoptions_create")
        self.uncached = pointer("readoptions_create")
        call("readoptions_set_fill_cache", self.uncached, 0)
        self.word, self.lists, self.seek_ns = "rest", 0, 0

    def run(self):
        length, error = ctypes.c_size_t(), ctypes.c_char_p()
        while self.word is not None:
            if self.word == "list":
                self.seek_ns += list_prefix(self.database, self.read, random.randrange(PREFIXES))
                self.lists += 1
            elif self.word == "get":
                name = slice_of(key(random.randrange(PREFIXES), random.randrange(DELETED, KEYS)))
                library.pointer("get", self.database, self.uncached, *name, ctypes.byref(length), ctypes.byref(error))
            else:
                time.sleep(0.01)


def main():
    database = fill()
    reader = Reader(database)
    warm = [list_prefix(database, reader.read, PREFIXES) for _ in range(WARM_LISTS)]
    thread = threading.Thread(target=reader.run)
    thread.start()
    print("ready", sorted(warm)[WARM_LISTS // 2], flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "say":
            print("said", reader.lists, reader.seek_ns, time.monotonic_ns(), flush=True)
        else:
            reader.word = word
            print(word, flush=True)
    reader.word = None
    thread.join()


main()

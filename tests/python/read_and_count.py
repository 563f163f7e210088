"""A Python program with several RocksDBs in it, which reads and tells what each of them counted.

It knows nothing of Sexton. It calls the libraries' own C API, so that any shared library that exports it will
do: Debian's librocksdb.so, or that of RocksDB's Java library. Each library is loaded for itself
(RTLD_LOCAL), so that one process holds as many copies of RocksDB.

Arguments: an empty directory, the number of databases for each library, and the libraries. The program
fills the databases, prints
  ready
and waits for a line on standard input. Three threads then read in all databases by turns: two were started
before, of which one stays until the program ends, and one is started now. At last a database of each library is
closed and opened again, and read. Then it prints for each library
  truth LIBRARY TOMBSTONES KEYS BLOCK_READS BLOCK_BYTES CACHE_HITS POSITIONINGS
where the counters are the sums of the threads' perf contexts. It ends when standard input ends.
"""

import ctypes
import os
import random
import sys
import threading

from c_api import CApi, slice_of

KEYS = 30_000
FIRST_DELETED = 10_000
LAST_DELETED = 20_000
STEPS_PER_THREAD = 40
NEXTS_MAX = 30
# So small that most reads miss it.
CACHE_BYTES = 128 << 10
# rocksdb/c.h: internal_delete_skipped, internal_key_skipped, block_read, block_read_byte, block_cache_hit.
METRICS = (11, 10, 2, 3, 1)

# Functions of the C API that return a pointer.
POINTERS = (
    "options_create block_based_options_create cache_create_lru open iter_next create_iterator "
    "writeoptions_create readoptions_create flushoptions_create perfcontext_create get"
)


class Library(CApi):
    """One copy of RocksDB, and its databases."""

    def __init__(self, path, directory, databases):
        super().__init__(path, POINTERS)
        self.library.rocksdb_perfcontext_metric.restype = ctypes.c_uint64
        self.truth = [0] * (len(METRICS) + 1)
        self.lock = threading.Lock()
        self.options = self.pointer("options_create")
        self.call("options_set_create_if_missing", self.options, 1)
        # Compactions would drop the tombstones, and their threads have perf contexts of their own.
        self.call("options_set_disable_auto_compactions", self.options, 1)
        self.call("options_set_compression", self.options, 0)
        # Files are opened by the thread that opens the database, which knows what it counted.
        self.call("options_set_max_file_opening_threads", self.options, 1)
        table = self.pointer("block_based_options_create")
        cache = self.pointer("cache_create_lru", ctypes.c_size_t(CACHE_BYTES))
        self.call("block_based_options_set_block_cache", table, cache)
        self.call("options_set_block_based_table_factory", self.options, table)
        self.read_options = self.pointer("readoptions_create")
        self.directories = [os.path.join(directory, f"db{index}") for index in range(databases)]
        self.databases = [self.open(path) for path in self.directories]
        for database in self.databases:
            self.fill(database)

    def open(self, directory):
        return ctypes.c_void_p(self.checked("open", self.options, directory.encode()))

    def fill(self, database):
        write = self.pointer("writeoptions_create")
        self.call("writeoptions_disable_WAL", write, 1)
        flush = self.pointer("flushoptions_create")
        source = random.Random(1)
        for number in range(KEYS):
            value = source.randbytes(100)
            self.checked("put", database, write, *slice_of(key(number)), *slice_of(value))
        self.checked("flush", database, flush)
        for number in range(FIRST_DELETED, LAST_DELETED):
            self.checked("delete", database, write, *slice_of(key(number)))
        self.checked("flush", database, flush)

    def counts(self):
        """What the calling thread's perf context counted."""
        context = self.pointer("perfcontext_create")
        values = [self.call("perfcontext_metric", context, metric) for metric in METRICS]
        self.call("perfcontext_destroy", context)
        return values

    def settle(self, before, positionings):
        """Adds to the truth what the calling thread has counted since."""
        after = self.counts()
        with self.lock:
            for index, value in enumerate(after):
                self.truth[index] += value - before[index]
            self.truth[-1] += positionings

    def step(self, iterator, source):
        """One positioning and the scan after it."""
        kind = source.randrange(4)
        target = slice_of(key(source.randrange(KEYS)))
        if kind == 0:
            self.call("iter_seek", iterator, *target)
        elif kind == 1:
            self.call("iter_seek_for_prev", iterator, *target)
        elif kind == 2:
            self.call("iter_seek_to_first", iterator)
        else:
            self.call("iter_seek_to_last", iterator)
        for _ in range(source.randrange(NEXTS_MAX)):
            if not self.call("iter_valid", iterator):
                break
            self.call("iter_prev" if kind % 2 else "iter_next", iterator)

    def read(self, database, source):
        """Reads a key, and makes and destroys an iterator; two positionings."""
        length = ctypes.c_size_t()
        target = slice_of(key(source.randrange(KEYS)))
        value = self.checked("get", database, self.read_options, *target, ctypes.byref(length))
        self.call("free", ctypes.c_void_p(value))
        iterator = self.pointer("create_iterator", database, self.read_options)
        self.step(iterator, source)
        self.step(iterator, source)
        self.call("iter_destroy", iterator)

    def reopen(self, source):
        """Closes the first database, opens it again at another place in memory, and reads."""
        before = self.counts()
        self.call("close", self.databases[0])
        self.databases[0] = self.open(self.directories[0])
        for _ in range(STEPS_PER_THREAD):
            self.read(self.databases[0], source)
        self.settle(before, 2 * STEPS_PER_THREAD)


def key(number):
    return b"key%09d" % number


def work(libraries, seed, started, go, end):
    """A thread's whole life."""
    source = random.Random(seed)
    # Iterators that are older than the window.
    old = [(lib, lib.pointer("create_iterator", lib.databases[-1], lib.read_options)) for lib in libraries]
    started.release()
    go.wait()
    before = [library.counts() for library in libraries]
    for number in range(STEPS_PER_THREAD):
        for library in libraries:
            library.read(library.databases[number % len(library.databases)], source)
    for library, iterator in old:
        library.step(iterator, source)
        library.call("iter_destroy", iterator)
    for library, counts in zip(libraries, before):
        library.settle(counts, 2 * STEPS_PER_THREAD + 1)
    end[0].release()
    end[1].wait()


def main():
    directory, databases = sys.argv[1], int(sys.argv[2])
    libraries = []
    for index, path in enumerate(sys.argv[3:]):
        place = os.path.join(directory, f"library{index}")
        os.mkdir(place)
        libraries.append(Library(path, place, databases))
    started, done = threading.Semaphore(0), threading.Semaphore(0)
    go, end, at_once = threading.Event(), threading.Event(), threading.Event()
    at_once.set()
    ends = (end, at_once, at_once)
    threads = [
        threading.Thread(target=work, args=(libraries, seed, started, go, (done, ends[seed])), daemon=True)
        for seed in range(3)
    ]
    for thread in threads[:2]:
        thread.start()
    for _ in range(2):
        started.acquire()
    print("ready", flush=True)
    sys.stdin.readline()
    go.set()
    threads[2].start()
    for _ in threads:
        done.acquire()
    threads[1].join()
    threads[2].join()
    for library in libraries:
        library.reopen(random.Random(9))
    for library in libraries:
        print("truth", library.path, *library.truth, flush=True)
    sys.stdin.read()
    end.set()
    threads[0].join()


main()

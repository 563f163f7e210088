"""A Python program with a live database and a checkpoint of it, which are both listed all the time.

It knows nothing of Sexton. It calls RocksDB's C API of the shared library that is its third argument.

Arguments: an empty directory, how the checkpoint is opened (read_write or read_only), and the library. The program
fills the live database, deletes most of it, makes the checkpoint of it and prints
  ready
From then on a thread for each of the two lists it from its start, over all tombstones. A line on standard input has it
close the live database, which it confirms by
  closed
It ends when standard input ends. RocksDB compacts nothing by itself here, so that whatever changes was changed by
somebody else.
"""

import ctypes
import os
import sys
import threading
import time

from c_api import CApi, slice_of

KEYS = 60_000
DELETED = 50_000
PAUSE_SECONDS = 0.02
# Functions of the C API that return a pointer.
POINTERS = (
    "options_create writeoptions_create readoptions_create flushoptions_create open open_for_read_only "
    "checkpoint_object_create create_iterator"
)


class Library(CApi):
    """RocksDB's C API."""

    def __init__(self, path):
        super().__init__(path, POINTERS)
        self.options = self.pointer("options_create")
        self.call("options_set_create_if_missing", self.options, 1)
        self.call("options_set_disable_auto_compactions", self.options, 1)
        self.read_options = self.pointer("readoptions_create")

    def open(self, directory):
        return ctypes.c_void_p(self.checked("open", self.options, directory.encode()))

    def open_for_read_only(self, directory):
        pointer = self.checked("open_for_read_only", self.options, directory.encode(), ctypes.c_ubyte(0))
        return ctypes.c_void_p(pointer)

    def fill(self, database):
        write = self.pointer("writeoptions_create")
        self.call("writeoptions_disable_WAL", write, 1)
        flush = self.pointer("flushoptions_create")
        for number in range(KEYS):
            self.checked("put", database, write, *slice_of(key(number)), *slice_of(os.urandom(100)))
        self.checked("flush", database, flush)
        for number in range(DELETED):
            self.checked("delete", database, write, *slice_of(key(number)))
        self.checked("flush", database, flush)

    def make_checkpoint(self, database, directory):
        checkpoint = ctypes.c_void_p(self.checked("checkpoint_object_create", database))
        self.checked("checkpoint_create", checkpoint, directory.encode(), ctypes.c_uint64(0))
        self.call("checkpoint_object_destroy", checkpoint)

    def list(self, database):
        """The first keys that are left."""
        iterator = self.pointer("create_iterator", database, self.read_options)
        self.call("iter_seek", iterator, *slice_of(key(0)))
        for _ in range(10):
            if not self.call("iter_valid", iterator):
                sys.exit("keys are missing")
            self.call("iter_next", iterator)
        self.call("iter_destroy", iterator)


class Lister(threading.Thread):
    """Lists one database until it is told to stop."""

    def __init__(self, library, database):
        super().__init__(daemon=True)
        self.library, self.database = library, database
        self.stopped = threading.Event()
        self.start()

    def run(self):
        while not self.stopped.is_set():
            self.library.list(self.database)
            time.sleep(PAUSE_SECONDS)

    def close(self):
        self.stopped.set()
        self.join()
        self.library.call("close", self.database)


def key(number):
    return b"key%09d" % number


def main():
    directory, access, path = sys.argv[1:]
    library = Library(path)
    live_path, checkpoint_path = (os.path.join(directory, name) for name in ("live.db", "checkpoint.db"))
    live = library.open(live_path)
    library.fill(live)
    library.make_checkpoint(live, checkpoint_path)
    open_checkpoint = library.open if access == "read_write" else library.open_for_read_only
    listers = [Lister(library, live), Lister(library, open_checkpoint(checkpoint_path))]
    print("ready", flush=True)
    while sys.stdin.readline():
        listers.pop(0).close()
        print("closed", flush=True)
    for lister in listers:
        lister.close()


main()

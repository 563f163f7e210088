"""RocksDB's C API through ctypes, for the programs beside this file. It knows nothing of Sexton."""

import ctypes
import os
import sys


class CApi:
    """The functions of one copy of the library, by their names without `rocksdb_`."""

    def __init__(self, path, pointers):
        """`pointers`: the functions that return a pointer."""
        self.path = path
        self.library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        for name in pointers.split():
            getattr(self.library, "rocksdb_" + name).restype = ctypes.c_void_p
        self.library.rocksdb_iter_valid.restype = ctypes.c_ubyte

    def call(self, name, *arguments):
        return getattr(self.library, "rocksdb_" + name)(*arguments)

    def pointer(self, name, *arguments):
        return ctypes.c_void_p(self.call(name, *arguments))

    def checked(self, name, *arguments):
        """Calls a function whose last argument is where to put an error's text."""
        error = ctypes.c_char_p()
        result = self.call(name, *arguments, ctypes.byref(error))
        if error.value:
            sys.exit(f"{self.path}: {name}: {error.value.decode()}")
        return result

    def filled(self, options, write, flush, path, keys, deleted, is_flushed):
        """A database with so many keys, of which the first ones were deleted."""
        database = ctypes.c_void_p(self.checked("open", options, path.encode()))
        for number in range(keys):
            self.checked("put", database, write, *slice_of(key(number)), *slice_of(b"v" * 100))
        self.checked("flush", database, flush)
        for number in range(deleted):
            self.checked("delete", database, write, *slice_of(key(number)))
        if is_flushed:
            self.checked("flush", database, flush)
        return database


def key(number):
    return b"key%09d" % number


def slice_of(data):
    return data, ctypes.c_size_t(len(data))

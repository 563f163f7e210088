"""A process that loads RocksDB late: it waits, opens a database, says so, and lists it until it is told more.

    late_host.py LIBRARY DATABASE SECONDS

A line on standard input is a command with its arguments: this process becomes that program.
"""
import ctypes
import os
import select
import sys
import time

library, database, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
time.sleep(seconds)

rocksdb = ctypes.CDLL(library)
for function in ("options_create", "open", "readoptions_create", "writeoptions_create", "create_iterator"):
    getattr(rocksdb, "rocksdb_" + function).restype = ctypes.c_void_p
call = ctypes.c_void_p
error = ctypes.c_char_p()
options = call(rocksdb.rocksdb_options_create())
rocksdb.rocksdb_options_set_create_if_missing(options, ctypes.c_ubyte(1))
opened = call(rocksdb.rocksdb_open(options, database.encode(), ctypes.byref(error)))
if error.value:
    sys.exit(error.value.decode())
writes, reads = call(rocksdb.rocksdb_writeoptions_create()), call(rocksdb.rocksdb_readoptions_create())
for number in range(1000):
    key = b"key%06d" % number
    size = ctypes.c_size_t(len(key))
    rocksdb.rocksdb_put(opened, writes, key, size, key, size, ctypes.byref(error))
    rocksdb.rocksdb_delete(opened, writes, key, size, ctypes.byref(error))
print("open", flush=True)

while True:
    iterator = call(rocksdb.rocksdb_create_iterator(opened, reads))
    rocksdb.rocksdb_iter_seek_to_first(iterator)
    rocksdb.rocksdb_iter_destroy(iterator)
    if select.select([sys.stdin], [], [], 0.05)[0]:
        command = sys.stdin.readline().split()
        if not command:
            sys.exit(0)
        # Not asked to close: the kernel drops the database's lock with its descriptor (O_CLOEXEC).
        os.execv(command[0], command)

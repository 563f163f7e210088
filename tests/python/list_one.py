"""A Python program that lists the front of its databases all the time, over tombstones.

It knows nothing of Sexton, and calls the C API of RocksDB. Arguments: an empty directory, the library, how many databases
(the first is listed, the others are open), and, if it is to have a hook that never gets to the end of an answer, the
seconds between two bytes of it, until it gets SIGUSR1. Prints "ready", and lists until standard input ends.
"""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time

from c_api import CApi, key, slice_of

KEYS = 6_000
DELETED = 3_000
NEXTS = 10
PAUSE_S = 0.01

POINTERS = "options_create open iter_next create_iterator writeoptions_create readoptions_create flushoptions_create"

library = CApi(sys.argv[2], POINTERS)
call, pointer = library.call, library.pointer


def list_keys(database, read):
    iterator = pointer("create_iterator", database, read)
    call("iter_seek", iterator, *slice_of(key(0)))
    for _ in range(NEXTS):
        call("iter_next", iterator)
    call("iter_destroy", iterator)


def trickle(pause_s):
    """Listens where a hook would, and answers whoever comes one byte at a time, until a signal hangs up."""
    path = f"/tmp/.sexton-hook-{os.getpid()}.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(8)
    connections = []

    def answer(connection):
        try:
            # A frame of 65,536 bytes begins like this.
            for byte in b"\x00\x00\x01\x00" + b" " * 65_536:
                connection.send(bytes([byte]))
                time.sleep(pause_s)
        except OSError:
            pass

    def serve():
        while True:
            connection, _ = listener.accept()
            connections.append(connection)
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def hang_up(*_):
        os.unlink(path)
        for connection in connections:
            # Who has asked may have hung up already.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    signal.signal(signal.SIGUSR1, hang_up)
    threading.Thread(target=serve, daemon=True).start()


def main():
    directory, databases = sys.argv[1], int(sys.argv[3])
    if len(sys.argv) > 4:
        trickle(float(sys.argv[4]))
    options = pointer("options_create")
    call("options_set_create_if_missing", options, 1)
    call("options_set_disable_auto_compactions", options, 1)
    write = pointer("writeoptions_create")
    call("writeoptions_disable_WAL", write, 1)
    read, flush = pointer("readoptions_create"), pointer("flushoptions_create")
    listed = library.filled(options, write, flush, os.path.join(directory, "listed"), KEYS, DELETED, True)
    places = [os.path.join(directory, f"other{at}") for at in range(1, databases)]
    others = [library.filled(options, write, flush, place, 1, 0, False) for place in places]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    print("ready", flush=True)
    while not ended.wait(PAUSE_S):
        list_keys(listed, read)
    del others


main()

"""A program that does all it can to whoever looks into it, until its standard input ends.

It has RocksDB in it, so that it is looked into. Arguments: RocksDB's library, an empty directory, the directory of a
database that is somebody else's. It
- maps code of a new file 170 times a second, 10,000 times a minute: files that say that they have 65,536 sections, that
  are larger than the disk, that are no ELF files;
- has a database open whose MANIFEST is a pipe that nobody writes to, and one with a name that clears a screen;
- puts a link to the other database in the place of a directory of its own, and the directory back, all the time;
- listens where a hook would, and answers a byte at a time.
Prints "ready", then once a second how many files it has mapped.
"""

import ctypes
import mmap
import os
import socket
import struct
import sys
import threading
import time

LIBRARY, DIRECTORY, OTHER = sys.argv[1:]
LOADS_PER_SECOND = 170
SIZES = [4096, 1 << 20, 1 << 33]
held = []


def database(name):
    """A directory that looks like a database that is open."""
    path = os.path.join(DIRECTORY, name)
    os.makedirs(path)
    for file in ("CURRENT", "IDENTITY", "LOCK", "000007.log", "000008.sst", "OPTIONS-000009"):
        with open(f"{path}/{file}", "wb") as content:
            content.write(b"MANIFEST-000005\n" if file == "CURRENT" else os.urandom(5000))
    held.extend(open(f"{path}/{file}", "r+b") for file in ("LOCK", "000007.log", "000008.sst"))
    return path


def trickle():
    path = f"/tmp/.sexton-hook-{os.getpid()}.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(8)
    held.append(listener)

    def answer(connection):
        try:
            for byte in b"\x00\x00\x01\x00" + b" " * 65_536:
                connection.send(bytes([byte]))
                time.sleep(3)
        except OSError:
            pass

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def swap_links():
    path = database("swapped")
    aside = path + ".aside"
    while True:
        os.rename(path, aside)
        os.symlink(OTHER, path)
        time.sleep(0.002)
        os.unlink(path)
        os.rename(aside, path)
        time.sleep(0.002)


def elf(number):
    """A file that is another one each time, and that lies about its parts."""
    sections = (65_535, 65_536, 3, 0)[number % 4]
    ident = b"\x7fELF\2\1\1" + bytes(9) if number % 5 else os.urandom(16)
    head = ident + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 4096, 0, 64, 56, number % 60_000, 64, sections % 65_536, 1)
    return head + os.urandom(64) + struct.pack("<IIQQQQIIQQ", 1, 2, 0, 0, 8192, 1 << (number % 63), 1, 0, 8, 24)


def load():
    path = os.path.join(DIRECTORY, "library.so")
    mapped, begun = [], time.monotonic()
    for number in range(1 << 62):
        with open(path + ".new", "wb+") as file:
            file.truncate(SIZES[number % len(SIZES)])
            file.write(elf(number))
            file.flush()
            mapped.append(mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
        os.rename(path + ".new", path)
        if len(mapped) > 20:
            mapped.pop(0).close()
        if number % LOADS_PER_SECOND == 0:
            print("mapped", number, flush=True)
        time.sleep(max(0.0, begun + number / LOADS_PER_SECOND - time.monotonic()))


ctypes.CDLL(LIBRARY)
fifo = database("with a pipe")
os.mkfifo(f"{fifo}/MANIFEST-000005")
database("\x1b[2J\nFAKE \x07 line")
for game in (trickle, swap_links):
    threading.Thread(target=game, daemon=True).start()
print("ready", flush=True)
threading.Thread(target=load, daemon=True).start()
sys.stdin.read()
os._exit(0)

"""Writes one of some ELF files that say what is not so, maps it for execution, says so, and sleeps.

usage: files.py KIND FILE
"""
import mmap
import struct
import sys
import time

KIND, PATH = sys.argv[1:]
GIB = 1 << 30
RODATA = b"rocksdb.block.cache.miss\0N7rocksdb6DBIterE\0N7rocksdb18ArenaWrappedDBIterE\0N7rocksdb6DBImplE\0"
SEEK = b"\0_ZN7rocksdb6DBIter4SeekERKNS_5SliceE\0"
SYMTAB, STRTAB, RELA, DYNSYM, PROGBITS = 2, 3, 4, 11, 1


def header(sections_at, sections, programs, names=0):
    ident = b"\x7fELF\2\1\1" + bytes(9)
    return ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64 if programs else 0, sections_at, 0, 64, 56, programs, 64, sections, names
    )


def program(flags, offset, address, size):
    return struct.pack("<IIQQQQQQ", 1, flags, offset, address, address, size, size, 4096)


def section(kind, offset, size, link=0, info=0, name=0):
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, link, info, 8, 0)


def write(size, *pieces):
    """A sparse file with pieces, each an offset and its bytes."""
    with open(PATH, "wb+") as file:
        file.truncate(size)
        for offset, piece in pieces:
            file.seek(offset)
            file.write(piece)


def more_sections_than_memory():
    # The number of sections is the size of section 0: a table of 640 MB.
    write(GIB, (0, header(64, 0, 0) + section(0, 0, 10_000_000)))


def more_programs_than_memory():
    write(GIB, (0, header(256, 1, 0xFFFF)), (256, section(0, 0, 0, info=15_000_000)))


def sections_of_zeros():
    # 65,536 sections of no kind, all in a hole.
    write(GIB, (0, header(64, 0, 0) + section(0, 0, 65_536)))


def symbol_tables_beyond_counting():
    # 60,000 tables that share the names of seven gigabytes: their number is the size of section 0.
    tables = b"".join([section(SYMTAB, 0, 7 * GIB, link=1)] * 59_998)
    write(7 * GIB, (0, header(4096, 0, 0)), (4096, section(0, 0, 60_000) + section(STRTAB, 0, 7 * GIB) + tables))


def symbol_tables_of_one_sparse_string_table():
    # 4,000 tables with names that lie anywhere in seven gigabytes.
    tables = b"".join([section(SYMTAB, 0, 7 * GIB, link=1)] * 4_000)
    write(7 * GIB, (0, header(4096, 4_002, 0)), (4096, section(0, 0, 0) + section(STRTAB, 0, 7 * GIB) + tables))


def a_symbol_table_as_large_as_the_file():
    sections = section(0, 0, 0) + section(STRTAB, 8192, 7 * GIB - 8192) + section(SYMTAB, 8192, 7 * GIB - 8192, link=1)
    write(7 * GIB, (0, header(4096, 3, 0)), (4096, sections), (8192, SEEK))


def relocations_that_share_a_dynsym():
    # Names of classes, so that pointers to them are looked for, in 4,000 tables that refer to 16 MiB of symbols.
    names = b"\0.rodata\0"
    dynsym = section(DYNSYM, 1 << 20, 16 << 20, link=2)
    tables = b"".join([section(RELA, 1 << 20, 20 << 20, link=1)] * 4_000)
    sections = section(0, 0, 0) + dynsym + section(STRTAB, 512, len(names))
    sections += section(PROGBITS, 1024, len(RODATA), name=1) + tables
    write(24 << 20, (0, header(4096, 4_004, 1, 2)), (64, program(5, 0, 0, 24 << 20)), (512, names), (1024, RODATA),
          (4096, sections))


def vtables_of_endless_code():
    # No class has a name: 8,000 vtables of functions that each go on for as long as one is followed.
    code, tables = 2 << 20, 8 << 20
    words = bytearray()
    for vtable in range(8_000):
        slots = [code + (vtable * 12 + slot) * 64 % (4 << 20) for slot in range(12)]
        words += struct.pack("<14Q", 0, 0, *slots)
    # add [rdi + 8], rax; mov qword [rdi + 16], 0; jc to the one before last: knowledge is joined at each.
    loop = bytes.fromhex("48014708" "48c7471000000000" "72f2")
    # Without the names of classes; the ticker's name is what is looked for.
    names = b"\0.rodata\0"
    sections = section(0, 0, 0) + section(STRTAB, 512, len(names)) + section(PROGBITS, 1024, len(RODATA), name=1)
    write(24 << 20, (0, header(4096, 3, 2, 1)),
          (64, program(5, code, code, 4 << 20) + program(6, tables, tables, len(words))),
          (512, names), (1024, RODATA[:25]), (4096, sections), (code, loop * ((4 << 20) // len(loop))), (tables, bytes(words)))


globals()[KIND]()
with open(PATH, "rb") as file:
    mapped = mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
    print("mapped", flush=True)
    time.sleep(600)

"""Fork server: holds a warm interpreter and forks one confined child per call.

The parent speaks SEQPACKET on fd 3 (see wire.go for the packets), never runs or
even sees a program, and stays single-threaded. A child reads its program from a
memory file, locks itself in, runs, and leaves its result in the same memory file,
so neither a pipe nor a descriptor of ours is open while the program runs.
"""
import sys

sys.path[:] = [p for p in sys.path if p]  # -c puts the current directory first

import ctypes

libc = ctypes.CDLL(None, use_errno=True)
syscall = libc.syscall
syscall.restype = ctypes.c_long
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
HUGE = 2 << 20
if hasattr(libc, "mallopt"):
    # M_ARENA_MAX: an arena of its own takes 64 MiB of a thread's address space, which
    # is limited, so that a program with 16 threads had none left.
    libc.mallopt(-8, 1)


def check(result, what):
    """Raises OSError naming the call when a libc function answered -1."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, what)
    return result


def limit_resource(kind, value):
    check(libc.setrlimit(kind, (ctypes.c_uint64 * 2)(value, value)), "setrlimit")


def map_memory(size, protection):
    address = libc.mmap(None, ctypes.c_size_t(size), protection, 0x22, -1, ctypes.c_long(0))
    return check(-1 if address in (None, 2**64 - 1) else address, "mmap")


def map_code(code):
    """Returns the address of machine code that is ready to run."""
    address = map_memory(len(code), 3)
    ctypes.memmove(address, code, len(code))
    check(libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(code)), 5), "mprotect")
    return address


class Arenas:
    """Where the small objects of the zygote live: one stretch of huge pages, so that
    a fork copies one entry of the page table for 2 MiB of them."""

    class Allocator(ctypes.Structure):
        _fields_ = [("context", ctypes.c_void_p), ("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p)]

    def __init__(self, code, size):
        self.base = map_memory(size + HUGE, 3)
        self.end = self.base + size + HUGE
        start = -(-self.base // HUGE) * HUGE
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), 14)
        self.context = (ctypes.c_uint64 * 2)(start, start + size)
        self.usual = self.Allocator()
        ctypes.pythonapi.PyObject_GetArenaAllocator(ctypes.byref(self.usual))
        ours = self.Allocator(ctypes.addressof(self.context), map_code(code), self.usual.free)
        ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(ours))

    def trim(self):
        """Returns the memory that will not be used before close."""
        used = -(-self.context[0] // HUGE) * HUGE + 2 * HUGE
        libc.munmap(ctypes.c_void_p(used), ctypes.c_size_t(self.end - used))
        self.context[1] = used

    def close(self):
        """Goes back to the usual allocator."""
        ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self.usual))


arenas = Arenas(bytes.fromhex(sys.argv[2]), 256 << 20)

import builtins
import gc
import json
import os
import struct
import time

os.environ.pop("LD_BIND_NOW", None)  # meant for this process alone: see zygote.go
LOADS = os.environ.pop("LD_LIBRARY_PATH", None)  # set where the interpreter has moved

# A program may replace len or str in builtins; this file goes on with the originals.
globals().update({k: v for k, v in vars(builtins).items() if k[0] != "_"})

CTL = 3
NEWNS, NEWUTS, NEWIPC, NEWPID = 0x20000, 0x4000000, 0x8000000, 0x20000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
NOATIME = 1024
KEEP_FLAGS = NOSUID | NODEV | NOEXEC | 1024 | 2048  # statvfs bits equal to mount bits


def cstr(text):
    return text.encode() if text is not None else None


def mount(source, target, kind, flags, data=None):
    check(
        libc.mount(cstr(source), cstr(target), cstr(kind), ctypes.c_ulong(flags), cstr(data)),
        "mount " + target,
    )


class Layers:
    """What was tried, and whether it holds; one entry a name."""

    def __init__(self):
        self.entries = {}

    def put(self, name, on, reason=""):
        self.entries[name] = {"name": name, "on": on, "reason": reason}
        return on

    def attempt(self, name, action):
        try:
            action()
        except Exception as err:  # every failure is reported, none is fatal here
            return self.put(name, False, str(err))
        return self.put(name, True)

    def on(self, name):
        entry = self.entries.get(name)
        return bool(entry and entry["on"])

"""Fork server: holds a warm interpreter and forks one confined child per call.

The parent speaks SEQPACKET on fd 3 (see wire.go for the packets), never runs or
even sees a program, and stays single-threaded. A child reads its program from a
memory file, locks itself in, runs, and leaves its result in the same memory file,
so neither a pipe nor a descriptor of ours is open while the program runs.
"""
import sys

sys.path[:] = [p for p in sys.path if p]  # -c puts the current directory first

import _socket
import builtins
import ctypes
import gc
import json
import mmap
import os
import resource
import struct
import time

# A program may replace len or str in builtins; this file goes on with the originals.
globals().update({k: v for k, v in vars(builtins).items() if k[0] != "_"})

CTL = 3
NEWNS, NEWUTS, NEWIPC, NEWPID = 0x20000, 0x4000000, 0x8000000, 0x20000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
KEEP_FLAGS = NOSUID | NODEV | NOEXEC | 1024 | 2048  # statvfs bits equal to mount bits
HUGE = 2 << 20

libc = ctypes.CDLL(None, use_errno=True)
syscall = libc.syscall
syscall.restype = ctypes.c_long
libc.mmap.restype = ctypes.c_void_p


def check(result, what):
    """Raises OSError naming the call when a libc function answered -1."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, what + ": " + os.strerror(code))
    return result


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

package jail_test

import "temper/sandbox"

// processAttacks multiply, outlive, signal, or run past their time.
func processAttacks() []attack {
	return []attack{
		{name: "fork", code: "import os\ntry: os.fork()\nexcept OSError as e: print(e.errno)", stdout: "1\n"},
		{name: "fork bomb", limits: spins, status: sandbox.StatusTimeLimit, code: `import os
while True:
    try: os.fork()
    except OSError: pass`},
		{name: "clone in every way", amd64: true, code: lib + `
for flags in (17, 0x100, 0x100 | 17, 0x4000 | 0x100 | 17, 0x1200011, 0x10000000 | 17, 0x900, 0x3d0f00 | 0x10000000):
    print(sc(56, flags, 0, 0, 0, 0))
args = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17)
print(sc(57), sc(58), sc(435, args, 88))`, stdout: "1\n1\n1\n1\n1\n1\n1\n1\n1 1 38\n"},
		{name: "start programs", code: `import os, subprocess
for f in (lambda: os.execv('/bin/sh', ['sh']), lambda: subprocess.run(['/bin/id']), lambda: os.posix_spawn('/bin/sh', ['sh'], {}), lambda: os.popen('id').read()):
    try: print('ran', f())
    except OSError as e: print(e.errno)
print(os.system('id') != 0)`, stdout: "1\n1\n1\n1\nTrue\n"},
		{name: "double fork daemon", code: `import os, signal, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: time.sleep(1)
except OSError as e: print(e.errno)`, stdout: "1\n"},
		{name: "multiprocessing", code: `import multiprocessing as m
try: m.Process(target=print).start()
except OSError as e: print(e.errno)`, stdout: "1\n"},
		{name: "own session and group", amd64: true, code: lib + "print(sc(112), sc(109, 0, 0), os.getpid())", stdout: "1 1 1\n"},
		{name: "signals to all", code: `import os, signal
for s in (9, 15, 19, 20, 1, 2):
    for send in (lambda: os.kill(-1, s), lambda: os.killpg(0, s), lambda: os.kill(1, s), lambda: os.kill(os.getppid(), s)):
        signal.signal(2, signal.SIG_IGN)
        try: send()
        except OSError: pass
print('alive', os.getpid(), os.getppid())`, stdout: "alive 1 0\n"},
		{name: "signals to every number", code: `import os
hit = 0
for p in list(range(2, 40000)) + [-p for p in range(2, 2000)]:
    try: os.kill(p, 9); hit += 1
    except OSError: pass
print(hit)`, stdout: "0\n"},
		{name: "stops itself", code: "import os\nfor s in (19, 20, 21, 22): os.kill(os.getpid(), s)\nprint('on')", stdout: "on\n"},
		{name: "ignores every signal and spins", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: `import signal
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass`},
		{name: "blocks every signal and sleeps", limits: sleeps, status: sandbox.StatusTimeLimit, has: "wall time", code: `import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
time.sleep(60)`},
		{name: "resets its alarms", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: `import signal
while True:
    signal.alarm(0)
    for t in (0, 1, 2): signal.setitimer(t, 0)`},
		{name: "storm of timers", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: `import signal
for s in (14, 26, 27): signal.signal(s, lambda *_: None)
for t in (0, 1, 2): signal.setitimer(t, 1e-6, 1e-6)
while True: pass`},
		{name: "catches the cpu signal", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: "import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass"},
		{name: "sleeps too long", limits: sleeps, status: sandbox.StatusTimeLimit, has: "wall time", code: "import time\ntime.sleep(60)"},
		{name: "waits for a signal", limits: sleeps, status: sandbox.StatusTimeLimit, has: "wall time", code: "import signal\nsignal.pause()"},
		{name: "waits for its own pipe", limits: sleeps, status: sandbox.StatusTimeLimit, has: "wall time", code: "import os\nr, w = os.pipe()\nos.read(r, 1)"},
		{name: "waits for a lock", limits: sleeps, status: sandbox.StatusTimeLimit, has: "wall time", code: "import threading\nl = threading.Lock()\nl.acquire(); l.acquire()"},
		{name: "computes without giving way", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: "x = 7 ** (10 ** 8)"},
		{name: "power tower", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: "print(3 ** 10 ** 9)"},
		{name: "catastrophic regular expression", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: "import re\nre.match('(a+)+$', 'a' * 40 + 'b')"},
		{name: "spins in many threads", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: `import threading
def f():
    while True: pass
for _ in range(8): threading.Thread(target=f).start()`},
		{name: "ten thousand threads", code: `import threading, time
n = 0
try:
    while n < 10000: threading.Thread(target=time.sleep, args=(9,), daemon=True).start(); n += 1
except (RuntimeError, MemoryError): pass
print(n < 10000)`, stdout: "True\n"},
		{name: "more threads than its share", needs: "uid", code: `import threading, time
threading.stack_size(32768)
n = 0
try:
    while n < 10000: threading.Thread(target=time.sleep, args=(9,), daemon=True).start(); n += 1
except (RuntimeError, MemoryError): pass
print(n <= 64)`, stdout: "True\n"},
		{name: "thread that goes on", code: `import threading
def f():
    while True: pass
threading.Thread(target=f, daemon=True).start()
print('main is done')`, stdout: "main is done\n"},
		{name: "thread that keeps the end away", limits: sleeps, status: sandbox.StatusTimeLimit, has: "wall time", code: "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()"},
		{name: "exit hook that never ends", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: `import atexit
@atexit.register
def f():
    while True: pass`},
		{name: "exit hook that prints", code: "import atexit\natexit.register(print, 'bye')\nprint('hi')", stdout: "hi\nbye\n"},
		{name: "generator that clings to life", limits: spins, status: sandbox.StatusTimeLimit, or: sandbox.StatusOK, any: true, code: `def g():
    try: yield
    finally:
        while True: pass
x = g(); next(x)`},
		{name: "object that clings to life", limits: spins, status: sandbox.StatusTimeLimit, or: sandbox.StatusOK, any: true, code: `class A:
    def __del__(self):
        while True: pass
a = A()`},
		{name: "raises its limits", code: `import resource as r
for k in range(16):
    try:
        soft, hard = r.getrlimit(k)
        if hard == -1: continue
        r.setrlimit(k, (-1, -1)); print('raised', k)
    except (OSError, ValueError): pass
try: r.prlimit(2, r.RLIMIT_AS, (1, 1)); print('set')
except OSError as e: print(e.errno)`, stdout: "1\n"},
		{name: "lowers its own limits", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", stdout: "1 1 0\n", code: `import resource as r
def errno(k, to):
    try: r.setrlimit(k, to); return 0
    except (OSError, ValueError) as e: return getattr(e, 'errno', None) or 1
print(errno(r.RLIMIT_CPU, (1, 1)), errno(r.RLIMIT_CORE, (0, 0)), errno(r.RLIMIT_NOFILE, (32, 32)), flush=True)
while True: pass`},
		{name: "priorities", amd64: true, code: lib + `
print(sc(141, 0, 0, -20), sc(144, 0, 1, (ctypes.c_int * 1)(50)), sc(251, 1, 0, 1 << 13), sc(203, 0, 8, (ctypes.c_long * 1)(1)))
try: os.nice(-5); print('nicer')
except OSError: pass`, stdout: "1 1 1 1\n"},
		{name: "becomes somebody", amd64: true, code: lib + `
print([sc(n, 0, 0, 0) for n in (105, 106, 113, 114, 117, 119, 122, 123)], sc(116, 0, 0))
print(sc(126, (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[-1 & 0xffffffff] * 6)))
print([sc(157, n, 1, 0, 0, 0) for n in (4, 8, 22, 24, 28, 35, 36, 38, 40, 47, 59)])`,
			stdout: "[1, 1, 1, 1, 1, 1, 1, 1] 1\n1\n[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"},
		{name: "its own user", needs: "uid", code: "import os\nprint(os.getuid() > 0x70000000, os.getgid() > 0x70000000)", stdout: "True True\n"},
		{name: "reaches into other processes", amd64: true, code: lib + `
b = ctypes.create_string_buffer(64)
print([sc(101, r, 1, 0, 0) for r in (0, 16, 0x4206)], sc(310, 1, b, 1, b, 1, 0), sc(311, 1, b, 1, b, 1, 0))
print(sc(312, 1, 1, 0, 0, 0), sc(434, 1, 0), sc(438, 3, 0, 0), sc(424, 3, 9, 0, 0), sc(440, 3, b, 1, 4, 0), sc(448, 3, 0))`,
			stdout: "[1, 1, 1] 1 1\n1 1 1 1 1 1\n"},
		{name: "abort", status: sandbox.StatusKilled, has: "SIG", code: "import os\nos.abort()"},
		{name: "null pointer", status: sandbox.StatusKilled, has: "SIGSEGV", code: "import ctypes\nctypes.string_at(0)"},
		{name: "jump to nowhere", status: sandbox.StatusKilled, has: "SIGSEGV", code: "import ctypes\nctypes.CFUNCTYPE(None)(16)()"},
		{name: "illegal instruction", amd64: true, status: sandbox.StatusKilled, has: "SIGILL", code: lib + `code(b'\x0f\x0b')`},
		{name: "breakpoint", amd64: true, status: sandbox.StatusKilled, has: "SIGTRAP", code: lib + `code(b'\xcc\xc3')`},
		{name: "privileged instruction", amd64: true, status: sandbox.StatusKilled, has: "SIGSEGV", code: lib + `code(b'\xf4')`},
		{name: "division by zero in C", amd64: true, status: sandbox.StatusKilled, has: "SIGFPE", code: lib + `code(b'\x31\xc9\x31\xd2\xf7\xf1\xc3')`},
		{name: "end of a mapped file", status: sandbox.StatusKilled, has: "SIGBUS", code: `import mmap
f = open('/tmp/f', 'w+b'); f.truncate(4096)
m = mmap.mmap(f.fileno(), 4096); f.truncate(0); m[0]`},
		{name: "kills itself", code: "import os, signal\nfor s in (9, 15, 11): os.kill(os.getpid(), s)\nprint('first in its namespace')", stdout: "first in its namespace\n"},
		{name: "exit codes", status: sandbox.StatusError, any: true, code: "import os\nos._exit(255)"},
		{name: "exit code of the jail", status: sandbox.StatusError, any: true, code: "import os\nos._exit(70)"},
		{name: "leaves as if done", code: "import os\nprint('x')\nos._exit(0)", stdout: "x\n"},
		{name: "odd exit values", status: sandbox.StatusError, code: `class A:
    def __str__(self): raise ValueError('no')
raise SystemExit(A())`, any: true},
		{name: "huge exit value", code: "raise SystemExit(1 << 200)", any: true},
		{name: "exit value that lies", status: sandbox.StatusError, or: sandbox.StatusOK, any: true, code: `class A(int):
    def __and__(self, o): return 'x'
raise SystemExit(A(3))`},
		{name: "time travel", code: `import time
time.sleep = time.time = time.monotonic = lambda *_: -1e9
print('back')`, stdout: "back\n"},
		{name: "sets the clocks", amd64: true, code: lib + `
t = (ctypes.c_long * 64)()
print(sc(227, 0, t), sc(164, t, 0), sc(159, t), sc(305, 0, t))
import time
try: time.clock_settime(time.CLOCK_REALTIME, 0); print('set')
except OSError as e: print(e.errno)`, stdout: "1 1 1 1\n1\n"},
	}
}

// memoryAttacks want all there is.
func memoryAttacks() []attack {
	const limit = sandbox.StatusMemoryLimit
	return []attack{
		{name: "growing list", limits: small, status: limit, code: "x = []\nwhile True: x.append(' ' * 10 ** 6)"},
		{name: "growing dict", limits: small, status: limit, code: "x = {}\nwhile True: x[len(x)] = str(len(x)) * 100"},
		{name: "doubling string", limits: small, status: limit, code: "s = 'x'\nwhile True: s += s"},
		{name: "one huge block", limits: small, status: limit, code: "bytearray(100 << 30)"},
		{name: "huge integer", limits: small, status: limit, code: "1 << (1 << 40)"},
		{name: "huge range", limits: small, status: limit, code: "list(range(10 ** 10))"},
		{name: "anonymous maps", limits: small, status: sandbox.StatusError, has: "Cannot allocate", code: "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 24))"},
		{name: "memory errors ignored", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: `x = []
while True:
    try: x.append(bytearray(1 << 26))
    except MemoryError: pass`},
		{name: "memory in files without names", amd64: true, code: lib + `
print(sc(319, b'x', 0), sc(447, 0))
try: os.memfd_create('x'); print('made')
except OSError as e: print(e.errno)`, stdout: "1 1\n1\n"},
		{name: "shared memory", code: `import ctypes, errno
l = ctypes.CDLL(None, use_errno=True)
print([l.shmget(1, 4096, 0o1666), l.semget(1, 1, 0o1666), l.msgget(1, 0o1666), l.mq_open(b'/q', 66, 0o666, None), ctypes.get_errno()])
from multiprocessing import shared_memory
try: shared_memory.SharedMemory(create=True, size=1 << 20); print('made')
except OSError as e: print('no')`, stdout: "[-1, -1, -1, -1, 1]\nno\n"},
		{name: "locked memory", code: "import ctypes\nl = ctypes.CDLL(None)\nprint(l.mlockall(3), l.mlock(ctypes.create_string_buffer(4096), 4096))", stdout: "-1 -1\n"},
		{name: "stretches its input", stdin: "x", code: `import os
for size in (1 << 30, 1 << 40):
    try: os.ftruncate(0, size); print('stretched')
    except OSError as e: print(e.errno in (22, 27))`, stdout: "True\nTrue\n"},
		{name: "fills its pipes", code: `import fcntl, os
n = 0
try:
    while True:
        r, w = os.pipe(); os.set_blocking(w, False); n += 1
        try: fcntl.fcntl(w, 1031, 1 << 20); print('bigger')
        except OSError: pass
        try:
            while True: os.write(w, b'x' * 4096)
        except BlockingIOError: pass
except OSError as e: print(e.errno, n < 32)`, stdout: "24 True\n"},
		{name: "endless locks on a file", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: `import fcntl
f = open('/tmp/f', 'w')
n = 0
while True: fcntl.lockf(f, fcntl.LOCK_EX, 1, n); n += 2`},
		{name: "endless maps", limits: spins, or: whatever, any: true, code: `import mmap
x = []
while True: x.append(mmap.mmap(-1, 4096, prot=1 + len(x) % 2))`},
		{name: "endless recursion", status: sandbox.StatusError, has: "RecursionError", code: "def f(): f()\nf()"},
		{name: "recursion in C", status: sandbox.StatusError, has: "RecursionError", code: "x = []\nfor _ in range(100000): x = [x]\nprint(len(repr(x)))"},
		{name: "recursion without limit", limits: spins, or: whatever, any: true, code: "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()"},
		{name: "recursion through the C stack", or: whatever, any: true, code: `import ctypes, sys
sys.setrecursionlimit(10 ** 9)
T = ctypes.CFUNCTYPE(None)
f = T(lambda: f())
f()`},
		{name: "nested data freed", any: true, code: "x = None\nfor _ in range(10 ** 5): x = (x,)\ndel x\nprint('freed')", stdout: "freed\n"},
		{name: "decompression", status: sandbox.StatusMemoryLimit, limits: small, code: "import zlib\nd = zlib.compress(b'0' * (16 << 20))\nx = [zlib.decompress(d) for _ in range(100)]"},
	}
}

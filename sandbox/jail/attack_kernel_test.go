package jail_test

import "temper/sandbox"

// kernelAttacks knock at the doors of the kernel.
func kernelAttacks() []attack {
	// doors tries system calls by number and prints those that are not refused.
	doors := func(numbers string) string {
		return lib + "\nb = ctypes.create_string_buffer(4096)\nfor n in (" + numbers + "):\n" +
			"    for args in ((0, 0, 0, 0, 0, 0), (b, b, b, 0, 0, 0), (3, b, 0, 0, 0, 0), (0x10000000, 0, 0, 0, 0, 0)):\n" +
			"        r = sc(n, *args)\n        if r != 1: print(n, r)\nprint('shut')"
	}
	door := func(name, numbers string) attack {
		return attack{name: name, amd64: true, code: doors(numbers), stdout: "shut\n"}
	}
	return []attack{
		door("namespaces", "272, 308"),
		door("mounts", "165, 166, 155, 161, 428, 429, 430, 431, 432, 433, 442, 457, 458, 467"),
		door("modules and kexec", "175, 176, 313, 246, 320, 169, 170, 171, 172, 173"),
		door("bpf and perf", "321, 298, 323"),
		door("io_uring and aio", "425, 426, 427, 206, 207, 208, 209, 210, 333"),
		door("keys", "248, 249, 250"),
		door("file handles", "303, 304, 437"),
		door("landlock and seccomp", "317, 444, 445, 446"),
		door("pidfd", "434, 438, 424"),
		door("swap, quota, accounting, log", "167, 168, 163, 179, 443, 103, 153, 212"),
		door("clocks and timers", "227, 164, 159, 305, 222, 223, 224, 225, 226, 283"),
		door("copies inside the kernel", "40, 275, 276, 278, 326, 187"),
		door("sockets by number", "41, 42, 43, 49, 50, 46, 47, 299, 307, 288, 54, 52"),
		door("memory policy", "237, 238, 239, 256, 279, 450, 149, 150, 151, 152, 325, 216, 329, 330, 331"),
		door("personality and segments", "135, 154, 205, 211, 134, 180, 183, 184, 185"),
		door("system V and message queues", "29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 240, 241, 242, 243, 244, 245"),
		{name: "numbers that do not exist", amd64: true, code: lib + "print({sc(n) for n in list(range(470, 1024)) + [5000, 1 << 20, (1 << 30) - 1]})", stdout: "{1}\n"},
		{name: "x32", amd64: true, code: lib + "print({sc((1 << 30) + n, 0, 0, 0) for n in range(600)}, sc(-1), sc(1 << 31))", stdout: "{38} 38 38\n"},
		{name: "x32 by machine code", amd64: true, code: lib + `print(code(b'\xb8\x27\x00\x00\x40\x0f\x05\xc3'))`, stdout: "-38\n"},
		{name: "i386", amd64: true, or: sandbox.StatusKilled, has: "", any: true, code: lib + `
for n in (2, 11, 20, 26, 102, 120, 190, 357, 359):
    r = code(b'\x31\xdb\x31\xc9\x31\xd2\xb8' + n.to_bytes(4, 'little') + b'\xcd\x80\xc3') & 0xffffffff
    if r != 0xffffffff: raise SystemExit('i386 call %d answers %#x' % (n, r))`},
		{name: "sockets of every family", code: `import socket
for f in range(0, 50):
    for kind in (1, 2, 3, 5, 10):
        try: socket.socket(f, kind); print('open', f, kind)
        except OSError as e:
            if e.errno != 1: print(f, e.errno)
print('none')`, stdout: "none\n"},
		{name: "pairs of every family", code: `import ctypes
l = ctypes.CDLL(None, use_errno=True)
fds = (ctypes.c_int * 2)()
print([f for f in range(0, 50) if l.socketpair(f, 1, 0, fds) == 0])`, stdout: "[1]\n"},
		{name: "names on the network", code: `import socket
for f in (lambda: socket.getaddrinfo('localhost', 80), lambda: socket.gethostbyname('example.org'), lambda: socket.create_connection(('127.0.0.1', 22)), lambda: __import__('urllib.request').request.urlopen('http://127.0.0.1'), lambda: __import__('asyncio').run(__import__('asyncio').open_connection('127.0.0.1', 1))):
    try: f(); print('reached')
    except OSError: pass
print('alone')`, stdout: "alone\n"},
		{name: "talks past its socket pair", code: `import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    for f in (lambda: a.sendto(b'x', '/dev/log'), lambda: a.sendto(b'x', '\0abstract'), lambda: a.connect('/dev/log'), lambda: a.bind('/tmp/s'), lambda: a.listen(), lambda: a.sendmsg([b'x']), lambda: a.recvmsg(9), lambda: a.setsockopt(1, 26, b'x' * 16), lambda: a.send(b'x', socket.MSG_OOB), lambda: a.recv(1, socket.MSG_OOB)):
        try: f(); print('done')
        except OSError as e:
            if e.errno != 1: print(e.errno)
    a.send(b'x'); print(b.recv(1))`, stdout: "b'x'\nb'x'\nb'x'\n"},
		{name: "userfaultfd", amd64: true, code: lib + "print(sc(323, 0), sc(323, 1))\ntry: open('/dev/userfaultfd'); print('open')\nexcept OSError as e: print(e.errno)", stdout: "1 1\n2\n"},
		{name: "device controls", code: `import fcntl
null = open('/dev/null')
def refused(fd, r):
    try: fcntl.ioctl(fd, r, bytes(64)); return False
    except OSError as e: return e.errno in (1, 13, 14, 22, 25)
bad = [hex(r) for r in range(0x5400, 0x5480) if r not in (0x541b, 0x5421, 0x5450, 0x5451) for fd in (0, 1, null) if not refused(fd, r)]
print(bad)`, stdout: "[]\n"},
		{name: "signals itself by every door", amd64: true, code: lib + "print(sc(129, 1, 9, 0), sc(297, 1, 1, 9, 0), sc(424, 1, 9, 0, 0))", stdout: "1 1 1\n"},
	}
}

// pythonAttacks turn the interpreter against those who share it.
func pythonAttacks() []attack {
	return []attack{
		{name: "poisoned builtins", code: `import builtins
print('x')
for n in ('len', 'str', 'isinstance', 'open', 'repr', 'type', 'getattr', 'BaseException', 'max', 'min'): setattr(builtins, n, None)`, stdout: "x\n"},
		{name: "no builtins at all", any: true, code: "import builtins\nvars(builtins).clear()"},
		{name: "poisoned modules", any: true, code: `import sys
for m in list(sys.modules.values()):
    for k in list(vars(m)):
        if k[0] != '_':
            try: setattr(m, k, None)
            except Exception: pass`, or: whatever},
		{name: "no modules", any: true, code: "import sys\nsys.modules.clear()", or: whatever},
		{name: "poisoned import", code: `import sys
class F:
    def find_spec(self, *a): raise SystemExit(9)
sys.meta_path[:] = sys.path_hooks[:] = [F()]; sys.path_importer_cache.clear(); sys.path.clear()
try: import colorsys
except SystemExit as e: print(e.code)`, stdout: "9\n"},
		{name: "poisoned end", code: `import atexit, gc, os, sys, threading
print('x')
threading._shutdown = atexit._run_exitfuncs = atexit._ncallbacks = None
gc.freeze(); gc.disable(); gc.set_threshold(1); sys.setswitchinterval(100)
os.environ.clear(); os.write = os._exit = lambda *a: None`, stdout: "x\n", limits: sleeps, or: sandbox.StatusTimeLimit},
		{name: "hands off the exit", any: true, code: "import os\nos._exit = lambda code: None\nprint('still here')", or: whatever},
		{name: "walks the frames", any: true, code: `import sys
f = sys._getframe()
while f:
    for k, v in list(f.f_locals.items()):
        print(k, type(v).__name__)
    f = f.f_back`},
		{name: "tampers with the frames", any: true, or: whatever, code: `import gc, sys
for o in gc.get_objects():
    if type(o).__name__ in ('Jail', 'Server', 'Layers', 'Outcome'):
        vars(o).clear()
f = sys._getframe()
while f:
    f.f_globals.pop('struct', None); f.f_globals.pop('os', None)
    f = f.f_back`},
		{name: "traces its caller", any: true, or: whatever, code: `import sys, threading
def t(frame, event, arg): raise SystemExit(5)
f = sys._getframe().f_back
while f: f.f_trace = t; f = f.f_back
threading.settrace(t); sys.setprofile(t); sys.settrace(t)`},
		{name: "raises in its caller", any: true, or: whatever, code: `import ctypes, threading
me = threading.get_ident()
def f():
    while True: ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), ctypes.py_object(KeyboardInterrupt))
threading.Thread(target=f, daemon=True).start()`},
		{name: "overwrites the interpreter", any: true, status: sandbox.StatusKilled, or: whatever, code: "import ctypes\nctypes.memset(id(type), 0, 400)\nctypes.memset(id(int), 255, 400)\nprint(int('5'))"},
		{name: "signal handler at the end", any: true, or: whatever, code: `import signal
signal.signal(signal.SIGALRM, lambda *a: 1 / 0)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
x = sum(range(1000))`},
		{name: "exits by a signal handler", any: true, status: sandbox.StatusError, code: "import os, signal\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(3))\nsignal.setitimer(signal.ITIMER_REAL, 1e-3)\nwhile True: pass"},
		{name: "becomes the zygote", any: true, or: whatever, code: `import sys
f = sys._getframe()
while f.f_back: f = f.f_back
g = f.f_globals
for name in ('main', 'prepare', 'preload', 'warm_up', 'build_root', 'Server'):
    try: print(name, g[name]() if name != 'Server' else g[name](None, None, -1))
    except BaseException as e: print(name, type(e).__name__)`},
		{name: "recursion limit kept low", any: true, or: whatever, code: "import sys\nsys.setrecursionlimit(40)"},
		{name: "integers without limit", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: "import sys\nsys.set_int_max_str_digits(0)\nprint(len(str(7 ** 4000000)))"},
		{name: "asyncio still works", code: "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 5\nprint(asyncio.run(f()))", stdout: "5\n"},
		{name: "threads still work", code: "import threading\nr = []\nts = [threading.Thread(target=r.append, args=(i,)) for i in range(8)]\n[t.start() for t in ts]; [t.join() for t in ts]\nprint(sorted(r))", stdout: "[0, 1, 2, 3, 4, 5, 6, 7]\n"},
		{name: "temporary files still work", code: `import shutil, sqlite3, tempfile, os
with tempfile.TemporaryFile('w+') as f:
    f.write('a'); f.flush(); os.fsync(f.fileno()); f.seek(0); print(f.read())
c = sqlite3.connect('/tmp/d'); c.execute('create table t(a)'); c.execute('insert into t values (7)'); c.commit()
shutil.copy2('/tmp/d', '/tmp/e'); print(sqlite3.connect('/tmp/e').execute('select a from t').fetchall())`, stdout: "a\n[(7,)]\n"},
	}
}

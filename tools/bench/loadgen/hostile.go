package loadgen

import (
	"time"

	"temper/sandbox"
)

// Attacks are 51 programs: those of Hostile, and others that go for what calls share,
// such as the interpreter that they are forked from, /tmp, threads, locks and time.
// Their limits are tighter, so that thousands of them fit into a soak.
func Attacks() []Program {
	list := append(Hostile(), attacksOnProcesses()...)
	list = append(append(list, attacksOnFiles()...), attacksOnPython()...)
	for i := range list {
		list[i].AnyEnd = true
		list[i].Limits = sandbox.Limits{Wall: 500 * time.Millisecond, CPU: 200 * time.Millisecond, Memory: 128 << 20, Output: 64 << 10}
	}
	return list
}

func attacksOnProcesses() []Program {
	return []Program{
		{Name: "kills_every_number", Code: "import os\nfor p in range(1, 5000):\n    try: os.kill(p, 9)\n    except OSError: pass"},
		{Name: "kills_its_parent", Code: "import os\nfor s in (9, 15, 6, 11, 19):\n    for f in (lambda: os.kill(os.getppid(), s), lambda: os.kill(1, s)):\n        try: f()\n        except OSError: pass"},
		{Name: "kills_its_group", Code: "import os\nfor s in (15, 19, 9):\n    for g in (0, os.getpgrp(), os.getsid(0)):\n        try: os.killpg(g, s)\n        except OSError: pass"},
		{Name: "idle_threads", Code: "import threading, time\nfor _ in range(62): threading.Thread(target=time.sleep, args=(60,)).start()\nprint('kept')"},
		{Name: "busy_threads", Code: "import threading\ndef f():\n    while True: pass\nfor _ in range(40): threading.Thread(target=f).start()"},
		{Name: "sleeper", Code: "import time\ntime.sleep(600)"},
		{Name: "waits_for_a_lock", Code: "import threading\nl = threading.Lock()\nl.acquire(); l.acquire()"},
		{Name: "waits_for_a_pipe", Code: "import os\nr, w = os.pipe()\nos.read(r, 1)"},
		{Name: "storm_of_timers", Code: "import signal\nfor s in (14, 26, 27): signal.signal(s, lambda *_: None)\nfor t in (0, 1, 2): signal.setitimer(t, 1e-6, 1e-6)\nwhile True: pass"},
		{Name: "catches_the_cpu_signal", Code: "import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: signal.alarm(0)"},
		{Name: "lowers_its_limits", Code: "import resource as r\nfor k in range(16):\n    try: r.setrlimit(k, (1, 1))\n    except (OSError, ValueError): pass\nwhile True: pass"},
		{Name: "pattern_without_end", Code: "import re\nre.match('(a+)+$', 'a' * 40 + 'b')"},
		{Name: "number_without_end", Code: "x = 7 ** (10 ** 8)"},
	}
}

func attacksOnFiles() []Program {
	return []Program{
		{Name: "fills_with_files", Code: "n = 0\nwhile True:\n    with open('/tmp/%d' % n, 'wb') as f: f.write(b'x' * (1 << 20))\n    n += 1"},
		{Name: "fills_and_sleeps", Code: "import time\ntry:\n    with open('/tmp/f', 'wb') as f:\n        while True: f.write(b'x' * (1 << 20))\nexcept OSError: time.sleep(60)"},
		{Name: "fills_with_links", Code: "import os\nn = 0\nwhile True:\n    os.symlink('x' * 4000, '/tmp/%d' % n); n += 1"},
		{Name: "deep_folders", Code: "import os\nos.chdir('/tmp')\nwhile True: os.mkdir('d'); os.chdir('d')"},
		{Name: "locks_a_device", Code: "import fcntl\nf = open('/dev/null', 'r+b')\nn = 0\nwhile True: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, n); n += 2"},
		{Name: "locks_a_library", Code: "import fcntl, os, struct\nf = open(os.__file__, 'rb')\nfor n in range(4096):\n    fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, n)\n    fcntl.fcntl(f, fcntl.F_GETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, n, 1, 0))"},
		{Name: "locks_without_end", Code: "import fcntl\nf = open('/tmp/f', 'w')\nn = 0\nwhile True: fcntl.lockf(f, fcntl.LOCK_EX, 1, n); n += 2"},
		{Name: "fills_pipes", Code: "import os\nwhile True:\n    r, w = os.pipe(); os.set_blocking(w, False)\n    try:\n        while True: os.write(w, b'x' * 4096)\n    except BlockingIOError: pass"},
		{Name: "escapes", Code: "import os\nwhile True: os.write(1, b'\\x01' * 65536)"},
		{Name: "drips", Code: "import os, time\nwhile True: os.write(1, b'x'); os.write(2, b'\\xff'); time.sleep(.001)"},
		{Name: "closes_everything", Code: "import os\nos.closerange(0, 256)\nopen('/tmp/x', 'w')"},
	}
}

func attacksOnPython() []Program {
	return []Program{
		{Name: "maps", Code: "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 4096, prot=1 + len(x) % 2))"},
		{Name: "forges_its_outcome", Code: "import gc, mmap, os\nfor o in gc.get_objects():\n    if isinstance(o, (mmap.mmap, memoryview)):\n        try: o[:64] = bytes([2]) * 64\n        except (TypeError, ValueError, IndexError): pass\nos._exit(0)"},
		{Name: "leaves_as_the_jail", Code: "import os\nos._exit(70)"},
		{Name: "no_builtins", Code: "import builtins\nvars(builtins).clear()"},
		{Name: "no_modules", Code: "import sys\nsys.modules.clear()\nsys.meta_path.clear()"},
		{Name: "raises_in_its_caller", Code: "import sys\ndef t(*a): raise SystemExit(5)\nf = sys._getframe().f_back\nwhile f: f.f_trace = t; f = f.f_back\nsys.setprofile(t); sys.settrace(t)"},
		{Name: "overwrites_the_interpreter", Code: "import ctypes\nctypes.memset(id(type), 0, 400)\nctypes.memset(id(int), 255, 400)\nprint(int('5'))"},
	}
}

package jail_test

import (
	"os"
	"strings"
	"testing"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// customs are rows of the table in docs/sandbox.md that says what runs here as it does
// in Code-Judge, and what does not: the name of the row and its last column.
var customs = []struct {
	name, here string
	code       string
	stdout     string
}{
	{"`multiprocessing.pool.ThreadPool`", "works", `from multiprocessing.pool import ThreadPool
with ThreadPool(4) as pool: print(pool.map(abs, [-1, -2, -3]), pool.apply(max, (1, 2)))`, "[1, 2, 3] 2\n"},
	{"`concurrent.futures.ThreadPoolExecutor`", "works", `from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool: print(list(pool.map(abs, [-1, -2, -3])))`, "[1, 2, 3]\n"},
	{"`multiprocessing.Lock`, `Event`, `SimpleQueue`, `Value`", "works", `import multiprocessing as m, os
lock, event, queue = m.Lock(), m.Event(), m.SimpleQueue()
with lock: print(lock.acquire(block=False))
with m.RLock(), m.Semaphore(2), m.BoundedSemaphore(1): event.set()
queue.put([1]); print(event.wait(1), queue.get(), m.Value('i', 7).value, list(m.Array('i', 2)), os.listdir('/dev/shm'))`,
		"False\nTrue [1] 7 [0, 0] []\n"},
	{"`pwd.getpwuid(os.getuid())`, `getpass.getuser()`, `os.path.expanduser(\"~\")`, `os.getgroups()`", "works: user `sandbox`, home `/tmp`, no groups", `import getpass, os, pathlib, pwd
me = pwd.getpwuid(os.getuid())
print(me.pw_name, me.pw_dir, me.pw_uid == os.getuid(), me == pwd.getpwnam('sandbox'), getpass.getuser())
print(os.path.expanduser('~'), os.path.expanduser('~sandbox'), pathlib.Path.home(), os.getgroups() is not None)`,
		"sandbox /tmp True True sandbox\n/tmp /tmp /tmp True\n"},
	{"`os.link`, `os.symlink`", "works in `/tmp`", "import os\nopen('a', 'w').close(); os.link('a', 'b'); os.symlink('a', 'c')\nprint(os.stat('b').st_nlink)", "2\n"},
	{"`sqlite3`", "works", "import sqlite3\nd = sqlite3.connect('/tmp/x.db')\nprint(d.execute('select 1').fetchone())", "(1,)\n"},
	{"`asyncio`, without subprocesses and connections", "works", "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return await asyncio.to_thread(abs, -1)\nprint(asyncio.run(f()))", "1\n"},
	{"`signal.signal`, `setitimer`, `alarm` with a handler", "works", "import signal\nsignal.signal(signal.SIGALRM, lambda *_: print('rang'))\nsignal.setitimer(signal.ITIMER_REAL, .01); signal.pause()", "rang\n"},
	{"`os.fork`, `subprocess`, `multiprocessing.Process`, `Pool`, `ProcessPoolExecutor`", "refused in words (`PermissionError`), but with the profile `subprocess`", refused(`import multiprocessing as m, os, subprocess, sys
from concurrent.futures import ProcessPoolExecutor
def executor():
    with ProcessPoolExecutor(1) as pool: pool.submit(abs, 1).result()
tries = [lambda: m.Process(target=print).start(), lambda: m.Pool(1), executor, os.fork,
    lambda: subprocess.run(['true']), lambda: os.popen('true'), lambda: os.execv('/bin/true', ['true']), lambda: os.posix_spawn('/bin/true', ['true'], {})]`,
		"the sandbox starts no processes"), "8\n"},
	{"`os.system`", "returns 127 and says why on standard error", "import os\nprint(os.WEXITSTATUS(os.system('true')))", "127\n"},
	{"32 threads at a time", "works; 63 are the most", `import threading
gate = threading.Barrier(33)
for _ in range(32): threading.Thread(target=gate.wait).start()
gate.wait(); print('all')`, "all\n"},
	{"`fcntl.lockf`", "answers that it has the lock: `/tmp` is the program's own", "import fcntl\nf = open('/tmp/f', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('locked')", "locked\n"},
	{"`fcntl.flock`, `os.eventfd`", "refused (`EPERM`)", refused("import fcntl, os\nfile = open('/tmp/f', 'w')\ntries = [lambda: fcntl.flock(file, fcntl.LOCK_EX)] * 2\nif hasattr(os, 'eventfd'): tries[1] = lambda: os.eventfd(0)", "not permitted"), "2\n"},
	{"SIGTERM or SIGALRM without a handler", "ignored: the program is process 1", "import os, signal\nos.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGALRM); print('goes on')", "goes on\n"},
	{"`from __future__` in the first line", "works", "from __future__ import annotations\nprint('ran')", "ran\n"},
	{"output that is no UTF-8", "works: replaced", "import os\nos.write(1, b'\\xff\\n')", "\uFFFD\n"},
	{"line of an error in a traceback", "the program's own", "import sys, traceback\ntry:\n    1/0\nexcept ZeroDivisionError: print(sys.exc_info()[2].tb_lineno)", "3\n"},
	{"network", "refused (`EPERM`)", refused("import socket, urllib.request\ntries = [socket.socket, lambda: urllib.request.urlopen('http://127.0.0.1:1')]", "not permitted"), "2\n"},
	{"files of the machine, `/proc`, `/sys`, a shell", "not there", "import os\nprint([p for p in ('/proc', '/sys', '/home', '/root', '/bin/sh', '/etc/hosts') if os.path.exists(p)])", "[]\n"},
}

// refused is a program that counts how many of its tries fail with an OSError that says
// words.
func refused(tries, words string) string {
	return tries + `
n = 0
for f in tries:
    try: f(); print('done', f)
    except OSError as e: n += '` + words + `' in str(e)
print(n)`
}

// TestCompatibility holds the column "here" of the table in docs/sandbox.md.
func TestCompatibility(t *testing.T) {
	text, err := os.ReadFile("../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	j, in := open(t, jail.Config{Heavy: []string{}})
	for _, layer := range []string{"root", "network", "pid_namespace", "tmpfs"} {
		needLayer(t, j, layer)
	}
	for _, p := range customs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			row := ""
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "| "+p.name+" |") {
					row = line
				}
			}
			if !strings.HasSuffix(row, "| "+p.here+" |\n") {
				t.Errorf("docs/sandbox.md has the row %q, want %q in its last column", row, p.here)
			}
			res := run(t, in, sandbox.Request{Code: p.code})
			if res.Status != sandbox.StatusOK || res.Stdout != p.stdout {
				t.Errorf("got %s %s %q, want %q\n%s", res.Status, res.Reason, res.Stdout, p.stdout, res.Stderr)
			}
		})
	}
}

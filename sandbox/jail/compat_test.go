package jail_test

import (
	"testing"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// programs are the rows of the table in docs/sandbox.md that says what runs here as it
// does in Code-Judge, and what does not.
var programs = []struct {
	name   string
	code   string
	stdout string
	status sandbox.Status // ok when empty
}{
	{"pool of threads of multiprocessing", `from multiprocessing.pool import ThreadPool
with ThreadPool(4) as pool: print(pool.map(abs, [-1, -2, -3]), pool.apply(max, (1, 2)))`, "[1, 2, 3] 2\n", ""},
	{"executor of threads", `from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool: print(list(pool.map(abs, [-1, -2, -3])))`, "[1, 2, 3]\n", ""},
	{"locks and queues of multiprocessing", `import multiprocessing as m, os
lock, event, queue = m.Lock(), m.Event(), m.SimpleQueue()
with lock: print(lock.acquire(block=False))
with m.RLock(), m.Semaphore(2), m.BoundedSemaphore(1): event.set()
queue.put([1]); print(event.wait(1), queue.get(), m.Value('i', 7).value, list(m.Array('i', 2)), os.listdir('/dev/shm'))`,
		"False\nTrue [1] 7 [0, 0] []\n", ""},
	{"who am I", `import getpass, os, pathlib, pwd
me = pwd.getpwuid(os.getuid())
print(me.pw_name, me.pw_dir, me.pw_uid == os.getuid(), me == pwd.getpwnam('sandbox'), getpass.getuser())
print(os.path.expanduser('~'), os.path.expanduser('~sandbox'), pathlib.Path.home(), os.getgroups() is not None)`,
		"sandbox /tmp True True sandbox\n/tmp /tmp /tmp True\n", ""},
	{"links", "import os\nopen('a', 'w').close(); os.link('a', 'b'); os.symlink('a', 'c')\nprint(os.stat('b').st_nlink)", "2\n", ""},
	{"database", "import sqlite3\nd = sqlite3.connect('/tmp/x.db')\nprint(d.execute('select 1').fetchone())", "(1,)\n", ""},
	{"event loop", "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return await asyncio.to_thread(abs, -1)\nprint(asyncio.run(f()))", "1\n", ""},
	{"alarm", "import signal\nsignal.signal(signal.SIGALRM, lambda *_: print('rang'))\nsignal.setitimer(signal.ITIMER_REAL, .01); signal.pause()", "rang\n", ""},
	{"processes", refused(`import multiprocessing as m, os, subprocess, sys
from concurrent.futures import ProcessPoolExecutor
def executor():
    with ProcessPoolExecutor(1) as pool: pool.submit(abs, 1).result()
tries = [lambda: m.Process(target=print).start(), lambda: m.Pool(1), executor, os.fork,
    lambda: subprocess.run(['true']), lambda: os.popen('true'), lambda: os.execv('/bin/true', ['true']), lambda: os.posix_spawn('/bin/true', ['true'], {})]`,
		"the sandbox starts no processes"), "8\n", ""},
	{"shell", "import os\nprint(os.WEXITSTATUS(os.system('true')))", "127\n", ""},
	{"network", refused("import socket, urllib.request\ntries = [socket.socket, lambda: urllib.request.urlopen('http://127.0.0.1:1')]", "not permitted"), "2\n", ""},
	{"files of the machine", "import os\nprint([p for p in ('/proc', '/sys', '/home', '/root', '/bin/sh', '/etc/hosts') if os.path.exists(p)])", "[]\n", ""},
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
	j, in := open(t, jail.Config{Heavy: []string{}})
	for _, layer := range []string{"root", "network", "pid_namespace", "tmpfs"} {
		needLayer(t, j, layer)
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			want := p.status
			if want == "" {
				want = sandbox.StatusOK
			}
			res := run(t, in, sandbox.Request{Code: p.code})
			if res.Status != want || res.Stdout != p.stdout {
				t.Errorf("got %s %s %q, want %s %q\n%s", res.Status, res.Reason, res.Stdout, want, p.stdout, res.Stderr)
			}
		})
	}
}

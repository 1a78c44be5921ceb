package jail_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// openSpawner starts a jail whose programs may start processes.
func openSpawner(t *testing.T) *jail.Interpreter {
	t.Helper()
	j, in := open(t, jail.Config{Heavy: []string{}, Subprocess: true})
	for _, layer := range []string{"root", "pid_namespace", "landlock", "rlimits", "uid", "seccomp"} {
		needLayer(t, j, layer)
	}
	return in
}

func spawn(t *testing.T, in *jail.Interpreter, code string, limits sandbox.Limits) sandbox.Result {
	t.Helper()
	if limits == (sandbox.Limits{}) {
		limits = sandbox.Limits{Wall: time.Minute, CPU: 20 * time.Second, Memory: 512 << 20}
	}
	return run(t, in, sandbox.Request{Code: code, Profile: sandbox.ProfileSubprocess, Limits: limits})
}

// TestSubprocessNeedsBothSides: the profile is for nodes whose operator wants it.
func TestSubprocessNeedsBothSides(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	res := run(t, in, sandbox.Request{Code: "1", Profile: sandbox.ProfileSubprocess})
	if res.Status != sandbox.StatusRefused || !strings.Contains(res.Reason, "--subprocess") {
		t.Errorf("got %+v, want refused with the flag in its reason", res)
	}
}

// TestStartForSubprocessesOutlivesItsCaller: callers that do not wait for it find the interpreter
// started later, and keep nobody else waiting.
func TestStartForSubprocessesOutlivesItsCaller(t *testing.T) {
	in := openSpawner(t)
	began := time.Now()
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
		_, err := in.Run(ctx, sandbox.Request{Code: "1", Profile: sandbox.ProfileSubprocess})
		cancel()
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("none of %d callers with 40 ms each has an answer", tries)
		}
	}
}

// TestSubprocess: a program starts the interpreter, by its path or its name, forks, and
// uses pools of processes; what it leaves behind ends with it.
func TestSubprocess(t *testing.T) {
	in := openSpawner(t)
	res := spawn(t, in, `import multiprocessing as m, os, subprocess, sys
from concurrent.futures import ProcessPoolExecutor
run = lambda *a, **k: subprocess.run(a, capture_output=True, text=True, **k)
print(run(sys.executable, '-c', 'import json, ssl, sys; print(input(), sys.prefix == %r)' % sys.prefix, input='line').stdout, end='')
print(run('python3', '-c', 'raise SystemExit(3)').returncode, run('python', '-c', '1/0').stderr.splitlines()[-1])
open('/tmp/script.py', 'w').write('import os; print(os.getuid() == %d, os.listdir("/tmp"))' % os.getuid())
print(run(sys.executable, '/tmp/script.py').stdout, end='')
if __name__ == '__main__':
    ctx = m.get_context('fork')
    with ProcessPoolExecutor(2, ctx) as pool: print(list(pool.map(abs, [-1, -2])))
    with ctx.Pool(2) as pool: print(pool.map(abs, [-3, -4]))
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])
if os.fork() == 0:
    print('child', flush=True)
else:
    print(os.wait()[1]); 'the parent'`, sandbox.Limits{})
	want := "line True\n3 ZeroDivisionError: division by zero\nTrue ['script.py']\n[1, 2]\n[3, 4]\nchild\n0\n"
	if res.Status != sandbox.StatusOK || res.Stdout != want {
		t.Errorf("got %s %s %q, want %q\n%s", res.Status, res.Reason, res.Stdout, want, res.Stderr)
	}
	if left := strangers(t, in.PIDs()[len(in.PIDs())-1]); len(left) > 0 {
		t.Errorf("processes %v outlive their program", left)
	}
	res = run(t, in, sandbox.Request{Code: "import os\ntry: os.fork()\nexcept OSError as e: print(e.errno)"})
	if res.Stdout != "1\n" {
		t.Errorf("another profile of the same node: %+v", res)
	}
}

// TestSubprocessIsHeldToTheLimitsOfOne: all processes of a program together have the
// limits of the call, and none leaves the layers.
func TestSubprocessIsHeldToTheLimitsOfOne(t *testing.T) {
	in := openSpawner(t)
	loop := "import os\nfor _ in range(8):\n    if os.fork() == 0:\n        while True: pass\n"
	for _, c := range []struct {
		name, code string
		limits     sandbox.Limits
		status     sandbox.Status
		has        string
	}{
		{"processor time", loop + "while True: os.wait()", sandbox.Limits{CPU: time.Second, Wall: time.Minute}, sandbox.StatusTimeLimit, "cpu time"},
		{"processor time of children that have ended", "import os\nwhile True:\n    if os.fork() == 0:\n        for i in range(10**6): pass\n        os._exit(0)\n    os.wait()",
			sandbox.Limits{CPU: time.Second, Wall: time.Minute}, sandbox.StatusTimeLimit, "cpu time"},
		{"orphans", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    for _ in range(4):\n        if os.fork() == 0:\n            while True: pass\n    os._exit(0)\ntime.sleep(60)",
			sandbox.Limits{CPU: time.Second, Wall: time.Minute}, sandbox.StatusTimeLimit, "cpu time"},
		{"wall time", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])", sandbox.Limits{Wall: time.Second}, sandbox.StatusTimeLimit, "wall time"},
		{"memory", "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        x = b'x' * (100 << 20)\n        time.sleep(60)\ntime.sleep(60)",
			sandbox.Limits{Wall: time.Minute, Memory: 256 << 20}, sandbox.StatusMemoryLimit, "together"},
		{"fork bomb", "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\nexcept OSError as e: print(e.errno, n < 64)", sandbox.Limits{}, sandbox.StatusOK, "11 True"},
		{"ignores the ends of its children", "import signal\ntry: signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nexcept OSError as e: print(e.errno)", sandbox.Limits{}, sandbox.StatusOK, "1\n"},
		{"output", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: print(\"x\" * 10000)'])", sandbox.Limits{Wall: time.Minute}, sandbox.StatusOutputLimit, "wrote more"},
		{"another program", `import glob, os, shutil, subprocess
shutil.copyfile('/usr/bin/python3', '/tmp/python')
os.chmod('/tmp/python', 0o755)
files = [f for d in ('/usr', '/lib', '/opt', '/tmp') for top, _, names in os.walk(d) for f in (top + '/' + n for n in names) if os.access(f, os.X_OK) and not os.path.islink(f)]
ran = []
for f in files:
    try: subprocess.run([f, '--version'], capture_output=True, stdin=subprocess.DEVNULL, timeout=5); ran.append(os.path.basename(f))
    except OSError: pass
print([n for n in ran if not n.startswith(('python', 'ld-'))])`, sandbox.Limits{}, sandbox.StatusOK, "[]\n"},
		{"namespaces and neighbours", lib + `
print([sc(56, flags | 17, 0, 0, 0, 0) for flags in (0x20000, 0x10000000, 0x20000000, 0x40000000)], sc(272, 0x10000000), sc(101, 16, 1, 0, 0), sc(41, 2, 1, 0))
import subprocess, sys
print(subprocess.run([sys.executable, '-c', 'import socket; socket.socket()'], capture_output=True, text=True).stderr.splitlines()[-1])`, sandbox.Limits{}, sandbox.StatusOK,
			"[1, 1, 1, 1] 1 1 1\nPermissionError: [Errno 1] Operation not permitted\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := spawn(t, in, c.code, c.limits)
			if res.Status != c.status || !strings.Contains(res.Stdout+res.Reason, c.has) {
				t.Errorf("got %s %q, want %s with %q\n%.300s\n%.500s", res.Status, res.Reason, c.status, c.has, res.Stdout, res.Stderr)
			}
			if res.Usage.CPU > 5*time.Second && c.limits.CPU > 0 {
				t.Errorf("used %v", res.Usage.CPU)
			}
		})
	}
}

package jail_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/sandboxtest"
)

// open starts an interpreter that ends with the test.
func open(t *testing.T, cfg jail.Config) (*jail.Jail, *jail.Interpreter) {
	t.Helper()
	j, err := jail.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	in, err := j.Start(t.Context())
	if err != nil {
		t.Fatal(errors.Join(err, j.Close()))
	}
	t.Cleanup(func() {
		in.Close()
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j, in
}

// executor makes a sandbox.Executor of an interpreter.
type executor struct{ *jail.Interpreter }

func (e executor) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	return e.Run(ctx, req)
}

func run(t *testing.T, in *jail.Interpreter, req sandbox.Request) sandbox.Result {
	t.Helper()
	res, err := in.Run(t.Context(), req)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return res
}

func TestJailConforms(t *testing.T) {
	_, in := open(t, jail.Config{})
	sandboxtest.Run(t, func(*testing.T) sandbox.Executor { return executor{in} })
}

// TestPlainModeStillRuns holds for machines without any namespaces.
func TestPlainModeStillRuns(t *testing.T) {
	j, in := open(t, jail.Config{}.WithMode(jail.ModePlain))
	var off []string
	for _, layer := range j.Report().Off() {
		off = append(off, layer.Name)
		if !strings.Contains(layer.Reason, "namespaces") && !strings.Contains(layer.Reason, "uid") {
			t.Errorf("layer %s is off for the reason %q", layer.Name, layer.Reason)
		}
	}
	for _, name := range []string{"pid_namespace", "root", "network", "call_namespaces", "tmpfs"} {
		if !slices.Contains(off, name) {
			t.Errorf("layer %s is reported as on without namespaces", name)
		}
	}
	if res := run(t, in, sandbox.Request{Code: "print(1+1)"}); res.Stdout != "2\n" {
		t.Errorf("got %+v", res)
	}
	res := run(t, in, sandbox.Request{Code: "import time\ntime.sleep(9)", Limits: sandbox.Limits{Wall: 50 * time.Millisecond}})
	if res.Status != sandbox.StatusTimeLimit {
		t.Errorf("sleeper: got %s, want time_limit", res.Status)
	}
	// Without a pid namespace a signal could reach other programs.
	res = run(t, in, sandbox.Request{Code: "import os\ntry: os.kill(os.getppid(), 0)\nexcept OSError as e: print(e.errno)"})
	if res.Stdout != "1\n" {
		t.Errorf("a signal left the program: %+v", res)
	}
	_, err := jail.New(t.Context(), jail.Config{Require: []string{jail.RequireAll}}.WithMode(jail.ModePlain))
	if err == nil || !strings.Contains(err.Error(), "pid_namespace") {
		t.Errorf("required layers: got error %v, want one that names pid_namespace", err)
	}
}

func TestReportNamesEveryLayer(t *testing.T) {
	j, _ := open(t, jail.Config{})
	report := j.Report()
	for _, name := range []string{
		"pid_namespace", "root", "network", "call_namespaces", "tmpfs", "no_new_privs",
		"landlock", "rlimits", "uid", "capabilities", "seccomp",
	} {
		found := false
		for _, layer := range report.Layers {
			if layer.Name == name {
				found = true
				if !layer.On && layer.Reason == "" {
					t.Errorf("layer %s is off without a reason", name)
				}
			}
		}
		if !found {
			t.Errorf("no layer %s in %+v", name, report.Layers)
		}
	}
	if !strings.HasPrefix(report.Version, "3.") {
		t.Errorf("python version %q", report.Version)
	}
}

func TestRequireRefusesAnUnknownLayer(t *testing.T) {
	_, err := jail.New(t.Context(), jail.Config{Require: []string{"moat"}})
	if err == nil || !strings.Contains(err.Error(), "moat (no such layer)") {
		t.Errorf("got error %v, want one that names the layer", err)
	}
}

func TestRefusesAnImpossibleRequest(t *testing.T) {
	_, in := open(t, jail.Config{Most: sandbox.Limits{Wall: time.Second}, Defaults: sandbox.Limits{Wall: time.Second}})
	for _, c := range []struct {
		name, want string
		req        sandbox.Request
	}{
		{"code", "code of 1048577 bytes is above the limit of 1048576", sandbox.Request{Code: strings.Repeat("#", 1<<20+1)}},
		{"wall", "limit wall_ns 2000000000 is outside", sandbox.Request{Limits: sandbox.Limits{Wall: 2 * time.Second}}},
		{"negative memory", "limit memory_bytes -1 is outside", sandbox.Request{Limits: sandbox.Limits{Memory: -1}}},
	} {
		res := run(t, in, c.req)
		if res.Status != sandbox.StatusRefused || !strings.Contains(res.Reason, c.want) {
			t.Errorf("%s: got %s %q, want refused with %q", c.name, res.Status, res.Reason, c.want)
		}
	}
}

// attacks are programs that try to get out or to hurt; want is what they print.
var attacks = []struct {
	name, code, want string
}{
	{"fork", "import os\ntry: os.fork()\nexcept OSError as e: print(e.errno)", "1\n"},
	{"fork bomb", "import os\nn = 0\nfor _ in range(1000):\n    try: os.fork(); n += 1\n    except OSError: pass\nprint(n)", "0\n"},
	{"exec", "import subprocess\ntry: subprocess.run(['/bin/id'])\nexcept OSError as e: print('no')", "no\n"},
	{"system", "import os\nprint(os.system('id') != 0)", "True\n"},
	{"shadow file", "import os\nprint(os.path.exists('/etc/shadow'), os.path.exists('/proc/1/environ'), os.path.exists('/home'))", "False False False\n"},
	{"passwd is a fake", "print(open('/etc/passwd').read())", "sandbox:x:0:0::/tmp:/\n\n"},
	{"symlink out", "import os\nos.symlink('/etc/shadow', '/tmp/l')\ntry: open('/tmp/l')\nexcept OSError as e: print(e.errno)", "2\n"},
	{"dot dot", "import os\nos.chdir('/tmp'); print(sorted(set(os.listdir('../../..')) - {'dev','etc','lib','lib64','root','tmp','usr','opt','home'}))", "[]\n"},
	{"write to the root", "import os\nfor p in ('/x', '/etc/passwd', os.__file__):\n    try: open(p, 'a'); print('wrote', p)\n    except OSError as e: print(e.errno in (13, 30))", "True\nTrue\nTrue\n"},
	{"sockets", "import socket\nfor f in (socket.AF_INET, socket.AF_UNIX, socket.AF_NETLINK, 40, 38):\n    try: socket.socket(f); print('open', f)\n    except OSError as e: print(e.errno)", "1\n1\n1\n1\n1\n"},
	{"kill everybody", "import os\nfor p in (-1, 1, os.getppid()):\n    try: os.kill(p, 9)\n    except OSError: pass\nprint(os.getpid(), os.getppid())", "1 0\n"},
	{"environment", "import os\nprint(sorted(os.environ))", "['HOME', 'LC_ALL', 'MKL_NUM_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'PATH', 'PYTHONHASHSEED', 'TMPDIR', 'TZ']\n"},
	{"descriptors", "import os\nfor fd in range(3, 64):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass", ""},
	{"become root", "import os\nfor f in (os.setuid, os.setgid):\n    try: f(0); print('became')\n    except OSError as e: print(e.errno)", "1\n1\n"},
	{"raise a limit", "import resource as r\nfor k in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE):\n    try: r.setrlimit(k, (-1, -1)); print('raised', k)\n    except (OSError, ValueError): pass", ""},
	{"namespaces and mounts", "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nprint(l.unshare(0x10000000), l.mount(b'a', b'/tmp', b'tmpfs', 0, None), l.umount2(b'/tmp', 2), l.chroot(b'/tmp'))", "-1 -1 -1 -1\n"},
	{"kernel surface", "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nbad = []\nfor n in (101, 248, 250, 272, 298, 304, 308, 310, 311, 321, 323, 425, 428, 430, 434, 438, 440, 442):\n    if l.syscall(n, 0, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 1: bad.append(n)\nprint(bad)", "[]\n"},
	{"shared objects of the kernel", "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nprint([l.shmget(1, 4096, 0o1666), l.semget(1, 1, 0o1666), l.msgget(1, 0o1666), l.mq_open(b'/q', 66, 0o666, None), ctypes.get_errno()])", "[-1, -1, -1, -1, 1]\n"},
	{"other ABI", "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nprint(l.syscall(0x40000000 + 39))", "-1\n"},
	{"fill the disk", "n = 0\ntry:\n    with open('/tmp/f', 'wb') as f:\n        while True: n += f.write(b'x' * 65536)\nexcept OSError as e: print(n <= 32 << 20, e.errno in (27, 28))", "True True\n"},
	{"fill the inodes", "n = 0\ntry:\n    while True:\n        open('/tmp/%d' % n, 'w').close(); n += 1\nexcept OSError as e: print(n < 1024, e.errno)", "True 28\n"},
	{"code in a file", "import ctypes, shutil, _ctypes\nshutil.copyfile(_ctypes.__file__, '/tmp/x.so')\ntry: ctypes.CDLL('/tmp/x.so'); print('loaded')\nexcept OSError: print('no')", "no\n"},
	{"threads work", "import threading\nr = []\nts = [threading.Thread(target=r.append, args=(i,)) for i in range(8)]\n[t.start() for t in ts]; [t.join() for t in ts]\nprint(sorted(r))", "[0, 1, 2, 3, 4, 5, 6, 7]\n"},
	{"asyncio works", "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 5\nprint(asyncio.run(f()))", "5\n"},
	{"temporary files work", "import tempfile\nwith tempfile.TemporaryFile('w+') as f:\n    f.write('a'); f.seek(0); print(f.read())", "a\n"},
	{"poisoned builtins", "import builtins\nprint('x')\nfor n in ('len', 'str', 'isinstance', 'open', 'repr', 'type'): setattr(builtins, n, None)", "x\n"},
}

func TestAttacks(t *testing.T) {
	j, in := open(t, jail.Config{})
	if off := j.Report().Off(); len(off) > 0 {
		t.Skipf("needs every layer; off here: %v", off)
	}
	pids := in.PIDs()
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			res := run(t, in, sandbox.Request{Code: a.code})
			if res.Status != sandbox.StatusOK || res.Stdout != a.want {
				t.Errorf("got %s %q %s\n%s, want %q", res.Status, res.Stdout, res.Reason, res.Stderr, a.want)
			}
		})
	}
	if got := in.PIDs(); fmt.Sprint(got) != fmt.Sprint(pids) {
		t.Errorf("zygotes %v became %v", pids, got)
	}
}

func TestEndings(t *testing.T) {
	_, in := open(t, jail.Config{})
	second := sandbox.Limits{Wall: 10 * time.Second, CPU: time.Second}
	for _, c := range []struct {
		name, code string
		limits     sandbox.Limits
		want       sandbox.Status
		reason     string
	}{
		{"flood of output", "while True: print('x' * 10000)", second, sandbox.StatusOutputLimit, "wrote more than 1048576 bytes"},
		{"flood of errors", "import os\nwhile True: os.write(2, b'x' * 10000)", second, sandbox.StatusOutputLimit, "wrote more than"},
		{"segmentation fault", "import ctypes\nctypes.string_at(0)", second, sandbox.StatusKilled, "SIGSEGV"},
		{"abort", "import os\nos.abort()", second, sandbox.StatusKilled, "SIG"},
		{"signals ignored", "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except Exception: pass\nwhile True: pass", second, sandbox.StatusTimeLimit, "cpu time limit of 1s"},
		{"long computation in C", "x = 7 ** (10 ** 8)", second, sandbox.StatusTimeLimit, "cpu time limit of 1s"},
		{"caught memory error", "x = []\nwhile True:\n    try: x.append(bytearray(1 << 26))\n    except MemoryError: pass", second, sandbox.StatusTimeLimit, "cpu time limit of 1s"},
		{"short cpu limit", "while True: pass", sandbox.Limits{CPU: 200 * time.Millisecond}, sandbox.StatusTimeLimit, "cpu time limit of 200ms"},
		{"closed descriptors", "import os\nos.closerange(0, 64)", second, sandbox.StatusOK, ""},
		{"recursion", "def f(): f()\nf()", second, sandbox.StatusError, ""},
		{"deep data", "x = []\nfor _ in range(100000): x = [x]\nprint(len(repr(x)))", second, sandbox.StatusError, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			res := run(t, in, sandbox.Request{Code: c.code, Limits: c.limits})
			if res.Status != c.want || !strings.Contains(res.Reason, c.reason) {
				t.Errorf("got %s %q, want %s %q\n%.500s", res.Status, res.Reason, c.want, c.reason, res.Stderr)
			}
			if limit := 64<<10 + 100; len(res.Stdout) > limit || len(res.Stderr) > limit {
				t.Errorf("output of %d and %d bytes is above the limit", len(res.Stdout), len(res.Stderr))
			}
		})
	}
}

func TestZygoteDeathFailsItsCallsAndTakesThemWithIt(t *testing.T) {
	j, in := open(t, jail.Config{})
	got := make(chan error, 1)
	go func() {
		_, err := in.Run(context.Background(), sandbox.Request{Code: "import time\ntime.sleep(60)"})
		got <- err
	}()
	time.Sleep(100 * time.Millisecond)
	if err := syscall.Kill(in.PIDs()[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if !errors.Is(err, jail.ErrDied) {
			t.Errorf("got error %v, want %v", err, jail.ErrDied)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the call was never answered")
	}
	<-in.Done()
	if _, err := in.Run(t.Context(), sandbox.Request{Code: "1"}); !errors.Is(err, jail.ErrDied) {
		t.Errorf("a dead interpreter answered %v", err)
	}
	again, err := j.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if res := run(t, again, sandbox.Request{Code: "2"}); res.Value != "2" {
		t.Errorf("after a restart: %+v", res)
	}
}

func TestHeavyModulesHaveTheirOwnZygote(t *testing.T) {
	j, in := open(t, jail.Config{Heavy: []string{"colorsys", "nowhere"}})
	if got := fmt.Sprint(j.Report().Heavy); got != "[colorsys]" {
		t.Errorf("heavy modules %s, want [colorsys]", got)
	}
	loaded := "import sys\nprint('color' + 'sys' in sys.modules)"
	if res := run(t, in, sandbox.Request{Code: loaded}); res.Stdout != "False\n" || len(in.PIDs()) != 1 {
		t.Errorf("light call printed %q with zygotes %v", res.Stdout, in.PIDs())
	}
	if res := run(t, in, sandbox.Request{Code: loaded + "\nimport colorsys"}); res.Stdout != "True\n" || len(in.PIDs()) != 2 {
		t.Errorf("heavy call printed %q with zygotes %v", res.Stdout, in.PIDs())
	}
	if err := syscall.Kill(in.PIDs()[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for len(in.PIDs()) > 1 {
		time.Sleep(time.Millisecond)
	}
	if res := run(t, in, sandbox.Request{Code: loaded + "\nimport colorsys"}); res.Stdout != "True\n" {
		t.Errorf("heavy call after a death printed %q", res.Stdout)
	}
}

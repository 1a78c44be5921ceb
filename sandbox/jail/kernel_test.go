package jail_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// kernel starts one that ends with the test.
func kernel(t *testing.T, in *jail.Interpreter, req sandbox.Request) *jail.Kernel {
	t.Helper()
	k, err := in.StartKernel(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func code(lines ...string) sandbox.Request {
	return sandbox.Request{Code: strings.Join(lines, "\n")}
}

func cellOf(t *testing.T, k *jail.Kernel, req sandbox.Request) sandbox.Result {
	t.Helper()
	res, err := k.Run(t.Context(), req)
	if err != nil {
		t.Fatalf("cell %q: %v", req.Code, err)
	}
	return res
}

func ended(k *jail.Kernel) bool {
	select {
	case <-k.Done():
		return true
	case <-time.After(5 * time.Second):
		return false
	}
}

func TestKernelKeepsVariables(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{Fixture: "secret = 40\nprint('hidden')"})
	for _, c := range []struct {
		code, stdin, stdout, stderr, value string
		exit                               int
	}{
		{code: "x = secret + 2"},
		{code: "x", value: "42"},
		{code: "print(_ + 1)", stdout: "43\n"},
		{code: "def f(n):\n    return 1 / n"},
		{code: "y = 5\nz = 1 / 0", exit: 1, stderr: "File \"main.py\", line 2, in <module>\n    z = 1 / 0"},
		{code: "y", value: "5"},
		{code: "\nf(0)", exit: 1, stderr: "File \"cell-4.py\", line 2, in f\n    return 1 / n"},
		{code: "input(), input()", stdin: "a\nb\nc", value: "('a', 'b')"},
		{code: "input()", stdin: "d", value: "'d'"},
		{code: "try: input()\nexcept EOFError: print('end')", stdout: "end\n"},
		{code: "import sys\nsys.exit(3)", exit: 3},
		{code: "exit()"},
		{code: "open('/tmp/a', 'w').write('kept')", value: "4"},
		{code: "open('/tmp/a').read()", value: "'kept'"},
		{code: "x === 1", exit: 1, stderr: "SyntaxError"},
		{code: "import os\nos.write(1, b'raw')\nNone", stdout: "raw"},
		{code: "import inspect\nprint(inspect.getsource(f))", stdout: "def f(n):\n    return 1 / n\n\n"},
	} {
		res := cellOf(t, k, sandbox.Request{ID: c.code, Code: c.code, Stdin: c.stdin})
		if res.ID != c.code || res.Stdout != c.stdout || res.Value != c.value || res.ExitCode != c.exit {
			t.Errorf("cell %q: got %+v", c.code, res)
		}
		if (c.stderr == "") != (res.Stderr == "") || !strings.Contains(res.Stderr, c.stderr) {
			t.Errorf("cell %q: standard error %q, want it to contain %q", c.code, res.Stderr, c.stderr)
		}
		if res.Usage.Wall <= 0 || res.Usage.PeakMemory <= 0 {
			t.Errorf("cell %q: usage %+v", c.code, res.Usage)
		}
	}
}

func TestErrorNamesTheLineOfTheCurrentCell(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{})
	cellOf(t, k, code("def f():", "    raise KeyError('k')"))
	res := cellOf(t, k, code("a = 1", "", "f()"))
	if e := res.Error; e == nil || e.Type != "KeyError" || e.Line != 3 || e.Source != "f()" {
		t.Errorf("got %+v", res.Error)
	}
}

// TestLimitsHoldForEachCell and end the kernel that meets them.
func TestLimitsHoldForEachCell(t *testing.T) {
	_, in := open(t, jail.Config{})
	limits := sandbox.Limits{CPU: 300 * time.Millisecond, Wall: time.Second, Output: 100, Memory: 256 << 20}
	k := kernel(t, in, sandbox.Request{Limits: limits})
	for range 4 { // more than the limit in all
		res := cellOf(t, k, sandbox.Request{Code: "import time\ne = time.process_time() + .15\nwhile time.process_time() < e: pass", Limits: limits})
		if res.Status != sandbox.StatusOK || res.Usage.CPU < 100*time.Millisecond || res.Usage.CPU > 300*time.Millisecond {
			t.Errorf("got %+v", res)
		}
	}
	for _, c := range []struct {
		name, code, reason string
		status             sandbox.Status
	}{
		{"cpu", "while True: pass", "cpu time limit of 300ms", sandbox.StatusTimeLimit},
		{"wall", "import time\ntime.sleep(60)", "wall time limit of 1s", sandbox.StatusTimeLimit},
		{"output", "while True: print('x' * 1000)", "wrote more than", sandbox.StatusOutputLimit},
		{"memory", "x = bytearray(1 << 30)", "MemoryError", sandbox.StatusMemoryLimit},
		{"crash", "import ctypes\nctypes.string_at(0)", "SIGSEGV", sandbox.StatusKilled},
		{"exit", "import os\nprint('bye')\nos._exit(7)", "", sandbox.StatusError},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := kernel(t, in, sandbox.Request{Limits: limits})
			cellOf(t, k, code("x = 1"))
			res := cellOf(t, k, sandbox.Request{Code: c.code, Limits: limits})
			if res.Status != c.status || !strings.Contains(res.Reason, c.reason) {
				t.Errorf("got %+v", res)
			}
			if !ended(k) {
				t.Error("the kernel lives on")
			}
			if _, err := k.Run(t.Context(), code("1")); !errors.Is(err, jail.ErrDied) {
				t.Errorf("next cell: got error %v, want %v", err, jail.ErrDied)
			}
		})
	}
}

func TestOutputOfACellIsCutByItself(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{})
	for range 3 {
		res := cellOf(t, k, sandbox.Request{Code: "print('a'*400000 + 'b'*400000, end='')", Limits: sandbox.Limits{Output: 20}})
		if want := strings.Repeat("a", 10) + "...(truncated)..." + strings.Repeat("b", 10); res.Stdout != want {
			t.Errorf("got %q, want %q", res.Stdout, want)
		}
	}
}

// TestNothingRunsBetweenCells: a thread runs only while a cell does, so that its
// time has a gap, and prints into the cell that is current.
func TestNothingRunsBetweenCells(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{})
	cellOf(t, k, code("import threading, time", "gap, turns, begun = 0, 0, threading.Event()", "def watch():", "    global gap, turns",
		"    last = time.monotonic()", "    begun.set()", "    while True:", "        time.sleep(.001)", "        now = time.monotonic()",
		"        gap, last, turns = max(gap, now - last), now, turns + 1",
		"threading.Thread(target=watch, daemon=True).start()", "seen = begun.wait()"))
	const pause = 500 * time.Millisecond
	time.Sleep(pause)
	res := cellOf(t, k, code("before = turns", "while turns < before + 2: time.sleep(.001)", "gap"))
	// The stop reaches a thread when that gets a core, a little after Run has returned.
	if gap, err := strconv.ParseFloat(res.Value, 64); err != nil || gap < pause.Seconds()/2 {
		t.Errorf("a thread ran between two cells: its longest rest in %v is %s s (%v)", pause, res.Value, err)
	}
	cellOf(t, k, code("now, done = threading.Event(), threading.Event()", "def late():", "    now.wait()", "    print('late')", "    done.set()",
		"threading.Thread(target=late).start()"))
	if res := cellOf(t, k, code("now.set()", "over = done.wait()")); res.Stdout != "late\n" {
		t.Errorf("got %+v", res)
	}
}

// TestKernelHoldsFourDescriptors: the streams and the bell; standard input is
// nobody's disk.
func TestKernelHoldsFourDescriptors(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{})
	res := cellOf(t, k, code("import os", "def held(fd):", "    try: return bool(os.fstat(fd))", "    except OSError: return False",
		"def refused(f, *a):", "    try: f(*a)", "    except OSError: return True",
		"[fd for fd in range(64) if held(fd)], refused(os.write, 0, b'x'), refused(os.ftruncate, 0, 1 << 20)"))
	if want := "([0, 1, 2, 3], True, True)"; res.Value != want {
		t.Errorf("got %s, want %s", res.Value, want)
	}
}

// TestForgedAnswers: what a program writes on its bell or into the shared memory
// decides nothing but its own fate.
func TestForgedAnswers(t *testing.T) {
	_, in := open(t, jail.Config{})
	for name, source := range map[string]string{
		"early ring":  "import os, time\nos.write(3, b'd')\ntime.sleep(1)\nprint('after')",
		"many rings":  "import os\nfor _ in range(100): os.write(3, b'd' * 100)\n",
		"late ring":   "import os, threading, time\ndef ring():\n    while True:\n        os.write(3, b'd')\nthreading.Thread(target=ring, daemon=True).start()",
		"shut bell":   "import os, socket, time\nsocket.socket(fileno=os.dup(3)).shutdown(2)\ntime.sleep(1)",
		"closed bell": "import os\nos.close(3)",
		"eaten bell":  "import os, threading\nthreading.Thread(target=lambda: [os.read(3, 1) for _ in range(9)], daemon=True).start()",
		"forged record": `
import gc, mmap, os, struct, time
for o in gc.get_objects():
    for v in getattr(o, '__dict__', {}).values() if hasattr(o, '__dict__') else ():
        if isinstance(v, mmap.mmap):
            for number in range(1, 9):
                v[0:8] = struct.pack('<II', 2, number)
                v[8:36] = struct.pack('<iII4I', 0, 0, 0, 0xffffffff, 0, 0, 9)
os.write(3, b'd')
time.sleep(1)`,
	} {
		t.Run(name, func(t *testing.T) {
			k := kernel(t, in, sandbox.Request{})
			sibling := kernel(t, in, sandbox.Request{})
			cellOf(t, sibling, code("x = 1"))
			limits := sandbox.Limits{Wall: 500 * time.Millisecond}
			start := time.Now()
			for range 3 {
				res, err := k.Run(t.Context(), sandbox.Request{Code: source, Limits: limits})
				if errors.Is(err, jail.ErrDied) {
					break
				}
				if err != nil || res.Status == sandbox.StatusInternal {
					t.Errorf("got %+v, %v", res, err)
				}
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			if res := cellOf(t, sibling, code("x")); res.Value != "1" {
				t.Errorf("sibling: %+v", res)
			}
		})
	}
}

// TestPoisonedModules do not keep a kernel from answering.
func TestPoisonedModules(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{})
	cellOf(t, k, code("import os, builtins, linecache, sys, signal", "os.write = os.read = os.lseek = None",
		"builtins.len = builtins.isinstance = None", "linecache.cache = None", "sys.settrace(lambda *a: None)"))
	if res := cellOf(t, k, code("print('still')", "7")); res.Stdout != "still\n" || res.Value != "7" {
		t.Errorf("got %+v", res)
	}
	res := cellOf(t, k, code("def boom(*a): raise OSError('tick')", "signal.signal(signal.SIGALRM, boom)",
		"signal.setitimer(signal.ITIMER_REAL, .0001, .0001)"))
	if res.Status == sandbox.StatusInternal {
		t.Errorf("got %+v", res)
	}
}

func TestFixtureThatFailsRefusesTheKernel(t *testing.T) {
	_, in := open(t, jail.Config{})
	for fixture, want := range map[string]string{
		"1/0":                      "fixture: ZeroDivisionError: division by zero",
		"while True: pass":         "fixture: cpu time limit of 300ms",
		"import os; os._exit(3)":   "fixture: ended with status error, exit code 3",
		"x = 1\n" + "y = 2 2\n":    "fixture: SyntaxError",
		"import sys; sys.exit(0)":  "fixture: SystemExit",
		strings.Repeat(" ", 2<<20): "above the limit",
	} {
		_, err := in.StartKernel(t.Context(), sandbox.Request{Fixture: fixture, Limits: sandbox.Limits{CPU: 300 * time.Millisecond}})
		var refused *jail.Refused
		if !errors.As(err, &refused) || !strings.Contains(refused.Reason, want) {
			t.Errorf("fixture %.20q: got error %v, want %q", fixture, err, want)
		}
	}
}

// TestReplayIsBoundByTime and not by output; time is the cell's limit or what it is known
// to take, whichever is more.
func TestReplayIsBoundByTime(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{})
	for _, source := range []string{"x = input()\nprint('y' * (4 << 20))", "1/0"} {
		if _, err := k.Replay(t.Context(), sandbox.Request{Code: source, Stdin: "given"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if res := cellOf(t, k, code("x")); res.Value != "'given'" || res.Stdout != "" {
		t.Errorf("got %+v", res)
	}
	short := sandbox.Limits{Wall: 100 * time.Millisecond, CPU: 100 * time.Millisecond}
	res, err := k.Replay(t.Context(), sandbox.Request{Code: "import time\ntime.sleep(.3)", Limits: short}, time.Second)
	if err != nil || res.Status != sandbox.StatusOK || k.Spent() {
		t.Errorf("a cell that is known to take longer: %+v, %v", res, err)
	}
	res, err = k.Replay(t.Context(), sandbox.Request{Code: "while True: pass", Limits: short}, 0)
	if err != nil || res.Status != sandbox.StatusTimeLimit || !k.Spent() {
		t.Errorf("a cell without an end: %+v, %v", res, err)
	}
	if !ended(k) {
		t.Error("the kernel lives on")
	}
}

func TestKernelDiesWithItsZygote(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{})
	cellOf(t, k, code("x = 1"))
	pid := k.PID()
	if err := syscall.Kill(in.PIDs()[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !ended(k) {
		t.Fatal("the kernel is not reported as gone")
	}
	if _, err := k.Run(t.Context(), code("x")); !errors.Is(err, jail.ErrDied) {
		t.Errorf("got error %v", err)
	}
	for range 100 {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d survives its zygote", pid)
}

func TestKernelInTheOtherModes(t *testing.T) {
	for _, mode := range []jail.Mode{jail.ModeUser, jail.ModePlain} {
		t.Run(string(mode), func(t *testing.T) {
			j, err := jail.New(t.Context(), jail.Config{}.WithMode(mode))
			if err != nil && mode == jail.ModeUser {
				t.Skip("no user namespaces here:", err)
			}
			if err == nil {
				err = j.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			_, in := open(t, jail.Config{}.WithMode(mode))
			k := kernel(t, in, sandbox.Request{})
			cellOf(t, k, code("x = 1"))
			if res := cellOf(t, k, code("x")); res.Value != "1" || res.Usage.PeakMemory <= 0 {
				t.Errorf("got %+v", res)
			}
			limits := sandbox.Limits{Wall: 200 * time.Millisecond}
			if res := cellOf(t, k, sandbox.Request{Code: "while True: pass", Limits: limits}); res.Status != sandbox.StatusTimeLimit {
				t.Errorf("got %+v", res)
			}
		})
	}
}

func TestACallOfASessionIsRefused(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	if res := run(t, in, sandbox.Request{Code: "1", Session: "s"}); res.Status != sandbox.StatusRefused || res.Reason == "" {
		t.Errorf("got %+v", res)
	}
}

func TestProfileIsKnown(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	for profile, want := range map[sandbox.Profile]sandbox.Status{
		sandbox.ProfileAuto: sandbox.StatusOK, sandbox.ProfileStrict: sandbox.StatusOK,
		sandbox.ProfileNumeric: sandbox.StatusOK, "gpu": sandbox.StatusRefused,
	} {
		res := run(t, in, sandbox.Request{Code: "1", Profile: profile})
		if res.Status != want || want == sandbox.StatusRefused && res.Reason != `profile "gpu" is none of strict, numeric and subprocess` {
			t.Errorf("profile %q: got %+v", profile, res)
		}
	}
}

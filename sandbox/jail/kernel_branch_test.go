package jail_test

import (
	"errors"
	"syscall"
	"testing"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// TestABranchHasTheStateOfItsKernel, and each goes its own way.
func TestABranchHasTheStateOfItsKernel(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{Fixture: "f = 1"})
	cellOf(t, k, code("import math, collections", "x = [f]", "def g(n): return n + len(x)", "big = list(range(200000))"))
	run := func(k *jail.Kernel, req sandbox.Request) {
		t.Helper()
		if res, err := k.Run(t.Context(), req); err != nil || res.Status != sandbox.StatusOK {
			t.Fatalf("got %+v, %v", res, err)
		}
	}
	run(k, sandbox.Request{Code: "x.append(input())", Stdin: "in\nrest"})
	cellOf(t, k, code("deep = lambda n: 0 if n == 0 else 1 + deep(n - 1)", "deep(900)"))
	var branches []*jail.Kernel
	for range 3 {
		b, err := k.Branch(t.Context())
		if errors.Is(err, syscall.EPERM) {
			t.Skip("this machine lets nobody trace a process:", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		branches = append(branches, b)
	}
	cellOf(t, k, code("x.append('parent')"))
	for i, b := range branches {
		if res := cellOf(t, b, code("x.append(", "sum(big))")); res.Status != sandbox.StatusOK {
			t.Fatalf("branch %d: %+v", i, res)
		}
		res := cellOf(t, b, code("big = big * 2", "open('/tmp/mine', 'w').write('1')", "print(g(1), math.floor(2.5), len(big), deep(800))", "x"))
		if want := "[1, 'in', 19999900000]"; res.Value != want || res.Stdout != "4 2 400000 800\n" {
			t.Errorf("branch %d: %+v, want %s", i, res, want)
		}
	}
	if res := cellOf(t, k, code("import os", "x, os.listdir('/tmp')")); res.Value != "([1, 'in', 'parent'], [])" {
		t.Errorf("the parent: %+v", res)
	}
	if a, b := cellOf(t, branches[0], code("import os", "os.getuid()")), cellOf(t, k, code("os.getuid()")); a.Value == b.Value {
		t.Errorf("branch and parent share the user id %s", a.Value)
	}
	k.Close()
	if res := cellOf(t, branches[0], code("len(x), os.getpid()")); res.Value != "(3, 1)" {
		t.Errorf("without its parent: %+v", res)
	}
}

// TestWhatCannotBeCopiedIsRefused, and the kernel goes on.
func TestWhatCannotBeCopiedIsRefused(t *testing.T) {
	_, in := open(t, jail.Config{})
	for name, source := range map[string]string{
		"a file":       "open('/tmp/x', 'w').write('1')",
		"a descriptor": "import os\nr, w = os.pipe()",
		"a thread":     "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
		"a handler":    "import signal\n_ = signal.signal(signal.SIGALRM, lambda *_: None)",
		"a limit":      "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))",
		"a folder":     "import os\nos.chdir('/')",
		"memory":       "m = bytearray(b'x') * (80 << 20)",
		"shared":       "import mmap\nm = mmap.mmap(-1, 1 << 16)\nm[0] = 1",
	} {
		k := kernel(t, in, sandbox.Request{})
		if res := cellOf(t, k, code("y = 1", source)); res.Status != sandbox.StatusOK {
			t.Fatalf("%s: %+v", name, res)
		}
		if b, err := k.Branch(t.Context()); !errors.Is(err, jail.ErrNoBranch) {
			t.Errorf("%s: got error %v", name, err)
			if b != nil {
				b.Close()
			}
		} else {
			t.Log(name, err)
		}
		if res := cellOf(t, k, code("y")); res.Value != "1" {
			t.Errorf("%s: the kernel does not go on: %+v", name, res)
		}
	}
}

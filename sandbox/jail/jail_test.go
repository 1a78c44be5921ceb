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
// TestMaskOfTheService: what the service keeps to itself does not lock programs
// out of their own root, and they see the usual mask.
func TestMaskOfTheService(t *testing.T) {
	was := syscall.Umask(0o077)
	defer syscall.Umask(was)
	_, in := open(t, jail.Config{})
	if res := run(t, in, sandbox.Request{Code: "import os, threading\noct(os.umask(0))"}); res.Value != "'0o22'" {
		t.Errorf("got %+v", res)
	}
}

func TestPlainModeStillRuns(t *testing.T) {
	j, in := open(t, jail.Config{}.WithMode(jail.ModePlain))
	var off []string
	for _, layer := range j.Report().Off() {
		off = append(off, layer.Name)
		if layer.Name != "cgroup" && !strings.Contains(layer.Reason, "namespaces") && !strings.Contains(layer.Reason, "uid") {
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
		"landlock", "rlimits", "uid", "capabilities", "seccomp", "cgroup",
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

func TestEndings(t *testing.T) {
	_, in := open(t, jail.Config{})
	// A busy machine may give a program a small part of a core.
	second := sandbox.Limits{Wall: 100 * time.Second, CPU: time.Second}
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

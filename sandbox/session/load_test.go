//go:build integration

package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
	"temper/sandbox/session"
)

func TestLossesAreInvisibleInMany(t *testing.T) { invisible(t, 40) }

func TestFiftySessionsAtOnce(t *testing.T) {
	r := newReal(t, pool.Config{Zygotes: 2, Slots: 8, Queue: 1000}, session.Config{MaxKernels: 20})
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			name := fmt.Sprint("s", i)
			exec(t, r.Manager, name, fmt.Sprintf("me = [%d]", i))
			for j := range 4 {
				exec(t, r.Manager, name, fmt.Sprintf("me.append(%d)", j))
			}
			if res := exec(t, r.Manager, name, "me"); res.Value != fmt.Sprintf("[%d, 0, 1, 2, 3]", i) {
				t.Errorf("session %d: %+v", i, res)
			}
		})
	}
	calls.Wait()
	if s := r.Stats(); s.Kernels > 20 || s.Cells != 300 {
		t.Errorf("got %+v", s)
	}
}

// TestMemoryOfAnIdleKernel reports what a kernel that waits costs.
func TestMemoryOfAnIdleKernel(t *testing.T) {
	for _, c := range []struct {
		name, code string
		most       int64 // KiB
	}{
		{"strict", "def f(n): return n * 2\nx = [f(i) for i in range(100)]\nprint(sum(x))", 8 << 10},
		{"numeric", "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 4, x))", 32 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReal(t, pool.Config{Zygotes: 1}, session.Config{})
			const n = 20
			for i := range n {
				res := exec(t, r.Manager, fmt.Sprint(i), c.code)
				if res.Error != nil && res.Error.Type == "ModuleNotFoundError" {
					t.Skip("not installed:", res.Error.Message)
				}
				if res.Status != sandbox.StatusOK {
					t.Fatalf("got %+v", res)
				}
			}
			var sum int64
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, k := range r.kernels {
				sum += pss(t, k.(interface{ PID() int }).PID())
			}
			t.Logf("%d idle kernels, %d KiB each (PSS)", n, sum/n)
			if sum/n > c.most {
				t.Errorf("an idle kernel holds %d KiB, more than %d", sum/n, c.most)
			}
		})
	}
}

// TestKernelsLeaveNothing: descriptors and processes are those of before.
func TestKernelsLeaveNothing(t *testing.T) {
	r := newReal(t, pool.Config{Zygotes: 1}, session.Config{MaxKernels: 4})
	count := func() (fds, kernels int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, pid := range r.interpreters[0].PIDs() {
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
			if err != nil {
				t.Skip("the kernel does not tell:", err)
			}
			kernels += len(strings.Fields(string(children)))
		}
		return len(entries), kernels
	}
	round := func(n int) {
		for i := range n {
			name := fmt.Sprint(i)
			for _, code := range []string{"x = 1", "x", "import os\nos._exit(1)", "x"} {
				exec(t, r.Manager, name, code)
			}
			r.Drop("", name)
		}
	}
	round(10)
	fds, kernels := count()
	round(100)
	if f, k := count(); f > fds+4 || k > kernels {
		t.Errorf("%d descriptors and %d children, before %d and %d", f, k, fds, kernels)
	}
}

func pss(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Skip("the kernel does not tell:", err)
	}
	_, rest, _ := strings.Cut(string(text), "\nPss:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// BenchmarkCell is the cost of a trivial cell in a live kernel, BenchmarkCall that
// of a call of its own, both without HTTP. cpu-us/op counts this process and its
// children that ended; the cells themselves are in their Usage.
func BenchmarkCell(b *testing.B) { measure(b, "s") }
func BenchmarkCall(b *testing.B) { measure(b, "") }

func measure(b *testing.B, name string) {
	j, err := jail.New(b.Context(), jail.Config{})
	if err != nil {
		b.Fatal(err)
	}
	p, err := pool.New(b.Context(), pool.Config{Zygotes: 1}, pool.FromJail(j))
	if err != nil {
		b.Fatal(err)
	}
	m := session.New(p, session.OnPool(p), session.Config{MaxCells: 1 << 30, MaxBytes: 1 << 40})
	defer func() {
		if err := errors.Join(m.Close(context.Background()), p.Close(context.Background()), j.Close()); err != nil {
			b.Error(err)
		}
	}()
	var inside time.Duration
	before := ownCPU()
	for b.Loop() {
		res, err := m.Execute(b.Context(), sandbox.Request{Session: name, Code: "print(1+1)"})
		if err != nil || res.Stdout != "2\n" {
			b.Fatalf("%+v, %v", res, err)
		}
		inside += res.Usage.CPU
	}
	b.ReportMetric(float64(ownCPU()-before)/float64(b.N)/1e3, "owner-us/op")
	b.ReportMetric(float64(inside)/float64(b.N)/1e3, "program-us/op")
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRebuild is the cost of a cell that finds its kernel gone, with ten trivial
// cells in its history.
func BenchmarkRebuild(b *testing.B) {
	j, err := jail.New(b.Context(), jail.Config{})
	if err != nil {
		b.Fatal(err)
	}
	p, err := pool.New(b.Context(), pool.Config{Zygotes: 1}, pool.FromJail(j))
	if err != nil {
		b.Fatal(err)
	}
	m := session.New(p, session.OnPool(p), session.Config{})
	defer func() {
		if err := errors.Join(m.Close(context.Background()), p.Close(context.Background()), j.Close()); err != nil {
			b.Error(err)
		}
	}()
	history := strings.Split(strings.Repeat("x = 1+1\n", 10)[:79], "\n")
	for b.Loop() {
		res, err := m.Execute(b.Context(), sandbox.Request{Session: "s", Code: "x", History: history})
		if err != nil || res.Value != "2" {
			b.Fatalf("%+v, %v", res, err)
		}
		m.Drop("", "s")
	}
}

package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
	"temper/sandbox/sandboxtest"
	"temper/sandbox/session"
)

// real is a Manager on a pool of real interpreters.
type real struct {
	*session.Manager
	mu           sync.Mutex
	interpreters []*jail.Interpreter
	kernels      []session.Kernel
}

func newReal(t *testing.T, pc pool.Config, sc session.Config) *real {
	t.Helper()
	j, err := jail.New(t.Context(), jail.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := &real{}
	p, err := pool.New(t.Context(), pc, func(ctx context.Context) (pool.Interpreter, error) {
		in, err := j.Start(ctx)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.interpreters = append(r.interpreters, in)
		return in, nil
	})
	if err != nil {
		t.Fatal(errors.Join(err, j.Close()))
	}
	r.Manager = session.New(p, r.watch(session.OnPool(p)), sc)
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(r.Manager.Close(ctx), p.Close(ctx), j.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// watch keeps the kernels that are started, for lose.
func (r *real) watch(admit session.Admit) session.Admit {
	return func(ctx context.Context, req sandbox.Request, f func(context.Context, session.Start) error) error {
		return admit(ctx, req, func(ctx context.Context, start session.Start) error {
			return f(ctx, func(ctx context.Context, req sandbox.Request) (session.Kernel, error) {
				k, err := start(ctx, req)
				if err == nil {
					r.mu.Lock()
					r.kernels = append(r.kernels, k)
					r.mu.Unlock()
				}
				return k, err
			})
		})
	}
}

// lose ends every kernel.
func (r *real) markLost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.kernels {
		k.Close()
	}
	r.kernels = nil
}

// kill ends every zygote.
func (r *real) kill(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range r.interpreters {
		for _, pid := range in.PIDs() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
		}
	}
}

func TestSessionsConform(t *testing.T) {
	r := newReal(t, pool.Config{Zygotes: 1}, session.Config{})
	sandboxtest.RunSessions(t, func(*testing.T) sandbox.Executor { return r })
	before := r.Stats().Cells
	res, err := r.Execute(t.Context(), sandbox.Request{ID: "a", Code: "1"})
	if err != nil || res.Value != "1" || r.Stats().Cells != before {
		t.Errorf("a call without a session: %+v, %v", res, err)
	}
}

func TestAZygoteKilledBetweenCells(t *testing.T) {
	r := newReal(t, pool.Config{Zygotes: 2}, session.Config{})
	exec(t, r.Manager, "s", "x = [1]")
	for i := range 3 {
		r.kill(t)
		res := exec(t, r.Manager, "s", "x.append(0)\nlen(x)")
		if res.Value != fmt.Sprint(i+2) {
			t.Errorf("after %d deaths: %+v", i+1, res)
		}
	}
}

func TestAZygoteKilledUnderACell(t *testing.T) {
	r := newReal(t, pool.Config{Zygotes: 1}, session.Config{})
	exec(t, r.Manager, "s", "x = [1]")
	var calls sync.WaitGroup
	calls.Go(func() {
		if res := exec(t, r.Manager, "s", "import time\nx.append(2)\ntime.sleep(.3)\nx"); res.Value != "[1, 2]" {
			t.Errorf("got %+v", res)
		}
	})
	time.Sleep(100 * time.Millisecond)
	r.kill(t)
	calls.Wait()
}

// TestForgersReachNobodyElse: sessions that write into what they share with their
// owner neither disturb their neighbours nor get past a limit.
func TestForgersReachNobodyElse(t *testing.T) {
	r := newReal(t, pool.Config{Zygotes: 1}, session.Config{})
	forge := "import os, threading\ndef ring():\n    while True: os.write(3, b'd')\nthreading.Thread(target=ring, daemon=True).start()"
	var calls sync.WaitGroup
	for i := range 4 {
		calls.Go(func() {
			for range 5 {
				_, err := r.Execute(t.Context(), sandbox.Request{
					Session: fmt.Sprint("bad", i), Code: forge, Limits: sandbox.Limits{Wall: time.Second},
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
		calls.Go(func() {
			name := fmt.Sprint("good", i)
			exec(t, r.Manager, name, "n = 0")
			for j := range 10 {
				if res := exec(t, r.Manager, name, "n += 1\nprint(n)"); res.Stdout != fmt.Sprintf("%d\n", j+1) {
					t.Errorf("got %+v", res)
				}
			}
		})
	}
	calls.Wait()
}

func TestLossesAreInvisible(t *testing.T) { invisible(t, 3) }

// invisible asserts that random sessions give the same answers whether their kernels
// are lost between cells or not.
func invisible(t *testing.T, sessions uint64) {
	t.Helper()
	steady := newReal(t, pool.Config{Zygotes: 1}, session.Config{})
	lossy := newReal(t, pool.Config{Zygotes: 1}, session.Config{})
	for seed := range sessions {
		rng := rand.New(rand.NewPCG(seed, 1))
		for i := range 12 {
			req := sandbox.Request{ID: fmt.Sprint(i), Session: fmt.Sprint("s", seed), Code: program(rng), Stdin: fmt.Sprint("in", i)}
			want, err := steady.Execute(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if rng.IntN(3) == 0 {
				lossy.markLost()
			}
			got, err := lossy.Execute(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			got.Usage, want.Usage = sandbox.Usage{}, sandbox.Usage{}
			if fmt.Sprintf("%+v %+v", got, got.Error) != fmt.Sprintf("%+v %+v", want, want.Error) && !samePointers(got, want) {
				t.Fatalf("seed %d, cell %d:\n%s\nwith losses    %+v\nwithout losses %+v", seed, i, req.Code, got, want)
			}
		}
	}
	if lossy.Stats().Rebuilds == 0 {
		t.Error("nothing was lost")
	}
}

// samePointers compares results whose errors differ in their address only.
func samePointers(a, b sandbox.Result) bool {
	if a.Error != nil && b.Error != nil && *a.Error == *b.Error {
		a.Error, b.Error = nil, nil
	}
	return a == b
}

// program draws a cell: statements over few names, some of which fail, exit, are
// killed, or print.
func program(rng *rand.Rand) string {
	name := func() string { return string("abcd"[rng.IntN(4)]) }
	statements := []func() string{
		func() string { return fmt.Sprintf("%s = %d", name(), rng.IntN(9)) },
		func() string { return fmt.Sprintf("%s = [%s, %d]", name(), name(), rng.IntN(9)) },
		func() string { return fmt.Sprintf("%s.append(%d)", name(), rng.IntN(9)) },
		func() string { return fmt.Sprintf("%s += 1", name()) },
		func() string { return fmt.Sprintf("def %s(n=%d):\n    return n // %s", name(), rng.IntN(9), name()) },
		func() string { return name() + "()" },
		func() string { return "print(" + name() + ", hash('x'))" },
		func() string { return "import random\nprint(random.random())" },
		func() string { return "import sys\nsys.exit(" + fmt.Sprint(rng.IntN(3)) + ")" },
		func() string { return "raise ValueError(" + name() + ")" },
		func() string { return name() + " = input()" },
		func() string { return "open('/tmp/f', 'a').write('x')\nlen(open('/tmp/f').read())" },
		func() string { return "import os\nos._exit(" + fmt.Sprint(rng.IntN(3)) + ")" },
		func() string { return "import ctypes\nctypes.string_at(0)" },
		func() string { return "_" },
		func() string { return "sorted(k for k in globals() if len(k) == 1)" },
	}
	var lines []string
	for range 1 + rng.IntN(4) {
		at := rng.IntN(len(statements))
		if at == 12 || at == 13 { // rarely
			at = rng.IntN(len(statements))
		}
		lines = append(lines, statements[at]())
	}
	return strings.Join(lines, "\n")
}

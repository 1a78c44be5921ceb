package jail_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// computes is a program that uses so much processor time and nothing else.
func computes(d time.Duration) string {
	return fmt.Sprintf("import time\ne = time.process_time() + %f\nwhile time.process_time() < e: pass\nprint('done')", d.Seconds())
}

// outcomes counts how calls that run at the same time end.
func outcomes(n int, call func() (sandbox.Result, error)) map[string]int {
	var mu sync.Mutex
	seen := make(map[string]int)
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			res, err := call()
			name := string(res.Status)
			if err != nil {
				name = "error: " + err.Error()
			}
			if errors.Is(err, jail.ErrStarved) {
				name = "starved"
			}
			mu.Lock()
			seen[name]++
			mu.Unlock()
		})
	}
	calls.Wait()
	return seen
}

// TestNeighboursDoNotCostTime: programs that together need each core for four times
// their wall limit, and use a quarter of that limit themselves.
func TestNeighboursDoNotCostTime(t *testing.T) {
	_, in := open(t, jail.Config{})
	limits := sandbox.Limits{Wall: 400 * time.Millisecond}
	n := 16 * runtime.NumCPU()
	t.Run("calls", func(t *testing.T) {
		seen := outcomes(n, func() (sandbox.Result, error) {
			return in.Run(t.Context(), sandbox.Request{Code: computes(limits.Wall / 4), Limits: limits})
		})
		if seen["ok"] != n {
			t.Errorf("got %v, want %d ok", seen, n)
		}
	})
	t.Run("cells", func(t *testing.T) {
		kernels := make(chan *jail.Kernel, n)
		for range n {
			kernels <- kernel(t, in, sandbox.Request{})
		}
		seen := outcomes(n, func() (sandbox.Result, error) {
			return (<-kernels).Run(t.Context(), sandbox.Request{Code: computes(limits.Wall / 4), Limits: limits})
		})
		if seen["ok"] != n {
			t.Errorf("got %v, want %d ok", seen, n)
		}
	})
	t.Run("a thread computes and the program waits for it", func(t *testing.T) {
		code := "import threading, time\ndef work():\n    e = time.thread_time() + .1\n    while time.thread_time() < e: pass\nt = threading.Thread(target=work)\nt.start()\nt.join()"
		seen := outcomes(n, func() (sandbox.Result, error) {
			return in.Run(t.Context(), sandbox.Request{Code: code, Limits: limits})
		})
		if seen["ok"] != n {
			t.Errorf("got %v, want %d ok", seen, n)
		}
	})
}

// TestStarvedProgramHasNoTimeLimit: what is not given its time until the bound is
// nobody's fault.
func TestStarvedProgramHasNoTimeLimit(t *testing.T) {
	_, in := open(t, jail.Config{}.WithSlack(time.Millisecond))
	limits := sandbox.Limits{Wall: 100 * time.Millisecond} // four times of it in all
	n := 16 * runtime.NumCPU()
	for name, call := range map[string]func() (sandbox.Result, error){
		"calls": func() (sandbox.Result, error) {
			return in.Run(t.Context(), sandbox.Request{Code: computes(80 * time.Millisecond), Limits: limits})
		},
		"cells": func() (sandbox.Result, error) {
			k, err := in.StartKernel(t.Context(), sandbox.Request{})
			if err != nil {
				return sandbox.Result{}, err
			}
			defer k.Close()
			return k.Run(t.Context(), sandbox.Request{Code: computes(80 * time.Millisecond), Limits: limits})
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen := outcomes(n, call)
			if seen["starved"] == 0 || seen["starved"]+seen["ok"] != n {
				t.Errorf("got %v, want some of %d starved and the rest ok", seen, n)
			}
		})
	}
}

// TestProgramCannotStretchItsTime beside nobody, with threads that take the cores
// from each other, with some that only wake up, and by what it says of itself.
func TestProgramCannotStretchItsTime(t *testing.T) {
	_, in := open(t, jail.Config{})
	limits := sandbox.Limits{Wall: 500 * time.Millisecond, CPU: time.Minute, Memory: 8 << 30}
	const bound = 31 * time.Second
	threads := func(body string) string {
		return "import hashlib, threading, time\ndef work():\n    while True: " + body +
			"\nfor _ in range(40): threading.Thread(target=work, daemon=True).start()\n"
	}
	for name, code := range map[string]string{
		"threads that compute": threads("hashlib.pbkdf2_hmac('sha256', b'x', b'y', 100000)") + "time.sleep(60)",
		"threads that wake up": threads("time.sleep(.0001)") + "time.sleep(60)",
		"the first thread ends": threads("time.sleep(.01)") +
			"import ctypes\nctypes.CDLL(None).pthread_exit(None)",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			res, err := in.Run(t.Context(), sandbox.Request{Code: code, Limits: limits})
			if err != nil || res.Status != sandbox.StatusTimeLimit || time.Since(start) > bound {
				t.Errorf("got %+v, %v after %v", res, err, time.Since(start))
			}
		})
	}
	t.Run("a kernel says that it has answered", func(t *testing.T) {
		k := kernel(t, in, sandbox.Request{Limits: limits})
		code := "import sys, time, gc\nfor o in gc.get_objects():\n    if type(o).__name__ == 'Kernel': o.shared[0] = 2; o.shared[4] = 1\ntime.sleep(60)"
		start := time.Now()
		res, err := k.Run(t.Context(), sandbox.Request{Code: code, Limits: limits})
		if err != nil || res.Status != sandbox.StatusTimeLimit || time.Since(start) > bound {
			t.Errorf("got %+v, %v after %v", res, err, time.Since(start))
		}
	})
}

// TestCallerLeavesAStarvedProgram and gets its own error.
func TestCallerLeavesAStarvedProgram(t *testing.T) {
	_, in := open(t, jail.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	seen := outcomes(16*runtime.NumCPU(), func() (sandbox.Result, error) {
		res, err := in.Run(ctx, sandbox.Request{Code: computes(200 * time.Millisecond), Limits: sandbox.Limits{Wall: 300 * time.Millisecond}})
		if errors.Is(err, context.DeadlineExceeded) {
			return sandbox.Result{Status: "left"}, nil
		}
		return res, err
	})
	if seen["left"] == 0 || seen["left"]+seen["ok"] != 16*runtime.NumCPU() {
		t.Errorf("got %v", seen)
	}
}

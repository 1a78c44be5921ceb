package jail_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// TestManyThreadsHaveOneShare: beside programs with one thread, one with 40 gets about
// as much processor time as each of them.
func TestManyThreadsHaveOneShare(t *testing.T) {
	_, in := open(t, jail.Config{})
	limits := sandbox.Limits{Wall: 30 * time.Second, CPU: time.Minute, Memory: 8 << 30}
	loop := "import hashlib, threading, time, os\nend = time.monotonic() + 3\ndef work():\n    while time.monotonic() < end: hashlib.pbkdf2_hmac('sha256', b'x', b'y', 1000)\n"
	many := loop + "ts = [threading.Thread(target=work) for _ in range(40)]\nfor t in ts: t.start()\nfor t in ts: t.join()"
	one := loop + "work()"
	n := 4 * runtime.NumCPU()
	used := make([]time.Duration, n+1)
	var all sync.WaitGroup
	for i := range used {
		all.Go(func() {
			code := one
			if i == n {
				code = many
			}
			res := run(t, in, sandbox.Request{Code: code, Limits: limits})
			if res.Status != sandbox.StatusOK {
				t.Errorf("got %+v", res)
			}
			used[i] = res.Usage.CPU
		})
	}
	all.Wait()
	var sum time.Duration
	for _, d := range used[:n] {
		sum += d
	}
	if mean := sum / time.Duration(n); used[n] > 3*mean {
		t.Errorf("40 threads had %v, programs with one thread %v each", used[n], mean)
	}
}

// TestDemandOfAProgram: the listener hears of a program when it begins, that it sleeps,
// and what it has used; of a short one it hears the beginning alone.
func TestDemandOfAProgram(t *testing.T) {
	_, in := open(t, jail.Config{})
	listen := func(code string) (heard []jail.Demand) {
		ctx := jail.OnDemand(t.Context(), func(d jail.Demand) <-chan struct{} { heard = append(heard, d); return nil })
		if res, err := in.Run(ctx, sandbox.Request{Code: code}); err != nil || res.Status != sandbox.StatusOK {
			t.Fatalf("got %+v, %v", res, err)
		}
		return heard
	}
	asleep := listen("import time\ntime.sleep(1)")
	if last := asleep[len(asleep)-1]; len(asleep) < 3 || !asleep[0].Core || last.Core {
		t.Errorf("a sleeper: %v", asleep)
	}
	computing := listen(computes(time.Second))
	if last := computing[len(computing)-1]; !last.Core || last.Used < 100*time.Millisecond {
		t.Errorf("one that computes: %v", computing)
	}
	k := kernel(t, in, sandbox.Request{})
	var cell []jail.Demand
	ctx := jail.OnDemand(t.Context(), func(d jail.Demand) <-chan struct{} { cell = append(cell, d); return nil })
	if _, err := k.Run(ctx, sandbox.Request{Code: "import time\ntime.sleep(.5)"}); err != nil {
		t.Fatal(err)
	}
	if len(cell) < 2 || !cell[0].Core || cell[len(cell)-1].Core {
		t.Errorf("a cell that sleeps: %v", cell)
	}
}

// TestStoppedProgramLosesNoTime: a program that has to stop for longer than its limits
// goes on where it was, and its time is that for which it ran.
func TestStoppedProgramLosesNoTime(t *testing.T) {
	_, in := open(t, jail.Config{})
	listen := func(resume chan struct{}) jail.Listener {
		asked := false
		return func(d jail.Demand) <-chan struct{} {
			if !asked && d.Used > 0 {
				asked = true
				time.AfterFunc(3*time.Second, func() { close(resume) })
				return resume
			}
			return nil
		}
	}
	req := sandbox.Request{Code: computes(300 * time.Millisecond), Limits: sandbox.Limits{Wall: 2 * time.Second, CPU: time.Second}}
	start := time.Now()
	res, err := in.Run(jail.OnDemand(t.Context(), listen(make(chan struct{}))), req)
	if err != nil || res.Status != sandbox.StatusOK || res.Stdout != "done\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if took := time.Since(start); took < 3*time.Second || res.Usage.Wall > took-2900*time.Millisecond {
		t.Errorf("took %v, of which it says it ran %v", took, res.Usage.Wall)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start = time.Now()
	if _, err := in.Run(jail.OnDemand(ctx, listen(make(chan struct{}))), req); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 2900*time.Millisecond {
		t.Errorf("one whose caller left: %v after %v", err, time.Since(start))
	}
}

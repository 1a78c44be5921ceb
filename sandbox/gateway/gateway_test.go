package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/sandbox"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
)

func TestCreditsAreNeverExceededAndAllSlotsAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, prefetch := range []int{-1, 0, 5} {
			f := &fleet{}
			nodes := []*fakeNode{f.add("a:1", 4), f.add("b:1", 8), f.add("c:1", 16)}
			g := open(t, f, gateway.Config{Nodes: []string{"a:1", "b:1", "c:1"}, Prefetch: prefetch})
			synctest.Wait()
			var calls sync.WaitGroup
			for i := range 1000 {
				calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i), Code: fmt.Sprint(1+i%7, "ms")}) })
			}
			calls.Wait()
			extra := map[int]int{-1: 0, 0: 2, 5: 5}[prefetch]
			for i, n := range nodes {
				if got, want := n.mostInFlight(), n.slots+extra; got != want {
					t.Errorf("prefetch %d: node %d had up to %d calls in flight, want %d", prefetch, i, got, want)
				}
			}
			if s := g.Stats(); s.Totals.Done != 1000 || s.InFlight != 0 || s.Waiting != 0 || s.Bytes != 0 || s.Totals.Retried != 0 {
				t.Errorf("stats after 1000 calls: %+v", s)
			}
		}
	})
}

func TestLoadFollowsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		small, large := f.add("s:1", 4), f.add("l:1", 16)
		g := open(t, f, gateway.Config{Nodes: []string{"s:1", "l:1"}})
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i), Code: "1s"}) })
		}
		synctest.Wait()
		if s, l := small.running(), large.running(); s != 2 || l != 8 {
			t.Errorf("10 calls lie %d to %d on 4 and 16 slots, want 2 to 8", s, l)
		}
		calls.Wait()
	})
}

func TestAWaitingCallTakesTheFirstSlotOfAnyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		f.add("slow:1", 2)
		f.add("fast:1", 2)
		g := open(t, f, gateway.Config{Nodes: []string{"slow:1", "fast:1"}, Prefetch: -1})
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 4 { // two of them end up on each
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i), Code: []string{"1h", "10ms"}[i%2]}) })
			synctest.Wait()
		}
		start := time.Now()
		for i := range 20 {
			must(t, g, sandbox.Request{ID: fmt.Sprint("w", i), Code: "10ms"})
		}
		if took := time.Since(start); took > 250*time.Millisecond {
			t.Errorf("20 calls of 10 ms took %v beside two that block", took)
		}
		calls.Wait()
	})
}

func TestRunsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Prefetch: -1})
		synctest.Wait()
		var calls sync.WaitGroup
		submit := func(run string, i int) {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(run, i), Run: run, Code: "1ms"}) })
		}
		for i := range 3000 {
			submit("big", i)
		}
		synctest.Wait()
		submit("small", 0)
		submit("other", 0)
		synctest.Wait()
		if got := g.Stats().Runs; len(got) != 3 || got[0] != (gateway.RunStats{Run: "big", Waiting: 2999}) {
			t.Errorf("queues by run: %+v", got)
		}
		calls.Wait()
		ran := n.ran(byID)
		for _, id := range []string{"small0", "other0"} {
			if at := slices.Index(ran, id); at > 4 {
				t.Errorf("%s ran as number %d behind 3000 calls of another run", id, at)
			}
		}
	})
}

func TestOrderInsideARunIsThatOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Prefetch: -1})
		synctest.Wait()
		var calls sync.WaitGroup
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprint(i))
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i)}) })
			synctest.Wait()
		}
		calls.Wait()
		if diff := cmp.Diff(n.ran(byID), want); diff != "" {
			t.Errorf("order (-got +want):\n%s", diff)
		}
	})
}

func TestFullQueueIsAnOverloadThatSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		f.add("a:1", 10)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Prefetch: -1, Queue: 80})
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 90 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i), Code: "4s"}) })
		}
		synctest.Wait()
		refuse := func(want time.Duration) {
			t.Helper()
			before := time.Now()
			_, err := g.Execute(t.Context(), sandbox.Request{ID: "x"})
			if !errors.Is(err, sandbox.ErrOverloaded) || sandbox.RetryAfter(err, 0) != want || time.Since(before) != 0 {
				t.Errorf("got %v with retry after %v in %v, want an overload with %v at once",
					err, sandbox.RetryAfter(err, 0), time.Since(before), want)
			}
		}
		refuse(time.Second) // nothing is answered yet
		time.Sleep(6 * time.Second)
		for i := range 10 { // what was answered after 4 s
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint("y", i), Code: "4s"}) })
		}
		synctest.Wait()
		// Ten calls in the two seconds since the first answer; an eighth of 80 wait 2 s.
		refuse(2 * time.Second)
		calls.Wait()
	})
}

func TestBytesInsideAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		f.add("a:1", 1)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, QueueBytes: 1000})
		synctest.Wait()
		var calls sync.WaitGroup
		calls.Go(func() { must(t, g, sandbox.Request{ID: "1", Code: "1s", Fixture: strings.Repeat("x", 900)}) })
		synctest.Wait()
		big := sandbox.Request{ID: "2", Code: "1s", History: []string{strings.Repeat("y", 200)}}
		if _, err := g.Execute(t.Context(), big); !errors.Is(err, sandbox.ErrOverloaded) {
			t.Errorf("got %v, want an overload", err)
		}
		calls.Wait()
		must(t, g, big)
	})
}

func TestCancelFreesTheQueueAndTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Prefetch: -1})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var calls sync.WaitGroup
		for i := range 3 { // one runs, two wait
			calls.Go(func() {
				_, err := g.Execute(ctx, sandbox.Request{ID: fmt.Sprint(i), Code: "1h"})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
				}
			})
		}
		calls.Wait()
		if s := g.Stats(); n.running() != 0 || s.InFlight+s.Waiting != 0 || s.Bytes != 0 || s.Totals.Cancelled != 3 {
			t.Errorf("%d run, stats %+v after all was cancelled", n.running(), s)
		}
		must(t, g, sandbox.Request{ID: "next"})
	})
}

func TestWithoutNodesPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		unavailable := func(after time.Duration) {
			t.Helper()
			start := time.Now()
			_, err := g.Execute(t.Context(), sandbox.Request{ID: "x"})
			if took := time.Since(start); !errors.Is(err, sandbox.ErrUnavailable) || took.Round(time.Second) != after {
				t.Errorf("got %v after %v, want unavailable after %v", err, took, after)
			}
		}
		unavailable(30 * time.Second)
		unavailable(0)
		f.add("a:1", 1)
		time.Sleep(10 * time.Second)
		must(t, g, sandbox.Request{ID: "y"})
	})
}

func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name     string
		patience time.Duration
		closeErr error
		callErr  error
	}{
		{"finishes what is inside", time.Minute, nil, nil},
		{"gives up the rest", time.Second, context.DeadlineExceeded, sandbox.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{}
				f.add("a:1", 2)
				g, err := gateway.New(t.Context(), gateway.Config{Nodes: []string{"a:1"}, Dial: f.dial})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				var calls sync.WaitGroup
				for i := range 8 { // two run, two lie on the node, four wait
					calls.Go(func() {
						if _, err := g.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint(i), Code: "5s"}); !errors.Is(err, c.callErr) {
							t.Errorf("got %v, want %v", err, c.callErr)
						}
					})
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), c.patience)
				defer cancel()
				calls.Go(func() {
					time.Sleep(time.Millisecond)
					if _, err := g.Execute(t.Context(), sandbox.Request{}); !errors.Is(err, sandbox.ErrUnavailable) || !g.Load().Draining {
						t.Errorf("while draining: got %v, want unavailable, and the load to say so", err)
					}
				})
				if err := g.Close(ctx); !errors.Is(err, c.closeErr) {
					t.Errorf("Close: got %v, want %v", err, c.closeErr)
				}
				calls.Wait()
			})
		})
	}
}

func TestDrainEndsCallsThatWaitForANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := gateway.New(t.Context(), gateway.Config{Dial: (&fleet{}).dial})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := g.Execute(t.Context(), sandbox.Request{})
			got <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		if err := <-got; !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("call: %v", err)
		}
	})
}

func TestDeadlineThatTheNodeSawFirstIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		n.answer = func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
			time.Sleep(995 * time.Millisecond)
			return sandbox.Result{}, context.DeadlineExceeded
		}
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Execute(ctx, sandbox.Request{ID: "x"})
		if s := g.Stats(); !errors.Is(err, context.DeadlineExceeded) || s.Totals.Retried != 0 || s.Nodes[0].LastError != "" {
			t.Errorf("got %v, stats %+v", err, s)
		}
	})
}

func TestOthersShareANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 10)
		n.announce(func(l *httpapi.Load) { l.Busy, l.Waiting = 6, 1 })
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Prefetch: -1})
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i), Code: "10s"}) })
		}
		synctest.Wait()
		if got := n.running(); got != 3 {
			t.Errorf("%d calls on a node with 3 free slots", got)
		}
		n.announce(func(l *httpapi.Load) { l.Busy, l.Waiting = 3, 0 }) // the others have left
		time.Sleep(200 * time.Millisecond)
		if got := n.running(); got != 10 {
			t.Errorf("%d calls after the others left, want 10", got)
		}
		calls.Wait()
	})
}

func TestNodeThatOthersFilledGetsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 10)
		n.announce(func(l *httpapi.Load) { l.Busy, l.Waiting = 10, 30 })
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Prefetch: -1})
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 3 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i), Code: "1s"}) })
		}
		synctest.Wait()
		if got := n.running(); got != 1 {
			t.Errorf("%d calls on a full node, want the one that keeps this gateway in", got)
		}
		calls.Wait()
	})
}

func TestOverloadedNodeCostsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 4)
		var refused atomic.Int32
		n.answer = func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
			if refused.Add(1) <= 10 {
				return sandbox.Result{}, &sandbox.Overloaded{Detail: "full", RetryAfter: 20 * time.Millisecond}
			}
			return sandbox.Result{ID: req.ID, Stdout: req.Stdin}, nil
		}
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		start := time.Now()
		must(t, g, sandbox.Request{ID: "x"})
		// Pauses of 50, 100, 200 ... ms, never a busy loop.
		if took := time.Since(start); took < 5*time.Second || took > time.Minute {
			t.Errorf("ten refusals took %v", took)
		}
		if s := g.Stats(); s.Nodes[0].Overloaded != 10 || s.Nodes[0].Deaths != 0 {
			t.Errorf("stats %+v", s.Nodes[0])
		}
	})
}

func TestRefusalsOfOneMomentAreOnePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 8)
		var refused atomic.Int32
		n.answer = func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
			time.Sleep(time.Millisecond)
			if refused.Add(1) <= 8 {
				return sandbox.Result{}, sandbox.ErrOverloaded
			}
			return sandbox.Result{ID: req.ID, Stdout: req.Stdin}, nil
		}
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		start := time.Now()
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i)}) })
		}
		calls.Wait()
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("eight refusals at once took %v", took)
		}
	})
}

// TestCallsOfTwoRunsHaveTheirOwnNames at a node: its answers are known by ids alone,
// and two runs may use the same ones.
func TestCallsOfTwoRunsHaveTheirOwnNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		node := f.add("a:1", 8)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		calls := []sandbox.Request{
			{ID: "same", Run: "a"}, {ID: "same", Run: "b"}, {ID: "same"},
			{ID: "b:same", Run: "a"}, {ID: "same", Run: "a:b"}, // as if one had been taken apart
			{ID: strings.Repeat("x", 256), Run: "a"}, {ID: strings.Repeat("x", 256), Run: "b"},
		}
		for _, req := range calls {
			must(t, g, req)
			must(t, g, req) // the same call again has the same name
		}
		names := map[string]bool{}
		for _, id := range node.ran(func(r sandbox.Request) string { return r.ID }) {
			names[id] = true
			if len(id) > 256 {
				t.Errorf("an id of %d bytes went to the node, which takes 256", len(id))
			}
		}
		if len(names) != len(calls) {
			t.Errorf("%d names for %d calls: %v", len(names), len(calls), names)
		}
	})
}

// TestAConflictIsAnAnswer: a node that refuses the id of a call works. The call is not
// repeated, and the node is not left alone for it.
func TestAConflictIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		n.answer = func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
			if req.Code == "other" {
				return sandbox.Result{}, sandbox.ErrConflict
			}
			return echo(ctx, req)
		}
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Prefetch: -1})
		synctest.Wait()
		if res, err := g.Execute(t.Context(), sandbox.Request{ID: "1", Code: "other"}); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("got %+v, %v, want %v", res, err, sandbox.ErrConflict)
		}
		start := time.Now()
		must(t, g, sandbox.Request{ID: "2"})
		if took := time.Since(start); took != 0 {
			t.Errorf("the next call waits %v for the node", took)
		}
		s := g.Stats()
		if s.Totals.Done != 2 || s.Totals.Retried != 0 || s.Totals.Admitted != 2 || s.Waiting+s.InFlight != 0 {
			t.Errorf("stats %+v", s.Totals)
		}
	})
}

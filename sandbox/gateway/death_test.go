package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
)

func TestCallsOfADeadNodeGoFirstAndElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		a, b := f.add("a:1", 3), f.add("b:1", 1)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1", "b:1"}, Prefetch: -1})
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i), Code: "1s"}) })
			synctest.Wait()
		}
		lost := a.ran(byID)
		a.kill()
		synctest.Wait()
		before := len(b.ran(byID))
		calls.Wait()
		if next := b.ran(byID)[before : before+3]; !slices.Equal(next, lost) {
			t.Errorf("after the death the other node ran %v, want the lost %v in their order", next, lost)
		}
		s := g.Stats()
		if s.Totals.Done != 10 || s.Totals.Retried != 3 || s.Nodes[0].Deaths != 1 || s.Nodes[0].Up || s.Nodes[0].LastError == "" {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestAnswerOfAnotherCallIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		a := f.add("a:1", 1)
		a.answer = func(context.Context, sandbox.Request) (sandbox.Result, error) {
			return sandbox.Result{ID: "somebody else's", Stdout: "secret"}, nil
		}
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		res, err := g.Execute(t.Context(), sandbox.Request{ID: "x"})
		if !errors.Is(err, sandbox.ErrUnavailable) || res.Stdout != "" || len(a.ran(byID)) != 3 {
			t.Errorf("got %+v, %v after %d attempts, want unavailable after 3", res, err, len(a.ran(byID)))
		}
	})
}

// TestLateAnswerIsDropped lets the lost attempt go on after the link is gone, as
// it does on a node that has only been cut off.
func TestLateAnswerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		a, b := f.add("a:1", 2), f.add("b:1", 1)
		late := make(chan struct{})
		a.answer = func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
			<-ctx.Done() // the gateway ends an attempt whose link is gone
			go func() {
				time.Sleep(time.Second)
				close(late)
			}()
			return sandbox.Result{}, ctx.Err()
		}
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		got := make(chan sandbox.Result, 2)
		go func() { got <- must(t, g, sandbox.Request{ID: "x", Code: "5s"}) }()
		synctest.Wait()
		join(t, g, "b:1")
		a.kill()
		<-late
		if len(got) != 0 {
			t.Error("the lost attempt has answered")
		}
		<-got
		if len(got) != 0 || len(a.ran(byID)) != 1 || len(b.ran(byID)) != 1 || g.Stats().Totals.Done != 1 {
			t.Errorf("attempts on a %v and b %v, stats %+v, want one each and one answer", a.ran(byID), b.ran(byID), g.Stats().Totals)
		}
	})
}

func TestPoisonIsAnsweredAndItsNeighboursAreNotBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		var addresses []string
		for i := range 3 {
			address := fmt.Sprintf("n%d:1", i)
			addresses = append(addresses, address)
			n := f.add(address, 8)
			n.answer = func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
				d := 500 * time.Millisecond
				if req.Code == "poison" {
					d = 100 * time.Millisecond
				}
				select {
				case <-time.After(d):
				case <-ctx.Done():
					return sandbox.Result{}, errBroken
				}
				if req.Code == "poison" {
					n.kill()
					n.revive()
					return sandbox.Result{}, errBroken
				}
				return sandbox.Result{ID: req.ID, Stdout: req.Stdin}, nil
			}
		}
		g := open(t, f, gateway.Config{Nodes: addresses})
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 30 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i)}) })
		}
		for i := range 2 {
			calls.Go(func() {
				res, err := g.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint("p", i), Code: "poison"})
				if err != nil || res.Status != sandbox.StatusKilled || res.ID != fmt.Sprint("p", i) || res.Reason == "" {
					t.Errorf("poison: got %+v, %v, want killed with a reason", res, err)
				}
			})
		}
		calls.Wait()
		if s := g.Stats().Totals; s.Killed != 2 || s.Done != 30 {
			t.Errorf("totals %+v", s)
		}
	})
}

func TestBrokenNodeThatAnswersIsUnavailableInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		a := f.add("a:1", 1)
		a.answer = func(context.Context, sandbox.Request) (sandbox.Result, error) {
			return sandbox.Result{}, fmt.Errorf("%w: no interpreter", sandbox.ErrUnavailable)
		}
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		if _, err := g.Execute(t.Context(), sandbox.Request{ID: "x"}); !errors.Is(err, sandbox.ErrUnavailable) || len(a.ran(byID)) != 3 {
			t.Errorf("got %v after %d attempts, want unavailable after 3", err, len(a.ran(byID)))
		}
		b := f.add("b:1", 1)
		join(t, g, "b:1")
		synctest.Wait()
		must(t, g, sandbox.Request{ID: "y"}) // another node is preferred
		if n := len(b.ran(byID)); n != 1 {
			t.Errorf("the good node ran %d calls, want 1", n)
		}
	})
}

func TestDrainingNodeFinishesAndGetsNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		a, b := f.add("a:1", 2), f.add("b:1", 2)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1", "b:1"}, Prefetch: -1})
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 12 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i), Code: "2s"}) })
		}
		synctest.Wait()
		a.announce(func(l *httpapi.Load) { l.Draining = true })
		calls.Wait()
		if x, y := len(a.ran(byID)), len(b.ran(byID)); x != 2 || y != 10 || g.Stats().Totals.Retried != 0 {
			t.Errorf("%d and %d calls ran, %d again, want 2, 10 and none", x, y, g.Stats().Totals.Retried)
		}
		a.kill() // it ends, as it said it would
		synctest.Wait()
		if d := g.Stats().Nodes[0].Deaths; d != 0 {
			t.Errorf("a drained node counts as %d deaths", d)
		}
	})
}

func TestNodesThatEndAsAnnouncedCostNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		g := open(t, f, gateway.Config{})
		var calls sync.WaitGroup
		calls.Go(func() { must(t, g, sandbox.Request{ID: "x", Code: "1s"}) })
		for i := range 9 {
			address := fmt.Sprintf("n%d:1", i)
			n := f.add(address, 1)
			join(t, g, address)
			synctest.Wait()
			if i%2 == 0 {
				n.announce(func(l *httpapi.Load) { l.Draining = true })
			} else {
				leave(t, g, address)
			}
			synctest.Wait()
			if i < 8 { // its drain time is over before the call is
				n.kill()
			}
			synctest.Wait()
		}
		calls.Wait()
		if s := g.Stats().Totals; s.Retried != 8 || s.Done != 1 {
			t.Errorf("totals %+v, want 8 repetitions", s)
		}
	})
}

func TestNodeJoinsAndLeavesUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		f.add("a:1", 2)
		b := f.add("b:1", 8)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Prefetch: -1})
		synctest.Wait()
		var calls sync.WaitGroup
		for i := range 100 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i), Code: "1s"}) })
		}
		synctest.Wait()
		if code := join(t, g, "http://B:1/"); code != http.StatusCreated {
			t.Errorf("join: status %d", code)
		}
		synctest.Wait()
		if n := b.running(); n != 8 {
			t.Errorf("the node that joined has %d of 92 waiting calls, want 8", n)
		}
		time.Sleep(1500 * time.Millisecond)
		if code := leave(t, g, "b:1"); code != http.StatusOK {
			t.Errorf("leave: status %d", code)
		}
		calls.Wait()
		if n := len(b.ran(byID)); n != 16 || g.Stats().Totals.Retried != 0 || len(g.Stats().Nodes) != 1 {
			t.Errorf("the node ran %d calls before it left, want 16 and none again: %+v", n, g.Stats())
		}
		if code := leave(t, g, "b:1"); code != http.StatusNotFound {
			t.Errorf("second leave: status %d", code)
		}
	})
}

func TestLeaseEndsWithSilenceAndWithoutAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		g := open(t, f, gateway.Config{})
		join(t, g, "a:1")
		time.Sleep(time.Minute) // silent, but the stream lives
		must(t, g, sandbox.Request{ID: "x"})
		join(t, g, "a:1")
		n.kill()
		for range 4 { // no stream, but not silent
			time.Sleep(gateway.Rejoin)
			if code := join(t, g, "a:1"); code != http.StatusOK {
				t.Errorf("renewal: status %d", code)
			}
		}
		time.Sleep(gateway.Lease - time.Second)
		if s := g.Stats(); len(s.Nodes) != 1 || !s.Nodes[0].Joined || s.Nodes[0].Up {
			t.Errorf("nodes %+v, want the silent one", s.Nodes)
		}
		time.Sleep(10 * time.Second)
		if s := g.Stats(); len(s.Nodes) != 0 {
			t.Errorf("nodes %+v, want none", s.Nodes)
		}
		if code := join(t, g, "a:1"); code != http.StatusCreated {
			t.Errorf("return: status %d", code)
		}
	})
}

// TestNodeThatSpeaksIsDialledAtOnce: the pauses that grew while it was away end with
// its word, and so does the wait of the calls.
func TestNodeThatSpeaksIsDialledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		g := open(t, f, gateway.Config{})
		join(t, g, "a:1")
		synctest.Wait()
		n.kill()
		time.Sleep(gateway.Lease - time.Second) // the next dial is seconds away
		n.revive()
		began := time.Now()
		join(t, g, "a:1")
		must(t, g, sandbox.Request{ID: "x"})
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("the node got its call after %v", took)
		}
	})
}

// TestEveryCallIsAnsweredOnceThroughDeathsAndJoins is the promise of the package
// under random trouble.
func TestEveryCallIsAnsweredOnceThroughDeathsAndJoins(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { trouble(t, rand.New(rand.NewPCG(seed, 7)), 10_000) })
		})
	}
}

func trouble(t *testing.T, random *rand.Rand, total int) {
	f := &fleet{}
	var nodes []*fakeNode
	var addresses []string
	for i := range 6 {
		addresses = append(addresses, fmt.Sprintf("n%d:1", i))
		nodes = append(nodes, f.add(addresses[i], 1+random.IntN(40)))
	}
	g := open(t, f, gateway.Config{Nodes: addresses[:3], Queue: total, Sessions: gateway.SessionLimits{Waiting: 64}})
	synctest.Wait()
	stop := make(chan struct{})
	var chaos, calls sync.WaitGroup
	chaos.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(random.IntN(300)) * time.Millisecond):
			}
			i := random.IntN(len(nodes))
			switch random.IntN(5) {
			case 0, 1:
				if i > 0 { // one stays
					nodes[i].kill()
				}
			case 2:
				leave(t, g, addresses[i])
				join(t, g, addresses[i])
			default:
				nodes[i].revive()
				join(t, g, addresses[i])
			}
		}
	})
	var mu sync.Mutex
	answers := make(map[string]int, total)
	for i := range total {
		req := sandbox.Request{ID: fmt.Sprint(i), Run: fmt.Sprint(i % 7), Code: fmt.Sprint(1+i%50, "ms"), Stdin: fmt.Sprint("in", i)}
		if i%10 == 0 {
			req.Session = fmt.Sprint("s", i%300)
		}
		calls.Go(func() {
			time.Sleep(time.Duration(i%3000) * time.Millisecond)
			res, err := g.Execute(t.Context(), req)
			// Three nodes in a row may die under one call: then it says so.
			if err != nil && !errors.Is(err, sandbox.ErrUnavailable) || err == nil && res.Status != sandbox.StatusKilled && res.Stdout != req.Stdin || err == nil && res.ID != req.ID {
				t.Errorf("call %s: got %+v, %v", req.ID, res, err)
			}
			mu.Lock()
			answers[req.ID]++
			mu.Unlock()
		})
	}
	calls.Wait()
	close(stop)
	chaos.Wait()
	s := g.Stats()
	if len(answers) != total || s.Totals.Done < int64(total)*99/100 || s.Totals.Retried == 0 {
		t.Errorf("%d of %d calls answered, totals %+v", len(answers), total, s.Totals)
	}
	if s.Waiting != 0 || s.InFlight != 0 || s.Bytes != 0 || len(s.Runs) != 0 || s.Totals.Admitted != int64(total) {
		t.Errorf("left inside after the end: %+v", s)
	}
	for i, n := range nodes {
		if most, bound := n.mostInFlight(), n.slots+2; most > bound {
			t.Errorf("node %d had %d calls in flight, want at most %d", i, most, bound)
		}
	}
}

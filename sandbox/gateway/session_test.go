package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/sandbox"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
)

// cells runs one cell after the other in a session.
func cells(t *testing.T, g sandbox.Executor, session string, codes ...string) {
	t.Helper()
	for _, code := range codes {
		if _, err := g.Execute(t.Context(), sandbox.Request{ID: session + code, Session: session, Code: code}); err != nil {
			t.Errorf("cell %s: %v", code, err)
		}
	}
}

// statuses answers a cell with the status that its code names; "exit" ends the
// session's kernel with an error.
func statuses(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
	status, _, _ := strings.Cut(req.Code, " ")
	if status == "exit" {
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusError, SessionEnded: true}, nil
	}
	return sandbox.Result{ID: req.ID, Status: sandbox.Status(status)}, nil
}

func TestSessionStaysAndMovesWithItsHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, move := range []struct {
			name string
			from func(*fakeNode)
		}{
			{"when its node dies", func(n *fakeNode) { n.kill() }},
			{"when its node drains", func(n *fakeNode) {
				n.announce(func(l *httpapi.Load) { l.Draining = true })
				time.Sleep(200 * time.Millisecond)
			}},
		} {
			f := &fleet{}
			a, b := f.add("a:1", 4), f.add("b:1", 4)
			a.answer, b.answer = statuses, statuses
			g := open(t, f, gateway.Config{Nodes: []string{"a:1", "b:1"}})
			synctest.Wait()
			cells(t, g, "s", "ok 1", "error 2", "time_limit 3", "exit 4", "killed 5", "ok 6")
			home, other := a, b
			if len(b.ran(byID)) > 0 {
				home, other = b, a
			}
			want := []string{"", "ok 1", "ok 1,error 2", "ok 1,error 2", "ok 1,error 2", "ok 1,error 2"}
			if diff := cmp.Diff(home.ran(byHistory), want); diff != "" {
				t.Errorf("%s: history at home (-got +want):\n%s", move.name, diff)
			}
			if n := len(other.ran(byID)); n != 0 {
				t.Errorf("%s: %d cells ran away from home", move.name, n)
			}
			move.from(home)
			synctest.Wait()
			cells(t, g, "s", "ok 7")
			if diff := cmp.Diff(other.ran(byHistory), []string{"ok 1,error 2,ok 6"}); diff != "" {
				t.Errorf("%s: history after the move (-got +want):\n%s", move.name, diff)
			}
			if s := g.Stats(); s.Totals.Moved != 1 || s.Sessions != 1 {
				t.Errorf("%s: stats %+v", move.name, s)
			}
		}
	})
}

func TestCellsOfASessionRunOneByOneInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 8)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		var calls sync.WaitGroup
		var want []string
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		for i := range 6 {
			id := fmt.Sprint(i)
			ctx := ctx
			if i != 3 { // the fourth is given up while it waits
				ctx = t.Context()
				want = append(want, id)
			}
			calls.Go(func() {
				_, err := g.Execute(ctx, sandbox.Request{ID: id, Session: "s", Code: "1s"})
				if (err != nil) != (i == 3) {
					t.Errorf("cell %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		if diff := cmp.Diff(n.ran(byID), want); diff != "" || n.mostInFlight() != 1 || time.Since(start) != 5*time.Second {
			t.Errorf("%d at once, %v in all, order (-got +want):\n%s", n.mostInFlight(), time.Since(start), diff)
		}
	})
}

func TestLostCellIsRepeatedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		a, b := f.add("a:1", 4), f.add("b:1", 4)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		cells(t, g, "s", "1ms", "2ms")
		join(t, g, "b:1")
		var calls sync.WaitGroup
		calls.Go(func() { cells(t, g, "s", "1s") })
		synctest.Wait()
		a.kill()
		calls.Wait()
		if diff := cmp.Diff(b.ran(byHistory), []string{"1ms,2ms"}); diff != "" {
			t.Errorf("history of the repeated cell (-got +want):\n%s", diff)
		}
		given := func(r sandbox.Request) string { return fmt.Sprint(r.History != nil) }
		if got := a.ran(given); got[0] != "true" {
			t.Error("the first cell does not say that its session begins")
		}
	})
}

func TestFullNodeDoesNotHoldUpOthersThanItsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		f.add("a:1", 1)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Prefetch: -1})
		synctest.Wait()
		cells(t, g, "s", "1ms")
		f.add("b:1", 1)
		join(t, g, "b:1")
		synctest.Wait()
		var calls sync.WaitGroup
		calls.Go(func() { cells(t, g, "t", "1ms", "1h") }) // b is the freer: it lives there
		synctest.Wait()
		time.Sleep(time.Second)
		calls.Go(func() { cells(t, g, "t", "1ms") }) // waits for its own session
		for i := range 5 {
			calls.Go(func() { must(t, g, sandbox.Request{ID: fmt.Sprint(i)}) })
		}
		start := time.Now()
		cells(t, g, "s", "3ms")
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("a session with a free node waited %v", took)
		}
		calls.Wait()
	})
}

func TestCallersHistoryIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		if _, err := g.Execute(t.Context(), sandbox.Request{ID: "1", Session: "s", Code: "1ms", History: []string{"h1", "h2"}}); err != nil {
			t.Fatal(err)
		}
		cells(t, g, "s", "2ms")
		if _, err := g.Execute(t.Context(), sandbox.Request{ID: "3", Session: "s", Code: "3ms", History: []string{}}); err != nil {
			t.Fatal(err)
		}
		cells(t, g, "s", "4ms")
		if diff := cmp.Diff(n.ran(byHistory), []string{"h1,h2", "h1,h2,1ms", "", "3ms"}); diff != "" {
			t.Errorf("histories (-got +want):\n%s", diff)
		}
	})
}

// TestInputsAreSentAlong with the history, unless a caller stated one without them.
func TestInputsAreSentAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		for i, req := range []sandbox.Request{
			{Code: "1ms", Stdin: "a"},
			{Code: "2ms"},
			{Code: "3ms", Stdin: "c"},
			{Code: "4ms", History: []string{"1ms", "2ms"}, HistoryStdin: []string{"x"}},
			{Code: "5ms"},
			{Code: "6ms", History: []string{"1ms"}},
			{Code: "7ms", Stdin: "d"},
			{Code: "8ms", History: []string{}},
		} {
			req.ID, req.Session = fmt.Sprint(i), "s"
			if _, err := g.Execute(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{`[]`, `["a"]`, `["a" ""]`, `["x" ""]`, `["x" "" ""]`, `[]`, `[]`, `[]`}
		if diff := cmp.Diff(n.ran(byInputs), want); diff != "" {
			t.Errorf("inputs (-got +want):\n%s", diff)
		}
		if known := n.ran(func(r sandbox.Request) string { return fmt.Sprint(r.HistoryStdin != nil) }); known[5] != "false" || known[6] != "false" || known[7] != "true" {
			t.Errorf("inputs are known: %v", known)
		}
	})
}

func TestCellsThatWaitForTheirSessionAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 8)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Sessions: gateway.SessionLimits{Waiting: 2}})
		synctest.Wait()
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() { cells(t, g, "s", "1s") })
		}
		synctest.Wait()
		if _, err := g.Execute(t.Context(), sandbox.Request{ID: "x", Session: "s"}); !errors.Is(err, sandbox.ErrOverloaded) {
			t.Errorf("third waiting cell: got %v, want an overload", err)
		}
		// The session of another run is another session.
		if _, err := g.Execute(t.Context(), sandbox.Request{ID: "y", Run: "r", Session: "s"}); err != nil {
			t.Error(err)
		}
		if !g.CloseSession("r", "s") || g.Stats().Sessions != 1 {
			t.Error("the other run's session did not end alone")
		}
		synctest.Wait()
		if diff := cmp.Diff(n.closed, []string{"r|s"}); diff != "" {
			t.Errorf("sessions ended on the node (-got +want):\n%s", diff)
		}
		calls.Wait()
	})
}

func TestSessionLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 1)
		g := open(t, f, gateway.Config{Nodes: []string{"a:1"}, Sessions: gateway.SessionLimits{
			Count: 2, Cells: 2, CellBytes: 20, Waiting: 1, Idle: time.Minute,
		}})
		synctest.Wait()
		refused := func(session, code, reason string) {
			t.Helper()
			res, err := g.Execute(t.Context(), sandbox.Request{ID: "x", Session: session, Code: code})
			if err != nil || res.Status != sandbox.StatusRefused || !strings.Contains(res.Reason, reason) || res.ID != "x" {
				t.Errorf("got %+v, %v, want refused with %q", res, err, reason)
			}
		}
		cells(t, g, "s", "1ms", "2ms")
		refused("s", "3ms", "2 cells, the limit")
		refused("t", strings.Repeat("x", 21), "limit of 20")
		cells(t, g, "t", "1ms")
		_, err := g.Execute(t.Context(), sandbox.Request{ID: "y", Session: "u", Code: "1ms"})
		if !errors.Is(err, sandbox.ErrOverloaded) {
			t.Errorf("third session of two: got %v, want an overload", err)
		}
		time.Sleep(30 * time.Second)
		cells(t, g, "t", "2ms")
		time.Sleep(31 * time.Second)
		cells(t, g, "u", "1ms") // s is idle for a minute, t is not
		if s := g.Stats(); s.Sessions != 2 || s.SessionBytes != 9 {
			t.Errorf("%d sessions with %d bytes, want 2 with 9", s.Sessions, s.SessionBytes)
		}
		refused("t", "3ms", "2 cells")
		if g.CloseSession("r", "t") || !g.CloseSession("", "t") || g.CloseSession("", "t") {
			t.Error("a session did not end once")
		}
		synctest.Wait()
		if diff := cmp.Diff(n.closed, []string{"|t"}); diff != "" {
			t.Errorf("sessions ended on the node (-got +want):\n%s", diff)
		}
		cells(t, g, "t", "1ms")
	})
}

// TestAGatewayThatForgot: one that was started anew does not know the sessions of the one
// before. It says so, and never runs a cell as if it were the first.
func TestAGatewayThatForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		n := f.add("a:1", 4)
		n.answer = statuses
		one := 1
		call := func(g sandbox.Executor, code string, expected *int) (sandbox.Result, error) {
			return g.Execute(t.Context(), sandbox.Request{ID: code, Session: "s", Code: code, SessionCells: expected})
		}
		before := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		if res, err := call(before, "ok 1", nil); err != nil || !res.SessionNew {
			t.Errorf("the first cell: %+v, %v, want session_new", res, err)
		}
		if res, err := call(before, "ok 2", &one); err != nil || res.SessionNew {
			t.Errorf("the second cell: %+v, %v", res, err)
		}
		after := open(t, f, gateway.Config{Nodes: []string{"a:1"}})
		synctest.Wait()
		seen := len(n.ran(byID))
		if res, err := call(after, "ok 3", &one); !errors.Is(err, sandbox.ErrSessionLost) {
			t.Errorf("a cell that counts on another: %+v, %v", res, err)
		}
		if len(n.ran(byID)) != seen || after.Stats().Sessions != 0 {
			t.Errorf("the lost cell ran, or its session is kept: %+v", after.Stats())
		}
		if res, err := call(after, "ok 4", nil); err != nil || !res.SessionNew {
			t.Errorf("a cell that says nothing: %+v, %v, want session_new", res, err)
		}
	})
}

// TestALostSessionIsNotTriedAgain: what a node says of a session is final.
func TestALostSessionIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		for _, name := range []string{"a:1", "b:1"} {
			f.add(name, 4).answer = func(context.Context, sandbox.Request) (sandbox.Result, error) {
				return sandbox.Result{}, fmt.Errorf("%w: for a test", sandbox.ErrSessionLost)
			}
		}
		g := open(t, f, gateway.Config{Nodes: []string{"a:1", "b:1"}})
		synctest.Wait()
		_, err := g.Execute(t.Context(), sandbox.Request{ID: "1", Session: "s", Code: "x"})
		if !errors.Is(err, sandbox.ErrSessionLost) || errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("got error %v", err)
		}
		if a, b := f.nodes["a:1"].ran(byID), f.nodes["b:1"].ran(byID); len(a)+len(b) != 1 {
			t.Errorf("%d tries, want 1", len(a)+len(b))
		}
	})
}

// TestBranchesGoWhereTheirParentIs, with its cells, their inputs and times.
func TestBranchesGoWhereTheirParentIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		a, b := f.add("a:1", 4), f.add("b:1", 4)
		a.answer, b.answer = statuses, statuses
		g := open(t, f, gateway.Config{Nodes: []string{"a:1", "b:1"}})
		synctest.Wait()
		cells(t, g, "s", "ok 1", "ok 2")
		home := a
		if len(b.ran(byID)) > 0 {
			home = b
		}
		for i := range 4 {
			res, err := g.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint(i), Session: fmt.Sprint("branch", i), BranchOf: "s", Code: "ok 3"})
			if err != nil || res.SessionNew {
				t.Fatalf("branch %d: %+v, %v", i, res, err)
			}
		}
		if got := len(home.ran(byID)); got != 6 {
			t.Errorf("%d calls ran at home, want 6", got)
		}
		last := home.seen[len(home.seen)-1]
		if diff := cmp.Diff(last.History, []string{"ok 1", "ok 2"}); diff != "" || last.BranchOf != "s" || len(last.HistoryTimes) != 2 {
			t.Errorf("the call of a branch: %+v (-got +want)\n%s", last, diff)
		}
		cells(t, g, "branch0", "ok 4")
		if got := home.ran(byHistory); got[len(got)-1] != "ok 1,ok 2,ok 3" {
			t.Errorf("the next cell of a branch has the history %q", got[len(got)-1])
		}
		if res, err := g.Execute(t.Context(), sandbox.Request{ID: "x", Session: "branch0", BranchOf: "s", Code: "ok 3"}); err != nil || res.Status != sandbox.StatusRefused {
			t.Errorf("a branch that exists: %+v, %v", res, err)
		}
		if _, err := g.Execute(t.Context(), sandbox.Request{ID: "y", Session: "new", BranchOf: "nobody", Code: "ok 3"}); !errors.Is(err, sandbox.ErrSessionLost) {
			t.Errorf("a branch of nobody: %v", err)
		}
	})
}
